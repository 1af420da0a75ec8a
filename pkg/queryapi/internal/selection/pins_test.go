package selection_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// revisions commits n changes and returns the snapshot after each.
func revisions(t *testing.T, n int) []*aggregate.Snapshot {
	t.Helper()
	f := newFleet(t, nil)
	f.join("a/one")
	out := make([]*aggregate.Snapshot, n)
	for i := range out {
		f.put("a/one", object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "p", "namespace": "n", "resourceVersion": fmt.Sprint(i + 1)}})
		out[i] = f.commit()
	}
	return out
}

func TestPins_DropTheOldestBeyondABound(t *testing.T) {
	snaps := revisions(t, 40)
	newest := snaps[len(snaps)-1]
	kept := func(p *selection.Pins, now time.Time) (n int) {
		for _, s := range snaps {
			if got, ok := p.Snapshot(s.Revision(), newest, now); ok {
				if got != s {
					t.Errorf("revision %d gave another snapshot", s.Revision())
				}
				n++
			}
		}
		return n
	}
	pins := func(o selection.PinOptions) *selection.Pins {
		p, err := selection.NewPins(o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	byCount := pins(selection.PinOptions{MaxSnapshots: 3})
	for i, s := range snaps {
		byCount.Pin(s, "ann", newest, start.Add(time.Duration(i)))
		byCount.Pin(s, "ann", newest, start.Add(time.Duration(i)))
	}
	if n := kept(byCount, start); n != 3 {
		t.Errorf("%d are kept, want 3", n)
	}
	if _, ok := byCount.Snapshot(snaps[36].Revision(), newest, start); ok {
		t.Error("an older one is kept")
	}

	byAge := pins(selection.PinOptions{MaxAge: time.Minute})
	byAge.Pin(snaps[0], "ann", newest, start)
	byAge.Pin(snaps[1], "bob", newest, start.Add(40*time.Second))
	byAge.Pin(snaps[0], "ann", newest, start.Add(50*time.Second)) // does not make it younger
	if n := kept(byAge, start.Add(59*time.Second)); n != 2 {
		t.Errorf("%d are kept, want 2", n)
	}
	if n := kept(byAge, start.Add(60*time.Second)); n != 1 {
		t.Errorf("%d are kept a minute later, want 1", n)
	}
	if n, bytes := byAge.Sweep(newest, start.Add(time.Hour)); n != 0 || bytes != 0 {
		t.Errorf("%d are kept for ever, %d bytes", n, bytes)
	}

	byBytes := pins(selection.PinOptions{MaxBytes: 1})
	byBytes.Pin(snaps[39], "ann", newest, start)
	if n := kept(byBytes, start); n != 1 {
		t.Errorf("the newest is not kept though it costs nothing")
	}
	byBytes.Pin(snaps[0], "ann", newest, start)
	if n := kept(byBytes, start); n != 0 {
		t.Errorf("%d are kept beyond the bound in bytes", n)
	}
	if _, err := selection.NewPins(selection.PinOptions{MaxBytes: -1}); err == nil {
		t.Error("a negative bound is taken")
	}
}

func TestPins_MayBeUsedByMany(t *testing.T) {
	snaps := revisions(t, 20)
	p, err := selection.NewPins(selection.PinOptions{MaxSnapshots: 5})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, s := range snaps {
				p.Pin(s, "ann", s, start.Add(time.Duration(i)))
				p.Snapshot(snaps[i/2].Revision(), s, start)
			}
		})
	}
	wg.Wait()
	if n, _ := p.Sweep(snaps[19], start); n != 5 {
		t.Errorf("%d are kept, want 5", n)
	}
}

func TestPins_OfOneUserDoNotPushOutThoseOfAnother(t *testing.T) {
	snaps := revisions(t, 40)
	newest := snaps[39]
	p, err := selection.NewPins(selection.PinOptions{MaxSnapshots: 6})
	if err != nil {
		t.Fatal(err)
	}
	kept := func(from, to int) (n int) {
		for _, s := range snaps[from:to] {
			if _, ok := p.Snapshot(s.Revision(), newest, start); ok {
				n++
			}
		}
		return n
	}
	// Bob pages through one list, Cid through one that Ann reads too.
	p.Pin(snaps[0], "bob", newest, start)
	p.Pin(snaps[1], "ann", newest, start)
	p.Pin(snaps[1], "cid", newest, start)
	for i := 2; i < 30; i++ {
		p.Pin(snaps[i], "ann", newest, start)
	}
	if kept(0, 2) != 2 || kept(2, 30) != 4 || kept(26, 30) != 4 {
		t.Errorf("of others %d of 2 are kept, of Ann's %d, want 4, the last %d", kept(0, 2), kept(2, 30), kept(26, 30))
	}
	// A user's share is what the others leave, and never less than theirs.
	for i := 30; i < 40; i++ {
		p.Pin(snaps[i], "bob", newest, start)
	}
	if kept(0, 1) != 0 || kept(1, 2) != 1 || kept(28, 30) != 2 || kept(37, 40) != 3 {
		t.Errorf("kept: Bob's first %d, Cid's %d, Ann's %d, Bob's %d", kept(0, 1), kept(1, 2), kept(26, 30), kept(30, 40))
	}
	// Age asks nobody.
	if n, _ := p.Sweep(newest, start.Add(time.Hour)); n != 0 {
		t.Errorf("%d are kept for ever", n)
	}
	p.Pin(snaps[5], "ann", newest, start.Add(time.Hour))
	if n := kept(0, 40); n != 1 {
		t.Errorf("%d are kept, want 1", n)
	}
}
