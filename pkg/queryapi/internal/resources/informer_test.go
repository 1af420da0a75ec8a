package resources_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// follower is a client that lists and watches, as client-go's reflector does:
// it resumes from the revision of the last event that it has, and lists again
// at 410.
type follower struct {
	*podSelection
	f         *fleet
	accept    string
	bookmarks bool

	state    map[string]held
	revision string
	exact    bool // state is that of revision, so that events must fit it
	begins   bool // initial events are still to come: they have no order to resume from
	stream   *stream
	log      []string
	counts   map[string]int
}

// held is what a follower knows of an object.
type held struct{ version, revision string }

const (
	asPartial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asTable   = "application/json;as=Table;g=meta.k8s.io;v=v1"
)

func newFollower(f *fleet, rng *rand.Rand, counts map[string]int) *follower {
	c := randomSelection(rng)
	if c.grants != nil { // the members that there are, as the hub reviews them
		c.caller = caller{fmt.Sprintf("alice%p", c), func(string) (*authz.Grants, error) {
			there := map[string]authz.MemberGrant{}
			for m := range f.index.Snapshot().Members() {
				there[m.Name] = c.grants[m.Name]
			}
			return authz.NewGrants(there, time.Time{}), nil
		}}
	}
	w := &follower{podSelection: c, f: f, accept: pick(rng, "", asPartial, asTable), bookmarks: rng.IntN(3) > 0, counts: counts}
	if w.bookmarks {
		w.query.Set("allowWatchBookmarks", "true")
	}
	return w
}

// fail prints the events that a follower received before it went wrong.
func (w *follower) fail(format string, args ...any) {
	w.f.t.Helper()
	w.f.t.Fatalf("%s\n%s?%s by %v as %q, bookmarks %t:\n%q", fmt.Sprintf(format, args...), w.path, w.query.Encode(), w.grants, w.accept, w.bookmarks, w.log)
}

// list lists again. It reports false where there is nothing to list yet.
func (w *follower) list() bool {
	query := maps.Clone(w.query)
	query.Del("allowWatchBookmarks")
	a := w.f.ask(w.caller, w.path, query, "")
	if a.code == http.StatusNotFound || a.code == http.StatusForbidden {
		return false
	}
	if a.code != http.StatusOK {
		w.fail("list: %d %s", a.code, a.status.Message)
	}
	w.state, w.revision, w.exact, w.begins = map[string]held{}, a.list.Metadata.ResourceVersion, true, false
	w.log = append(w.log, "listed at "+w.revision)
	for _, o := range a.list.Items {
		w.state[keyOf(o)] = held{versionOf(o), field(o, "metadata", "resourceVersion")}
	}
	w.counts["list"]++
	return true
}

// start watches from the revision that the follower has, or from the start.
func (w *follower) start(rng *rand.Rand) bool {
	query := maps.Clone(w.query)
	switch {
	case w.revision != "":
		query.Set("resourceVersion", w.revision)
	case rng.IntN(2) == 0:
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
		query.Set("allowWatchBookmarks", "true")
		w.state, w.exact, w.begins = map[string]held{}, true, true
		w.log = append(w.log, "streams from the start")
	default:
		if !w.list() {
			return false
		}
		query.Set("resourceVersion", w.revision)
	}
	w.stream = w.f.watch(w.caller, w.path, query, w.accept)
	select {
	case <-w.stream.open:
		w.counts["watch"]++
		return true
	case <-w.stream.done:
	}
	switch code := int(w.stream.status.Code); code {
	case http.StatusGone:
		w.log = append(w.log, "410 from "+w.revision)
		w.counts["expired"]++
		w.revision = ""
		return w.start(rng)
	case http.StatusNotFound, http.StatusForbidden:
		w.revision = "" // what it watched is gone
		return false
	default:
		w.fail("the watch was refused with %d %s, %v", code, w.stream.status.Message, w.stream.panics)
		return false
	}
}

// stop ends the watch; with cut the client has lost a part of its end.
func (w *follower) stop(rng *rand.Rand, cut bool) {
	events := w.stream.end()
	w.stream = nil
	lost := 0
	if cut {
		lost = rng.IntN(len(events) + 1)
	}
	for _, e := range events[:len(events)-lost] {
		w.take(e)
	}
	if w.begins {
		w.revision, w.begins = "", false
	}
	w.log = append(w.log, fmt.Sprintf("ended, %d lost", lost))
	w.exact = w.exact && lost == 0 && w.bookmarks
}

