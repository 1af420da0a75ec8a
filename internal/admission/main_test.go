package admission_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/charts"
	"federator.dev/federator/test/kube"
)

// federator is the user of federator on the hub of the tests.
const federator = "system:serviceaccount:federator:federator"

// shared is a hub with the CRDs.
var shared kube.Shared

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{})
	shared.Prepare = func(ctx context.Context) error {
		if err := shared.Fleet.Hub.InstallCRDs(ctx, "../../charts/federator/crds"); err != nil {
			return err
		}
		return shared.Fleet.Hub.Apply(ctx, []byte(roles))
	}
	os.Exit(shared.Main(m))
}

// roles are what the chart grants federator and people, as far as the tests need it.
const roles = `
apiVersion: v1
kind: Namespace
metadata: {name: federator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: federator}
rules:
- {apiGroups: [admissionregistration.k8s.io], resources: [validatingadmissionpolicies, validatingadmissionpolicybindings], verbs: [get]}
- {apiGroups: [federator.dev], resources: [approvals], verbs: [create]}
- {apiGroups: [federator.dev], resources: [fleetpolicies, fleetpolicies/status, plans, plans/status, actions, actions/status, approvals/status], verbs: [get, create, update, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: federator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: federator}
subjects: [{kind: ServiceAccount, name: federator, namespace: federator}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: lease, namespace: federator}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [federator-admission], verbs: [get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lease, namespace: federator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: lease}
subjects: [{kind: ServiceAccount, name: federator, namespace: federator}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: people}
rules:
- {apiGroups: [federator.dev], resources: [approvals, rollbacks, fleetpolicies, plans, planparts, actions, actions/status, approvals/status, rollbacks/status], verbs: [create, update, patch, delete, get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: people}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: people}
subjects: [{kind: Group, name: people}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: approver}
rules:
- {apiGroups: [federator.dev], resources: [fleetpolicies], resourceNames: [hosts], verbs: [approve, rollback]}
- {apiGroups: [federator.dev], resources: [policysources], resourceNames: [platform], verbs: [approve]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approver}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approver}
subjects: [{kind: User, name: jane}]
`

func hub(t *testing.T) *kube.Hub {
	t.Helper()
	return shared.Start(t).Hub
}

// as returns a configuration for a user of the hub.
func as(t *testing.T, user string, groups ...string) *rest.Config {
	t.Helper()
	var cred kube.Credentials
	var err error
	if rest, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(rest, ":")
		cred, err = hub(t).IssueToken(t.Context(), namespace, name, time.Hour)
	} else {
		cred, err = hub(t).IssueCert(user, time.Hour, groups...)
	}
	must(t, err)
	cfg := hub(t).RESTConfigWith(cred)
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg
}

// clientFor returns a client whose connections end with the test.
func clientFor(t *testing.T, cfg *rest.Config) (kubernetes.Interface, dynamic.Interface) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	must(t, err)
	t.Cleanup(client.CloseIdleConnections)
	typed, err := kubernetes.NewForConfigAndClient(cfg, client)
	must(t, err)
	dyn, err := dynamic.NewForConfigAndClient(cfg, client)
	must(t, err)
	return typed, dyn
}

// shipped returns a policy and its binding as the chart has them.
func shipped(t *testing.T, name string) (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	all, err := charts.Admission(federator)
	must(t, err)
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	docs := strings.Split(all[name], "\n---\n")
	must(t, yaml.UnmarshalStrict([]byte(docs[0]), policy))
	must(t, yaml.UnmarshalStrict([]byte(docs[1]), binding))
	return policy, binding
}

// put creates or replaces a policy and its binding; nil is none.
func put(t *testing.T, name string, policy *admissionregistrationv1.ValidatingAdmissionPolicy, binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	client := hub(t).Client().AdmissionregistrationV1()
	ctx := context.WithoutCancel(t.Context())
	policies, bindings := client.ValidatingAdmissionPolicies(), client.ValidatingAdmissionPolicyBindings()
	if now, err := policies.Get(ctx, name, metav1.GetOptions{}); policy == nil {
		must(t, ignoreNotFound(policies.Delete(ctx, name, metav1.DeleteOptions{})))
	} else if apierrors.IsNotFound(err) {
		_, err = policies.Create(ctx, policy, metav1.CreateOptions{})
		must(t, err)
	} else {
		must(t, err)
		now.Spec = policy.Spec
		_, err = policies.Update(ctx, now, metav1.UpdateOptions{})
		must(t, err)
	}
	if now, err := bindings.Get(ctx, name, metav1.GetOptions{}); binding == nil {
		must(t, ignoreNotFound(bindings.Delete(ctx, name, metav1.DeleteOptions{})))
	} else if apierrors.IsNotFound(err) {
		_, err = bindings.Create(ctx, binding, metav1.CreateOptions{})
		must(t, err)
	} else {
		must(t, err)
		now.Spec = binding.Spec
		_, err = bindings.Update(ctx, now, metav1.UpdateOptions{})
		must(t, err)
	}
}

// install installs what the chart has, until the test ends.
func install(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		policy, binding := shipped(t, name)
		t.Cleanup(func() { put(t, name, nil, nil) })
		put(t, name, policy, binding)
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(text), &u.Object))
	return u
}

// until polls until a check passes.
func until(t *testing.T, check func() error) {
	t.Helper()
	must(t, kube.Until(t.Context(), time.Minute, check))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// roundTripper changes what a client gets.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	actions       = v1alpha1.Resource(v1alpha1.Actions)
	approvals     = v1alpha1.Resource(v1alpha1.Approvals)
	fleetPolicies = v1alpha1.Resource(v1alpha1.FleetPolicies)
	plans         = v1alpha1.Resource(v1alpha1.Plans)
	rollbacks     = v1alpha1.Resource(v1alpha1.Rollbacks)
)
