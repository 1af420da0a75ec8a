package persistence_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/persistence"
	"federator.dev/federator/test/seed"
)

// process is one that holds an index and its store.
type process struct {
	t     *testing.T
	index *aggregate.Index
	store *persistence.Store
	stop  func() error
	out   persistence.Loaded
	scope map[string]*aggregate.Scope
}

func start(t *testing.T, dir string, block uint64, change func(*persistence.Options)) *process {
	t.Helper()
	opts := persistence.Options{
		Directory: dir, Boot: "boot", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Form: func(aggregate.Kind) string { return "form" },
	}
	if change != nil {
		change(&opts)
	}
	store, err := persistence.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	x, err := aggregate.New(aggregate.Options{
		Revisions: aggregate.Block(block), Hold: true,
		Fields: map[aggregate.Kind][]string{"Pod": {"spec.nodeName"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, index: x, store: store, scope: map[string]*aggregate.Scope{}}
	if p.out, err = store.Load(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx, x) }()
	p.stop = func() error {
		cancel()
		err := <-ended
		p.stop = func() error { return nil }
		store.Close()
		return err
	}
	t.Cleanup(func() { _ = p.stop() })
	return p
}

func (p *process) member(name string) {
	p.t.Helper()
	if err := p.index.PutMember(aggregate.Member{Name: name, UID: "uid of " + name, Labels: []aggregate.Label{{Key: "env", Value: "prod"}}}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) open(member string, kind aggregate.Kind) *aggregate.Scope {
	p.t.Helper()
	key := member + "/" + string(kind)
	if p.scope[key] == nil {
		s, err := p.index.OpenScopeAs(member, kind, "v1", "pods")
		if err != nil {
			p.t.Fatal(err)
		}
		p.scope[key] = s
	}
	return p.scope[key]
}

func (p *process) item(s *aggregate.Scope, name string, rv int, rng *rand.Rand) aggregate.Item {
	return s.Item(&aggregate.Record{
		Namespace: "n", Name: name, UID: fmt.Sprintf("00000000-0000-4000-8000-%012x", len(name)), ResourceVersion: fmt.Sprint(rv),
		Labels: []aggregate.Label{{Key: "app", Value: fmt.Sprint("app-", rng.IntN(5))}},
		Owners: []aggregate.Owner{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: fmt.Sprint("owner-", rng.IntN(4)), Controller: true}},
		Body:   fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","spec":{"nodeName":"node-%d"},"value":%d}`, rng.IntN(9), rv),
		Update: rng.IntN(2) == 0,
	})
}

// settle waits until readers see all that was committed.
func (p *process) settle() *aggregate.Snapshot {
	p.t.Helper()
	want := p.index.Newest().Revision()
	deadline := time.After(10 * time.Second)
	for {
		s := p.index.Snapshot()
		if s.Revision() >= want {
			return s
		}
		select {
		case <-p.index.Newer(s):
		case <-deadline:
			p.t.Fatalf("readers see %d, want %d", s.Revision(), want)
		}
	}
}

// describe is all that a snapshot has, apart from its revision.
func describe(t *testing.T, s *aggregate.Snapshot) (out []string) {
	t.Helper()
	for m := range s.Members() {
		m.Serves, m.Silent = nil, nil
		out = append(out, fmt.Sprintf("member %+v", m))
		for info := range s.Scopes(m.Name) {
			out = append(out, fmt.Sprintf("scope %s %s %s %s, %d", info.Member, info.Kind, info.Version, info.Resource, info.Objects))
			for o := range s.Objects(info.Member, info.Kind) {
				body, err := o.AppendBody(nil)
				if err != nil {
					t.Fatal(err)
				}
				node, ok := o.Field("spec.nodeName")
				out = append(out, fmt.Sprintf("%s %s %s at %d %v %v %s %t %s", o.Ref(), o.UID(), o.ResourceVersion(), o.Revision(), o.Labels(), o.Owners(), node, ok, body))
			}
		}
	}
	return out
}

// reachesNoMore checks that scopes are not said to have been read further than they were, nor
// less than what they hold.
func reachesNoMore(t *testing.T, got, was *aggregate.Snapshot) {
	t.Helper()
	number := func(parts []aggregate.Part) int {
		n := 0
		for _, p := range parts {
			n, _ = strconv.Atoi(p.ResourceVersion)
		}
		return n
	}
	for info := range was.Scopes("") {
		least := 0
		for o := range was.Objects(info.Member, info.Kind) {
			n, _ := strconv.Atoi(o.ResourceVersion())
			least = max(least, n)
		}
		is, most := number(got.Reached(info.Member, info.Kind)), number(was.Reached(info.Member, info.Kind))
		if is > most || is < least {
			t.Errorf("scope %s of %s is read up to %d, was up to %d, with objects up to %d", info.Kind, info.Member, is, most, least)
		}
	}
}

// changesAfter is what a reader gets that goes on after a revision.
func changesAfter(t *testing.T, x *aggregate.Index, r aggregate.Revision) (out []string) {
	t.Helper()
	changes, err := x.Changes(r)
	if err != nil {
		return []string{err.Error()}
	}
	body := func(o aggregate.Object) string {
		if o.IsZero() {
			return "none"
		}
		b, err := o.AppendBody(nil)
		if err != nil {
			t.Fatal(err)
		}
		return o.ResourceVersion() + " " + string(b)
	}
	for c := range changes {
		out = append(out, fmt.Sprintf("%d %s > %s", c.Revision, body(c.Before), body(c.After)))
	}
	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Fatalf("%s: line %d of %d and %d is\n%s\nwant\n%s", what, i, len(got), len(want), g, w)
		}
	}
}