func (w *follower) take(e event) {
	w.counts[e.Type]++
	o := e.Object
	if e.Type == "ERROR" {
		w.log = append(w.log, e.text)
		if o["reason"] != "Expired" {
			w.fail("an error")
		}
		w.revision, w.exact, w.begins = "", false, false
		return
	}
	w.revision = e.revision()
	if e.Type == "BOOKMARK" {
		w.log = append(w.log, "BOOKMARK "+w.revision)
		w.begins = w.begins && field(o, "metadata", "annotations", metav1.InitialEventsAnnotationKey) != "true"
		return
	}
	if w.accept == asTable {
		rows, _ := o["rows"].([]any)
		if len(rows) != 1 {
			w.fail("a table of %d rows: %s", len(rows), e.text)
		}
		o, _ = rows[0].(map[string]any)["object"].(map[string]any)
		if field(o, "metadata", "resourceVersion") != w.revision {
			w.fail("a table at another revision than its row: %s", e.text)
		}
	}
	key := keyOf(o)
	w.log = append(w.log, fmt.Sprint(e.Type, " ", key, " ", versionOf(o), "@", w.revision))
	// What somebody may read changes with the members: what that brings may come twice.
	again := e.Type == "ADDED" && w.grants != nil
	if _, have := w.state[key]; w.exact && !again && have == (e.Type == "ADDED") {
		w.fail("%s does not fit: there before is %t", w.log[len(w.log)-1], have)
	}
	if e.Type == "DELETED" {
		delete(w.state, key)
		return
	}
	w.state[key] = held{versionOf(o), w.revision}
}

// check holds what the follower knows to what is there.
func (w *follower) check() {
	w.f.t.Helper()
	want := map[string]held{}
	for _, o := range w.expected(w.f) {
		found := w.f.index.Snapshot().Named(pods, o.namespace, o.name)
		for p := range found {
			if p.Member() == o.member {
				want[o.key()] = held{o.version, text(p.Revision())}
			}
		}
	}
	if !maps.Equal(w.state, want) {
		got, _ := json.Marshal(slices.Sorted(maps.Keys(w.state)))
		wish, _ := json.Marshal(slices.Sorted(maps.Keys(want)))
		w.fail("%v is known, want %v\n%s\n%s", w.state, want, got, wish)
	}
}

// TestWatch_InformersHoldWhatExists: through random changes of objects and members,
// interruptions and lost events, clients with random selections and grants
// come to hold what a list of the objects gives.
func TestWatch_InformersHoldWhatExists(t *testing.T) {
	rng := random(t)
	counts := map[string]int{}
	unseen := func() bool {
		return slices.ContainsFunc([]string{"list", "watch", "expired", "ADDED", "MODIFIED", "DELETED", "BOOKMARK"},
			func(what string) bool { return counts[what] == 0 })
	}
	for round := 0; round < 12 || unseen(); round++ {
		o := settings{}
		if round%4 == 3 {
			o.logBytes = 32 << 10 // what is interrupted for long is too late
		}
		f := grown(t, rng, o, 10)
		followers := make([]*follower, 4)
		for i := range followers {
			followers[i] = newFollower(f, rng, counts)
		}
		for range 25 {
			var slow []*stream
			for _, w := range followers {
				if w.stream == nil && rng.IntN(3) > 0 {
					if !w.start(rng) {
						w.stream = nil
					}
				}
				if w.stream != nil && rng.IntN(3) == 0 {
					w.stream.held.Lock()
					slow = append(slow, w.stream)
				}
			}
			for range 1 + rng.IntN(6) {
				f.step(rng)
			}
			for _, s := range slow {
				s.held.Unlock()
			}
			for _, w := range followers {
				if w.stream != nil && rng.IntN(4) == 0 {
					w.stop(rng, rng.IntN(2) == 0)
				}
			}
		}
		for _, w := range followers {
			if w.stream == nil && !w.start(rng) {
				w.stream = nil
				continue
			}
			w.stop(rng, false)
			if w.revision == "" && !w.list() { // it was passed by at last
				continue
			}
			w.check()
		}
	}
	t.Log(counts)
}
