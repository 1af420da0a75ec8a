package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestDiffOfReports(t *testing.T) {
	before, after := sample(), sample()
	after.Results = append(after.Results[1:], after.Results[3], result{State: violated, Severity: "low", Policy: "federator.clean", Message: "new"})
	d := diff(before, after)
	if len(d.Added) != 2 || len(d.Removed) != 1 || d.Same != 3 {
		t.Fatalf("%+v", d)
	}
	if d.Removed[0].Message != before.Results[0].Message || d.Added[1].Message != "new" {
		t.Errorf("%+v", d)
	}
	var b bytes.Buffer
	if err := d.write(&b, "table"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+   Violation   low", "-   Violation   high", "2 added, 1 removed, 3 the same"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if d := diff(before, before); len(d.Added)+len(d.Removed) != 0 || d.Same != len(before.Results) {
		t.Errorf("of a report and itself: %+v", d)
	}
}

func TestMeasurementsAreComparedWithASavedRun(t *testing.T) {
	before := &measured{Policies: []measurement{{Policy: "a", Nanoseconds: 100, Reads: 2, Allocations: 10}, {Policy: "b", Nanoseconds: 100, Reads: 2, Allocations: 10}}}
	path := filepath.Join(t.TempDir(), "run.json")
	if err := before.save(path); err != nil {
		t.Fatal(err)
	}
	before, err := loadMeasured(path)
	if err != nil {
		t.Fatal(err)
	}
	now := &measured{Policies: []measurement{
		{Policy: "a", Nanoseconds: 119, Reads: 2, Allocations: 10},
		{Policy: "b", Nanoseconds: 121, Reads: 3, Allocations: 10},
		{Policy: "c", Nanoseconds: 1e9},
	}}
	got := now.slower(before, 1.2)
	if len(got) != 2 || got[0] != "b: 121.0 ns an evaluation, 100.0 before" || got[1] != "b: 3.0 reads an evaluation, 2.0 before" {
		t.Errorf("slower: %q", got)
	}
	var b bytes.Buffer
	if err := now.write(&b, before); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+19%", "+21%", "new"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if _, err := loadMeasured(writeFile(t, "broken.json", "{")); err == nil {
		t.Error("a broken file was read")
	}
}
