package hub_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/internal/lineage"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// shelf is a library of policies that do not change.
type shelf struct{ set *policy.Set }

func (s shelf) Policies() (*policy.Set, <-chan struct{}) { return s.set, nil }

func (s shelf) Origin(string) hub.Origin { return hub.Origin{} }

func (s shelf) AppliedAs(*v1alpha1.FleetPolicy) (lineage.Line, string, bool) { return nil, "", false }

func (s shelf) SourceRollout(string) *v1alpha1.VersionRollout { return nil }

func (s shelf) ShadowApproved(string, string) bool { return false }

func (s shelf) TakenBack(string) string { return "" }

func (s shelf) MayNotify(*v1alpha1.FleetPolicy) ([]string, string) {
	return []string{"pager"}, "not on the shelf"
}

func (s shelf) CandidateParameters(*v1alpha1.FleetPolicy) (*runtime.RawExtension, bool) {
	return nil, false
}

// newShelf has a policy of each name; see rego.
func newShelf(t *testing.T, packages ...string) shelf {
	t.Helper()
	src := policy.Source{Name: "shelf"}
	for _, pkg := range packages {
		src.Files = append(src.Files, policy.File{Path: pkg + ".rego", Data: []byte(rego(pkg, "bad"))})
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return shelf{set}
}

// evaluator is a process that evaluates one member with the FleetPolicies of the hub.
type evaluator struct {
	*hub.FleetPolicies
	loop       *enforce.Loop
	dispatcher *remediate.Dispatcher
	lead       atomic.Bool
}

// newEvaluator starts one that leads, which ends with the test.
func newEvaluator(t *testing.T, index *aggregate.Index, library hub.Library, opts hub.EventsOptions, more ...func(context.Context) error) *evaluator {
	t.Helper()
	return newSharingEvaluator(t, index, library, opts, nil, more...)
}

// newSharingEvaluator is newEvaluator of one whose evidence is that of several processes, unless it is nil.
func newSharingEvaluator(t *testing.T, index *aggregate.Index, library hub.Library, opts hub.EventsOptions, found func(policy, of string) (evidence.Part, error), more ...func(context.Context) error) *evaluator {
	t.Helper()
	realHub(t)
	j := &evaluator{dispatcher: newDispatcher(t)}
	j.lead.Store(true)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	opts.Config, opts.IsLeader, opts.Logger = hubConfig(), j.lead.Load, log
	events, err := hub.NewEvents(opts)
	if err != nil {
		t.Fatal(err)
	}
	set, _ := library.Policies()
	corrector := enforce.NewCorrector(j.dispatcher, log)
	if j.loop, err = enforce.New(enforce.Options{Index: index, Set: set, Changed: corrector.Changed, Logger: log}); err != nil {
		t.Fatal(err)
	}
	j.FleetPolicies, err = hub.NewFleetPolicies(hub.FleetPoliciesOptions{
		Config: hubConfig(), Library: library, Loop: j.loop, Corrector: corrector, Dispatcher: j.dispatcher, IsLeader: j.lead.Load, Events: events, Logger: log,
		Evidence: found,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, run := range append(more, j.loop.Run, j.Run, events.Run) {
		running.Go(func() {
			if err := run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := shared.client.Resource(v1alpha1.Resource(v1alpha1.FleetPolicies)).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	return j
}

// bind makes a FleetPolicy, and returns it when the hub has its first status.
func bind(t *testing.T, name, pkg, mode string) *v1alpha1.FleetPolicy {
	t.Helper()
	if err := until(func() error { return shared.Fleet.Hub.Apply(t.Context(), []byte(fleetPolicy(name, pkg, mode))) }); err != nil {
		t.Fatal(err)
	}
	return awaitPolicy(t, name, func(fp *v1alpha1.FleetPolicy) bool { return fp.Status.ObservedGeneration == fp.Generation })
}

// eventsOf returns the Events of an object as kubectl describe finds them, as "type reason: note".
func eventsOf(t *testing.T, uid types.UID) []string {
	t.Helper()
	list, err := shared.Fleet.Hub.Client().CoreV1().Events("").List(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(uid)).String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		e := &list.Items[i]
		if e.Namespace != "default" || e.ReportingController != "federator.dev/federator" || e.EventTime.IsZero() {
			t.Errorf("Event %+v", e)
		}
		out = append(out, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
	}
	return out
}

// expectEvent waits until there is an Event that starts with a text.
func expectEvent(t *testing.T, uid types.UID, want string) {
	t.Helper()
	if err := until(func() error {
		all := eventsOf(t, uid)
		if !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, want) }) {
			return fmt.Errorf("the Events are %q, want %q", all, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestEvents_OfAFleetPolicy: the aggregated Events that kubectl describe shows.
func TestEvents_OfAFleetPolicy(t *testing.T) {
	index, become := pods(t, "bad", "bad", "bad", "good")
	j := newEvaluator(t, index, newShelf(t, "events"), hub.EventsOptions{Instance: "federator-0", Interval: 100 * time.Millisecond})
	become(aggregate.Synced)
	fp := bind(t, "events", "events", "Enforce")
	expectEvent(t, fp.UID, "Normal VerdictsChanged: fleet/a: 3 violations (were 0)")

	lead(t, j.dispatcher, "events", &v1alpha1.RecordedHalt{ID: "abc", Reason: v1alpha1.Fighting, Message: "fleet/a Pod shop/pod-0 violates the policy again", Since: metav1.NowMicro()})
	expectEvent(t, fp.UID, "Warning Halted: Fighting: see status.halted; halted until halt abc is acknowledged")
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"abc"}}}`, api.AcknowledgeKey)
	if _, err := shared.client.Resource(v1alpha1.Resource(v1alpha1.FleetPolicies)).Patch(t.Context(), "events", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "ann"}); err != nil {
		t.Fatal(err)
	}
	expectEvent(t, fp.UID, "Normal Acknowledged: halt abc was acknowledged by ann")

	j.dispatcher.SetStops(remediate.Stops{All: "by ann: an outage"})
	expectEvent(t, fp.UID, "Warning Stopped: all actions are stopped: by ann: an outage")
	j.dispatcher.SetStops(remediate.Stops{})
	expectEvent(t, fp.UID, "Normal Resumed")

	for phase, want := range map[v1alpha1.ActionPhase]string{
		v1alpha1.PhaseSucceeded: "Normal Corrected", v1alpha1.PhaseFailed: "Warning CorrectionFailed", v1alpha1.PhaseContended: "Warning Contended",
	} {
		for i := range 3 {
			a := &remediate.Action{Name: fmt.Sprintf("%s-%d", strings.ToLower(string(phase)), i), Phase: phase, Message: "a secret value"}
			if a.Binding, a.Remedy.Target = "events", (policy.Ref{Member: "fleet/a", Kind: "Secret", Namespace: "shop", Name: "s"}); phase == v1alpha1.PhaseContended {
				a.Manager = "helm"
			}
			j.RecordAction(a)
		}
		if err := until(func() error {
			if n, all := correctionEvents(eventsOf(t, fp.UID), want); n != 3 {
				return fmt.Errorf("%d Events of corrections: %q", n, all)
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
	bad := bind(t, "nowhere", "no.such.package", "Observe")
	expectEvent(t, bad.UID, `Warning NotInEffect: NoPackage: no active package is named "no.such.package"`)
	for _, text := range append(eventsOf(t, fp.UID), eventsOf(t, bad.UID)...) {
		if strings.Contains(text, "pod-0") || strings.Contains(text, "secret value") {
			t.Errorf("%s: an object of a member", text)
		}
	}
	expectOnce := func(reasons ...string) {
		t.Helper()
		all := eventsOf(t, fp.UID)
		for _, reason := range reasons {
			if n := len(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.Contains(s, " "+reason+": ") })); n != 1 {
				t.Errorf("%d Events %s: %q", n, reason, all)
			}
		}
	}
	expectOnce("VerdictsChanged", "Halted", "Acknowledged", "Stopped", "Resumed")

	// A new leader records what has changed, and repeats no Event.
	j.lead.Store(false)
	again := newEvaluator(t, index, newShelf(t, "events"), hub.EventsOptions{Interval: 100 * time.Millisecond})
	if err := shared.Fleet.Hub.Apply(t.Context(), []byte(fleetPolicy("events", "events", "Enforce")+"  match: {namespaces: [other]}\n")); err != nil {
		t.Fatal(err)
	}
	expectEvent(t, fp.UID, "Normal VerdictsChanged: fleet/a: 0 violations (were 3)")
	again.dispatcher.SetStops(remediate.Stops{All: "by bob"})
	expectEvent(t, fp.UID, "Warning Stopped: all actions are stopped: by bob")
	expectOnce("Halted", "Acknowledged", "Resumed")
}

// lead runs a dispatcher until the test ends: it finds a halt of a policy.
func lead(t *testing.T, d *remediate.Dispatcher, policy string, halt *v1alpha1.RecordedHalt) {
	t.Helper()
	states := shared.client.Resource(v1alpha1.Resource(v1alpha1.PolicyStates))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.PolicyState{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "PolicyState"},
		ObjectMeta: metav1.ObjectMeta{Name: policy}, Status: v1alpha1.PolicyStateStatus{Halts: []v1alpha1.RecordedHalt{*halt}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := states.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := states.Delete(context.Background(), policy, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// correctionEvents counts the corrections in Events that start with a text.
func correctionEvents(all []string, reason string) (int, []string) {
	var of []string
	sum := 0
	for _, text := range all {
		rest, ok := strings.CutPrefix(text, reason+": ")
		if !ok {
			continue
		}
		of = append(of, text)
		n := 1
		if !strings.HasPrefix(rest, "1 correction on fleet/a: Action ") {
			if _, err := fmt.Sscanf(rest, "%d corrections on fleet/a, the last one: Action", &n); err != nil {
				return -1, of
			}
		}
		sum += n
	}
	return sum, of
}

// TestEvents_AreLimited: however much happens; dropped Events are counted.
func TestEvents_AreLimited(t *testing.T) {
	index, _ := pods(t)
	begin := time.Now()
	j := newEvaluator(t, index, newShelf(t, "many"), hub.EventsOptions{PerMinute: 10, Interval: time.Hour})
	fp := bind(t, "many", "many", "Observe")
	// Of one member, there is one.
	for range 10_000 {
		a := &remediate.Action{Name: "a", Phase: v1alpha1.PhaseSucceeded}
		a.Binding, a.Remedy.Target.Member = "many", "fleet/one"
		j.RecordAction(a)
	}
	expectEvent(t, fp.UID, "Normal Corrected: ")
	for i := range 2000 {
		a := &remediate.Action{Name: "a", Phase: v1alpha1.PhaseSucceeded}
		a.Binding, a.Remedy.Target.Member = "many", fmt.Sprintf("fleet/m-%d", i)
		j.RecordAction(a)
	}
	left := regexp.MustCompile(`\(\d+ more Events were dropped\)$`)
	if err := until(func() error {
		all := eventsOf(t, fp.UID)
		if len(all) < 5 || !slices.ContainsFunc(all, left.MatchString) {
			return fmt.Errorf("the Events are %q", all)
		}
		if n := strings.Count(strings.Join(all, "\n"), " on fleet/one"); n != 1 {
			t.Errorf("%d Events of one member", n)
		}
		if len(all) > 10 && time.Since(begin) < time.Minute {
			t.Errorf("%d Events within a minute", len(all))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestEvents_OfLosses: on the Cluster of the member, without the names of objects; of other members
// there are none.
func TestEvents_OfLosses(t *testing.T) {
	realHub(t)
	events, err := hub.NewEvents(hub.EventsOptions{Config: hubConfig(), IsLeader: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- events.Run(ctx) }()
	eu1 := corev1.ObjectReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Namespace: "default", Name: "eu-1"}
	events.RecordLoss(&eu1, "Pod", 1)
	eu1.UID = "uid-of-eu-1"
	events.RecordLoss(&eu1, "Pod", 3)
	events.RecordLoss(&corev1.ObjectReference{APIVersion: "cluster.open-cluster-management.io/v1", Kind: "ManagedCluster", Name: "eu-2", UID: "uid-of-a-managed-cluster"}, "Pod", 2)
	expectEvent(t, "uid-of-eu-1", "Warning EventsLost: events of the member were lost: an audit found that 3 objects of kind Pod were not held")
	expectEvent(t, "uid-of-a-managed-cluster", "Warning EventsLost: events of the member were lost: an audit found that 2 objects of kind Pod were not held")
	if all := eventsOf(t, ""); len(all) > 0 {
		t.Errorf("of a Cluster that is not known: %q", all)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestEvents_OfWhatIsKept: every replica says of itself that nothing is kept, and nothing else unless it leads.
func TestEvents_OfWhatIsKept(t *testing.T) {
	realHub(t)
	events, err := hub.NewEvents(hub.EventsOptions{Config: hubConfig(), IsLeader: func() bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- events.Run(ctx) }()
	events.RecordLoss(&corev1.ObjectReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Namespace: "default", Name: "eu-2", UID: "uid-of-eu-2"}, "Pod", 3)
	events.RecordKept("", "", "", "there is no Pod")
	events.RecordKept("default", "federator-1", "uid-of-federator-1", "no space left on device")
	expectEvent(t, "uid-of-federator-1", "Warning IndexNotKept: nothing of the index is kept over a restart, which would list all members: no space left on device")
	events.RecordKept("default", "federator-1", "uid-of-federator-1", "")
	expectEvent(t, "uid-of-federator-1", "Normal IndexKept: the index is kept on disk again")
	if all := eventsOf(t, "uid-of-eu-2"); len(all) > 0 {
		t.Errorf("of a process that does not lead: %q", all)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestNewEvents_ValidatesOptions(t *testing.T) {
	lead := func() bool { return true }
	for _, opts := range []hub.EventsOptions{
		{IsLeader: lead}, {Config: &rest.Config{}}, {Config: &rest.Config{}, IsLeader: lead, PerMinute: -1}, {Config: &rest.Config{}, IsLeader: lead, Interval: -1},
	} {
		if _, err := hub.NewEvents(opts); err == nil {
			t.Errorf("%+v is taken", opts)
		}
	}
}

// TestEvents_OfCommits: active and rejected commits, with the line of an error.
func TestEvents_OfCommits(t *testing.T) {
	r := newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	first := commit(t, repo, tree("team", "a"))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}})
	ps := awaitActive(t, "team", first)
	expectEvent(t, ps.UID, "Normal CommitActive: the policies of commit "+first+" are in effect")
	files := tree("team", "a")
	files["policies/team.rego"] += "\nviolation contains nothing\n"
	broken := commit(t, repo, files)
	ask(t, "team", "one")
	expectEvent(t, ps.UID, "Warning CommitRefused: commit "+broken)
	if all := eventsOf(t, ps.UID); len(all) != 2 || !strings.Contains(strings.Join(all, " "), "team.rego:11") {
		t.Errorf("the Events are %q", all)
	}
	r.stop()
}
