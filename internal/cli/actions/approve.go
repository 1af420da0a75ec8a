package actions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
)

const approveHelp = `Approve what a FleetPolicy would write, or a commit of a PolicySource.

Review it first: federator actions plan POLICY shows what a Plan has. Then name it: by its
hash or its name (--plan, --rollback), by the id of a halt (--halt), or by the full hash of
a commit that changes more verdicts than spec.maxDiff of its PolicySource (--commit).

The hub must grant you the verb approve on the FleetPolicy or PolicySource. The Approval
names you and your groups, and the hub denies it under any other name. It is an object:
kubectl delete approval NAME withdraws it.

  federator actions approve replicas --plan replicas-0123456789abcdef --reason "see change 4711"
  federator actions approve replicas --halt 0123456789ab --reason "expected, we moved a team"
  federator actions approve --source platform --commit 0123…cdef --reason reviewed`

// approve are the flags of `federator actions approve`.
type approve struct {
	source                       string
	plan, halt, rollback, commit string

	reason           string
	expires, timeout time.Duration
}

// maxGroups is how many groups an Approval may name, as in the CRD.
const maxGroups = 50

func approveCommand(f *hubFlags) *cobra.Command {
	var a approve
	cmd := &cobra.Command{
		Use:   "approve [POLICY]",
		Short: "Approve a plan, a halt or a rollback of a FleetPolicy, or a commit of a PolicySource",
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
	flags.StringVar(&a.source, "source", "", "`PolicySource` of the commit")
	flags.StringVar(&a.commit, "commit", "", "full `hash` of a commit beyond spec.maxDiff of --source")
	flags.StringVar(&a.reason, "reason", "", "`reason` for the Approval; required")
	flags.DurationVar(&a.expires, "expires", 24*time.Hour, "`duration` after which the Approval does not count any more; validFor of the policy may end it earlier")
	flags.DurationVar(&a.timeout, "timeout", 30*time.Second, "how long to wait until federator has decided whether it counts")
	cmd.MarkFlagsMutuallyExclusive("plan", "halt", "rollback", "commit")
	cmd.MarkFlagsOneRequired("plan", "halt", "rollback", "commit")
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
	me, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking the hub who you are: %w", err)
	}
	given := &v1alpha1.Approval{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "Approval"},
		Spec:     v1alpha1.ApprovalSpec{Reason: a.reason, By: v1alpha1.UserName(me.Status.UserInfo.Username), Expires: metav1.NewTime(time.Now().Add(a.expires).Truncate(time.Second))},
	}
	what, required, err := a.name(ctx, c, policy, &given.Spec)
	if err != nil {
		return err
	}
	given.GenerateName = string(given.Spec.FleetPolicy) + given.Spec.PolicySource + "-"
	given.Spec.Groups = groupsToName(me.Status.UserInfo.Groups, required)
	body, err := json.Marshal(given)
	if err != nil {
		return err
	}
	made := &v1alpha1.Approval{}
	if err := do(ctx, c.objects("POST", v1alpha1.Approvals).SetHeader("Content-Type", "application/json").Body(body), made); err != nil {
		return fmt.Errorf("approving %s: %w", what, err)
	}
	if _, err := fmt.Fprintf(out, "approval %s: %s approves %s until %s\n", made.Name, console.Printable(string(made.Spec.By)), console.Printable(what), made.Spec.Expires.UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	return a.decision(ctx, c, made.Name, out)
}

