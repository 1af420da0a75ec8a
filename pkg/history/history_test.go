package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
)

func objects(q history.Query) history.Query { q.Kind = "Pod"; return q }

func TestHistory_RecordsEachTransitionOfAnObject(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod", pod("old", 1, `{"phase":"Running"}`))
	put(t, s, pod("web", 2, `{"phase":"Pending"}`))
	put(t, s, pod("web", 3, `{"phase":"Running"}`), pod("web", 4, `{"phase":"Failed"}`)) // in one commit
	put(t, s, pod("web", 5, `{"hostIP":"10.0.0.1","phase":"Failed"}`))                   // of no recorded field
	s.Delete("shop", "web")
	put(t, s)
	r.release(t)
	same(t, r.read(t, objects(history.Query{})),
		"Scope Synced fleet/a Pod", // what was there before it is not a transition
		`Object Created fleet/a Pod shop web 2 status.phase:>"Pending"`,
		`Object Changed fleet/a Pod shop web 3 status.phase:"Pending">"Running"`,
		`Object Changed fleet/a Pod shop web 4 status.phase:"Running">"Failed"`,
		`Object Deleted fleet/a Pod shop web 5 status.phase:"Failed">`,
	)
	var keys []string
	for _, x := range r.records(t, history.Query{Name: "web"}) {
		keys = append(keys, x.Key)
		if x.Revision == 0 || x.MemberUID != "uid-fleet/a" || x.UID != "uid-web" || x.Resource != "pods" {
			t.Errorf("record %+v", x)
		}
	}
	same(t, keys, "uid-fleet%2Fa/uid-web/2", "uid-fleet%2Fa/uid-web/3", "uid-fleet%2Fa/uid-web/4", "uid-fleet%2Fa/uid-web/deleted")
	created := r.records(t, history.Query{Name: "web"})[0]
	if at := created.MemberTime; at == nil || !at.Equal(time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("the member's time of the creation is %v", at)
	}
}

func TestHistory_RecordsMembersAndScopes(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod", pod("web", 1, `{"phase":"Running"}`))
	r.release(t)
	s.SetStatus(aggregate.Status{State: aggregate.Stale, Reason: "the member does not answer"})
	put(t, s)
	s.SetStatus(aggregate.Status{State: aggregate.Synced})
	put(t, s)
	r.release(t)
	if err := r.index.PutMember(aggregate.Member{Name: "fleet/a", UID: "uid-fleet/a", Version: "v1.37.0", Labels: []aggregate.Label{{Key: "env", Value: "prod"}}}); err != nil {
		t.Fatal(err)
	}
	r.release(t)
	s.Remove()
	r.release(t)
	r.index.RemoveMember("fleet/a")
	r.release(t)
	same(t, r.read(t, history.Query{}),
		`Member Joined fleet/a version:>"v1.36.3"`,
		"Scope Synced fleet/a Pod",
		"Scope Stale fleet/a Pod",
		"Scope Synced fleet/a Pod",
		`Member Changed fleet/a version:"v1.36.3">"v1.37.0" labels[env]:>"prod"`,
		"Scope Removed fleet/a Pod",
		"Member Left fleet/a",
	)
}

// Of a member that has changed in more than is recorded, that is said.
func TestHistory_CountsWhatIsTooMuchOfAMember(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	r.begin(t)
	r.scope(t, "fleet/a", "Pod")
	r.release(t)
	m := aggregate.Member{Name: "fleet/a", UID: "uid-fleet/a", Version: "v1.36.3"}
	for i := range 300 {
		m.Labels = append(m.Labels, aggregate.Label{Key: fmt.Sprintf("l%03d", i), Value: "x"})
	}
	if err := r.index.PutMember(m); err != nil {
		t.Fatal(err)
	}
	r.release(t)
	got := r.records(t, history.Query{After: 2})
	if len(got) != 1 || len(got[0].Changes) != 256 || got[0].More != 44 {
		t.Errorf("%d records, the first with %d changes and %d more", len(got), len(got[0].Changes), got[0].More)
	}
}

// What a list finds has happened between lists: what was in between is in a gap.
func TestHistory_TellsWhatIsNotKnown(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod", pod("gone", 1, `{"phase":"Running"}`), pod("web", 2, `{"phase":"Pending"}`))
	r.release(t)
	replace(t, s, pod("web", 9, `{"phase":"Running"}`)(s), pod("new", 8, `{"phase":"Running"}`)(s))
	r.release(t)
	got := r.records(t, history.Query{Kind: "Pod", After: 2})
	var lines []string
	for i := range got {
		lines = append(lines, line(&got[i]))
	}
	same(t, lines,
		`Object Deleted fleet/a Pod shop gone 1 status.phase:"Running">`,
		`Object Created fleet/a Pod shop new 8 status.phase:>"Running"`,
		`Object Changed fleet/a Pod shop web 9 status.phase:"Pending">"Running"`,
		"Gap Gap fleet/a Pod",
	)
	if gap := got[len(got)-1]; gap.From == nil || gap.To == nil || gap.To.Before(*gap.From) || gap.Message == "" {
		t.Errorf("the gap is %+v", gap)
	}
	replace(t, s, pod("web", 9, `{"phase":"Running"}`)(s), pod("new", 8, `{"phase":"Running"}`)(s)) // nothing was missed
	r.release(t)
	if more := r.read(t, history.Query{After: got[len(got)-1].Position}); len(more) > 0 {
		t.Errorf("a list that found nothing is recorded: %q", more)
	}
}

