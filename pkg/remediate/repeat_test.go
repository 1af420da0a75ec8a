package remediate

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

// TestExecutor_WritesConcurrentCorrectionOnce: in one process, and in two that both
// believe to lead.
func TestExecutor_WritesConcurrentCorrectionOnce(t *testing.T) {
	s := newFixture(t)
	other := *s
	other.start()
	for n, v := range verbs {
		i, writes := s.intentForVerb(n, v.name)
		var wg sync.WaitGroup
		for k := range 6 {
			wg.Go(func() {
				x := []*executor{s.exec, other.exec}[k%2]
				if a, err := x.execute(t.Context(), i); err != nil || a.Phase != v1alpha1.PhaseSucceeded && a.Phase != v1alpha1.PhaseSuperseded {
					t.Errorf("%s: %+v %v", v.name, a, err)
				}
			})
		}
		wg.Wait()
		if known := s.recorded(i.actionName()); known == nil || known.Phase != v1alpha1.PhaseSucceeded {
			t.Errorf("%s: recorded %+v", v.name, known)
		}
		s.expectAudit(i, writes)
	}
}

// TestExecutor_AnotherProcessContinues: right before the write of one process another one
// finds its record and does the write.
func TestExecutor_AnotherProcessContinues(t *testing.T) {
	s := newFixture(t)
	other := *s
	other.member, other.hub = transport{}, transport{}
	other.start()
	for n, v := range verbs {
		i, writes := s.intentForVerb(n, v.name)
		deletes, taken := 0, false
		s.member.before = func(r *http.Request) error {
			if !taken && isWrite(r, &deletes) {
				taken = true
				if a, err := other.exec.execute(t.Context(), i); err != nil || a.Phase != v1alpha1.PhaseSucceeded {
					t.Errorf("%s: taken up: %+v %v", v.name, a, err)
				}
			}
			return nil
		}
		if a, err := s.exec.execute(t.Context(), i); err != nil || a.Phase != v1alpha1.PhaseSucceeded || !taken {
			t.Errorf("%s: %s %s %v", v.name, a.Phase, a.Message, err)
		}
		s.member.before = nil
		s.expectAudit(i, writes)
	}
}

// TestExecutor_RepeatsNoWriteOfAnotherProcess: a former leader does the write and records it
// after this process has read the target and before it records its own.
func TestExecutor_RepeatsNoWriteOfAnotherProcess(t *testing.T) {
	s := newFixture(t)
	other := *s
	other.member, other.hub = transport{}, transport{}
	other.start()
	for n, v := range verbs {
		i, writes := s.intentForVerb(n, v.name)
		done := false
		s.hub.before = func(r *http.Request) error {
			if !done && r.Method == http.MethodPost {
				done = true
				if a, err := other.exec.execute(t.Context(), i); err != nil || a.Phase != v1alpha1.PhaseSucceeded {
					t.Errorf("%s: the other: %+v %v", v.name, a, err)
				}
			}
			return nil
		}
		if a, err := s.exec.execute(t.Context(), i); err != nil || a.Phase != v1alpha1.PhaseSuperseded || !done {
			t.Errorf("%s: %s %s %v", v.name, a.Phase, a.Message, err)
		}
		s.hub.before = nil
		if again := s.recorded(i.repeatName(1)); again != nil {
			t.Errorf("%s: there is a second record: %s %s", v.name, again.Phase, again.Message)
		}
		s.expectAudit(i, writes)
	}
}

// TestExecutor_CorrectsReversions: each time with a record of its own. A ConfigMap
// has no generation, and a new one no version that distinguishes it.
func TestExecutor_CorrectsReversions(t *testing.T) {
	s := newFixture(t)
	names := map[string]bool{}
	writes := []string{}
	create := apply(`{"apiVersion":"v1","data":{"a":"good"}}`)
	create.Target = policy.Ref{Kind: "ConfigMap", Namespace: s.ns, Name: "one"}
	for n := range 3 {
		a := s.execute(s.intentFor(nil, create))
		if a.Phase != v1alpha1.PhaseSucceeded || names[a.Name] {
			t.Fatalf("%d: created: %s %s by %s", n, a.Phase, a.Message, a.Name)
		}
		names[a.Name] = true
		object := s.merge("ConfigMap", "one", `{"data":{"a":"bad"}}`)
		a = s.execute(s.intentFor(object, patch(`{"data":{"a":"good"}}`)))
		if a.Phase != v1alpha1.PhaseSucceeded || names[a.Name] {
			t.Fatalf("%d: corrected: %s %s by %s", n, a.Phase, a.Message, a.Name)
		}
		names[a.Name] = true
		s.remove("ConfigMap", "one")
		writes = append(writes, "create by us", "patch by others", "patch by us", "delete by others")
	}
	for name := range names {
		if known := s.recorded(name); known == nil || known.Phase != v1alpha1.PhaseSucceeded {
			t.Errorf("%s: recorded %+v", name, known)
		}
	}
	s.expectWrites("configmaps", "one", writes...)
}

