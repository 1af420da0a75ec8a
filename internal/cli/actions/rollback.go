package actions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/hub"
)

const rollbackHelp = `Roll back an Action: restore the target's content from before it.

The leader rolls back with the same guarded write as every correction, and records an
Action for it. A rollback is refused if the target has changed since, unless forced; if
the Action is irreversible; and while all actions are stopped. Limits, windows, halts
and suspension of the policy do not apply. What the Action has not set does not count as a
change, unless the object would be deleted. --dry-run and show say what a rollback cannot
restore. The policy is still evaluated: a target that
violates it again is corrected again.`

// rollback are the flags of `federator actions rollback`.
type rollback struct {
	force   bool
	dryRun  bool
	reason  string
	timeout time.Duration
}

func rollbackCommand(f *hubFlags) *cobra.Command {
	var r rollback
	cmd := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Roll back an Action",
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
	cmd.Flags().BoolVar(&r.force, "force", false, "roll back even if the target has changed since or others own its fields")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "only show what would be restored, and what would not be")
	cmd.Flags().StringVar(&r.reason, "reason", "", "`reason` that is shown with it")
	cmd.Flags().DurationVar(&r.timeout, "timeout", 30*time.Second, "how long to wait for the outcome; then the request is withdrawn")
	return cmd
}

func (r *rollback) run(ctx context.Context, c *hubClient, name string, out io.Writer) error {
	a, err := c.action(ctx, name)
	if err != nil {
		return err
	}
	if a.Status.Phase == v1alpha1.PhaseRolledBack {
		return fmt.Errorf("action %q is already rolled back, %s", name, console.Printable(a.Status.Message))
	}
	if r.dryRun {
		_, err := out.Write(rollbackPlan(a, console.Colored(out)))
		return err
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
		return fmt.Errorf("action %q: rollback %s: %s", name, word, console.Printable(message))
	}
	if _, err := fmt.Fprintf(out, "%s is rolled back %s\n", name, console.Printable(message)); err != nil {
		return err
	}
	return c.hint(ctx, a, out)
}

// rollbackPlan says what a rollback would do. Whether the target has changed since, the
// leader finds out when it is asked for.
func rollbackPlan(a *v1alpha1.Action, color bool) []byte {
	var b bytes.Buffer
	t := &a.Spec.Target
	what := fmt.Sprintf("%s %s in %s", t.Kind, strings.Trim(t.Namespace+"/"+t.Name, "/"), t.Member)
	switch i := a.Inverse; {
	case a.Status.Phase != v1alpha1.PhaseSucceeded:
		fmt.Fprintf(&b, "%s cannot be rolled back: it is %s\n", a.Name, a.Status.Phase)
		return b.Bytes()
	case i == nil || i.Verb == "":
		why := "its inverse is not recorded"
		if i != nil && i.Irreversible != "" {
			why = i.Irreversible
		}
		fmt.Fprintf(&b, "%s cannot be rolled back: %s\n", a.Name, console.Printable(why))
		return b.Bytes()
	case i.Verb == v1alpha1.Delete:
		fmt.Fprintf(&b, "would delete %s\n", what)
	case i.Verb == v1alpha1.Apply:
		fmt.Fprintf(&b, "would make %s again\n", what)
	default:
		fmt.Fprintf(&b, "would patch %s, so that the lines with + become those with -\n", what)
	}
	writeChange(&b, a, color)
	return b.Bytes()
}

var errTimeout = errors.New("timed out waiting for the outcome")

// relabel requests a rollback, or withdraws the request with nil.
func (c *hubClient) relabel(ctx context.Context, name, by string, how any, notes map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{api.RollbackKey: how}, "annotations": notes}})
	if err != nil {
		return err
	}
	err = c.objects("PATCH", v1alpha1.Actions, name).SetHeader("Content-Type", string(types.MergePatchType)).
		Param("fieldManager", by).Body(body).Do(ctx).Error()
	if err != nil {
		return c.explain(err, "action", name)
	}
	return nil
}

// outcome waits for the outcome of a request, and withdraws it on timeout.
func (c *hubClient) outcome(ctx context.Context, name string, timeout time.Duration) (string, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := c.action(waiting, name)
		if err == nil {
			if text := a.Annotations[api.RollbackOutcomeKey]; text != "" {
				return text, nil
			}
			if a.Labels[api.RollbackKey] == "" {
				return "", fmt.Errorf("action %q: the request was withdrawn by another client", name)
			}
		}
		if waiting.Err() == nil {
			select {
			case <-waiting.Done():
			case <-tick.C:
				continue // also after an error: the request must not stay
			}
		}
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		cause := fmt.Errorf("action %q: %w", name, context.Cause(waiting))
		if err := c.relabel(late, name, "federator-actions", nil, map[string]any{api.RollbackReasonKey: nil}); err != nil {
			return "", errors.Join(cause, fmt.Errorf("withdrawing the request failed: %w", err))
		}
		return "", fmt.Errorf("%w; the request is withdrawn (is federator running, with policies.hub?)", cause)
	}
}

// hint warns if the policy would correct the target again.
func (c *hubClient) hint(ctx context.Context, a *v1alpha1.Action, out io.Writer) error {
	fp, err := c.policy(ctx, a.Spec.Binding)
	if err != nil || fp.Spec.Mode != v1alpha1.Enforce || fp.Spec.Suspend || a.Spec.RollbackOf != "" {
		return nil // It is a hint.
	}
	_, err = fmt.Fprintf(out, `FleetPolicy %s still enforces: if the target violates it again, it is corrected again.
To prevent that, suspend the policy, exempt the target in it, or protect the target on the member:
  kubectl patch fleetpolicy %s --type merge -p '{"spec":{"suspend":true}}'
`, fp.Name, fp.Name)
	return err
}