// A change log that does not reach back any more leaves the states before and after, and a gap.
func TestHistory_ComparesWhatTheLogHasLost(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, func(_ *history.Options, o *aggregate.Options) { o.LogBytes = 1 })
	s := r.scope(t, "fleet/a", "Pod", pod("web", 1, `{"phase":"Pending"}`), pod("gone", 2, `{"phase":"Running"}`))
	p, _ := r.index.Pending(r.index.Snapshot())
	p.Release() // as after it was loaded
	if err := r.Begin(r.index); err != nil {
		t.Fatal(err)
	}
	for v := 3; v < 20; v++ {
		put(t, s, pod("web", v, fmt.Sprintf(`{"phase":"P%d"}`, v)))
	}
	s.Delete("shop", "gone")
	put(t, s, pod("new", 30, `{"phase":"Running"}`))
	r.run(t)
	r.release(t)
	same(t, r.read(t, history.Query{}),
		"Gap Gap fleet/a",
		`Object Deleted fleet/a Pod shop gone 2 status.phase:"Running">`,
		`Object Created fleet/a Pod shop new 30 status.phase:>"Running"`,
		`Object Changed fleet/a Pod shop web 19 status.phase:"Pending">"P19"`,
	)
}

// What a process that was killed has recorded, and the next one takes again, is there once.
func TestHistory_TakesNothingTwice(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir, 1, nil)
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod", pod("web", 1, `{"phase":"Pending"}`))
	put(t, s, pod("web", 2, `{"phase":"Running"}`))
	s.Delete("shop", "web")
	put(t, s)
	r.release(t)
	before := r.read(t, history.Query{Name: "web"})
	r.stop()

	r = newRig(t, dir, 2, nil)
	s = r.scope(t, "fleet/a", "Pod", pod("web", 1, `{"phase":"Pending"}`)) // as it was kept
	p, _ := r.index.Pending(r.index.Snapshot())
	p.Release()
	r.begin(t)
	put(t, s, pod("web", 2, `{"phase":"Running"}`))
	s.Delete("shop", "web")
	put(t, s)
	put(t, s, pod("next", 5, `{"phase":"Running"}`))
	r.release(t)
	same(t, r.read(t, history.Query{Name: "web"}), before...)
	same(t, r.read(t, history.Query{Name: "next"}), `Object Created fleet/a Pod shop next 5 status.phase:>"Running"`)
}

// TestHistory_WhatIsNotServedIsNoGap: a kind that a member did not serve before a restart, and does not after it, had nothing to miss.
func TestHistory_WhatIsNotServedIsNoGap(t *testing.T) {
	dir := t.TempDir()
	for process, state := range []aggregate.State{aggregate.NotServed, aggregate.NotServed, aggregate.Synced, aggregate.NotServed} {
		r := newRig(t, dir, uint64(process+1), nil)
		r.begin(t)
		if err := r.index.PutMember(aggregate.Member{Name: "fleet/a", UID: "uid-a"}); err != nil {
			t.Fatal(err)
		}
		s, err := r.index.OpenScopeAs("fleet/a", "Pod", "v1", "pods")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Replace(nil, aggregate.Status{State: state}); err != nil {
			t.Fatal(err)
		}
		r.release(t)
		gaps := 0
		for _, x := range r.records(t, history.Query{}) {
			if x.Type == history.Gap {
				gaps++
			}
		}
		if want := []int{0, 0, 1, 2}[process]; gaps != want {
			t.Errorf("process %d: %d gaps, want %d", process, gaps, want)
		}
		r.stop()
	}
}

