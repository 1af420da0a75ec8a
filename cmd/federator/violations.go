package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"federator.dev/federator/pkg/policyquery"
)

const violationsHelp = `Print what policies have found in the fleet, as far as you may read it. A policy
that looks at more of the fleet than you may read is withheld, and named.

  federator violations
  federator violations --severity high,critical --member fleet/eu-1
  federator violations --by policy,member
  federator violations --watch`

func newViolationsCommand() *cobra.Command {
	var flags askFlags
	lists := map[string]*[]string{}
	var exempt string
	var by []string
	var watch bool
	cmd := &cobra.Command{
		Use: "violations", Short: "Print what policies have found in the fleet", Long: violationsHelp,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.checkOutput(); err != nil {
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
			if len(by) > 0 {
				query["groupBy"] = by
			}
			if watch {
				return flags.watchViolations(cmd, query)
			}
			return flags.printViolations(cmd, query)
		},
	}
	flags.register(cmd)
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
	fs.StringVar(&exempt, "exempt", "", "true: only what is exempt; false: only what is not")
	fs.StringSliceVar(&by, "by", nil, "count instead, by `policy`, package, severity, member, namespace, kind or state")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("namespace", flags.completeNamespaces))
	fs.BoolVarP(&watch, "watch", "w", false, "print what there is, and then every change of it, until interrupted; -o json prints the events")
	cmd.MarkFlagsMutuallyExclusive("watch", "by")
	return cmd
}

// printViolations asks for all pages, and prints them as one answer.
func (f *askFlags) printViolations(cmd *cobra.Command, query url.Values) error {
	a, err := f.asker()
	if err != nil {
		return err
	}
	var all *policyquery.ViolationList
	for {
		body, err := a.get(cmd.Context(), "/query/v1/violations", query, "application/json")
		if err != nil {
			return err
		}
		page := &policyquery.ViolationList{}
		if err := json.Unmarshal(body, page); err != nil {
			return fmt.Errorf("the answer: %w", err)
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
	if f.output == "json" || f.output == "yaml" {
		body, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			return err
		}
		return f.write(cmd.OutOrStdout(), body)
	}
	return f.tellViolations(cmd, all)
}

// tellViolations prints for people.
func (f *askFlags) tellViolations(cmd *cobra.Command, all *policyquery.ViolationList) error {
	for _, note := range []struct {
		policies []string
		why      string
	}{
		{all.Withheld, "withheld: it looks at more of the fleet than you may read"},
		{all.Failed, "failed: not all of it is evaluated"},
	} {
		for _, p := range note.policies {
			fmt.Fprintf(cmd.ErrOrStderr(), "policy %s is %s\n", p, note.why)
		}
	}
	if len(all.Items)+len(all.Groups) == 0 {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No violations found.")
		return err
	}
	return printTable(cmd.OutOrStdout(), tableOf(all), f.output == "wide")
}

func printTable(w io.Writer, table *metav1.Table, wide bool) error {
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(table, w)
}

// tableOf makes a row of each violation, or of each group.
func tableOf(found *policyquery.ViolationList) *metav1.Table {
	table := &metav1.Table{}
	row := func(cells ...any) {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{}})
	}
	if len(found.GroupBy) > 0 {
		for _, by := range append(found.GroupBy, "subjects", "violations", "exempt") {
			table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: by, Type: "string"})
		}
		for _, g := range found.Groups {
			cells := make([]any, 0, len(g.Key)+3)
			for _, k := range g.Key {
				cells = append(cells, k)
			}
			row(append(cells, g.Subjects, g.Violations, g.Exempt)...)
		}
		return table
	}
	table.ColumnDefinitions = violationColumns()
	for _, i := range found.Items {
		for _, cells := range violationRows(i) {
			row(cells...)
		}
	}
	return table
}

func violationColumns() []metav1.TableColumnDefinition {
	columns := []metav1.TableColumnDefinition{}
	for _, name := range []string{"Policy", "Severity", "Member", "Subject", "State", "Violation"} {
		columns = append(columns, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, name := range []string{"Package", "Revision"} {
		columns = append(columns, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: 1})
	}
	return columns
}

// violationRows are the cells of a finding: a row for each violation.
func violationRows(i policyquery.Finding) (rows [][]any) {
	row := func(message, state string) {
		rows = append(rows, []any{i.Policy, i.Severity, i.Subject.Member, subjectText(i.Subject), state, message, i.Package, uint64(i.Revision)})
	}
	if i.Message != "" {
		row(i.Message, i.State)
	}
	for _, v := range i.Violations {
		if v.Exempt != "" {
			row(v.Msg, "Exempt: "+v.Exempt)
		} else {
			row(v.Msg, i.State)
		}
	}
	return rows
}

// subjectText is a subject within its member, as kubectl writes it.
func subjectText(s policyquery.Subject) string {
	switch {
	case s.Key != "":
		return s.Key
	case s.Kind == "":
		return ""
	}
	kind := strings.ToLower(string(s.Kind))
	if s.Namespace == "" {
		return kind + "/" + s.Name
	}
	return s.Namespace + "/" + kind + "/" + s.Name
}
