package selection_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// TestMatch_ManyObjectsAreMatchedInOrder looks by a field that no index has through more
// objects than one goroutine takes, and stops where a page would be full.
func TestMatch_ManyObjectsAreMatchedInOrder(t *testing.T) {
	f := newFleet(t, nil)
	var want []string
	for _, member := range []string{"a/one", "a/two", "b/one"} {
		f.join(member)
		for i := range 3000 {
			name := fmt.Sprintf("pod-%04d", i)
			color := []string{"red", "green", "blue", "blue"}[i*7919%4]
			f.put(member, object{
				"apiVersion": "v1", "kind": "Pod",
				"metadata": object{"name": name, "namespace": "shop", "uid": member + name, "resourceVersion": fmt.Sprint(i + 1)},
				"spec":     object{"color": color},
			})
			if color == "blue" {
				want = append(want, member+"/"+name)
			}
		}
	}
	snap := f.commit()
	sel, err := selection.Compile("", "spec.color=blue", "Pod")
	if err != nil {
		t.Fatal(err)
	}
	find := selection.Listing{Snapshot: snap, Selector: sel, Grants: authz.Everything(time.Time{})}
	if n, err := find.Count(t.Context()); err != nil || n != len(want) {
		t.Errorf("%d are counted (%v), want %d", n, err, len(want))
	}
	for _, page := range []int{1, 31, 32, 33, 64, 500, len(want), len(want) + 1} {
		var got []string
		for o, err := range find.List(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, o.Ref().Member+"/"+o.Ref().Name); len(got) == page {
				break
			}
		}
		if !slices.Equal(got, want[:min(page, len(want))]) {
			t.Errorf("a page of %d has %d: %.5s", page, len(got), got)
		}
	}

	// For a caller that has gone away nothing is looked up any more.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	found := 0
	for _, err := range find.List(ctx) {
		if cancel(); err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			break
		}
		found++
	}
	if found == 0 || found > 64 {
		t.Errorf("%d were found, want those of the first window", found)
	}
	if n, err := find.Count(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%d are counted, %v", n, err)
	}
}
