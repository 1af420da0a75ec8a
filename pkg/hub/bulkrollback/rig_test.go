package bulkrollback_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/bulkrollback"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs.
var shared struct {
	kube.Shared
	client rest.Interface
}

func TestMain(m *testing.M) {
	shared.Prepare = func(ctx context.Context) (err error) {
		if shared.client, err = hub.NewRESTClient(hubConfig()); err != nil {
			return err
		}
		if err := shared.Fleet.Hub.InstallCRDs(ctx, "../../../charts/federator/crds"); err != nil {
			return err
		}
		return shared.Fleet.Hub.Apply(ctx, []byte(roles))
	}
	os.Exit(shared.Main(m))
}

func hubConfig() *rest.Config {
	cfg := shared.Fleet.Hub.DirectRESTConfig()
	cfg.WarningHandler, cfg.QPS = rest.NoWarnings{}, -1
	return cfg
}

// roles let ann roll back policy hosts.
const roles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: roll-back}
rules:
- {apiGroups: [federator.dev], resources: [fleetpolicies], resourceNames: [hosts], verbs: [rollback]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: roll-back}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: roll-back}
subjects: [{kind: User, name: ann}]
`

// members stands for a Dispatcher: it rolls back Actions on the hub alone, and counts how often.
type members struct {
	mu      sync.Mutex
	state   remediate.CorrectionState
	answers map[string]func() (*remediate.Action, error) // by Action, instead of rolling back
	done    map[string]int
	asked   []remediate.RollbackRequest
	looks   int // at the state
}

func (m *members) CorrectionState(string) remediate.CorrectionState {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	return m.state
}

func (m *members) set(change func(*remediate.CorrectionState)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.state)
}

func (m *members) RollBack(ctx context.Context, name string, r remediate.RollbackRequest) (*remediate.Action, error) {
	m.mu.Lock()
	m.asked = append(m.asked, r)
	answer := m.answers[name]
	m.mu.Unlock()
	if err := r.Admit(); err != nil {
		return nil, err
	}
	if answer != nil {
		return answer()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if m.done[name] > 0 {
		return nil, remediate.ErrRolledBack
	}
	m.done[name]++
	patch := `{"status":{"phase":"RolledBack"}}`
	err := shared.client.Patch(types.MergePatchType).Resource(v1alpha1.Actions).Name(name).SubResource("status").Body([]byte(patch)).Do(context.WithoutCancel(ctx)).Error()
	if err != nil {
		return nil, err
	}
	return &remediate.Action{Name: name + "-back", Phase: v1alpha1.PhaseSucceeded}, nil
}

// people stand for Approvals.
type people struct {
	mu       sync.Mutex
	approved remediate.Approved
	since    time.Time
	why      string
}

func (p *people) Rollback(string, v1alpha1.Digest) remediate.Approved {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.approved
}

func (p *people) RollbacksSince() (since, asked time.Time, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since, time.Now(), p.why
}

func (p *people) approve(a remediate.Approved) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.approved = a
}

func (*people) Request() {}
func (*people) Trigger() {}

// rig is a hub with Actions of policy hosts, and what Controllers run with.
type rig struct {
	t       *testing.T
	members *members
	people  *people

	generation v1alpha1.RolloutGeneration // of what act records
}

func newRig(t *testing.T) *rig {
	t.Helper()
	shared.Start(t)
	r := &rig{
		t: t, members: &members{state: remediate.CorrectionState{Restored: true, Known: true, Generation: generation1, Suspended: true}, answers: map[string]func() (*remediate.Action, error){}, done: map[string]int{}},
		generation: generation1, people: &people{approved: remediate.Approved{Met: true}, since: time.Now().Add(-time.Hour)},
	}
	t.Cleanup(r.clear)
	return r
}

// clear deletes all that a test has made.
func (r *rig) clear() {
	ctx := context.WithoutCancel(r.t.Context())
	for _, resource := range []string{v1alpha1.Rollbacks, v1alpha1.Plans, v1alpha1.PlanParts, v1alpha1.Actions, v1alpha1.FleetPolicies} {
		if err := shared.client.Delete().Resource(resource).Do(ctx).Error(); err != nil {
			r.t.Error(err)
		}
	}
}

// run runs a Controller until its context ends. It joins it.
func (r *rig) run(ctx context.Context, wrap func(http.RoundTripper) http.RoundTripper) (join func()) {
	r.t.Helper()
	cfg := hubConfig()
	if wrap != nil {
		cfg.Wrap(wrap)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	cfg.Transport, cfg.TLSClientConfig = client.Transport, rest.TLSClientConfig{}
	cfg.BearerToken, cfg.WrapTransport = "", nil
	c, err := bulkrollback.New(bulkrollback.Options{
		Config: cfg, Actions: cfg, Dispatcher: r.members, Approvals: func() bulkrollback.Approvals { return r.people },
		Lease:      func() (time.Time, error) { return time.Time{}, nil },
		StopsKnown: func() bool { return true }, MemberUID: func(member string) string { return "uid of " + member },
		Logger: slog.New(slog.NewTextHandler(r.t.Output(), nil)),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	})
	return func() {
		running.Wait()
		client.CloseIdleConnections()
	}
}

// create creates an object, with its status, in place.
func create(t *testing.T, resource, name string, object runtime.Object, status func()) {
	t.Helper()
	err := shared.client.Post().Resource(resource).Body(object.DeepCopyObject()).Do(t.Context()).Into(object)
	if err == nil && status != nil {
		status()
		err = shared.client.Put().Resource(resource).Name(name).SubResource("status").Body(object.DeepCopyObject()).Do(t.Context()).Into(object)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Generations of the policy.
const (
	generation1 = "11111111111111111111111111111111"
	generation2 = "22222222222222222222222222222222"
)

// act records that policy hosts has written an object, some minutes after the hour.
func (r *rig) act(name, target string, minutes int) {
	r.t.Helper()
	at := metav1.NewMicroTime(time.Now().Add(time.Duration(minutes-60) * time.Minute))
	a := &v1alpha1.Action{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "Action"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ActionSpec{
			Binding: "hosts", Package: "acme.hosts", Revision: "1", Verb: v1alpha1.Patch, PatchType: v1alpha1.MergePatch, Generation: r.generation,
			Patch: `{"spec":{"replicas":2}}`, PatchHash: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
			BeforeHash: v1alpha1.Digest(fmt.Sprintf("%064x", minutes)),
			Target:     v1alpha1.Target{Member: "fleet/eu-1", APIVersion: "apps/v1", Kind: "Deployment.apps", Namespace: "shop", Name: target, UID: "u", ResourceVersion: "1"},
		},
		Inverse: &v1alpha1.Inverse{Verb: v1alpha1.Patch, Patch: `{"spec":{"replicas":1}}`},
	}
	create(r.t, v1alpha1.Actions, name, a, func() {
		a.Status = v1alpha1.ActionStatus{Phase: v1alpha1.PhaseSucceeded, StartedAt: &at, EndedAt: &at}
	})
}

// rollback creates a Rollback of what was written within two hours.
func (r *rig) rollback(change func(*v1alpha1.RollbackSpec)) {
	r.t.Helper()
	r.rollbackNamed("back", change)
}

// rollbackNamed is rollback with another name.
func (r *rig) rollbackNamed(name string, change func(*v1alpha1.RollbackSpec)) {
	r.t.Helper()
	since := metav1.NewTime(time.Now().Add(-2 * time.Hour).Truncate(time.Second))
	spec := v1alpha1.RollbackSpec{Policy: "hosts", Since: &since, Reason: "it is wrong", By: "ann"}
	if change != nil {
		change(&spec)
	}
	create(r.t, v1alpha1.Rollbacks, name, &v1alpha1.Rollback{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "Rollback"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}, nil)
}

// status returns the status of the Rollback.
func (r *rig) status() v1alpha1.RollbackStatus {
	got := &v1alpha1.Rollback{}
	if err := shared.client.Get().Resource(v1alpha1.Rollbacks).Name("back").Do(context.WithoutCancel(r.t.Context())).Into(got); err != nil && !apierrors.IsNotFound(err) {
		r.t.Error(err)
	}
	return got.Status
}

// expect waits until the Rollback is in a state for a reason.
func (r *rig) expect(state v1alpha1.RollbackState, reason string) v1alpha1.RollbackStatus {
	r.t.Helper()
	var got v1alpha1.RollbackStatus
	if err := kube.Until(r.t.Context(), time.Minute, func() error {
		if got = r.status(); got.State != state || got.Reason != reason {
			return fmt.Errorf("it is %s %s: %s", got.State, got.Reason, got.Message)
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return got
}

// plans returns the Plans of Rollbacks.
func (r *rig) plans() []v1alpha1.Plan {
	r.t.Helper()
	list := &v1alpha1.PlanList{}
	if err := shared.client.Get().Resource(v1alpha1.Plans).Do(r.t.Context()).Into(list); err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}
