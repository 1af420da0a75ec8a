package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/pkg/policy"
)

// saidBy are those of a verdict's violations that are not exempt.
func saidBy(v textVerdict) (list []string) {
	if v.violations == "" || v.state == policy.Error {
		return nil
	}
	for line := range strings.SplitSeq(v.violations, "\n") {
		var x struct{ Msg, Exempt string }
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			panic(err)
		}
		if x.Exempt == "" {
			list = append(list, x.Msg)
		}
	}
	return list
}

// without returns how many messages are not among others.
func without(list, others []string) int {
	others = slices.Clone(others)
	n := 0
	for _, m := range list {
		if i := slices.Index(others, m); i >= 0 {
			others = slices.Delete(others, i, i+1)
		} else {
			n++
		}
	}
	return n
}

// agreeOnComparison holds the evidence for the next version of a policy to what the oracle says of both. What a version
// found before it failed is no matter of one evaluation: there New is bounded only.
func agreeOnComparison(s *policy.State, b policy.Binding, got policy.Comparison, former, next map[string]textVerdict) error {
	var want policy.Comparison
	hidden := 0
	unknown := func(v textVerdict) bool { return v.state == policy.Unknown }
	failed := func(v textVerdict) bool { return v.state == policy.Error }
	of := func(at string) bool { return strings.HasPrefix(at, b.Name+" | ") }
	for at, v := range next {
		if !of(at) {
			continue
		}
		want.Subjects++
		was := former[at] // where it is no subject it is as a clean one
		more := without(saidBy(v), saidBy(was))
		switch {
		case unknown(v) && !unknown(was):
			want.Unknown++
		case unknown(v):
		case failed(v) && !failed(was):
			want.Errors++
		case unknown(was) && more > 0:
			want.Unsettled++
		case failed(was):
			hidden += more
		case !unknown(was):
			want.New += more
		}
	}
	for at, v := range former {
		if of(at) && !unknown(v) && !unknown(next[at]) && !failed(next[at]) {
			want.Gone += without(saidBy(v), saidBy(next[at]))
		}
	}
	switch {
	case got.Subjects != want.Subjects || got.New < want.New || got.New > want.New+hidden || got.Gone != want.Gone || got.Errors != want.Errors,
		got.Unknown != want.Unknown, got.Unsettled != want.Unsettled:
		return fmt.Errorf("%w: %s compares %+v, it has %+v, of which failures hide %d at most", errDiffers, b.Name, got, want, hidden)
	case got.Complete && (want.Unknown+want.Unsettled > 0 || !s.BindingSynced(b.Name)):
		return fmt.Errorf("%w: the evidence for %s is complete: %+v", errDiffers, b.Name, got)
	}
	return nil
}
