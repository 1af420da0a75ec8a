package transitions_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/transitions"
	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs.
var shared kube.Shared

func TestMain(m *testing.M) {
	klog.StopFlushDaemon()
	shared.Prepare = func(ctx context.Context) error {
		return shared.Fleet.Hub.InstallCRDs(ctx, "../../../charts/federator/crds")
	}
	os.Exit(shared.Main(m))
}

const (
	patience = time.Minute
	trace    = "0123456789abcdef0123456789abcdef" // of Actions
)

// rig is a hub whose objects are recorded.
type rig struct {
	t      *testing.T
	config *rest.Config
	client rest.Interface
	core   kubernetes.Interface
	dir    string // of the history of the process that runs next
}

func newRig(t *testing.T) *rig {
	t.Helper()
	fleet := shared.Start(t)
	r := &rig{t: t, config: rest.CopyConfig(fleet.Hub.DirectRESTConfig()), dir: t.TempDir()}
	r.config.QPS = -1
	var err error
	if r.client, err = hub.NewRESTClient(r.config); err != nil {
		t.Fatal(err)
	}
	if r.core, err = kubernetes.NewForConfig(r.config); err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{v1alpha1.Actions, v1alpha1.Plans, v1alpha1.Approvals, v1alpha1.PolicyStates, v1alpha1.PolicySources, v1alpha1.FleetPolicies} {
		if err := r.client.Delete().Resource(resource).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// process is one that records, until stop.
type process struct {
	*history.History
	t     *testing.T
	leads atomic.Bool
	stop  func() // and join
}

func (r *rig) start(leads bool, change func(*transitions.Options)) *process {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(r.t.Output(), nil))
	h, err := history.Open(history.Options{Directory: r.dir, Log: log})
	if err != nil {
		r.t.Fatal(err)
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := h.Begin(index); err != nil {
		r.t.Fatal(err)
	}
	p := &process{History: h, t: r.t}
	p.leads.Store(leads)
	opts := transitions.Options{Config: r.config, Namespace: "default", Log: h, Leads: p.leads.Load, Logger: log}
	if change != nil {
		change(&opts)
	}
	recorder, err := transitions.New(opts)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := recorder.Run(ctx); !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
		cancel()
	})
	recording, end := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := h.Run(recording); err != nil {
			r.t.Error(err)
		}
	})
	p.stop = sync.OnceFunc(func() { cancel(); running.Wait(); end(); writing.Wait() })
	r.t.Cleanup(p.stop)
	return p
}

// lines are the records, without times.
func (p *process) lines() (lines []string) {
	p.t.Helper()
	keys := map[string]bool{}
	for x, err := range p.Read(history.Query{}) {
		switch {
		case err != nil:
			p.t.Fatal(err)
		case keys[x.Key]:
			p.t.Errorf("%s is recorded twice", x.Key)
		}
		keys[x.Key] = true
		words := []string{string(x.Type), x.Transition, x.Action, x.Member, x.Name, x.Policy, x.Source, x.By}
		lines = append(lines, strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " "))
	}
	return lines
}

