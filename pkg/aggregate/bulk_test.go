package aggregate_test

import (
	"errors"
	"fmt"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestChangeLog_BulkChangesLeaveOthers: what one member exchanges, or a member that
// leaves, has readers of other kinds list again as little as those who follow.
func TestChangeLog_BulkChangesLeaveOthers(t *testing.T) {
	x := newIndex(t, aggregate.Options{LogBytes: 128 << 10})
	pods, jobs := openScope(t, x, "good", "Pod"), openScope(t, x, "evil", "Job.batch")
	big := func(rv int) []aggregate.Item {
		var items []aggregate.Item
		for i := range 300 {
			items = append(items, jobs.Item(record(i, rv+i, shape(rv, i))))
		}
		return items
	}
	mustReplace := func(items []aggregate.Item) {
		t.Helper()
		if _, err := jobs.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
	}
	count := func(kind aggregate.Kind, after aggregate.Revision) (n int, err error) {
		changes, err := x.ChangesOf(kind, after)
		if err != nil {
			return 0, err
		}
		for c := range changes {
			if n++; c.Revision <= after {
				t.Errorf("change %d is not after %d", c.Revision, after)
			}
		}
		return n, nil
	}
	mustReplace(big(1))
	cursor := x.Cursor(x.Snapshot())
	start := x.Snapshot().Revision()
	for i := range 5 {
		pods.Upsert(pods.Item(record(i, 1, shape(1, i))))
		mustCommit(t, pods)
	}
	middle := x.Snapshot().Revision()
	mustReplace(nil)
	if n, err := count("Job.batch", middle); n != 300 || err != nil {
		t.Errorf("a reader of changes receives %d deletions, %v", n, err)
	}
	if n, err := count("Pod", start); n != 5 || err != nil {
		t.Errorf("readers of another kind: %d changes, %v", n, err)
	}
	end := x.Snapshot().Revision()
	for round := range 5 {
		mustReplace(big(1000 * (round + 1)))
	}
	if n, err := count("Pod", start); n != 5 || err != nil {
		t.Errorf("after more, readers of another kind: %d changes, %v", n, err)
	}
	for _, kind := range []aggregate.Kind{"", "Job.batch"} {
		if _, err := count(kind, end); !errors.Is(err, aggregate.ErrExpired) {
			t.Errorf("readers of %q receive changes that are not kept: %v", kind, err)
		}
	}
	if log := x.Account().Log; log > 5*(128<<10) {
		t.Errorf("the log keeps %d bytes alive", log)
	}
	if !x.RemoveMember("evil") {
		t.Fatal("the member stays")
	}
	if n, err := count("Pod", start); n != 5 || err != nil {
		t.Errorf("after a leave, readers of another kind: %d changes, %v", n, err)
	}
	pods.Delete("n", "p00003")
	mustCommit(t, pods)
	b, ok := cursor.Poll()
	if !ok {
		t.Fatal("nothing has changed")
	}
	deltas := map[aggregate.Kind]int{}
	for d := range b.Deltas() {
		deltas[d.Ref.Kind]++
	}
	if fmt.Sprint(deltas) != "map[Job.batch:300 Pod:4]" {
		t.Errorf("a cursor is given %v", deltas)
	}
}
