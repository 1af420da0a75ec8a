package policy_test

import (
	"fmt"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
)

// taker is a process that judged nothing, is told keys that it asks for, and is given members.
type taker struct {
	t      *testing.T
	engine *policy.Engine
	own    *world
	cursor *aggregate.Cursor
	other  *policy.Engine
	told   *aggregate.Index
	heard  *aggregate.Cursor
}

// newTaker returns one that is told of fleet/b, which has a Deployment.
func newTaker(t *testing.T, set *policy.Set, spec map[string]any) *taker {
	t.Helper()
	others := worldOf(t, "fleet/b", "web", "")
	mustDo(t, others, deployment("fleet/b", "web", spec))
	other, _ := engineOn(t, others, policy.EngineOptions{Set: set, Bindings: bindingsOf(set), Exports: true})
	own, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindingsOf(set), Exports: true, Subscribe: true})
	if err != nil {
		t.Fatal(err)
	}
	k := &taker{t: t, engine: e, own: own, other: other, told: toldOf(t, other.State().Export())}
	if _, err := e.Reset(t.Context(), own.index.Snapshot(), k.told.Snapshot()); err != nil {
		t.Fatal(err)
	}
	k.cursor, k.heard = own.index.Cursor(own.index.Snapshot()), k.told.Cursor(k.told.Snapshot())
	return k
}

// is applies what has changed, and looks at what the state says.
func (k *taker) is(when string, now bool, awaited ...string) {
	k.t.Helper()
	own, _ := k.cursor.Poll()
	told, _ := k.heard.Poll()
	if own != nil || told != nil {
		if _, err := k.engine.Apply(k.t.Context(), own, told); err != nil {
			k.t.Fatal(err)
		}
	}
	s := k.engine.State()
	if !s.Synced || s.SyncedNow() != now || !slices.Equal(s.Awaited(), awaited) {
		k.t.Errorf("%s: synced %t, now %t, awaited %v; want %t, %v", when, s.Synced, s.SyncedNow(), s.Awaited(), now, awaited)
	}
}

// tell has it told of fleet/b what there is, or none of it.
func (k *taker) tell(state aggregate.State, all bool) {
	k.t.Helper()
	x := k.other.State().Export()
	info, _ := x.Scope("fleet/b", "Deployment.apps")
	w, err := k.told.OpenScope("fleet/b", "Deployment.apps", info.Version)
	if err != nil {
		k.t.Fatal(err)
	}
	defer w.Close()
	var items []aggregate.Item
	if all {
		err = x.Records("fleet/b", "Deployment.apps", func(r *aggregate.Record) error { items = append(items, w.Item(r)); return nil })
	}
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := w.Replace(items, aggregate.Status{State: state}); err != nil {
		k.t.Fatal(err)
	}
}

func (k *taker) hold(held *interest.Set) {
	k.t.Helper()
	if _, err := k.engine.SetHeld(k.t.Context(), held); err != nil {
		k.t.Fatal(err)
	}
}

func (k *taker) join(member string) {
	k.t.Helper()
	mustDo(k.t, k.own, op{Do: "join", Member: member, UID: 1}, op{Do: "reopen", Member: member, Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced})
}

// TestState_AwaitsWhatAMemberThatIsTakenOverReadsOfOthers: verdicts on what another process has judged until now are Unknown, and
// without the violations that it had found, until the keys that they read were told. That is waited for, once: what new objects read
// later is not.
func TestState_AwaitsWhatAMemberThatIsTakenOverReadsOfOthers(t *testing.T) {
	t.Parallel()
	k := newTaker(t, load(t, sameApp), map[string]any{"app": "shop"})
	k.is("nothing is judged", true)
	k.join("fleet/a")
	mustDo(t, k.own, deployment("fleet/a", "web", map[string]any{"app": "shop"}))
	k.is("nothing is held of what it reads", false, "fleet/a")
	first := k.engine.State().Wanted()
	mustDo(t, k.own, deployment("fleet/a", "pay", map[string]any{"app": "pay"}))
	k.is("something else is read, too", false, "fleet/a")
	k.hold(first)
	k.is("what it read first is held", false, "fleet/a")
	k.hold(k.engine.State().Wanted())
	k.is("all is held", true)
	mustDo(t, k.own, deployment("fleet/a", "new", map[string]any{"app": "new"}))
	k.is("a new object reads something else", true)
	// It is given away, and comes back.
	mustDo(t, k.own, op{Do: "leave", Member: "fleet/a"})
	k.is("it has left", true)
	k.join("fleet/a")
	mustDo(t, k.own, deployment("fleet/a", "newer", map[string]any{"app": "newer"}))
	k.is("it is back", false, "fleet/a")
	k.hold(interest.Everything())
	k.is("everything is held", true)
}

