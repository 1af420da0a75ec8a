package actions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
)

const rollbackHelp = `Roll back an Action: restore the target's content from before it. With --policy, roll back
what a FleetPolicy has written in a time span, or with a commit.

The leader rolls back with the same guarded write as every correction, and records an
Action for it. A rollback is refused if the target has changed since, unless forced; if
the Action is irreversible; and while all actions are stopped. Limits, windows, halts
and suspension of the policy do not apply. What the Action has not set does not count as a
change, unless the object would be deleted. --dry-run and show say what a rollback cannot
restore. The policy is still evaluated: a target that
violates it again is corrected again.

With --policy it shows what would be rolled back, asks, and creates a Rollback in your name; the
hub must grant you the verb rollback on the FleetPolicy. Federator freezes a Plan of it, which
waits for approval where the policy requires that, and nothing is written before the policy would
not write the same again: it is suspended, stopped, halted or was changed. Without --while-stopped
the Rollback waits for stops to end. kubectl delete rollback NAME ends one.

  federator actions rollback --policy replicas --since 1h --reason "it breaks the shop"
  federator actions rollback --policy replicas --commit 0123…cdef --while-stopped --yes --wait --reason "incident 4711"`

// rollback are the flags of `federator actions rollback`.
type rollback struct {
	force   bool
	dryRun  bool
	reason  string
	timeout time.Duration
	bulk    bulk
}

func rollbackCommand(f *hubFlags) *cobra.Command {
	var r rollback
	cmd := &cobra.Command{
		Use:   "rollback [NAME]",
		Short: "Roll back an Action, or what a FleetPolicy has written",
		Long:  rollbackHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var spec v1alpha1.RollbackSpec
			err := r.validate(args)
			if err == nil && r.bulk.policy != "" {
				spec, err = r.bulk.selection(time.Now())
			}
			if err != nil {
				return exit.BadInput(err)
			}
			c, err := f.open()
			if err != nil {
				return err
			}
			if r.bulk.policy != "" {
				return r.runBulk(cmd.Context(), c, spec, cmd.InOrStdin(), cmd.OutOrStdout())
			}
			return r.run(cmd.Context(), c, actionName(args[0]), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&r.force, "force", false, "roll back even if the target has changed since or others own its fields")
	flags.BoolVar(&r.dryRun, "dry-run", false, "only show what would be restored, and what would not be")
	flags.StringVar(&r.reason, "reason", "", "`reason` that is shown with it; required with --policy")
	flags.DurationVar(&r.timeout, "timeout", 30*time.Second, "how long to wait for the outcome; then the request is withdrawn, but a Rollback goes on")
	flags.StringVar(&r.bulk.policy, "policy", "", "`FleetPolicy` whose Actions are rolled back")
	flags.StringVar(&r.bulk.since, "since", "", "roll back what was written since a `time`, or within a duration such as 1h")
	flags.StringVar(&r.bulk.until, "until", "", "roll back what was written before a `time`, or longer ago than a duration")
	flags.StringVar(&r.bulk.commit, "commit", "", "roll back what was written with a commit: its full `hash`")
	flags.BoolVar(&r.bulk.whileStopped, "while-stopped", false, "roll back although writes are stopped")
	flags.BoolVar(&r.bulk.yes, "yes", false, "do not ask")
	flags.BoolVar(&r.bulk.wait, "wait", false, "wait until the Rollback has ended")
	return cmd
}

func (r *rollback) validate(args []string) error {
	b := &r.bulk
	switch {
	case r.timeout <= 0:
		return fmt.Errorf("--timeout %s must be above 0", r.timeout)
	case b.policy != "" && len(args) > 0:
		return fmt.Errorf("either the Action %q or --policy %q", args[0], b.policy)
	case b.policy == "" && len(args) == 0:
		return errors.New("name the Action, or --policy with --since or --commit")
	case b.policy == "" && *b != (bulk{}):
		return errors.New("--since, --until, --commit, --while-stopped, --yes and --wait need --policy")
	case b.policy != "" && !r.dryRun && strings.TrimSpace(r.reason) == "":
		return errors.New("--reason is required with --policy: why is this rolled back?")
	}
	return nil
}

func (r *rollback) run(ctx context.Context, c *hubClient, name string, out io.Writer) error {
	a, err := c.Action(ctx, name)
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
	message, err := c.RollbackAction(ctx, a, r.reason, r.force, r.timeout)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s is rolled back %s\n", name, message); err != nil {
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

// hint warns if the policy would correct the target again.
func (c *hubClient) hint(ctx context.Context, a *v1alpha1.Action, out io.Writer) error {
	fp, err := c.Policy(ctx, a.Spec.Binding)
	if err != nil || fp.Spec.Mode != v1alpha1.Enforce || fp.Spec.Suspend || a.Spec.RollbackOf != "" {
		return nil // It is a hint.
	}
	_, err = fmt.Fprintf(out, `FleetPolicy %s still enforces: if the target violates it again, it is corrected again.
To prevent that, suspend the policy, exempt the target in it, or protect the target on the member:
  kubectl patch fleetpolicy %s --type merge -p '{"spec":{"suspend":true}}'
`, fp.Name, fp.Name)
	return err
}
