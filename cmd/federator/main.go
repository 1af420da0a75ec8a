package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"federator.dev/federator/internal/exit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // a second signal ends the process at once
	}()
	root, args := commandOf(os.Args)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, root.DisplayName()+":", err)
		os.Exit(exit.Code(err))
	}
}