// TestState_AwaitsWhatAMemberThatIsLetGoWasReadFor: verdicts that read a member here read of it, once another process tells of it, what
// is held of that: what they have asked for in vain so far is missed then.
func TestState_AwaitsWhatAMemberThatIsLetGoWasReadFor(t *testing.T) {
	t.Parallel()
	k := newTaker(t, load(t, sameApp), map[string]any{"app": "shop"})
	k.tell(aggregate.Synced, false)
	k.join("fleet/a")
	k.join("fleet/b")
	standby, _ := k.own.index.Snapshot().Member("fleet/b")
	standby.Role = aggregate.Standby
	if err := k.own.index.PutMember(standby); err != nil {
		t.Fatal(err)
	}
	mustDo(t, k.own, deployment("fleet/a", "web", map[string]any{"app": "shop"}), deployment("fleet/b", "web", map[string]any{"app": "shop"}))
	finds := func(want int) {
		t.Helper()
		v, _ := k.engine.State().Get("test.app", policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}})
		if len(v.Violations) != want {
			t.Errorf("it finds %+v", v)
		}
	}
	k.is("all is read here", true)
	finds(1)
	mustDo(t, k.own, op{Do: "leave", Member: "fleet/b"})
	k.is("the other is let go of", false, "fleet/a")
	finds(0)
	k.tell(aggregate.Synced, true)
	k.is("it is told", false, "fleet/a")
	k.hold(k.engine.State().Wanted())
	k.is("that is held", true)
	finds(1)
}

// TestState_DoesNotAwaitAMemberForGood that is taken over and whose objects read something else all the time.
func TestState_DoesNotAwaitAMemberForGood(t *testing.T) {
	t.Parallel()
	k := newTaker(t, load(t, sameApp), map[string]any{"app": "shop"})
	k.join("fleet/a")
	for i := range 20 {
		wanted := k.engine.State().Wanted()
		mustDo(t, k.own, deployment("fleet/a", "web", map[string]any{"app": fmt.Sprint(i)}))
		apply(t, k.engine, k.cursor)
		k.hold(wanted)
	}
	k.is("it changes all the time", true)
}

// readsTwice reads something of others that follows from what it has read of others.
const readsTwice = `# METADATA
# title: Reads who has what those need that have the app
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.twice

view.apps[input.object.spec.app] contains object.get(input.object.spec, "needs", "") if true

violation contains {"msg": "it is needed"} if {
	some claim in data.fleet.views["test.twice"].apps[input.object.spec.app]
	claim.ref.member != input.ref.member
	some other in data.fleet.views["test.twice"].apps[claim.value]
	other.ref.member == input.ref.member
}
`

// TestState_AwaitsWhatFollowsFromWhatWasRead of others: all of it, by one key after the other.
func TestState_AwaitsWhatFollowsFromWhatWasRead(t *testing.T) {
	t.Parallel()
	k := newTaker(t, load(t, readsTwice), map[string]any{"app": "shop", "needs": "db"})
	k.tell(aggregate.Synced, false)
	k.is("nothing is judged", true)
	k.join("fleet/a")
	mustDo(t, k.own, deployment("fleet/a", "web", map[string]any{"app": "shop"}), deployment("fleet/a", "db", map[string]any{"app": "db2"}))
	k.is("nothing is held", false, "fleet/a")
	k.tell(aggregate.Synced, true)
	k.is("it is told", false, "fleet/a")
	k.hold(k.engine.State().Wanted())
	k.is("all is held that it has read", true)
}

// TestState_IsNotSyncedNowWhileAMemberOfOthersIsRead: what another process has yet to read of a member that it has taken over is
// missing here, too.
func TestState_IsNotSyncedNowWhileAMemberOfOthersIsRead(t *testing.T) {
	t.Parallel()
	k := newTaker(t, load(t, sameApp), map[string]any{"app": "shop"})
	k.hold(interest.Everything())
	k.join("fleet/a")
	mustDo(t, k.own, deployment("fleet/a", "web", map[string]any{"app": "shop"}))
	k.is("all is known", true)
	k.tell(aggregate.Syncing, false)
	k.is("the other one is being read", false)
	k.tell(aggregate.Synced, true)
	k.is("it is read", true)
	k.tell(aggregate.Stale, true)
	k.is("its process is away", true) // what it had told is here
}
