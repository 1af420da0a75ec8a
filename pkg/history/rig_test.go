package history_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an index whose history is recorded.
type rig struct {
	*history.History
	index *aggregate.Index
	stop  func() // and join
}

// newRig opens the history of a directory, and records an index of its own.
func newRig(t *testing.T, dir string, block uint64, change func(*history.Options, *aggregate.Options)) *rig {
	t.Helper()
	opts := history.Options{Directory: filepath.Join(dir, "history"), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	of := aggregate.Options{Revisions: aggregate.Block(block), Hold: true}
	if change != nil {
		change(&opts, &of)
	}
	h, err := history.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	x, err := aggregate.New(of)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{History: h, index: x, stop: func() {}}
}

// begin records what is committed from now on.
func (r *rig) begin(t *testing.T) {
	t.Helper()
	if err := r.Begin(r.index); err != nil {
		t.Fatal(err)
	}
	r.run(t)
}

// run runs it until stop, or the end of the test.
func (r *rig) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(r.stop)
}

// release waits until all is recorded, and shows it to readers.
func (r *rig) release(t *testing.T) {
	t.Helper()
	p, _ := r.index.Pending(r.index.Snapshot())
	r.Wait(t.Context(), p.Snapshot().Revision())
	p.Release()
}

func (r *rig) scope(t *testing.T, member string, kind aggregate.Kind, items ...func(*aggregate.Scope) aggregate.Item) *aggregate.Scope {
	t.Helper()
	if err := r.index.PutMember(aggregate.Member{Name: member, UID: "uid-" + member, Version: "v1.36.3"}); err != nil {
		t.Fatal(err)
	}
	version, resource := "v1", strings.ToLower(string(kind))+"s"
	s, err := r.index.OpenScopeAs(member, kind, version, resource)
	if err != nil {
		t.Fatal(err)
	}
	var all []aggregate.Item
	for _, i := range items {
		all = append(all, i(s))
	}
	replace(t, s, all...)
	return s
}

func replace(t *testing.T, s *aggregate.Scope, items ...aggregate.Item) {
	t.Helper()
	if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
}

// pod returns an item of a Pod at a version, with some JSON in its metadata and its status.
func pod(name string, version int, status string) func(*aggregate.Scope) aggregate.Item {
	return func(s *aggregate.Scope) aggregate.Item {
		return s.Item(&aggregate.Record{
			Namespace: "shop", Name: name, UID: "uid-" + name, ResourceVersion: fmt.Sprint(version),
			Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":"2026-11-30T08:00:00Z","name":%q,"namespace":"shop","uid":"uid-%s"},"status":%s}`, name, name, status),
		})
	}
}

func put(t *testing.T, s *aggregate.Scope, items ...func(*aggregate.Scope) aggregate.Item) {
	t.Helper()
	for _, i := range items {
		s.Upsert(i(s))
	}
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
}

// read returns all records that a query reads, as lines.
func (r *rig) read(t *testing.T, q history.Query) []string {
	t.Helper()
	var out []string
	for _, x := range r.records(t, q) {
		out = append(out, line(&x))
	}
	return out
}

func (r *rig) records(t *testing.T, q history.Query) (all []history.Record) {
	t.Helper()
	for x, err := range r.Read(q) {
		if err != nil {
			t.Fatal(err)
		}
		if x.Key == "" || x.Time.IsZero() || x.Position == 0 && x.Type != history.Gap {
			t.Errorf("record %+v has no key, time or position", x)
		}
		all = append(all, x)
	}
	return all
}

// line is a record without times and positions.
func line(x *history.Record) string {
	parts := []string{string(x.Type), x.Transition, x.Member, string(x.Kind), x.Namespace, x.Name, x.ResourceVersion, x.Policy, x.Subject, x.Violation}
	for _, c := range x.Changes {
		parts = append(parts, fmt.Sprintf("%s:%s>%s", c.Path, c.Before, c.After))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("recorded is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// fakeClock is one that a test sets.
type fakeClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}
