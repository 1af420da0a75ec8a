package hub_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/charts"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/remediate"
)

const (
	federatorUser   = "system:serviceaccount:approvals:federator"
	approvalsPolicy = "approvals.federator.dev"
	bot             = "system:serviceaccount:ci:bot"
)

// approvalRoles are what the chart grants federator, and approvers by a group and by name.
const approvalRoles = `
apiVersion: v1
kind: Namespace
metadata: {name: approvals}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: approvals-federator}
rules:
- {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
- {apiGroups: [federator.dev], resources: [approvals], verbs: [get, list, watch, create]}
- {apiGroups: [federator.dev], resources: [approvals/status], verbs: [get, update, patch]}
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingadmissionpolicies, validatingadmissionpolicybindings]
  resourceNames: [approvals.federator.dev, fleetpolicies.federator.dev, records.federator.dev]
  verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approvals-federator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approvals-federator}
subjects: [{kind: ServiceAccount, name: federator, namespace: approvals}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: lease, namespace: approvals}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [federator-admission], verbs: [get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lease, namespace: approvals}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: lease}
subjects: [{kind: ServiceAccount, name: federator, namespace: approvals}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: approvals-people}
rules:
- {apiGroups: [federator.dev], resources: [approvals], verbs: [create, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approvals-people}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approvals-people}
subjects: [{kind: Group, name: "system:authenticated"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: approvals-approver}
rules:
- {apiGroups: [federator.dev], resources: [fleetpolicies], resourceNames: [hosts, plain], verbs: [approve]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approvals-approver}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approvals-approver}
subjects: [{kind: Group, name: sre}, {kind: User, name: dora}, {kind: ServiceAccount, name: bot, namespace: ci}, {kind: ServiceAccount, name: other, namespace: ci}]
`

// plans is what Approvals tell of, instead of a Dispatcher.
type plans struct {
	mu           sync.Mutex
	policies     map[string]*remediate.Status
	acknowledged map[string]string // by halt
}

func (p *plans) Status(policy string) (remediate.Status, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.policies[policy]
	if st == nil {
		return remediate.Status{Restored: true}, false
	}
	out := *st
	out.Plans, out.Halts = slices.Clone(st.Plans), slices.Clone(st.Halts)
	return out, true
}

func (p *plans) SetApprovals(policy string, approved map[types.UID]remediate.Approved) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if st := p.policies[policy]; st != nil {
		for i := range st.Plans {
			st.Plans[i].Approved = approved[st.Plans[i].UID]
		}
	}
}

func (p *plans) AcknowledgeUntil(policy, id, by string, until time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.policies[policy]
	n := slices.IndexFunc(st.Halts, func(h *remediate.Halt) bool { return h.ID == id })
	if n < 0 {
		return remediate.ErrNoHalt
	}
	if !until.After(time.Now()) {
		return fmt.Errorf("acknowledged until %v", until)
	}
	st.Halts = slices.Delete(st.Halts, n, n+1)
	p.acknowledged[id] = by
	return nil
}

func (p *plans) approved(policy string, hash v1alpha1.Digest) remediate.Approved {
	st, _ := p.Status(policy)
	for _, x := range st.Plans {
		if x.Hash == hash {
			return x.Approved
		}
	}
	return remediate.Approved{}
}

// approvalHub is a hub with Approvals that run, and people.
type approvalHub struct {
	t         *testing.T
	plans     *plans
	approvals *hub.Approvals
}

// digest returns a hash of a Plan.
func digest(n int) v1alpha1.Digest { return v1alpha1.Digest(fmt.Sprintf("%064x", n)) }