// name completes what is approved, and returns what that is and which groups are required.
func (a *approve) name(ctx context.Context, c *hubClient, policy string, spec *v1alpha1.ApprovalSpec) (what string, required []v1alpha1.GroupName, err error) {
	if a.source != "" {
		spec.PolicySource, spec.Commit = a.source, v1alpha1.CommitHash(a.commit)
		ps := &v1alpha1.PolicySource{}
		if err := do(ctx, c.objects("GET", v1alpha1.PolicySources, a.source), ps); err != nil {
			return "", nil, c.explain(err, "PolicySource", a.source)
		}
		if r := ps.Spec.Ceiling.Approval; r != nil {
			required = r.Groups
		}
		return fmt.Sprintf("commit %s of PolicySource %s", a.commit, a.source), required, nil
	}
	fp, err := c.policy(ctx, policy)
	if err != nil {
		return "", nil, err
	}
	if r := fp.Spec.Approval; r != nil {
		required = r.Groups
	}
	spec.FleetPolicy = v1alpha1.PolicyName(policy)
	if a.halt != "" {
		spec.Halt = a.halt
		return fmt.Sprintf("halt %s of FleetPolicy %s", a.halt, policy), required, nil
	}
	plan, err := c.plan(ctx, policy, a.plan+a.rollback)
	if err != nil {
		return "", nil, err
	}
	switch rollback := plan.Spec.Purpose == v1alpha1.PlanRollback; {
	case plan.Spec.Purpose == v1alpha1.PlanHalt && plan.Spec.Halt != nil:
		return "", nil, fmt.Errorf("plan %s is of a halt: approve that with --halt %s", plan.Name, plan.Spec.Halt.ID)
	case rollback && a.rollback == "":
		return "", nil, fmt.Errorf("plan %s is a rollback: approve it with --rollback", plan.Name)
	case !rollback && a.plan == "":
		return "", nil, fmt.Errorf("plan %s is not a rollback: approve it with --plan", plan.Name)
	case rollback:
		spec.Rollback = plan.Spec.Hash
	default:
		spec.Plan = plan.Spec.Hash
	}
	return fmt.Sprintf("Plan %s (%s) of %d targets", plan.Name, plan.Spec.Purpose, plan.Spec.Targets), required, nil
}

// plan returns a Plan of a policy that waits, by its hash or its name.
func (c *hubClient) plan(ctx context.Context, policy, name string) (*v1alpha1.Plan, error) {
	hash := strings.TrimPrefix(name, policy+"-")
	const inName = 16 // characters of the hash
	if len(hash) < inName {
		return nil, exit.BadInput(fmt.Errorf("%q is neither the hash nor the name of a Plan of FleetPolicy %q", name, policy))
	}
	p := &v1alpha1.Plan{}
	if err := do(ctx, c.objects("GET", v1alpha1.Plans, policy+"-"+hash[:inName]), p); err != nil {
		return nil, c.explain(err, "Plan", policy+"-"+hash[:inName])
	}
	switch s := p.Status.State; {
	case !strings.HasPrefix(string(p.Spec.Hash), hash):
		return nil, fmt.Errorf("plan %s has another hash: %s", p.Name, p.Spec.Hash)
	case s != v1alpha1.PlanWaiting && s != v1alpha1.PlanApproved:
		return nil, fmt.Errorf("plan %s does not wait for approval: it is %s %s", p.Name, s, console.Printable(p.Status.Message))
	}
	return p, nil
}

// groupsToName returns the groups that an Approval names: all that may matter, those that
// are required first. Groups of everybody name nobody.
func groupsToName(mine []string, required []v1alpha1.GroupName) []v1alpha1.GroupName {
	var first, rest []v1alpha1.GroupName
	for _, g := range mine {
		switch name := v1alpha1.GroupName(g); {
		case g == "system:authenticated" || g == "system:unauthenticated" || g == "system:serviceaccounts":
		case slices.Contains(required, name):
			first = append(first, name)
		default:
			rest = append(rest, name)
		}
	}
	all := append(first, rest...)
	return all[:min(len(all), maxGroups)]
}

// decision waits until federator has decided whether an Approval counts.
func (a *approve) decision(ctx context.Context, c *hubClient, name string, out io.Writer) error {
	if a.timeout == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		g := &v1alpha1.Approval{}
		switch err := do(ctx, c.objects("GET", v1alpha1.Approvals, name), g); {
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
