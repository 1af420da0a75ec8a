package execplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/exit"
)

// defaultTimeout is how long an exec plugin may take: a log-in over the network, without
// interaction.
const defaultTimeout = 30 * time.Second

const Name = "exec-plugin"

// Command returns the command that client-go is given to run instead of a
// context's exec plugin, which it runs without a deadline.
func Command() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:    Name + " [--timeout D] -- COMMAND [ARG]...",
		Short:  "Run an exec plugin of a kubeconfig, and end it with all processes that it has started",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("killed after %s (timeout)", timeout))
			defer cancel()
			return run(ctx, args)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", defaultTimeout, "how long it may take")
	return cmd
}

// run runs a command in a process group of its own, without standard input, and
// ends the group with it: what a plugin leaves behind holds our standard output open.
func run(ctx context.Context, command []string) error {
	plugin := exec.Command(command[0], command[1:]...) // The user's own kubeconfig names it; its group is ended with ctx.
	plugin.Stdout, plugin.Stderr = os.Stdout, os.Stderr
	ownGroup(plugin)
	if err := plugin.Start(); err != nil {
		return fmt.Errorf("exec plugin: %w", err)
	}
	ended := context.AfterFunc(ctx, func() { killGroup(plugin) })
	err := plugin.Wait()
	ended()
	killGroup(plugin)
	var status *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("exec plugin %q: %w", command[0], context.Cause(ctx))
	case errors.As(err, &status) && status.ExitCode() > 0:
		return exit.WithCode(fmt.Errorf("exec plugin %q: %w", command[0], err), status.ExitCode())
	}
	return fmt.Errorf("exec plugin %q: %w", command[0], err)
}

// Runner is the command line that exec plugins are run by.
func Runner() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("exec plugins: %w", err)
	}
	return []string{self, Name, "--timeout=" + defaultTimeout.String(), "--"}, nil
}