// startApprovals has Approvals run on the hub: policy hosts requires two people of sre or
// finance, policy plain requires nothing.
func startApprovals(t *testing.T, shadows ...hub.ShadowVersion) *approvalHub {
	t.Helper()
	h := realHub(t)
	if err := h.Apply(t.Context(), []byte(approvalRoles)); err != nil {
		t.Fatal(err)
	}
	required := v1alpha1.ApprovalRequirement{Required: 2, Groups: []v1alpha1.GroupName{"sre", "finance"}, ServiceAccounts: []v1alpha1.ServiceAccountName{bot}, ValidFor: &metav1.Duration{Duration: time.Hour}}
	out := &approvalHub{t: t, plans: &plans{acknowledged: map[string]string{}, policies: map[string]*remediate.Status{
		"hosts": {Restored: true, Approval: &v1alpha1.KeptApproval{Requirements: []v1alpha1.ApprovalRequirement{required}}},
		"plain": {Restored: true},
	}}}
	cfg := hubConfig()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: federatorUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	var err error
	out.approvals, err = hub.NewApprovals(hub.ApprovalsOptions{
		Config: cfg, Namespace: "approvals", Dispatcher: out.plans, IsLeader: func() bool { return true },
		Required: func() (map[string][]v1alpha1.ApprovalRequirement, bool) {
			return map[string][]v1alpha1.ApprovalRequirement{"hosts": {required}}, true
		},
		Shadows: func() []hub.ShadowVersion { return shadows }, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := out.approvals.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		ctx := context.WithoutCancel(t.Context())
		if err := shared.client.Resource(v1alpha1.Resource(v1alpha1.Approvals)).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		if err := h.Client().CoordinationV1().Leases("approvals").Delete(ctx, "federator-admission", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return out
}

// plan adds a Plan that waits for Approvals.
func (h *approvalHub) plan(policy string, n int, authors ...v1alpha1.UserName) v1alpha1.Digest {
	h.plans.mu.Lock()
	defer h.plans.mu.Unlock()
	st := h.plans.policies[policy]
	st.Plans = append(st.Plans, remediate.PlanInfo{
		Name: fmt.Sprintf("%s-%d", policy, n), UID: types.UID(digest(n)), Hash: digest(n), Purpose: v1alpha1.PlanGeneration, State: v1alpha1.PlanWaiting, Authors: authors, AuthorsProven: true,
	})
	return digest(n)
}

// halt halts a policy.
func (h *approvalHub) halt(policy, id string) {
	h.plans.mu.Lock()
	defer h.plans.mu.Unlock()
	st := h.plans.policies[policy]
	st.Halts = append(st.Halts, &remediate.Halt{ID: id, Reason: v1alpha1.OverLimit})
}

// as returns the hub's Approvals for a user.
func (h *approvalHub) as(user string, groups ...string) dynamic.ResourceInterface {
	h.t.Helper()
	cfg := hubConfig()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(client.CloseIdleConnections)
	dyn, err := dynamic.NewForConfigAndClient(cfg, client)
	if err != nil {
		h.t.Fatal(err)
	}
	return dyn.Resource(v1alpha1.Resource(v1alpha1.Approvals))
}

// given is an Approval of hosts to be created.
type given struct {
	as, by  string // the creator, and whom it names; "": the same
	groups  []string
	names   []string // spec.groups; nil: groups
	spec    map[string]any
	expires time.Duration // 0: an hour
}

// approve creates an Approval, and returns its name.
func (h *approvalHub) approve(g given) (string, error) {
	h.t.Helper()
	spec := map[string]any{"fleetPolicy": "hosts", "reason": "reviewed", "by": g.by}
	maps.Copy(spec, g.spec)
	if g.by == "" {
		spec["by"] = g.as
	}
	if g.expires == 0 {
		g.expires = time.Hour
	}
	spec["expires"] = time.Now().Add(g.expires).UTC().Format(time.RFC3339)
	if g.names == nil {
		g.names = g.groups
	}
	var groups []any
	for _, name := range g.names {
		groups = append(groups, name)
	}
	if len(groups) > 0 {
		spec["groups"] = groups
	}
	u, err := h.as(g.as, g.groups...).Create(h.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion, "kind": "Approval", "metadata": map[string]any{"generateName": "a-"}, "spec": spec,
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return u.GetName(), nil
}

func (h *approvalHub) mustApprove(g given) string {
	h.t.Helper()
	name, err := h.approve(g)
	if err != nil {
		h.t.Fatal(err)
	}
	return name
}

// expectState waits until an Approval has a state and a reason.
func (h *approvalHub) expectState(what, name string, state v1alpha1.ApprovalState, reason string) {
	h.t.Helper()
	if err := until(func() error {
		u, err := shared.client.Resource(v1alpha1.Resource(v1alpha1.Approvals)).Get(h.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		gotState, _, _ := unstructured.NestedString(u.Object, "status", "state")
		gotReason, _, _ := unstructured.NestedString(u.Object, "status", "reason")
		message, _, _ := unstructured.NestedString(u.Object, "status", "message")
		if gotState != string(state) || gotReason != reason {
			return fmt.Errorf("%s is %s %s (%s), want %s %s", what, gotState, gotReason, message, state, reason)
		}
		return nil
	}); err != nil {
		h.t.Error(err)
	}
}

// expectMet waits until a Plan is approved by people, or is not.
func (h *approvalHub) expectMet(policy string, hash v1alpha1.Digest, met bool, people ...string) {
	h.t.Helper()
	if err := until(func() error {
		got := h.plans.approved(policy, hash)
		var by []string
		for _, g := range got.Given {
			by = append(by, string(g.By))
		}
		slices.Sort(by)
		if got.Met != met || got.Until.IsZero() == met || !slices.Equal(by, people) {
			return fmt.Errorf("%s: %+v, want met %t by %v", policy, got, met, people)
		}
		return nil
	}); err != nil {
		h.t.Error(err)
	}
}

// admit installs the chart's admission policy of Approvals, and waits until it denies, and
// federator has proven that it does.
func (h *approvalHub) admit() {
	h.t.Helper()
	all, err := charts.Admission(federatorUser)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := realHub(h.t).Apply(h.t.Context(), []byte(all[approvalsPolicy])); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { h.dismiss() })
	if err := until(func() error {
		if why := h.approvals.Unproven(); why != "" {
			h.approvals.Request()
			return errors.New(why)
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
}

// dismiss removes it.
func (h *approvalHub) dismiss() {
	h.t.Helper()
	client, ctx := realHub(h.t).Client().AdmissionregistrationV1(), context.WithoutCancel(h.t.Context())
	for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{client.ValidatingAdmissionPolicyBindings().Delete, client.ValidatingAdmissionPolicies().Delete} {
		if err := remove(ctx, approvalsPolicy, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			h.t.Error(err)
		}
	}
}

// nextSecond waits until the hub's clock, which Approvals are created by, shows another
// second: what was proven in that second is proven of those after it.
func (h *approvalHub) nextSecond() {
	h.t.Helper()
	now := func() string {
		resp, err := shared.http.Get(hubConfig().Host + "/version")
		if err != nil {
			h.t.Fatal(err)
		}
		resp.Body.Close()
		return resp.Header.Get("Date")
	}
	first := now()
	if err := until(func() error {
		if now() == first {
			return errors.New("it is still the same second")
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
}
