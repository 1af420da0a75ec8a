package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policyquery"
)

const help = `List what happened, as far as you are allowed to read it now and it is kept: transitions of
objects by field, of scopes and members, of verdicts, of Actions and of policies. The newest come last. A gap says of what it is
not known what happened. With --net, what differs between two instants: of what came, changed and went between them, how it is
different at the end, and nothing of what is as it was.

  federator history deployment web -n shop --since 24h
  federator history pods --member fleet/eu-1 --transition Deleted
  federator history deployments --path spec.template --since 1h
  federator history --policy unique-hosts
  federator history --source fleet-policies --type Policy
  federator history pod web-0 -n shop --watch
  federator history deployments -n shop --net --since 24h --until 1h`

// maxItems bounds what is asked for: the newest come first.
const maxItems = 1_000_000

func Command(version string) *cobra.Command {
	flags := queryclient.Flags{Version: version}
	lists := map[string]*[]string{}
	var since, until string
	var limit int
	var watch, net bool
	cmd := &cobra.Command{
		Use: "history [RESOURCE [NAME...]]", Short: "List and watch what happened", Long: help,
		ValidArgsFunction: flags.CompleteResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.CheckOutput(); err != nil {
				return err
			}
			if limit < 1 || limit > maxItems {
				return fmt.Errorf("--limit is %d, must be from 1 to %d", limit, maxItems)
			}
			client, err := flags.Client()
			if err != nil {
				return err
			}
			query := url.Values{}
			for parameter, list := range lists {
				for _, v := range *list {
					query.Add(parameter, v)
				}
			}
			if len(args) > 0 {
				kind, err := client.Kind(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				query.Set("kind", kind)
				query["name"] = args[1:]
			}
			queryclient.SetChanged(cmd.Flags(), query, map[string]string{"since": "since", "until": "until"})
			if watch {
				if flags.Output == "yaml" {
					return errors.New("--output yaml cannot be used with --watch; json prints a line for each event")
				}
				return watchHistory(cmd, client, &flags, query)
			}
			if net {
				return printNet(cmd, client, &flags, query)
			}
			return printHistory(cmd, client, &flags, query, limit)
		},
	}
	flags.Register(cmd)
	fs := cmd.Flags()
	for parameter, usage := range map[string]string{
		"member": "only in these `members`", "policy": "only of these `policies`: their verdicts, Actions, Plans, halts, stops and approvals", "source": "only of what is from these `PolicySources`", "uid": "only objects with these `UIDs`",
		"type":       "only these `types`: Object, Scope, Member, Verdict, Action, Policy, Gap",
		"transition": "only these `transitions`, such as Created, Changed, Deleted, Opened, Closed or Stale",
		"path":       "only what changes these `fields`, or fields below them",
	} {
		list := new([]string)
		lists[parameter] = list
		fs.StringSliceVar(list, parameter, nil, usage)
	}
	namespaces := new([]string)
	lists["namespace"] = namespaces
	fs.StringSliceVarP(namespaces, "namespace", "n", nil, "only in these `namespaces`")
	fs.StringVar(&since, "since", "", "only what was recorded since a `time`, RFC 3339, or within a duration such as 24h")
	fs.StringVar(&until, "until", "", "only what was recorded before a `time`, or a duration ago")
	fs.IntVar(&limit, "limit", 500, "at most so many, the newest")
	fs.BoolVarP(&watch, "watch", "w", false, "print what happens from now on, until interrupted; -o json prints the events")
	fs.BoolVar(&net, "net", false, "print how the fleet at the end of the span, now or --until, differs from that at --since")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("namespace", flags.CompleteNamespaces))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("member", flags.CompleteMembers))
	cmd.MarkFlagsMutuallyExclusive("watch", "since")
	cmd.MarkFlagsMutuallyExclusive("watch", "until")
	cmd.MarkFlagsMutuallyExclusive("watch", "limit", "net")
	return cmd
}

// pageItems is how many items are asked for at once.
const pageItems = 5000

// printHistory requests the newest items, and prints them in order of time.
func printHistory(cmd *cobra.Command, client *queryclient.Client, f *queryclient.Flags, query url.Values, limit int) error {
	var all *policyquery.HistoryList
	for {
		left := limit
		if all != nil {
			left -= len(all.Items)
		}
		query.Set("limit", strconv.Itoa(min(left, pageItems)))
		body, err := client.Get(cmd.Context(), "/query/v1/history", query, "application/json")
		if err != nil {
			return err
		}
		page := &policyquery.HistoryList{}
		if err := json.Unmarshal(body, page); err != nil {
			return fmt.Errorf("decoding the response: %w", err)
		}
		if all == nil {
			all = page
		} else {
			all.Items, all.Continue = append(all.Items, page.Items...), page.Continue
		}
		if page.Continue == "" || len(all.Items) >= limit {
			break
		}
		query.Set("continue", page.Continue)
	}
	slices.Reverse(all.Items)
	return printList(cmd, f, all, columns(), cells)
}

// printNet prints what differs.
func printNet(cmd *cobra.Command, client *queryclient.Client, f *queryclient.Flags, query url.Values) error {
	query.Set("net", "true")
	body, err := client.Get(cmd.Context(), "/query/v1/history", query, "application/json")
	if err != nil {
		return err
	}
	all := &policyquery.HistoryList{}
	if err := json.Unmarshal(body, all); err != nil {
		return fmt.Errorf("decoding the response: %w", err)
	}
	return printList(cmd, f, all, netColumns(), netCells)
}

func printList(cmd *cobra.Command, f *queryclient.Flags, all *policyquery.HistoryList, columns []metav1.TableColumnDefinition, cells func(*history.Record) []any) error {
	if f.Output == "json" || f.Output == "yaml" {
		body, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			return err
		}
		return f.Write(cmd.OutOrStdout(), body)
	}
	return printItems(cmd, all, f.Output == "wide", columns, cells)
}
