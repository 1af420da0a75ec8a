package violations

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/policyquery"
)

const help = `List the violations of policies that you are allowed to read. A policy that reads more
of the fleet than you are allowed to is withheld, and named.

  federator violations
  federator violations --severity high,critical --member fleet/eu-1
  federator violations --order-by severity
  federator violations --by policy,member
  federator violations --watch`

func Command(version string) *cobra.Command {
	flags := queryclient.Flags{Version: version}
	lists := map[string]*[]string{}
	var exempt, orderBy string
	var by []string
	var watch bool
	cmd := &cobra.Command{
		Use: "violations", Short: "List and watch violations of policies", Long: help,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.CheckOutput(); err != nil {
				return err
			}
			query := url.Values{}
			for parameter, list := range lists {
				for _, v := range *list {
					query.Add(parameter, v)
				}
			}
			if exempt != "" {
				query.Set("exempt", exempt)
			}
			if orderBy != "" {
				query.Set("orderBy", orderBy)
			}
			if len(by) > 0 {
				query["groupBy"] = by
			}
			if watch {
				return watchViolations(cmd, &flags, query)
			}
			return printViolations(cmd, &flags, query)
		},
	}
	flags.Register(cmd)
	fs := cmd.Flags()
	for parameter, usage := range map[string]string{
		"policy": "only of these `policies`", "package": "only of these Rego `packages`", "severity": "only these `severities`: low, medium, high, critical",
		"member": "only in these `members`", "kind": "only on these `kinds`, such as Deployment.apps", "state": "only these `states`: Known, Unknown, Error",
	} {
		list := new([]string)
		lists[parameter] = list
		fs.StringSliceVar(list, parameter, nil, usage)
	}
	namespaces := new([]string)
	lists["namespace"] = namespaces
	fs.StringSliceVarP(namespaces, "namespace", "n", nil, "only in these `namespaces`")
	fs.StringVar(&exempt, "exempt", "", "true: only exempt violations; false: only others")
	fs.StringVar(&orderBy, "order-by", "", "`policy`, the default, or severity: the most severe first")
	fs.StringSliceVar(&by, "by", nil, "print counts by `policy`, package, severity, member, namespace, kind or state")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("namespace", flags.CompleteNamespaces))
	fs.BoolVarP(&watch, "watch", "w", false, "print the violations and then every change, until interrupted; -o json prints the events")
	cmd.MarkFlagsMutuallyExclusive("watch", "by", "order-by")
	return cmd
}

// printViolations requests all pages, and prints them as one list.
func printViolations(cmd *cobra.Command, f *queryclient.Flags, query url.Values) error {
	a, err := f.Client()
	if err != nil {
		return err
	}
	var all *policyquery.ViolationList
	for {
		body, err := a.Get(cmd.Context(), "/query/v1/violations", query, "application/json")
		if err != nil {
			return err
		}
		page := &policyquery.ViolationList{}
		if err := json.Unmarshal(body, page); err != nil {
			return fmt.Errorf("decoding the response: %w", err)
		}
		if all == nil {
			all = page
		} else {
			all.Items = append(all.Items, page.Items...)
		}
		if page.Continue == "" {
			break
		}
		query.Set("continue", page.Continue)
	}
	all.Continue = ""
	if f.Output == "json" || f.Output == "yaml" {
		body, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			return err
		}
		return f.Write(cmd.OutOrStdout(), body)
	}
	return printFound(cmd, all, f.Output == "wide")
}

// printFound prints violations as a table.
func printFound(cmd *cobra.Command, all *policyquery.ViolationList, wide bool) error {
	for _, note := range []struct {
		policies []string
		why      string
	}{
		{all.Withheld, "withheld: it reads more of the fleet than you may read"},
		{all.Failed, "failed: it is not fully evaluated"},
	} {
		for _, p := range note.policies {
			fmt.Fprintf(cmd.ErrOrStderr(), "policy %s is %s\n", p, note.why)
		}
	}
	if len(all.Items)+len(all.Groups) == 0 {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No violations found.")
		return err
	}
	return printTable(cmd.OutOrStdout(), tableOf(all), wide)
}
