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
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "federator:", err)
		os.Exit(exit.Code(err))
	}
}
