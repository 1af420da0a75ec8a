// Command kubebuild builds the control-plane binaries that tests run, once,
// and prints the directory that holds them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"federator.dev/federator/test/kube/assets"
)

func main() {
	dir := flag.String("dir", "", "directory to build into (default: below the user's cache directory)")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: kubebuild [-dir DIR] [BINARY...]\nBinaries: %v\n", assets.All())
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a, err := assets.Ensure(ctx, assets.Options{Dir: *dir, Progress: os.Stderr}, flag.Args()...)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubebuild:", err)
		os.Exit(1)
	}
	fmt.Println(a.Dir)
}
