package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/queryserver"
)

// past is what became of an object before the world is what it is.
type past struct {
	of     *object
	was    map[string]any // its body before; nil: it was not there
	gone   bool           // it is deleted, and none of the world's objects
	listed bool           // a list finds what became of it
}

// change has an object be another one before.
func (w *world) change(o *object, was map[string]any) { w.past = append(w.past, past{of: o, was: was}) }

// remove has an object be deleted.
func (w *world) remove(o *object) {
	w.objects = slices.DeleteFunc(w.objects, func(other *object) bool { return other == o })
	w.past = append(w.past, past{of: o, gone: true})
}

// first are the objects that there are at first.
func (w *world) first() []*object {
	out := slices.Clone(w.objects)
	for _, p := range w.past {
		i := slices.Index(out, p.of)
		switch {
		case p.gone:
			out = append(out, p.of)
		case p.was == nil:
			out = slices.Delete(out, i, i+1)
		default:
			before := *p.of
			before.body, before.version = p.was, "6"
			out[i] = &before
		}
	}
	return out
}

// pass goes through the past of a world, a commit each.
func (w *world) pass(t testing.TB, scopes map[aggregate.Ref]*aggregate.Scope) {
	t.Helper()
	for _, p := range w.past {
		ref := p.of.ref
		scope := scopes[aggregate.Ref{Member: ref.Member, Kind: ref.Kind}]
		var err error
		switch {
		case p.listed:
			var all []aggregate.Item
			for _, o := range w.objects {
				if o.ref.Member == ref.Member && o.ref.Kind == ref.Kind {
					all = append(all, scope.Item(o.record()))
				}
			}
			_, err = scope.Replace(all, aggregate.Status{State: aggregate.Synced})
		case p.gone:
			scope.Delete(ref.Namespace, ref.Name)
			_, err = scope.Commit()
		default:
			scope.Upsert(scope.Item(p.of.record()))
			_, err = scope.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// followed are the verdicts of a loop, and up to where they are recorded.
type followed struct {
	*enforce.Loop
	at atomic.Pointer[enforce.Point]
}

// Newer implements history.Verdicts: what was before is recorded when it is called.
func (f *followed) Newer(p *enforce.Point) <-chan struct{} {
	f.at.Store(p)
	return f.Loop.Newer(p)
}

// recording is the history of a fleet, until the test ends.
type recording struct {
	*history.History
	t        testing.TB
	index    *aggregate.Index
	verdicts *followed
}

// record begins to record an index that nothing has been committed to.
func record(t testing.TB, index *aggregate.Index) *recording {
	t.Helper()
	h, err := history.Open(history.Options{Directory: t.TempDir(), Read: func(aggregate.Kind) bool { return true }})
	if err == nil {
		err = h.Begin(index)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{History: h, t: t, index: index}
	r.run(func(ctx context.Context) error { return h.Run(ctx) })
	return r
}

// run runs something until the test ends.
func (r *recording) run(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil && !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(func() { cancel(); running.Wait() })
}

// follow begins to record verdicts.
func (r *recording) follow(loop *enforce.Loop) {
	r.verdicts = &followed{Loop: loop}
	r.run(func(ctx context.Context) error { return r.FollowVerdicts(ctx, r.verdicts) })
}

// until waits until all verdicts on the index as it is have been recorded, or are about to be.
func (r *recording) until() {
	r.t.Helper()
	if err := kube.Until(r.t.Context(), queryserver.Patience, func() error {
		if p := r.verdicts.at.Load(); p == nil || p != r.verdicts.Point() || p.State().Snapshot.Revision() != r.index.Snapshot().Revision() {
			return errors.New("not recorded")
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	r.Wait(r.t.Context(), r.index.Snapshot().Revision())
}

// tell records what the hub says of a world: the last record is there when all are.
func (r *recording) tell(w *world) {
	r.t.Helper()
	all := append(w.told(), w.gaps...)
	for i := range all {
		all[i].Key = history.Key("told", fmt.Sprint(i))
	}
	if err := r.Tell(r.t.Context(), all); err != nil {
		r.t.Fatal(err)
	}
	for {
		more := r.More(r.Span().Last)
		for x, err := range r.Read(history.Query{Backward: true}) {
			if err != nil {
				r.t.Fatal(err)
			}
			if x.Key == all[len(all)-1].Key {
				return
			}
			break
		}
		select {
		case <-more:
		case <-r.t.Context().Done():
			r.t.Fatal("what was told is not recorded")
		}
	}
}

// told is what is recorded of a world's Actions, the oldest first, and of its commit.
func (w *world) told() (out []history.Record) {
	uids := map[string]string{}
	for _, m := range w.members {
		uids[m.Name] = m.UID
	}
	for _, a := range slices.Backward(w.actions) {
		t, at := a.Spec.Target, a.CreationTimestamp.UTC()
		x := history.Record{
			Type: history.Action, Transition: string(v1alpha1.PhasePending), MemberTime: &at, Action: a.Name, Policy: a.Spec.Binding, Violation: a.Spec.Violation,
			Member: t.Member, MemberUID: uids[t.Member], Kind: aggregate.Kind(t.Kind), Namespace: t.Namespace, Name: t.Name,
		}
		out = append(out, x)
		x.Transition, x.MemberTime, x.Message = string(a.Status.Phase), nil, a.Status.Message
		out = append(out, x)
	}
	return append(out, history.Record{
		Type: history.Policy, Transition: history.CommitTaken, Kind: history.PolicySourceKind, Name: "fleet-policies", Source: "fleet-policies", Subject: "commit 5f3a", By: w.author, Message: w.commit,
	})
}

// pastOf is all that is recorded of an object's bodies.
func pastOf(p *past) string {
	text, err := json.Marshal(p.was)
	if err != nil {
		panic(err)
	}
	return string(text) + string(p.of.record().Body)
}

// without is a body that differs in one field of an object in it.
func without(body map[string]any, object, field string, value any) map[string]any {
	out := maps.Clone(body)
	inner := maps.Clone(out[object].(map[string]any))
	inner[field] = value
	out[object] = inner
	return out
}
