package enforce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
)

const byOthersHost = `# METADATA
# title: One host, one member
# custom: {severity: high, kinds: ["Ingress.networking.k8s.io"]}
package hosts

view.hosts[input.object.spec.host] contains input.ref.name if true

violation contains {"msg": "several"} if count(data.fleet.views["hosts"].hosts[input.object.spec.host]) > 1
`

func loadText(t *testing.T, text string) *policy.Set {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(text)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// subscribing prepares a loop that is told only what it asks for, of a member with the host that another process's has, too.
func subscribing(t *testing.T, set *policy.Set) (*sharing, enforce.Options) {
	t.Helper()
	p := newSharing(t, "fleet/a", "fleet/b")
	return p, enforce.Options{
		Index: p.index, Peers: p.peers, Set: set, Bindings: []policy.Binding{{Name: "hosts", Package: "hosts"}}, Subscribe: true,
		Changed: func(_ *policy.Changes, batch *aggregate.Batch) { p.batches = append(p.batches, batch) },
	}
}

// TestLoop_SetHeld has verdicts wait for what they read of others: they are there when it returns, and are no more when less is held.
func TestLoop_SetHeld(t *testing.T) {
	set := loadText(t, byOthersHost)
	synctest.Test(t, func(t *testing.T) {
		other := startSharing(t, set, "fleet/b", "fleet/a")
		p, opts := subscribing(t, set)
		p.loop = startLoop(t, opts)
		synctest.Wait()
		is := func(when string, want policy.Counts) {
			t.Helper()
			if got := p.loop.State().Total("hosts"); got != want {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		hold := func(held *interest.Set) {
			t.Helper()
			before := len(p.batches)
			if err := p.loop.SetHeld(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			if !p.loop.State().Held().Equal(held) {
				t.Errorf("%d keys are held, of %d", p.loop.State().Held().Size(), held.Size())
			}
			if len(p.batches) != before+1 {
				t.Fatalf("%d changes were published", len(p.batches)-before)
			}
			if b := p.batches[before]; b == nil || b.Before != b.After || b.After != p.loop.State().Snapshot {
				t.Error("what is held is said to have changed the index")
			}
		}
		p.tell(t, other.loop.State().Export())
		synctest.Wait()
		if p.loop.Heard() != p.peers.Snapshot().Changes() {
			t.Errorf("heard %d of %d changes", p.loop.Heard(), p.peers.Snapshot().Changes())
		}
		// What is told already is seen, and is not said to be all.
		unknown, known := policy.Counts{Unknown: 1, Violations: 1}, policy.Counts{Known: 1, Violations: 1}
		is("before it is held", unknown)
		wanted := p.loop.State().Wanted()
		if wanted.Size() != 1 {
			t.Fatalf("%d keys are wanted, of one that is read", wanted.Size())
		}
		hold(wanted)
		is("when it is held", known)
		hold(nil)
		is("when it is held no more", unknown)
		hold(interest.Everything())
		is("when everything is held", known)
		if err := p.loop.Configure(t.Context(), set, nil); err != nil {
			t.Fatal(err)
		}
		if !p.loop.State().Wanted().Empty() || !p.loop.State().Held().IsEverything() {
			t.Error("without policies something is wanted, or what is held has changed")
		}
		if err := other.loop.SetHeld(t.Context(), nil); err == nil {
			t.Error("a loop that does not subscribe is told what is held")
		}
		other.index.RemoveMember("fleet/b")
		synctest.Wait()
		if _, is := other.loop.State().Snapshot.Member("fleet/b"); is {
			t.Error("it does not go on")
		}
	})
}

// TestLoop_SetHeldIsAnsweredOnce whatever the loop does: it does not run yet, the caller leaves, and it has ended.
func TestLoop_SetHeldIsAnsweredOnce(t *testing.T) {
	set := loadText(t, byOthersHost)
	synctest.Test(t, func(t *testing.T) {
		_, opts := subscribing(t, set)
		loop, err := enforce.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("the caller is gone")
		leaving, leave := context.WithCancelCause(t.Context())
		left, answered := make(chan error, 1), make(chan error, 1)
		go func() { left <- loop.SetHeld(leaving, nil) }()
		go func() { answered <- loop.SetHeld(t.Context(), interest.Everything()) }()
		synctest.Wait()
		leave(gone)
		if err := <-left; !errors.Is(err, gone) {
			t.Errorf("a caller that leaves is told %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- loop.Run(ctx) }()
		if err := <-answered; err != nil || !loop.State().Held().IsEverything() {
			t.Errorf("one that waited for the loop to run: %v", err)
		}
		cancel()
		<-ended
		if err := loop.SetHeld(t.Context(), nil); !errors.Is(err, enforce.ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}
