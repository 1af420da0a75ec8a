package aggregate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
)

// TestSnapshot_SelectsAmongLargeAndLonelySets shows that selectors find what has labels of its
// own, what shares some, and what shares all.
func TestSnapshot_SelectsAmongLargeAndLonelySets(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	s := openScope(t, x, "m", "Pod")
	all := map[string]labels.Set{}
	for i := range 400 {
		r := record(i, i+1, nil)
		set := labels.Set{"app": fmt.Sprint("app-", i%4)}
		if i%8 == 0 {
			set["pod"] = fmt.Sprint("pod-", i)
		}
		for j := range i % 3 * 10 {
			set[fmt.Sprintf("k%02d", j)] = fmt.Sprint(i % 2)
		}
		all[r.Name] = set
		for k, v := range set {
			r.Labels = append(r.Labels, aggregate.Label{Key: k, Value: v})
		}
		slices.SortFunc(r.Labels, func(a, b aggregate.Label) int { return strings.Compare(a.Key, b.Key) })
		s.Upsert(s.Item(r))
	}
	mustCommit(t, s)
	for _, text := range []string{
		"app=app-1", "app in (app-1,app-2)", "pod=pod-8", "pod=pod-9", "pod", "!pod", "app,app notin (app-0)", "pod,app!=app-0",
		"k19", "k19=1", "k19,k00=0", "k19=0,app=app-2", "k20", "app=app-0,pod=pod-16", "app=app-1,pod=pod-16", "k05 notin (1),k05",
	} {
		sel, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list, err := x.Snapshot().List(aggregate.Query{Kind: "Pod", Labels: sel})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for o := range list {
			got[o.Name()] = true
		}
		for name, set := range all {
			if got[name] != sel.Matches(set) {
				t.Errorf("%s: %s of %v is found: %t", text, name, set, got[name])
			}
		}
	}
}
