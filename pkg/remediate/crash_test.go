package remediate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/objects"
	"federator.dev/federator/pkg/remediate/internal/planstore"
)

// ownJournal is the hub's journal with the actions of one policy only.
type ownJournal struct {
	*hubJournal

	binding string
}

func (j ownJournal) List(ctx context.Context) ([]*Action, error) {
	all, err := j.hubJournal.list(ctx)
	return slices.DeleteFunc(all, func(a *Action) bool { return a.Binding != j.binding }), err
}

// dieAt ends the process at a step: before one of its requests is sent, or after it was
// answered. Nothing that it would have done afterwards happens.
func (s *fixture) dieAt(step int) (died func() bool) {
	steps, dead := 0, false
	die := func(*http.Request) error {
		if steps++; steps == step {
			dead = true
			runtime.Goexit()
		}
		return nil
	}
	s.hub.before, s.hub.after, s.member.before, s.member.after = die, die, die, die
	return func() bool { return dead }
}

// TestExecutor_SuccessorResolvesEveryStep: a process ends at each step of each verb. Its
// successor has a verdict as old as its predecessor's, or one that includes the write. The
// object is written once, and the Action says so.
func TestExecutor_SuccessorResolvesEveryStep(t *testing.T) {
	var failed atomic.Bool // one failure is enough: each takes as long as a wait
	for n, v := range verbs {
		for _, verdict := range []string{"old", "new"} {
			t.Run(v.name+"-"+verdict, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() { failed.CompareAndSwap(false, t.Failed()) })
				s := newFixture(t)
				for step := 1; !failed.Load(); step++ {
					i, writes := s.intentForVerb(n, fmt.Sprintf("target-%d", step))
					died := s.dieAt(step)
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						_, _ = s.exec.execute(t.Context(), i)
					}()
					<-ended
					s.hub, s.member = transport{}, transport{}
					s.start()
					if !died() {
						if step < 10 {
							t.Errorf("it took %d steps only", step)
						}
						return
					}
					s.takeOver(i, verdict == "old")
					known := s.recorded(i.actionName())
					if known == nil || known.Phase != v1alpha1.PhaseSucceeded {
						t.Fatalf("step %d: recorded %+v", step, known)
					}
					s.expectAudit(i, writes)
					if t.Failed() {
						t.Fatalf("step %d", step)
					}
				}
			})
		}
	}
}

// ownStates are the states of the policies of one test.
type ownStates struct {
	hubStates

	binding string
}

func (o ownStates) listStates(ctx context.Context) ([]v1alpha1.PolicyState, error) {
	all, err := o.hubStates.listStates(ctx)
	return slices.DeleteFunc(all, func(s v1alpha1.PolicyState) bool { return s.Name != o.binding }), err
}

// takeOver has another process take over.
func (s *fixture) takeOver(i *Intent, stale bool) {
	s.Helper()
	d, err := newDispatcher(Options{Clients: s.clients(), Clock: time.Now, KeepSecretValues: true}, ownJournal{s.journal, s.binding}, ownStates{hubStates{s.journal.hubClient}, s.binding}, planstore.Store{Hub: hubclient.Client{REST: s.journal.hub}})
	if err != nil {
		s.Fatal(err)
	}
	target := i.Remedy.Target
	var wanted []Intent
	if _, version := objects.Identity(s.get(target.Kind, target.Name)); stale || version == i.ResourceVersion {
		wanted = []Intent{*i}
	}
	if err := d.SetIntents(s.binding, RolloutSpec{}, Totals{Fleet: 1}, wanted, true); err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx) }()
	err = until(func() error {
		st, _ := d.Status(s.binding)
		if _, tried := d.Outcomes(s.binding)[target]; !st.Restored || !tried && len(wanted) > 0 {
			return fmt.Errorf("status %+v", st)
		}
		known, err := s.journal.get(ctx, i.actionName())
		if err == nil && !isFinal(known.Phase) {
			err = fmt.Errorf("%s %s", known.Phase, known.Message)
		}
		return err
	})
	cancel()
	if end := <-ended; !errors.Is(end, context.Canceled) {
		s.Error(end)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// TestExecutor_ResolvesOlderActionsFirst: a process ends before or after its write, and its
// successor has another intent for the same target.
func TestExecutor_ResolvesOlderActionsFirst(t *testing.T) {
	s := newFixture(t)
	for name, phase := range map[string]v1alpha1.ActionPhase{"before": v1alpha1.PhaseFailed, "after": v1alpha1.PhaseSucceeded} {
		older := s.intentFor(s.create("ConfigMap", fmt.Sprintf(oneMap, name)), patch(`{"data":{"a":"2"}}`))
		die := func(r *http.Request) error {
			if r.Method == http.MethodPatch && isWrite(r, new(int)) {
				runtime.Goexit()
			}
			return nil
		}
		if s.member.before = die; phase == v1alpha1.PhaseSucceeded {
			s.member.before, s.member.after = nil, die
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = s.exec.execute(t.Context(), older)
		}()
		<-ended
		s.hub, s.member = transport{}, transport{}
		s.start()
		s.exec.addInDoubt(s.recorded(older.actionName())) // as a new leader does
		object, err := s.objects("ConfigMap").Get(t.Context(), name, getOptions)
		if err != nil {
			t.Fatal(err)
		}
		newer := s.intentFor(object, policy.Remedy{Action: "patch", Patch: []byte(`{"data":{"a":"3"}}`)})
		if a := s.execute(newer); a.Phase != v1alpha1.PhaseSucceeded {
			t.Errorf("%s: %s %s", name, a.Phase, a.Message)
		}
		if known := s.recorded(older.actionName()); known.Phase != phase {
			t.Errorf("%s: recorded %s %s, want %s", name, known.Phase, known.Message, phase)
		}
		want := []string{"create by others", "patch by us", "patch by us"}
		if phase == v1alpha1.PhaseFailed {
			want = want[:2]
		}
		s.expectWrites("configmaps", name, want...)
	}
}
