package actions

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/policyquery"
)

const planHelp = `Show the Plans of a FleetPolicy: what it would write, frozen so that people can
approve it, with those of the targets that you may list. How many there are
besides is said, but not which. Of a FleetPolicy in mode DryRun, the Plan has
what members answered to server-side dry runs.

It asks the query API, with its kubeconfig. Plans that are over are shown with
--all or by name.

  federator actions plan replicas
  federator actions plan replicas --member fleet/eu-1 --limit 0 -o wide
  federator actions plan replicas --plan replicas-0123456789abcdef -o yaml`

// planOptions are the flags of `federator actions plan`.
type planOptions struct {
	queryclient.Flags

	plan                       string
	all                        bool
	members, namespaces, kinds []string
	limit                      int
}

const (
	planPage   = 2000 // targets that one request gets
	tableLimit = 100  // targets in a table, unless more are wanted
)

func planCommand(version string) *cobra.Command {
	o := planOptions{Flags: queryclient.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "plan POLICY",
		Short: "Show the Plans of a FleetPolicy: what it would write, for approval",
		Long:  planHelp,
		Args:  cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return exit.BadInput(err)
			}
			if !cmd.Flags().Changed("limit") && !o.machineReadable() {
				o.limit = tableLimit
			}
			return o.run(cmd, args[0])
		},
	}
	o.Register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.plan, "plan", "", "only the Plan with this `name`, in any state")
	fs.BoolVar(&o.all, "all", false, "show Plans that are over, too")
	fs.StringSliceVar(&o.members, "member", nil, "list only targets in these `members`")
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "list only targets in these `namespaces`")
	fs.StringSliceVar(&o.kinds, "kind", nil, "list only targets of these `kinds`, such as Deployment.apps")
	fs.IntVar(&o.limit, "limit", 0, fmt.Sprintf("list at most so many `targets`; 0 means all (default %d in a table)", tableLimit))
	cmd.MarkFlagsMutuallyExclusive("plan", "all")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("member", o.CompleteMembers))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("namespace", o.CompleteNamespaces))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("kind", cobra.NoFileCompletions))
	return cmd
}

func (o *planOptions) machineReadable() bool { return o.Output == "json" || o.Output == "yaml" }

func (o *planOptions) check() error {
	if o.limit < 0 {
		return fmt.Errorf("--limit %d is negative", o.limit)
	}
	return o.CheckOutput()
}

func (o *planOptions) run(cmd *cobra.Command, policy string) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	list, more, err := o.list(cmd.Context(), client, policy)
	if err != nil {
		return fmt.Errorf("plans of %q: %w", policy, err)
	}
	if o.machineReadable() {
		body, err := json.MarshalIndent(list, "", "  ")
		if err != nil {
			return err
		}
		return o.Write(cmd.OutOrStdout(), body)
	}
	if len(list.Plans) == 0 {
		what := fmt.Sprintf("No Plan of %s waits, is approved or has the answers to a dry run; --all shows those that are over.", policy)
		if o.all || o.plan != "" {
			what = fmt.Sprintf("No such Plan of %s.", policy)
		}
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), what)
		return err
	}
	text := planText(list, o.Output == "wide", time.Now(), console.Colored(cmd.OutOrStdout()))
	if _, err := cmd.OutOrStdout().Write(text); err != nil {
		return err
	}
	return o.writeNotes(cmd, list, more)
}

// writeNotes says what is not shown.
func (o *planOptions) writeNotes(cmd *cobra.Command, list *policyquery.PlanList, more bool) (err error) {
	if more {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "There are more targets than the %d that are listed; --limit 0 lists all.\n", len(list.Items))
	}
	if err == nil && list.Omitted > 0 {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s not shown; --plan shows one by name.\n", console.Plural(list.Omitted, "older Plan is", "older Plans are"))
	}
	return err
}

// query returns the parameters of the first page.
func (o *planOptions) query() url.Values {
	q := url.Values{"member": o.members, "namespace": o.namespaces, "kind": o.kinds}
	if o.plan != "" {
		q.Set("plan", o.plan)
	}
	if o.all {
		for _, s := range []v1alpha1.PlanState{
			v1alpha1.PlanFreezing, v1alpha1.PlanWaiting, v1alpha1.PlanApproved, v1alpha1.PlanDone, v1alpha1.PlanSuperseded, v1alpha1.PlanExpired,
		} {
			q.Add("state", string(s))
		}
	}
	return q
}

// list requests the pages up to the limit as one list, and reports whether there are more
// targets. It begins again where a Plan has gone meanwhile.
func (o *planOptions) list(ctx context.Context, client *queryclient.Client, policy string) (list *policyquery.PlanList, more bool, err error) {
	for range 3 {
		if list, more, err = o.pages(ctx, client, policy); err == nil || !apierrors.IsResourceExpired(err) {
			break
		}
	}
	return list, more, err
}

func (o *planOptions) pages(ctx context.Context, client *queryclient.Client, policy string) (list *policyquery.PlanList, more bool, err error) {
	query := o.query()
	for {
		size := planPage
		if o.limit > 0 {
			size = min(size, o.limit-listed(list))
		}
		query.Set("limit", strconv.Itoa(size))
		body, err := client.Get(ctx, "/query/v1/plans/"+url.PathEscape(policy), query, "application/json")
		if err != nil {
			return nil, false, err
		}
		page := &policyquery.PlanList{}
		if err := json.Unmarshal(body, page); err != nil {
			return nil, false, fmt.Errorf("decoding the response: %w", err)
		}
		next := page.Continue
		if page.Continue = ""; list == nil {
			list = page
		} else {
			list.Items = slices.Concat(list.Items, page.Items)
		}
		if next == "" || o.limit > 0 && len(list.Items) >= o.limit {
			return list, next != "", nil
		}
		query.Set("continue", next)
	}
}

func listed(list *policyquery.PlanList) int {
	if list == nil {
		return 0
	}
	return len(list.Items)
}