// await waits until records are all that there are, in any order.
func (p *process) await(want ...string) {
	p.t.Helper()
	slices.Sort(want)
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		last := p.Span().Last
		got := p.lines()
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-p.More(last):
		case <-ctx.Done():
			p.t.Fatalf("recorded is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// make creates an object.
func (r *rig) make(resource string, o runtime.Object) {
	r.t.Helper()
	if err := r.client.Post().Resource(resource).Body(o).Do(r.t.Context()).Error(); err != nil {
		r.t.Fatal(err)
	}
}

// status changes the status of an object.
func (r *rig) status(resource, name, status string) {
	r.t.Helper()
	subresources := []string{"status"}
	if resource == v1alpha1.PolicyStates {
		subresources = nil
	}
	err := r.client.Patch(types.MergePatchType).Resource(resource).Name(name).SubResource(subresources...).Body([]byte(`{"status":` + status + `}`)).Do(r.t.Context()).Error()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) patch(resource, name, patch string) {
	r.t.Helper()
	if err := r.client.Patch(types.MergePatchType).Resource(resource).Name(name).Body([]byte(patch)).Do(r.t.Context()).Error(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) act(name, member string) {
	r.t.Helper()
	r.make(v1alpha1.Actions, &v1alpha1.Action{
		TypeMeta: metav1.TypeMeta{APIVersion: "federator.dev/v1alpha1", Kind: "Action"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ActionSpec{
			Binding: "tier", Package: "acme.tier", Violation: "no tier", Revision: "7", Verb: "delete", TraceID: v1alpha1.TraceID(trace),
			Target: v1alpha1.Target{Member: member, MemberUID: "uid", APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "1"},
		},
	})
}

func (r *rig) phase(name string, phase v1alpha1.ActionPhase, ended string) {
	r.t.Helper()
	if ended != "" {
		ended = fmt.Sprintf(`,"endedAt":"2026-01-01T10:%s:00.000000Z"`, ended)
	} else {
		ended = `,"endedAt":null`
	}
	r.status(v1alpha1.Actions, name, fmt.Sprintf(`{"phase":%q%s}`, phase, ended))
}

// halts sets the history of halts of policy tier: "+a -a" is that a began and ended.
func (r *rig) halts(text string) {
	r.t.Helper()
	var all []string
	for i, f := range strings.Fields(text) {
		kind, by := "HaltBegan", ""
		if f[0] == '-' {
			kind, by = "HaltEnded", "ann"
		}
		all = append(all, fmt.Sprintf(`{"type":%q,"id":%q,"at":"2026-01-01T10:%02d:00.000000Z","reason":"OverLimit","by":%q}`, kind, f[1:], i, by))
	}
	r.status(v1alpha1.PolicyStates, "tier", `{"history":[`+strings.Join(all, ",")+`]}`)
}

// TestRecorder_GoesOnAfterRestarts: each phase once, of what came before, while and after a process ran.
func TestRecorder_GoesOnAfterRestarts(t *testing.T) {
	r := newRig(t)
	r.act("before", "fleet/a")
	r.phase("before", v1alpha1.PhaseSucceeded, "01")
	r.make(v1alpha1.PolicyStates, &v1alpha1.PolicyState{TypeMeta: metav1.TypeMeta{APIVersion: "federator.dev/v1alpha1", Kind: "PolicyState"}, ObjectMeta: metav1.ObjectMeta{Name: "tier"}})
	r.halts("+a")
	r.make(v1alpha1.FleetPolicies, &v1alpha1.FleetPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: "federator.dev/v1alpha1", Kind: "FleetPolicy"}, ObjectMeta: metav1.ObjectMeta{Name: "tier"},
		Spec: v1alpha1.FleetPolicySpec{Package: "acme.tier", Suspend: true},
	})
	p := r.start(true, nil)
	want := []string{"Action Pending before fleet/a web tier", "Action Succeeded before fleet/a web tier", "Policy Halted tier tier", "Policy Suspended tier tier"}
	p.await(want...)

	r.act("while", "fleet/a")
	for _, x := range []struct {
		phase v1alpha1.ActionPhase
		ended string
	}{{v1alpha1.PhaseFailed, "02"}, {v1alpha1.PhaseWriting, ""}, {v1alpha1.PhaseFailed, "03"}, {v1alpha1.PhaseWriting, ""}, {v1alpha1.PhaseSucceeded, "04"}} {
		r.phase("while", x.phase, x.ended)
	}
	if _, _, err := hub.CreateStop(t.Context(), r.core, "default", hub.StopScope{Scope: hub.StopMember, Name: "fleet/a"}, "ann", "incident"); err != nil {
		t.Fatal(err)
	}
	of := " while fleet/a web tier"
	want = append(want, "Action Pending"+of, "Action Failed"+of, "Action Writing"+of, "Action Failed"+of, "Action Succeeded"+of, "Policy Stopped fleet/a federator-stop-member-fleet.a ann")
	p.await(want...)
	p.stop()

	r.phase("while", v1alpha1.PhaseRolledBack, "05")
	r.halts("+a -a")
	r.patch(v1alpha1.FleetPolicies, "tier", `{"spec":{"suspend":false}}`)
	if err := r.core.CoreV1().ConfigMaps("default").Delete(t.Context(), "federator-stop-member-fleet.a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p = r.start(true, nil)
	want = append(want, "Action RolledBack"+of, "Policy HaltEnded tier tier ann", "Policy Resumed tier tier", "Policy Resumed fleet/a federator-stop-member-fleet.a")
	p.await(want...)

	// Nothing has changed: nothing is recorded, which what comes next proves.
	p.stop()
	p = r.start(true, nil)
	r.act("last", "fleet/a")
	p.await(append(want, "Action Pending last fleet/a web tier")...)
	p.stop()

	// The disk is lost: what the hub still says is recorded, in the order in which it happened.
	r.dir = t.TempDir()
	p = r.start(true, nil)
	p.await("Action Pending before fleet/a web tier", "Action Succeeded before fleet/a web tier", "Action Pending"+of, "Action Succeeded"+of, "Action RolledBack"+of,
		"Action Pending last fleet/a web tier", "Policy Halted tier tier", "Policy HaltEnded tier tier ann")
	var while []string
	for x, err := range p.Read(history.Query{Policy: "tier"}) {
		if err != nil {
			t.Fatal(err)
		}
		if x.Action == "while" {
			while = append(while, x.Transition)
		}
		if x.Type == history.Action && (x.MemberUID != "uid" || x.UID != "u" || x.Kind != "Pod" || x.Namespace != "shop" || x.Revision != 7 || x.Trace != trace || x.Violation != "no tier") {
			t.Errorf("%+v", x)
		}
	}
	if strings.Join(while, " ") != "Pending Succeeded RolledBack" {
		t.Errorf("phases are %v", while)
	}
}

// TestRecorder_TakesOver: the process that leads records, and the next one all that it may have missed.
func TestRecorder_TakesOver(t *testing.T) {
	r := newRig(t)
	first := r.start(true, nil)
	r.dir = t.TempDir()
	second := r.start(false, nil)
	r.act("one", "fleet/a")
	one := []string{"Action Pending one fleet/a web tier", "Action Failed one fleet/a web tier"}
	r.phase("one", v1alpha1.PhaseFailed, "01")
	first.await(one...)
	if got := second.lines(); len(got) != 0 {
		t.Errorf("a process that does not lead has recorded %v", got)
	}
	first.stop() // killed before it has seen what follows
	for _, x := range []struct {
		phase v1alpha1.ActionPhase
		ended string
	}{{v1alpha1.PhaseWriting, ""}, {v1alpha1.PhaseContended, "02"}, {v1alpha1.PhaseWriting, ""}, {v1alpha1.PhaseSucceeded, "03"}} {
		r.phase("one", x.phase, x.ended)
	}
	second.leads.Store(true)
	second.await(append(one, "Action Writing one fleet/a web tier", "Action Contended one fleet/a web tier", "Action Succeeded one fleet/a web tier")...)
}

// TestRecorder_RecordsActionsInTheMembersThatItHolds, of processes that share a fleet.
func TestRecorder_RecordsActionsInTheMembersThatItHolds(t *testing.T) {
	r := newRig(t)
	var held atomic.Pointer[[]string]
	held.Store(&[]string{"fleet/a"})
	p := r.start(false, func(o *transitions.Options) {
		o.Members = func() iter.Seq[string] { return slices.Values(*held.Load()) }
	})
	r.act("a", "fleet/a")
	r.act("b", "fleet/b")
	r.make(v1alpha1.PolicyStates, &v1alpha1.PolicyState{TypeMeta: metav1.TypeMeta{APIVersion: "federator.dev/v1alpha1", Kind: "PolicyState"}, ObjectMeta: metav1.ObjectMeta{Name: "tier"}})
	r.halts("+a") // for who leads
	p.await("Action Pending a fleet/a web tier")
	held.Store(&[]string{"fleet/a", "fleet/b"})
	p.await("Action Pending a fleet/a web tier", "Action Pending b fleet/b web tier")
}

// TestRecorder_RecordsWhatPeopleAndSourcesDo: Plans, Approvals and commits, as they come.
func TestRecorder_RecordsWhatPeopleAndSourcesDo(t *testing.T) {
	r := newRig(t)
	p := r.start(true, nil)
	good, bad := strings.Repeat("a", 40), strings.Repeat("b", 40)
	r.make(v1alpha1.PolicySources, &v1alpha1.PolicySource{
		TypeMeta: metav1.TypeMeta{APIVersion: "federator.dev/v1alpha1", Kind: "PolicySource"}, ObjectMeta: metav1.ObjectMeta{Name: "git"}, Spec: v1alpha1.PolicySourceSpec{URL: "https://example.com/x.git"},
	})
	commit := func(hash, author string) string {
		return fmt.Sprintf(`{"hash":%q,"author":%q,"since":"2026-01-01T10:00:00Z"}`, hash, author)
	}
	condition := func(is, reason string) string {
		return fmt.Sprintf(`[{"type":"Compiled","status":%q,"reason":%q,"message":"tier.rego:4","lastTransitionTime":"2026-01-01T10:00:00Z"}]`, is, reason)
	}
	r.status(v1alpha1.PolicySources, "git", `{"observedGeneration":1,"activeCommit":`+commit(good, "ann")+`,"observedCommit":`+commit(good, "ann")+`,"conditions":`+condition("True", "Compiled")+`}`)
	r.status(v1alpha1.PolicySources, "git", `{"observedCommit":`+commit(bad, "bob")+`,"conditions":`+condition("False", "Compile")+`}`)
	want := []string{"Policy CommitTaken git git ann", "Policy CommitRefused git git bob"}
	p.await(want...)

	r.make(v1alpha1.Plans, plan())
	name := plan().Name
	r.status(v1alpha1.Plans, name, `{"state":"Waiting","required":2,"since":"2026-01-01T10:00:00Z"}`)
	r.status(v1alpha1.Plans, name, `{"state":"Approved","approvals":[{"name":"x","by":"bob","at":"2026-01-01T10:01:00Z","expires":"2026-01-02T10:00:00Z"},{"name":"y","by":"ann","at":"2026-01-01T10:02:00Z","expires":"2026-01-02T10:00:00Z"}]}`)
	r.status(v1alpha1.Plans, name, `{"state":"Done","since":"2026-01-01T10:03:00Z"}`)
	want = append(want, "Policy PlanMade "+name+" tier", "Policy Approved "+name+" tier ann, bob", "Policy PlanDone "+name+" tier")
	p.await(want...)

	r.make(v1alpha1.Approvals, &v1alpha1.Approval{
		TypeMeta: metav1.TypeMeta{APIVersion: "federator.dev/v1alpha1", Kind: "Approval"}, ObjectMeta: metav1.ObjectMeta{Name: "given"},
		Spec: v1alpha1.ApprovalSpec{FleetPolicy: "tier", Halt: "a", Reason: "expected", By: "ann", Expires: metav1.NewTime(time.Now().Add(time.Hour))},
	})
	r.status(v1alpha1.Approvals, "given", `{"state":"Counts"}`)
	if err := r.client.Delete().Resource(v1alpha1.Approvals).Name("given").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	p.await(append(want, "Policy ApprovalGiven given tier ann", "Policy ApprovalCounts given tier ann", "Policy ApprovalWithdrawn given tier ann")...)
}

func plan() *v1alpha1.Plan {
	digest := v1alpha1.Digest(strings.Repeat("9", 64))
	return &v1alpha1.Plan{
		TypeMeta: metav1.TypeMeta{APIVersion: "federator.dev/v1alpha1", Kind: "Plan"}, ObjectMeta: metav1.ObjectMeta{Name: "tier-" + strings.Repeat("9", 16)},
		Spec: v1alpha1.PlanSpec{
			Policy: "tier", Purpose: v1alpha1.PlanGeneration, Hash: digest, Generation: strings.Repeat("0", 32), Targets: 7, Parts: 1,
			Digests: v1alpha1.PlanDigests{Package: digest, Parameters: digest, Spec: digest, Targets: digest},
		},
	}
}

// TestNew_RequiresWhatItNeeds.
func TestNew_RequiresWhatItNeeds(t *testing.T) {
	if _, err := transitions.New(transitions.Options{Namespace: "x"}); err == nil || !strings.Contains(err.Error(), "required") {
		t.Error(err)
	}
}
