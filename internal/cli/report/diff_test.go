package report

import (
	"bytes"
	"strings"
	"testing"
)

func TestCompare_FindsAddedAndRemovedResults(t *testing.T) {
	before, after := sample(), sample()
	after.Results = append(after.Results[1:], after.Results[3], Result{State: Violation, Severity: "low", Policy: "federator.clean", Message: "new"})
	d := Compare(before, after)
	if len(d.Added) != 2 || len(d.Removed) != 1 || d.Same != 3 {
		t.Fatalf("%+v", d)
	}
	if d.Removed[0].Message != before.Results[0].Message || d.Added[1].Message != "new" {
		t.Errorf("%+v", d)
	}
	var b bytes.Buffer
	if err := d.Write(&b, "table"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+   Violation   low", "-   Violation   high", "2 added, 1 removed, 3 the same"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if d := Compare(before, before); len(d.Added)+len(d.Removed) != 0 || d.Same != len(before.Results) {
		t.Errorf("of a report and itself: %+v", d)
	}
}
