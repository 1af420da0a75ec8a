package lineage_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/internal/lineage"
)

func TestLine_KnowsWhoMadeWhatIsNew(t *testing.T) {
	t.Parallel()
	line := lineage.Line{}.Extend("a", nil, "ann").Extend("b", []string{"a"}, "bob").Extend("c", []string{"b"}, "").Extend("c", []string{"b"}, "joe")
	for _, c := range []struct {
		line lineage.Line
		base string
		want string
	}{
		{line, "a", "bob joe true"},
		{line, "c", "true"},
		{line, "", "ann bob joe true"},
		{line, "x", "ann bob joe true"}, // all that there are
		{nil, "", "false"},
		{line.Extend("e", []string{"d"}, "eve"), "c", "eve false"},
		{line.Extend("f", []string{"a"}, "eve"), "a", "eve true"}, // the branch was reset
		{line.Extend("b", []string{"a"}, "eve"), "a", "eve true"},
		{line.Extend("m", []string{"c", "d"}, "eve"), "c", "eve false"},
		{lineage.Line{}.Extend("b", []string{"a"}, "bob"), "", "bob false"},
	} {
		commits, all := c.line.Since(c.base)
		got := ""
		for _, commit := range commits {
			got += commit.Signer + " "
		}
		if got += fmt.Sprint(all); got != c.want {
			t.Errorf("%v since %q: %s, want %s", c.line, c.base, got, c.want)
		}
	}
	if line[1].Signer != "bob" || len(line) != 3 || line.Head() != "c" {
		t.Errorf("%v", line)
	}
	for n := range 300 {
		line = line.Extend(fmt.Sprint(n), []string{line.Head()}, "ann")
	}
	if _, all := line.Since(""); len(line) != 100 || all {
		t.Errorf("%d commits, all %t", len(line), all)
	}
}
