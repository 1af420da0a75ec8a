package count

import (
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/queryclient"
)

const help = `Count objects of the fleet, grouped by member, memberLabel:<key>, namespace, kind,
label:<key> or field:<path>.

  federator count pods --by member
  federator count pods --by field:status.phase,memberLabel:env
  federator count deployments.apps -n shop -l app=web --by member`

func Command(version string) *cobra.Command {
	flags := queryclient.Flags{Version: version}
	var by []string
	var namespace, labels, fields string
	cmd := &cobra.Command{
		Use:               "count RESOURCE",
		Short:             "Count objects of the fleet by member, label or field",
		Long:              help,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: flags.CompleteResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.CheckOutput(); err != nil {
				return err
			}
			query := url.Values{"resource": {args[0]}, "groupBy": by}
			queryclient.SetChanged(cmd.Flags(), query, map[string]string{"namespace": "namespace", "selector": "labelSelector", "field-selector": "fieldSelector"})
			return flags.Print(cmd, "/query/v1/count", query)
		},
	}
	flags.Register(cmd)
	fs := cmd.Flags()
	fs.StringSliceVar(&by, "by", nil, "what to group by: `member`, memberLabel:<key>, namespace, kind, label:<key>, field:<path>")
	fs.StringVarP(&namespace, "namespace", "n", "", "only this `namespace`")
	fs.StringVarP(&labels, "selector", "l", "", "label `selector`; labels such as federator.dev/member=<namespace>.<name> select members")
	fs.StringVar(&fields, "field-selector", "", "field `selector`, on any path")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("by", completeGroups))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("namespace", flags.CompleteNamespaces))
	return cmd
}

// completeGroups completes the last of a comma-separated list.
func completeGroups(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := ""
	if i := strings.LastIndexByte(typed, ','); i >= 0 {
		before = typed[:i+1]
	}
	var out []string
	for _, g := range []string{"member", "namespace", "kind", "memberLabel:", "label:", "field:"} {
		out = append(out, before+g)
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
