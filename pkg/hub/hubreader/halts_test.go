package hubreader_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/policyquery"
)

// TestReader_LeavesOutPolicyStatesThatCannotBeDecoded, counts them, and keeps the halts of all others current.
func TestReader_LeavesOutPolicyStatesThatCannotBeDecoded(t *testing.T) {
	state := func(name, version, halt string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q},"status":{"halts":[{"id":%q,"reason":"OverLimit","since":"2026-01-01T00:00:00.000000Z"}]}}`, name, version, halt)
	}
	broken := func(name, version string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q},"status":{"halts":"many"}}`, name, version)
	}
	log := &lockedBuffer{}
	h := &apiServer{version: 100, log: slog.New(slog.NewTextHandler(log, nil)), states: []string{state("a", "1", "a1"), broken("b", "2"), state("c", "3", "c1")}}
	r := start(t, h, 0)
	holds := func(want string, unreadable int) {
		t.Helper()
		deadline := time.After(patience)
		for {
			changed := r.Changes(policyquery.HubPolicyStates)
			var ids []string
			held, err := r.Halts()
			for _, p := range held.Items {
				for _, halt := range p.Halts {
					ids = append(ids, halt.Policy+"/"+halt.ID)
				}
			}
			if slices.Sort(ids); err == nil && strings.Join(ids, " ") == want && held.Unreadable == unreadable && !held.Stale {
				return
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("it holds %v, %+v, %v; want %q, %d unreadable", ids, held.HubState, err, want, unreadable)
			}
		}
	}
	send := func(kind, object string) { h.changes <- fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object) }
	holds("a/a1 c/c1", 1)
	send("MODIFIED", state("a", "4", "a2"))
	holds("a/a2 c/c1", 1)
	send("MODIFIED", broken("c", "5")) // what was held of it is not what it is
	holds("a/a2", 2)
	send("MODIFIED", state("b", "6", "b1"))
	holds("a/a2 b/b1", 1)
	send("ADDED", state("d", "7", "d1"))
	holds("a/a2 b/b1 d/d1", 1)
	send("DELETED", state("a", "8", "a2"))
	holds("b/b1 d/d1", 1)
	send("DELETED", broken("c", "9"))
	holds("b/b1 d/d1", 0)
	if n := log.count("cannot be decoded"); n != 2 || log.count("policystates") < 2 {
		t.Errorf("it was said %d times, want 2:\n%s", n, log.String())
	}
}
