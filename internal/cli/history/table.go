package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policyquery"
)

// printItems prints records as a table, and what is to be known of them besides.
func printItems(cmd *cobra.Command, all *policyquery.HistoryList, wide bool, columns []metav1.TableColumnDefinition, cells func(*history.Record) []any) error {
	stderr := cmd.ErrOrStderr()
	if all.Failing != "" {
		fmt.Fprintln(stderr, all.Failing)
	}
	for _, m := range all.Absent {
		fmt.Fprintf(stderr, "no process answers for member %s\n", m)
	}
	if all.Continue != "" {
		fmt.Fprintln(stderr, "There are older ones: --limit, --until and other flags select them.")
	}
	if slices.ContainsFunc(all.Items, func(r history.Record) bool { return r.Net != nil && r.Net.Incomplete }) {
		fmt.Fprintln(stderr, "What has a question mark may differ otherwise, or in more: a gap is about it.")
	}
	if len(all.Items) == 0 {
		if all.Span != nil {
			fmt.Fprintln(stderr, "Nothing that is recorded differs.")
			return nil
		}
		if all.Since != nil {
			fmt.Fprintf(stderr, "Nothing is recorded of that; what is kept begins at %s.\n", all.Since.Format(time.RFC3339))
		} else {
			fmt.Fprintln(stderr, "Nothing is recorded.")
		}
		return nil
	}
	table := &metav1.Table{ColumnDefinitions: columns}
	for i := range all.Items {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells(&all.Items[i])})
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(table, cmd.OutOrStdout())
}

func columns() []metav1.TableColumnDefinition {
	return columnsOf([]string{"Time", "Member", "Subject", "Transition", "What"}, []string{"Member time", "Resource version", "Revision", "Trace"})
}

func netColumns() []metav1.TableColumnDefinition {
	return columnsOf([]string{"Member", "Subject", "Difference", "What"}, []string{"First", "Last", "Transitions", "Resource version"})
}

func columnsOf(names, wide []string) (columns []metav1.TableColumnDefinition) {
	for _, name := range names {
		columns = append(columns, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, name := range wide {
		columns = append(columns, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: 1})
	}
	return columns
}

const timeFormat = "2006-01-02T15:04:05.000Z"

// netCells are of a record of how something differs, or one of a gap or policy.
func netCells(r *history.Record) []any {
	difference, first, transitions := r.Transition, r.Time, 1
	if r.Net != nil {
		if first, transitions = r.Net.First, r.Net.Transitions; r.Net.Incomplete {
			difference += "?"
		}
	}
	return []any{r.Member, subject(r), difference, what(r), first.UTC().Format(timeFormat), r.Time.UTC().Format(timeFormat), transitions, r.ResourceVersion}
}

func cells(r *history.Record) []any {
	memberTime := ""
	if r.MemberTime != nil {
		memberTime = r.MemberTime.Format(time.RFC3339)
	}
	return []any{r.Time.Format(timeFormat), r.Member, subject(r), r.Transition, what(r), memberTime, r.ResourceVersion, uint64(r.Revision), r.Trace}
}

// subject is what a record is about, as other commands write it.
func subject(r *history.Record) string {
	text := string(r.Kind)
	switch {
	case r.Subject != "":
		text = r.Subject
	case r.Namespace != "":
		text += " " + r.Namespace + "/" + r.Name
	case r.Name != "":
		text += " " + r.Name
	}
	return text
}

// shownChanges is how many changes are in a row.
const shownChanges = 4

// what says what a transition is.
func what(r *history.Record) string {
	var parts []string
	if r.Policy != "" {
		parts = append(parts, r.Policy+":")
	}
	if r.Action != "" {
		parts = append(parts, "Action "+r.Action+":")
	}
	if r.Violation != "" {
		parts = append(parts, r.Violation)
	}
	for i, c := range r.Changes {
		if i == shownChanges {
			parts = append(parts, fmt.Sprintf("and %d more", len(r.Changes)-i+r.More))
			break
		}
		parts = append(parts, change(&c))
	}
	if r.More > 0 && len(r.Changes) <= shownChanges {
		parts = append(parts, fmt.Sprintf("and %d more", r.More))
	}
	if r.Net != nil && r.Was != "" {
		parts = append(parts, "was "+r.Was)
	}
	if r.Message != "" {
		parts = append(parts, r.Message)
	}
	if r.By != "" {
		parts = append(parts, "by "+r.By)
	}
	if r.From != nil && r.To != nil {
		parts = append(parts, "from "+r.From.Format(time.RFC3339)+" to "+r.To.Format(time.RFC3339))
	}
	return strings.Join(parts, " ")
}

// change is a field with what it was and is.
func change(c *history.Change) string {
	switch {
	case c.Before == nil:
		return c.Path + "=" + value(c.After) + ";"
	case c.After == nil:
		return c.Path + "=" + value(c.Before) + " is gone;"
	case c.Cut && bytes.Equal(c.Before, c.After):
		return c.Path + " may differ in what is not recorded of it;"
	}
	return c.Path + "=" + value(c.Before) + " -> " + value(c.After) + ";"
}

// maxValue bounds a value in a row, in bytes.
const maxValue = 80

// value is a value on one line.
func value(v json.RawMessage) string {
	var text string
	if json.Unmarshal(v, &text) != nil {
		text = string(bytes.TrimSpace(v))
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxValue {
		text = strings.ToValidUTF8(text[:maxValue], "") + "…"
	}
	return text
}
