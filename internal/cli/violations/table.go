package violations

import (
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"federator.dev/federator/pkg/policyquery"
)

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
	table.ColumnDefinitions = columns()
	for _, i := range found.Items {
		for _, cells := range rows(i) {
			row(cells...)
		}
	}
	return table
}

func columns() []metav1.TableColumnDefinition {
	columns := []metav1.TableColumnDefinition{}
	for _, name := range []string{"Policy", "Severity", "Member", "Subject", "State", "Age", "Violation"} {
		columns = append(columns, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, name := range []string{"Package", "Revision"} {
		columns = append(columns, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: 1})
	}
	return columns
}

// rows are the cells of a finding: a row for each violation.
func rows(i policyquery.Finding) (rows [][]any) {
	row := func(message, state string, since time.Time) {
		rows = append(rows, []any{i.Policy, i.Severity, i.Subject.Member, subjectText(i.Subject), state, age(since), message, i.Package, uint64(i.Revision)})
	}
	if i.Message != "" {
		row(i.Message, i.State, ptr.Deref(i.Since, time.Time{}))
	}
	for _, v := range i.Violations {
		if v.Exempt != "" {
			row(v.Msg, "Exempt: "+v.Exempt, v.FirstSeen)
		} else {
			row(v.Msg, i.State, v.FirstSeen)
		}
	}
	return rows
}

// age is how long ago something was first seen, as kubectl writes it.
func age(at time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(at))
}

// subjectText is a subject within its member, as policy check and explain write it.
func subjectText(s policyquery.Subject) string {
	switch {
	case s.Key != "":
		return s.Key
	case s.Kind == "":
		return ""
	}
	if s.Namespace == "" {
		return string(s.Kind) + " " + s.Name
	}
	return string(s.Kind) + " " + s.Namespace + "/" + s.Name
}
