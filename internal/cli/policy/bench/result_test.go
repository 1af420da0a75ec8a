package bench

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/test/clitest"
)

func TestResult_ComparesWithASavedRun(t *testing.T) {
	before := &result{Policies: []cost{{Policy: "a", Nanoseconds: 100, Reads: 2, Allocations: 10}, {Policy: "b", Nanoseconds: 100, Reads: 2, Allocations: 10}}}
	path := filepath.Join(t.TempDir(), "run.json")
	if err := before.save(path); err != nil {
		t.Fatal(err)
	}
	before, err := loadResult(path)
	if err != nil {
		t.Fatal(err)
	}
	now := &result{Policies: []cost{
		{Policy: "a", Nanoseconds: 119, Reads: 2, Allocations: 10},
		{Policy: "b", Nanoseconds: 121, Reads: 3, Allocations: 10},
		{Policy: "c", Nanoseconds: 1e9},
	}}
	got := now.slower(before, 1.2)
	if len(got) != 2 || got[0] != "b: 121.0 ns per evaluation, 100.0 before" || got[1] != "b: 3.0 reads per evaluation, 2.0 before" {
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
	if _, err := loadResult(clitest.WriteFile(t, "broken.json", "{")); err == nil {
		t.Error("a broken file was read")
	}
}
