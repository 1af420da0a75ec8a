package tree

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/queryclient"
)

const help = `Show the objects related to an object: its owners and what it owns, the Pods,
EndpointSlices and Nodes of a Service, the ConfigMaps, Secrets, volumes and
ServiceAccounts that a Pod uses, and the reverse.

  federator tree deployment web -n shop --member fleet/eu-1
  federator tree node worker-3 --member fleet/eu-1 --direction up --kinds pods`

// options say what of the tree is wanted.
type options struct {
	member, namespace string
	depth             int
	kinds             []string
	direction         string
}

func Command(version string) *cobra.Command {
	flags := queryclient.Flags{Version: version}
	var want options
	cmd := &cobra.Command{
		Use:   "tree RESOURCE NAME",
		Short: "Show an object's owners, dependents and references",
		Long:  help,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.CheckOutput(); err != nil {
				return err
			}
			return want.show(cmd, &flags, args[0], args[1])
		},
	}
	flags.Register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&want.member, "member", "", "`namespace/name` of the member that has the object")
	fs.StringVarP(&want.namespace, "namespace", "n", "", "its `namespace`")
	fs.IntVar(&want.depth, "depth", 3, "how many relations to follow, at most 10")
	fs.StringSliceVar(&want.kinds, "kinds", nil, "only these `resources` (default all)")
	fs.StringVar(&want.direction, "direction", "both", "down to what it owns and uses, up to what owns and uses it, or both")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return flags.CompleteResources(cmd, args, typed)
		case 1:
			return want.completeNames(cmd, &flags, args[0])
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for name, complete := range map[string]cobra.CompletionFunc{
		"member": flags.CompleteMembers, "namespace": flags.CompleteNamespaces, "kinds": flags.CompleteKinds,
		"direction": cobra.FixedCompletions([]string{"down", "up", "both"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		cobra.CheckErr(cmd.RegisterFlagCompletionFunc(name, complete))
	}
	return cmd
}

func (t *options) show(cmd *cobra.Command, flags *queryclient.Flags, resource, name string) error {
	a, err := flags.Client()
	if err != nil {
		return err
	}
	query := url.Values{"resource": {resource}, "name": {name}, "depth": {strconv.Itoa(t.depth)}, "direction": {t.direction}, "kinds": t.kinds}
	member := t.member
	if member == "" { // a context of one member says which
		member = strings.TrimPrefix(strings.TrimPrefix(a.Target, "/members/"), "/fleet")
	}
	for parameter, value := range map[string]string{"member": member, "namespace": t.namespace} {
		if value != "" {
			query.Set(parameter, value)
		}
	}
	body, err := a.Get(cmd.Context(), "/query/v1/related", query, "application/json")
	if err != nil {
		return err
	}
	if flags.Output == "json" || flags.Output == "yaml" {
		return flags.Write(cmd.OutOrStdout(), body)
	}
	var answer graph
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("decoding the response: %w", err)
	}
	answer.print(cmd.OutOrStdout())
	return nil
}

// completeNames completes the second argument with names of objects.
func (t *options) completeNames(cmd *cobra.Command, flags *queryclient.Flags, resource string) ([]string, cobra.ShellCompDirective) {
	return flags.Complete(cmd, func(ctx context.Context, a *queryclient.Client) ([]string, error) {
		path, err := a.ResourcePath(ctx, resource, t.namespace)
		if err != nil {
			return nil, err
		}
		query := url.Values{}
		if t.member != "" {
			query.Set("labelSelector", "federator.dev/member="+strings.Replace(t.member, "/", ".", 1))
		}
		return a.Names(ctx, path, query)
	})
}