func TestHistory_ReadsBySpanPositionAndFacets(t *testing.T) {
	c := &fakeClock{at: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)}
	r := newRig(t, t.TempDir(), 1, func(o *history.Options, _ *aggregate.Options) { o.Now = c.now })
	r.begin(t)
	a, b := r.scope(t, "fleet/a", "Pod"), r.scope(t, "fleet/b", "Pod")
	for i, s := range []*aggregate.Scope{a, b, a, b} {
		c.mu.Lock()
		c.at = c.at.Add(time.Minute)
		c.mu.Unlock()
		put(t, s, pod(fmt.Sprint("p", i), i+1, `{"phase":"Running"}`))
		r.release(t)
	}
	start := time.Date(2026, 11, 30, 9, 0, 30, 0, time.UTC)
	names := func(q history.Query) (out []string) {
		for _, x := range r.records(t, q) {
			if x.Type == history.Object {
				out = append(out, x.Name)
			}
		}
		return out
	}
	same(t, names(history.Query{Member: "fleet/a"}), "p0", "p2")
	same(t, names(history.Query{Namespace: "shop", Backward: true}), "p3", "p2", "p1", "p0")
	same(t, names(history.Query{Since: start.Add(time.Minute), Until: start.Add(3 * time.Minute)}), "p1", "p2")
	same(t, names(history.Query{Name: "p3"}), "p3")
	same(t, names(history.Query{UID: "uid-p1"}), "p1")
	last := r.records(t, history.Query{Name: "p2"})[0].Position
	same(t, names(history.Query{After: last}), "p3")
	if r.Span().Last < last || !r.Span().LastTime.After(start) {
		t.Errorf("the span is %+v", r.Span())
	}
	select {
	case <-r.More(last):
	default:
		t.Error("More does not say that there is more")
	}
}

// Who asks for one object is told of the gaps that it may be in, and of its member, where they are, in pages and in either direction.
func TestHistory_ReadsWhatIsBeside(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	r.begin(t)
	a, b := r.scope(t, "fleet/a", "Pod", pod("web", 1, `{"phase":"Pending"}`), pod("other", 1, `{}`)), r.scope(t, "fleet/b", "Pod", pod("web", 1, `{"phase":"Pending"}`))
	node := r.scope(t, "fleet/a", "Node", pod("n", 1, `{}`))
	put(t, a, pod("web", 2, `{"phase":"Running"}`))
	replace(t, a, pod("web", 3, `{"phase":"Failed"}`)(a), pod("other", 1, `{}`)(a))
	replace(t, b, pod("web", 3, `{"phase":"Failed"}`)(b))
	replace(t, node, pod("n", 3, `{"phase":"Failed"}`)(node))
	put(t, a, pod("web", 4, `{"phase":"Pending"}`))
	replace(t, a, pod("web", 4, `{"phase":"Pending"}`)(a), pod("other", 2, `{"phase":"Failed"}`)(a))
	r.release(t)
	if err := r.Tell(t.Context(), []history.Record{{Type: history.Gap, Transition: "Gap", Key: "all"}}); err != nil {
		t.Fatal(err)
	}
	for r.Span().Last < 16 {
		<-r.More(r.Span().Last)
	}
	// pages reads pages of so many records.
	pages := func(q history.Query, size int) (out []string) {
		for {
			page := r.records(t, q)
			if len(page) == 0 {
				return out
			}
			for _, x := range page[:min(size, len(page))] {
				out = append(out, strings.TrimSpace(fmt.Sprint(x.Type, " ", x.Member, " ", x.Kind, x.Name, x.ResourceVersion)))
				if q.After = x.Position; q.Backward {
					q.After, q.Before = 0, x.Position
				}
			}
		}
	}
	for what, c := range map[string]struct {
		query history.Query
		want  []string
	}{
		"an object": {
			history.Query{Member: "fleet/a", Kind: "Pod", Namespace: "shop", Name: "web"},
			[]string{"Member fleet/a", "Object fleet/a Podweb2", "Object fleet/a Podweb3", "Gap fleet/a Pod", "Object fleet/a Podweb4", "Gap fleet/a Pod", "Gap"},
		},
		"a UID":        {history.Query{Kind: "Pod", UID: "none"}, []string{"Member fleet/a", "Member fleet/b", "Gap fleet/a Pod", "Gap fleet/b Pod", "Gap fleet/a Pod", "Gap"}},
		"a policy":     {history.Query{Member: "fleet/b", Policy: "images"}, []string{"Member fleet/b", "Gap fleet/b Pod", "Gap"}},
		"of all kinds": {history.Query{Member: "fleet/a", Name: "n"}, []string{"Member fleet/a", "Gap fleet/a Pod", "Object fleet/a Noden3", "Gap fleet/a Node", "Gap fleet/a Pod", "Gap"}},
	} {
		for _, size := range []int{1, 2, 100} {
			c.query.Beside, c.query.Backward = true, false
			same(t, pages(c.query, size), c.want...)
			c.query.Backward = true
			backward := pages(c.query, size)
			slices.Reverse(backward)
			if !slices.Equal(backward, c.want) {
				t.Errorf("%s, backward, %d at a time: %q", what, size, backward)
			}
		}
		c.query.Beside = false
		if got := pages(c.query, 3); slices.Contains(got, "Gap") {
			t.Errorf("%s: %q", what, got)
		}
	}
	for _, x := range r.records(t, history.Query{Name: "web", Beside: true}) {
		if x.Type == history.Gap && x.Policy != "" {
			t.Errorf("a gap has a policy: %+v", x)
		}
	}
}