// TestStore_WhatReadersSawIsLoaded: after any number of kills the index is what readers saw last,
// and they go on from any revision that they saw.
func TestStore_WhatReadersSawIsLoaded(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 9))
	dir := t.TempDir() + "/d"
	members := []string{"prod/eu-1", "prod/us-1", "prod/ap-1"}
	kinds := []aggregate.Kind{"Pod", "Service"}
	rv := 0
	var seen []aggregate.Revision // that may be gone on from
	all := map[aggregate.Revision][]string{}
	for life := range uint64(12) {
		p := start(t, dir, 2*life+1, nil)
		for range 40 {
			for _, m := range members {
				if rng.IntN(10) == 0 && life == 0 || life == 0 {
					p.member(m)
				}
				if _, ok := p.index.Newest().Member(m); !ok {
					p.member(m)
				}
			}
			m, kind := members[rng.IntN(3)], kinds[rng.IntN(2)]
			s := p.open(m, kind)
			rv++
			switch rng.IntN(8) {
			case 0:
				var items []aggregate.Item
				for i := range rng.IntN(30) {
					rv++
					items = append(items, p.item(s, fmt.Sprint("web-", i), rv, rng))
				}
				s.Reached(aggregate.Part{ResourceVersion: fmt.Sprint(rv), Served: "v1.36.0"})
				if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
					t.Fatal(err)
				}
			case 1:
				s.Delete("n", fmt.Sprint("web-", rng.IntN(30)))
			default:
				s.Upsert(p.item(s, fmt.Sprint("web-", rng.IntN(30)), rv, rng))
			}
			s.Reached(aggregate.Part{ResourceVersion: fmt.Sprint(rv), Served: "v1.36.0"})
			if _, err := s.Commit(); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(3) == 0 {
				seen = append(seen, p.settle().Revision())
			}
		}
		was := p.settle()
		seen = append(seen, was.Revision())
		want := describe(t, was)
		for _, r := range seen {
			all[r] = changesAfter(t, p.index, r)
		}
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
		q := start(t, dir, 2*life+2, nil)
		same(t, fmt.Sprint("life ", life), describe(t, q.index.Snapshot()), want)
		reachesNoMore(t, q.index.Snapshot(), was)
		for _, r := range seen {
			same(t, fmt.Sprintf("life %d, after %d", life, r), changesAfter(t, q.index, r), all[r])
		}
		if q.out.Revision != was.Revision() {
			t.Errorf("life %d: readers go on up to %d, want %d", life, q.out.Revision, was.Revision())
		}
		if err := q.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStore_KeepsNoMoreThanMaxBytes: what exceeds the bound is not kept, which is said; readers see
// all of it.
func TestStore_KeepsNoMoreThanMaxBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 3))
	dir := t.TempDir() + "/d"
	p := start(t, dir, 1, func(o *persistence.Options) { o.MaxBytes = 64 << 10 })
	p.member("prod/eu-1")
	s := p.open("prod/eu-1", "Pod")
	for rv := 1; p.store.Status().Error == ""; rv++ {
		if rv == 100_000 {
			t.Fatal("it goes on forever")
		}
		s.Upsert(p.item(s, fmt.Sprint("web-", rv%20), rv, rng))
		if _, err := s.Commit(); err != nil {
			t.Fatal(err)
		}
		p.settle()
	}
	if got := p.store.Status().Error; !strings.Contains(got, "at most 65536 may be (persistence.maxBytes)") {
		t.Error(got)
	}
	s.Upsert(p.item(s, "after", 1_000_000, rng))
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	last := p.settle().Revision()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	q := start(t, dir, 2, nil)
	if q.index.Owns(last) {
		t.Error("readers go on from what was never written")
	}
}
