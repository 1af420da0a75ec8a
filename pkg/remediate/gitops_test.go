package remediate_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// ownership is what a test says about targets, by "member name", or by member.
type ownership struct {
	mu sync.Mutex
	of map[string]remediate.Ownership
}

func (o *ownership) set(of map[string]remediate.Ownership) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of = of
}

func (o *ownership) get(ref policy.Ref) remediate.Ownership {
	o.mu.Lock()
	defer o.mu.Unlock()
	if of, ok := o.of[ref.Member+" "+ref.Name]; ok {
		return of
	}
	return o.of[ref.Member]
}

const application = "Argo CD Application argocd/web of member m9, repository https://git.example/web, path apps"

// TestDispatcher_ManagedTargetsDoNotUndoAnAcknowledgement: no Plan has them, and so no
// acknowledgement covers them; the halt would begin again at once, forever.
func TestDispatcher_ManagedTargetsDoNotUndoAnAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &ownership{of: map[string]remediate.Ownership{"m1 a": {Owner: application}}}
		d := run(t, newFleet(), remediate.Options{Owner: o.get})
		spec := remediate.RolloutSpec{Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}
		d.set(t, spec, 20, intents("1", "m1 a", "m2 b", "m2 c"))
		time.Sleep(time.Second)
		synctest.Wait()
		st, _ := d.Status("b")
		if st.Halted == nil {
			t.Fatalf("not halted: %+v", st)
		}
		if err := d.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if st, _ = d.Status("b"); st.Halted != nil || st.Phases[v1alpha1.PhaseManaged] != 1 || st.Phases[v1alpha1.PhaseSucceeded] != 2 {
			t.Errorf("after it was acknowledged: halted %+v, %v", st.Halted, st.Phases)
		}
	})
}

// TestDispatcher_ManagedTargetsAreNotWritten: nor do they count towards limits; they are once
// nobody manages them any more, and where the policy overrides.
func TestDispatcher_ManagedTargetsAreNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &ownership{of: map[string]remediate.Ownership{"m1 a": {Owner: application}, "m1 b": {Owner: application}}}
		d := run(t, newFleet(), remediate.Options{Owner: o.get})
		spec := remediate.RolloutSpec{Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m2 c"))
		d.expect(t, "two of three are managed", "m2 c@0s")
		st, _ := d.Status("b")
		if st.Halted != nil || st.Phases[v1alpha1.PhaseManaged] != 2 || st.Pending != 0 {
			t.Errorf("%+v", st)
		}
		for target, outcome := range d.Outcomes("b") {
			if outcome.Phase == v1alpha1.PhaseManaged && !strings.Contains(outcome.Message, application) {
				t.Errorf("%s: %q does not name the owner", target, outcome.Message)
			}
		}
		// Other versions of a target share the record.
		records := len(d.actions())
		for version := range 3 {
			d.set(t, spec, 20, intents(strings.Repeat("2", version+1), "m1 a", "m1 b"))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if got := len(d.actions()); got != records {
			t.Errorf("%d records of further versions", got-records)
		}
		time.Sleep(2 * time.Hour)
		o.set(map[string]remediate.Ownership{"m1 b": {Owner: application}})
		d.OwnersChanged()
		synctest.Wait()
		if got := d.written(); !strings.Contains(got, "m1 a@") || strings.Contains(got, "m1 b@") {
			t.Errorf("written %q, want the one that nobody manages", got)
		}
		list := intents("3", "m1 b")
		list[0].OverrideGitOps = true
		time.Sleep(2 * time.Hour)
		d.set(t, spec, 20, list)
		synctest.Wait()
		if got := d.written(); !strings.Contains(got, "m1 b@") {
			t.Errorf("written %q, want what overrides", got)
		}
	})
}

// TestDispatcher_UnknownOwnersHold: visibly, and until it is known.
func TestDispatcher_UnknownOwnersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &ownership{of: map[string]remediate.Ownership{"m1": {Unknown: "Applications are not synced"}}}
		d := run(t, newFleet(), remediate.Options{Owner: o.get})
		d.set(t, remediate.RolloutSpec{}, 20, intents("1", "m1 a", "m2 b"))
		time.Sleep(time.Minute)
		d.expect(t, "m1 is not known", "m2 b@0s")
		if st, _ := d.Status("b"); !strings.Contains(st.Waiting, "Applications are not synced") || st.Pending != 1 {
			t.Errorf("%+v", st)
		}
		o.set(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := d.written(); !strings.Contains(got, "m1 a@") {
			t.Errorf("written %q", got)
		}
	})
}

// TestDispatcher_OwnerBetweenPlanAndWriteHolds: owners are asked right before the write.
func TestDispatcher_OwnerBetweenPlanAndWriteHolds(t *testing.T) {
	for _, of := range []remediate.Ownership{{Owner: application}, {Unknown: "not synced"}} {
		synctest.Test(t, func(t *testing.T) {
			f, o := newFleet(), &ownership{}
			f.onDryRun = func(string) { o.set(map[string]remediate.Ownership{"m1 a": of, "m1": {Unknown: of.Unknown}}) }
			d := run(t, f, remediate.Options{Owner: o.get})
			d.set(t, remediate.RolloutSpec{}, 20, intents("1", "m1 a"))
			time.Sleep(time.Minute)
			d.expect(t, "since the dry run", "")
			if st, _ := d.Status("b"); of.Owner != "" && st.Phases[v1alpha1.PhaseManaged] != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestDispatcher_ClaimsAreWrittenCountedAndShown: everybody may write labels.
func TestDispatcher_ClaimsAreWrittenCountedAndShown(t *testing.T) {
	for mark, tool := range map[string]string{
		`"annotations":{"argocd.argoproj.io/tracking-id":"web:apps/Deployment:shop/web"}`: "Argo CD",
		`"annotations":{"meta.helm.sh/release-name":"web"}`:                               "Helm",
		`"labels":{"kustomize.toolkit.fluxcd.io/name":"apps"}`:                            "Flux",
		`"labels":{"app.kubernetes.io/managed-by":"sculptor"}`:                            "other",
		`"managedFields":[{"manager":"helm-controller","operation":"Apply"}]`:             "Flux",
		`"labels":{"app.kubernetes.io/managed-by":"federator"}`:                           "",
		`"labels":{"app":"web"}`:                                                          "",
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet()
			f.marks = "," + mark
			registry := prometheus.NewRegistry()
			d := run(t, f, remediate.Options{Owner: (&ownership{}).get, Metrics: registry})
			d.set(t, remediate.RolloutSpec{}, 20, intents("1", "m1 a"))
			d.expect(t, mark, "m1 a@0s")
			for _, outcome := range d.Outcomes("b") {
				if strings.HasPrefix(outcome.Message, "Claimed: ") != (tool != "") {
					t.Errorf("%s: message %q", mark, outcome.Message)
				}
			}
			if got := counted(t, registry, "federator_actions_claimed_total", "tool"); got != tool {
				t.Errorf("%s: counted as of %q, want %q", mark, got, tool)
			}
		})
	}
}

// counted returns the value of a label of the only series of a metric, "" for no series.
func counted(t *testing.T, registry *prometheus.Registry, name, label string) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name || len(f.GetMetric()) != 1 {
			continue
		}
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() == label {
				return l.GetValue()
			}
		}
	}
	return ""
}
