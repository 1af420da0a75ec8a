package actions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/hubrequests"
)

const approveHelp = `Approve what a FleetPolicy would write, or a commit of a PolicySource.

Review it first: federator actions plan POLICY shows what a Plan has. Then name it: by its
hash or its name (--plan, --rollback), by the id of a halt (--halt), by the version in
shadow that federator policy history POLICY shows, whose shadow ends then (--version), or by
the full hash of a commit that changes more verdicts than spec.maxDiff of its PolicySource,
or is in shadow (--commit).

The hub must grant you the verb approve on the FleetPolicy or PolicySource. The Approval
names you and your groups, and the hub denies it under any other name. It is an object:
kubectl delete approval NAME withdraws it.

  federator actions approve replicas --plan replicas-0123456789abcdef --reason "see change 4711"
  federator actions approve replicas --halt 0123456789ab --reason "expected, we moved a team"
  federator actions approve --source platform --commit 0123…cdef --reason reviewed`

// approve are the flags of `federator actions approve`.
type approve struct {
	source                                string
	plan, halt, rollback, version, commit string

	reason           string
	expires, timeout time.Duration
}

func approveCommand(f *hubFlags) *cobra.Command {
	var a approve
	cmd := &cobra.Command{
		Use:   "approve [POLICY]",
		Short: "Approve a plan, a halt, a rollback or a version of a FleetPolicy, or a commit of a PolicySource",
		Long:  approveHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.validate(args); err != nil {
				return exit.BadInput(err)
			}
			c, err := f.open()
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), c, strings.Join(args, ""), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&a.plan, "plan", "", "`hash` or name of a Plan of a new generation or an amendment")
	flags.StringVar(&a.halt, "halt", "", "`id` of a halt: status.halted.id of the FleetPolicy")
	flags.StringVar(&a.rollback, "rollback", "", "`hash` or name of a Plan of a rollback")
	flags.StringVar(&a.version, "version", "", "`digest` of the version in shadow, or its first 12 digits")
	flags.StringVar(&a.source, "source", "", "`PolicySource` of the commit")
	flags.StringVar(&a.commit, "commit", "", "full `hash` of a commit of --source that is beyond spec.maxDiff, or in shadow")
	flags.StringVar(&a.reason, "reason", "", "`reason` for the Approval; required")
	flags.DurationVar(&a.expires, "expires", 24*time.Hour, "`duration` after which the Approval does not count any more; validFor of the policy may end it earlier")
	flags.DurationVar(&a.timeout, "timeout", 30*time.Second, "how long to wait until federator has decided whether it counts")
	cmd.MarkFlagsMutuallyExclusive("plan", "halt", "rollback", "version", "commit")
	cmd.MarkFlagsOneRequired("plan", "halt", "rollback", "version", "commit")
	cmd.MarkFlagsRequiredTogether("source", "commit")
	return cmd
}

func (a *approve) validate(args []string) error {
	switch {
	case a.source == "" && len(args) != 1:
		return errors.New("name the FleetPolicy, or --source and --commit")
	case a.source != "" && len(args) != 0:
		return errors.New("an Approval is of a FleetPolicy or of a PolicySource: omit POLICY, or --source and --commit")
	case strings.TrimSpace(a.reason) == "":
		return errors.New("--reason is required: why is this approved?")
	case a.expires <= 0:
		return fmt.Errorf("--expires %s must be above 0", a.expires)
	case a.timeout < 0:
		return fmt.Errorf("--timeout %s must not be negative", a.timeout)
	}
	return nil
}

func (a *approve) run(ctx context.Context, c *hubClient, policy string, out io.Writer) error {
	made, what, err := c.Approve(ctx, &hubrequests.Approval{
		FleetPolicy: policy, Plan: a.plan, Halt: a.halt, Rollback: a.rollback, Version: a.version, PolicySource: a.source, Commit: a.commit,
		Reason: a.reason, Expires: time.Now().Add(a.expires),
	})
	if err != nil {
		return badInput(err)
	}
	if _, err := fmt.Fprintf(out, "approval %s: %s approves %s until %s\n", made.Name, console.Printable(string(made.Spec.By)), console.Printable(what), made.Spec.Expires.UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	return a.decision(ctx, c, made.Name, out)
}

// badInput marks errors of what the user asks for.
func badInput(err error) error {
	if errors.Is(err, hubrequests.ErrInput) {
		return exit.BadInput(err)
	}
	return err
}

// decision waits until federator has decided whether an Approval counts.
func (a *approve) decision(ctx context.Context, c *hubClient, name string, out io.Writer) error {
	if a.timeout == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, hubrequests.ErrTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		g := &v1alpha1.Approval{}
		switch err := hubrequests.Do(ctx, c.Objects("GET", v1alpha1.Approvals, name), g); {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("approval %q was withdrawn", name)
		case err == nil && g.Status.State == v1alpha1.ApprovalCounts:
			_, err := fmt.Fprintln(out, "it counts")
			return err
		case err == nil && g.Status.State != "":
			return fmt.Errorf("approval %q is %s: %s: %s", name, g.Status.State, g.Status.Reason, console.Printable(g.Status.Message))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("approval %q: %w whether it counts; it stays (is federator running, with policies.hub?)", name, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
