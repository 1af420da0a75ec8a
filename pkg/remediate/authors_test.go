package remediate_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/internal/lineage"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_AuthorsOfEachCommitCount: of all between the commit that was seen when something
// was approved and the one that it is of, under any leader. Where others may be between them,
// there may be other authors.
func TestDispatcher_AuthorsOfEachCommitCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		leadA(true)
		hash := func(n int) string { return strings.Repeat(strconv.Itoa(n), 40) }
		var line lineage.Line
		commit := func(n int, signer string) {
			var parents []string
			if n > 1 {
				parents = []string{hash(n - 1)}
			}
			line = line.Extend(hash(n), parents, signer)
		}
		set := func(d *running, generation string, commits lineage.Line) {
			spec := approved(generation, 1)
			spec.Approval.Authors, spec.Approval.Made = nil, []remediate.Made{{Of: "package p", Commits: commits}}
			d.set(t, spec, 20, intents(generation, "m1 "+generation))
			time.Sleep(2 * time.Second)
		}
		expect := func(d *running, what, want string) remediate.PlanInfo {
			t.Helper()
			p := d.waiting(t)
			if got := fmt.Sprint(p.Authors, p.AuthorsProven); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
			return p
		}
		commit(1, "eve")
		commit(2, "ann")
		set(a, "a", line)
		a.approve(expect(a, "all that there are", "[eve ann] true"))
		time.Sleep(2 * time.Second)
		commit(3, "joe")
		set(a, "a", line) // which changes nothing of it
		commit(4, "bob")
		commit(5, "ann")
		set(b, "b", line[3:]) // begins at 4, since it has restarted
		failover(leadA, leadB)
		b.approve(expect(b, "another leader, which has not seen each", "[bob ann] false"))
		time.Sleep(2 * time.Second)
		commit(6, "bob")
		commit(7, "ann")
		set(b, "c", line[4:])
		b.approve(expect(b, "the next one", "[bob ann] true"))
		time.Sleep(2 * time.Second)
		commit(8, "")
		set(b, "d", line[6:])
		expect(b, "of nobody", "[] false")
	})
}