// TestExecutor_EndsRecordsNeverWritten: the intent is gone, and no request can be on its way
// any more.
func TestExecutor_EndsRecordsNeverWritten(t *testing.T) {
	s := newFixture(t)
	now := time.Now()
	s.exec.clock = func() time.Time { return now }
	for n, v := range verbs {
		i, writes := s.intentForVerb(n, v.name)
		stopped := errors.New("stopped")
		s.checkWrite = func(*Intent) error { return stopped }
		a, err := s.exec.execute(t.Context(), i)
		if !errors.Is(err, stopped) {
			t.Fatal(a, err)
		}
		s.exec.resolveAll(t.Context())
		if known := s.recorded(a.Name); known.Phase != v1alpha1.PhaseWriting {
			t.Errorf("%s: recorded %s at once", v.name, known.Phase)
		}
		now = now.Add(inFlightTimeout)
		s.exec.resolveAll(t.Context())
		if known := s.recorded(a.Name); known.Phase != v1alpha1.PhaseFailed || known.Message == "" || known.Ended.IsZero() {
			t.Errorf("%s: recorded %+v", v.name, known)
		}
		s.expectAudit(i, writes[:len(writes)-1])

		// The same intent may come again.
		s.checkWrite = nil
		if a := s.execute(i); a.Phase != v1alpha1.PhaseSucceeded || a.Name != i.actionName() {
			t.Errorf("%s: %s %s", v.name, a.Phase, a.Message)
		}
		s.expectAudit(i, writes)
	}
}

// TestExecutor_EndsWithoutRecord: the Action was deleted while it was written.
func TestExecutor_EndsWithoutRecord(t *testing.T) {
	s := newFixture(t)
	i, writes := s.intentForVerb(2, "one")
	s.member.after = func(r *http.Request) error {
		if isWrite(r, new(int)) {
			s.erase(i.actionName())
		}
		return nil
	}
	a, err := s.exec.execute(t.Context(), i)
	if !errors.Is(err, ErrNoAction) || a.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%+v %v", a, err)
	}
	s.exec.resolveAll(t.Context())
	if left := s.exec.listInDoubt(); len(left) != 0 {
		t.Errorf("left: %+v", left[0].action)
	}
	if len(s.resolved) != 1 {
		t.Errorf("resolved %v: what was written counts", fmt.Sprint(s.resolved))
	}
	s.expectAudit(i, writes)
}

// TestExecutor_RecordsTriedOnce: while other clients change the target, and the cause
// changes, too.
func TestExecutor_RecordsTriedOnce(t *testing.T) {
	s := newFixture(t)
	object := s.create("ConfigMap", fmt.Sprintf(oneMap, "one"))
	contended := apply(`{"apiVersion":"v1","data":{"a":"3"}}`)
	for name, c := range map[string]struct {
		intent func(*unstructured.Unstructured) *Intent
		phase  v1alpha1.ActionPhase
	}{
		"contended": {func(o *unstructured.Unstructured) *Intent { return s.intentFor(o, contended) }, v1alpha1.PhaseContended},
		"failed":    {func(o *unstructured.Unstructured) *Intent { return s.intentFor(o, patch(`{"dota":{}}`)) }, v1alpha1.PhaseFailed},
	} {
		var first *Action
		for n := range 3 {
			a := s.execute(c.intent(object))
			if a.Phase != c.phase || first != nil && a.Name != first.Name {
				t.Errorf("%s: %s %s by %s, first by %s", name, a.Phase, a.Message, a.Name, first.Name)
			}
			if first == nil {
				first = a
			}
			object = s.merge("ConfigMap", "one", fmt.Sprintf(`{"data":{"other":"%s %d"}}`, name, n))
		}
		if known := s.recorded(first.Name); known == nil || known.Phase != c.phase || !known.tried {
			t.Errorf("%s: recorded %+v", name, known)
		}
	}

	// Another manager is in the way, then it is not.
	first := s.execute(s.intentFor(object, contended))
	if _, err := s.objects("ConfigMap").Patch(t.Context(), "one", "application/merge-patch+json", []byte(`{"data":{"a":"7"}}`),
		metav1.PatchOptions{FieldManager: "anybody"}); err != nil {
		t.Fatal(err)
	}
	object, err := s.objects("ConfigMap").Get(t.Context(), "one", getOptions)
	if err != nil {
		t.Fatal(err)
	}
	if a := s.execute(s.intentFor(object, contended)); a.Name != first.Name || a.Phase != v1alpha1.PhaseContended || a.Manager != "anybody" || s.recorded(a.Name).Manager != "anybody" {
		t.Errorf("%s by %s", a.Phase, a.Manager)
	}
	i := s.intentFor(object, contended)
	i.Force = true
	if a := s.execute(i); a.Phase != v1alpha1.PhaseSucceeded || a.Name == first.Name || s.recorded(a.Name).tried {
		t.Errorf("%s %s", a.Phase, a.Message)
	}
}

// TestExecutor_SuccessorResolvesTried: what was only tried is never recorded as written, not
// even where the target is gone.
func TestExecutor_SuccessorResolvesTried(t *testing.T) {
	s := newFixture(t)
	for step := 1; ; step++ {
		name := fmt.Sprintf("target-%d", step)
		i := s.intentFor(s.create("ConfigMap", fmt.Sprintf(oneMap, name)), apply(`{"apiVersion":"v1","data":{"a":"3"}}`)) // which others own
		died := s.dieAt(step)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = s.exec.execute(t.Context(), i)
		}()
		<-ended
		s.hub, s.member = transport{}, transport{}
		s.start()
		s.remove("ConfigMap", name)
		if known := s.recorded(i.triedName()); known != nil && !isFinal(known.Phase) {
			s.exec.addInDoubt(known) // as a new leader does
			s.exec.resolveAll(t.Context())
		}
		if known := s.recorded(i.triedName()); known != nil && known.Phase != v1alpha1.PhaseFailed && known.Phase != v1alpha1.PhaseContended {
			t.Errorf("step %d: recorded %+v", step, known)
		}
		if !died() {
			if step < 8 {
				t.Errorf("it took %d steps only", step)
			}
			return
		}
	}
}
