package actions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/hub"
)

const rollbackHelp = `Take an Action back: the target's content is again what it was before.

The process that acts does it, by the same guarded path as every correction, and
records it as an Action of its own. It is refused where the target has changed since,
unless forced; where the Action cannot be taken back; and while all actions are
stopped. Limits, windows, halts and suspension of the policy do not keep it from being
done. The policy judges on: what violates it is corrected again.`

// rollback are the flags of `federator actions rollback`.
type rollback struct {
	force   bool
	reason  string
	timeout time.Duration
}

func rollbackCommand(f *hubFlags) *cobra.Command {
	var r rollback
	cmd := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Take an Action back",
		Long:  rollbackHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.timeout <= 0 {
				return exit.BadInput(fmt.Errorf("--timeout %s must be above 0", r.timeout))
			}
			c, err := f.open()
			if err != nil {
				return err
			}
			return r.run(cmd.Context(), c, actionName(args[0]), cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&r.force, "force", false, "even where the target has changed since, and others own its fields")
	cmd.Flags().StringVar(&r.reason, "reason", "", "`why`, for those who read it")
	cmd.Flags().DurationVar(&r.timeout, "timeout", 30*time.Second, "how long to wait for an answer; then the request is withdrawn")
	return cmd
}

func (r *rollback) run(ctx context.Context, c *hubClient, name string, out io.Writer) error {
	a, err := c.action(ctx, name)
	if err != nil {
		return err
	}
	if a.Status.Phase == v1alpha1.PhaseRolledBack {
		return fmt.Errorf("action %q has been taken back already, %s", name, console.Printable(a.Status.Message))
	}
	how := api.RollbackValue
	if r.force {
		how = api.RollbackForce
	}
	notes := map[string]any{api.RollbackOutcomeKey: nil, api.RollbackReasonKey: nil}
	if r.reason != "" {
		notes[api.RollbackReasonKey] = console.Printable(r.reason)
	}
	if err := c.relabel(ctx, a.Name, c.me(ctx), how, notes); err != nil {
		return err
	}
	outcome, err := c.outcome(ctx, a.Name, r.timeout)
	if err != nil {
		return err
	}
	word, message, _ := strings.Cut(outcome, " ")
	if word != hub.RollbackSucceeded {
		return fmt.Errorf("action %q is not taken back: %s: %s", name, word, console.Printable(message))
	}
	if _, err := fmt.Fprintf(out, "%s is taken back %s\n", name, console.Printable(message)); err != nil {
		return err
	}
	return c.hint(ctx, a, out)
}

var errTimeout = errors.New("nobody has answered in time")
