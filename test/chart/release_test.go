package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// uninstall removes a release: its objects go, and the CRDs stay.
func uninstall(t *testing.T, release, namespace string) {
	t.Helper()
	// The test's own context has ended by then.
	if _, stderr, err := runUntil(context.WithoutCancel(t.Context()), t.TempDir(), "helm", "uninstall", release, "--namespace", namespace); err != nil {
		t.Errorf("helm uninstall: %v\n%s", err, stderr)
	}
}

// TestRelease_InstallUpgradeUninstall does so with everything that is
// optional: the API server validates all of it.
func TestRelease_InstallUpgradeUninstall(t *testing.T) {
	f := fleet(t)
	const release, namespace = "edge-federator", "release"
	helm(t, append([]string{"install", release, chartDir, "--namespace", namespace, "--create-namespace"}, least()...)...)
	secret := func() string {
		s, err := f.Hub.Client().CoreV1().Secrets(namespace).Get(t.Context(), release+"-tls", metav1.GetOptions{})
		must(t, err)
		return string(s.Data["tls.crt"])
	}
	first := secret()
	helm(t, append([]string{"upgrade", release, chartDir, "--namespace", namespace}, least("--set", "replicas=3")...)...)
	d, err := f.Hub.Client().AppsV1().StatefulSets(namespace).Get(t.Context(), release, metav1.GetOptions{})
	must(t, err)
	if *d.Spec.Replicas != 3 {
		t.Errorf("%d replicas after the upgrade, want 3", *d.Spec.Replicas)
	}
	if first == "" || secret() != first {
		t.Error("an upgrade makes another certificate")
	}

	// An upgrade to everything, then each object is there, as it was rendered.
	helm(t, "upgrade", release, chartDir, "--namespace", namespace, "--values", "testdata/full.yaml")
	all := objects(t, helm(t, "get", "manifest", release, "--namespace", namespace))
	kinds := map[string]bool{}
	for _, u := range all {
		kinds[u.GetKind()] = true
		if _, err := getObject(t, u); err != nil {
			t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule", "Certificate", "NetworkPolicy", "PodDisruptionBudget", "Role", "ConfigMap", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		if !kinds[kind] {
			t.Errorf("there is no %s", kind)
		}
	}
	permissions(t, namespace, release)

	helm(t, "uninstall", release, "--namespace", namespace)
	for _, u := range all {
		if err := until(t.Context(), func() error {
			_, err := getObject(t, u)
			if u.GetAnnotations()["helm.sh/resource-policy"] == "keep" { // the CA of agents, which would all have to join again
				return err
			}
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s %s is still there: %w", u.GetKind(), u.GetName(), err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{v1alpha1.FleetPolicies, v1alpha1.PolicySources, v1alpha1.Actions, v1alpha1.Plans, v1alpha1.PlanParts, v1alpha1.Approvals, v1alpha1.Rollbacks, v1alpha1.Notifications} {
		if _, err := shared.client.Resource(crdResource).Get(t.Context(), name+".federator.dev", metav1.GetOptions{}); err != nil {
			t.Errorf("uninstalling took a CRD away: %v", err)
		}
	}
	t.Run("CRDs are upgraded as NOTES say", crdsAreUpgraded)
}

// crdsAreUpgraded takes something from a CRD, as an older version of the chart would
// not have it, and applies what Helm shows.
func crdsAreUpgraded(t *testing.T) {
	client := shared.client.Resource(crdResource)
	const name = "fleetpolicies.federator.dev"
	columns := func() int {
		u, err := client.Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		list, _ := versions[0].(map[string]any)["additionalPrinterColumns"].([]any)
		return len(list)
	}
	before := columns()
	_, err := client.Patch(t.Context(), name, types.JSONPatchType, []byte(`[{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}]`), metav1.PatchOptions{})
	must(t, err)
	if before == 0 || columns() != 0 {
		t.Fatal("the CRD is as it was")
	}
	for _, u := range objects(t, helm(t, "show", "crds", chartDir)) {
		_, err := client.Apply(t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
		must(t, err)
	}
	if after := columns(); after != before {
		t.Errorf("%d columns, want %d", after, before)
	}
}

// getObject reads from the hub what was rendered.
func getObject(t *testing.T, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	plural := strings.ToLower(u.GetKind()) + "s"
	if strings.HasSuffix(plural, "ys") {
		plural = strings.TrimSuffix(plural, "ys") + "ies"
	}
	r := shared.client.Resource(u.GroupVersionKind().GroupVersion().WithResource(plural))
	if u.GetNamespace() != "" {
		return r.Namespace(u.GetNamespace()).Get(t.Context(), u.GetName(), metav1.GetOptions{})
	}
	return r.Get(t.Context(), u.GetName(), metav1.GetOptions{})
}

// permissions asks the hub what the ServiceAccount of full.yaml may.
func permissions(t *testing.T, namespace, account string) {
	t.Helper()
	const group = "federator.dev"
	for _, c := range []struct {
		verbs, group, resource, sub, namespace, name string
		want                                         bool
	}{
		{"get list watch", "cluster.x-k8s.io", "clusters", "", "fleet", "", true},
		{"list watch", "", "secrets", "", "edge", "", true},
		{"list watch get", "", "secrets", "", "other", "", false},
		{"list watch get", "", "secrets", "", namespace, "", false},
		{"list watch get", "", "secrets", "", "", "", false},
		{"get", "", "secrets", "", "fleet", "git-token", true},
		{"create update patch delete get", "", "secrets", "", "fleet", "", false},
		{"create", "authentication.k8s.io", "tokenreviews", "", "", "", true},
		{"create", "authorization.k8s.io", "subjectaccessreviews", "", "", "", true},
		{"list watch", "flowcontrol.apiserver.k8s.io", "flowschemas", "", "", "", true},
		{"list watch", "flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "", "", true},
		{"get list watch", group, "fleetpolicies", "", "", "", true},
		{"get list watch", group, "policysources", "", "", "", true},
		{"create update patch delete", group, "policysources", "", "", "", false},
		{"update patch", group, "fleetpolicies", "status", "", "", true},
		{"update patch", group, "policysources", "status", "", "", true},
		{"get list watch create update patch delete", group, "actions", "", "", "", true},
		{"update patch", group, "actions", "status", "", "", true},
		{"get list watch create update delete", group, "plans", "", "", "", true},
		{"get list watch create update delete", group, "planparts", "", "", "", true},
		{"get list watch create update delete", group, "policystates", "", "", "", true},
		{"get list watch create", group, "approvals", "", "", "", true},
		{"update patch delete", group, "approvals", "", "", "", false},
		{"update", group, "approvals", "status", "", "", true},
		{"get list watch", group, "rollbacks", "", "", "", true},
		{"create update patch delete", group, "rollbacks", "", "", "", false},
		{"update", group, "rollbacks", "status", "", "", true},
		{"get list watch", group, "notifications", "", "", "", true},
		{"create update patch delete", group, "notifications", "", "", "", false},
		{"update patch", group, "notifications", "status", "", "", true},
		{"get list watch", "", "secrets", "", namespace, "nats.creds", true},
		{"create update patch delete", "", "secrets", "", namespace, "nats.creds", false},
		{"get", "", "secrets", "", "fleet", "pager", false},
		{"approve rollback", group, "fleetpolicies", "", "", "hosts", false},
		{"approve", group, "policysources", "", "", "platform", false},
		{"get", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", "", "approvals.federator.dev", true},
		{"get", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", "", "", "fleetpolicies.federator.dev", true},
		{"get", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", "", "other", false},
		{"list create update patch delete", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", "", "approvals.federator.dev", false},
		{"create patch", "", "events", "", "default", "", false}, // that is for FleetPolicies
		{"create patch", "events.k8s.io", "events", "", "default", "", false},
		{"create", "coordination.k8s.io", "leases", "", namespace, "", true},
		{"get update", "coordination.k8s.io", "leases", "", namespace, "federator", true},
		{"get update", "coordination.k8s.io", "leases", "", namespace, "federator-revisions", true},
		{"get update", "coordination.k8s.io", "leases", "", namespace, "federator-admission", true},
		{"patch delete", "coordination.k8s.io", "leases", "", namespace, "federator-revisions", false},
		{"get update", "coordination.k8s.io", "leases", "", "kube-system", "federator-revisions", false},
		{"get update", "coordination.k8s.io", "leases", "", namespace, "other", false},
		{"get update create", "coordination.k8s.io", "leases", "", "kube-system", "federator", false},
		{"get list watch create", "", "configmaps", "", namespace, "", true}, // stops, of which it sets some itself
		{"update patch delete", "", "configmaps", "", namespace, "federator-stop", false},
		{"get list watch create", "", "configmaps", "", "kube-system", "", false},
		{"create patch update delete get list", "", "pods", "", "", "", false},
		{"impersonate", "", "users", "", "", "", false},
		{"create update bind escalate", "rbac.authorization.k8s.io", "clusterroles", "", "", "", false},
	} {
		for verb := range strings.FieldsSeq(c.verbs) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:   "system:serviceaccount:" + namespace + ":" + account,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Group: c.group, Resource: c.resource, Subresource: c.sub, Namespace: c.namespace, Name: c.name,
				},
			}}
			// The authorizer follows changes of RBAC a moment later.
			if err := until(t.Context(), func() error {
				got, err := shared.Fleet.Hub.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
				if err == nil && got.Status.Allowed != c.want {
					err = fmt.Errorf("%s %s.%s/%s in %q named %q: allowed is %t, want %t", verb, c.resource, c.group, c.sub, c.namespace, c.name, got.Status.Allowed, c.want)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestManifests_ConformToSchemas has kubeconform check everything against the
// schemas that the hub publishes, foreign kinds and our own included.
func TestManifests_ConformToSchemas(t *testing.T) {
	f := fleet(t)
	text := helm(t, "template", "federator", chartDir, "--include-crds", "--values", "testdata/full.yaml")
	dir := t.TempDir()
	manifest := filepath.Join(dir, "manifest.yaml")
	must(t, os.WriteFile(manifest, []byte(text), 0o600))
	wanted := map[schema.GroupVersionKind]bool{}
	for _, u := range objects(t, text) {
		wanted[u.GroupVersionKind()] = true
	}
	must(t, until(t.Context(), func() error { // a CRD's schema is published after it is served
		answer, err := f.Hub.Client().Discovery().RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil {
			return err
		}
		return writeSchemas(answer, wanted, dir)
	}))
	out, stderr, err := run(t, "kubeconform", "-strict", "-summary", "-schema-location", dir+"/{{.ResourceKind}}{{.KindSuffix}}.json", manifest)
	if err != nil || !strings.Contains(out, "Invalid: 0, Errors: 0, Skipped: 0") {
		t.Errorf("kubeconform: %v\n%s%s", err, out, stderr)
	}
	broken := filepath.Join(dir, "broken.yaml")
	must(t, os.WriteFile(broken, []byte(strings.ReplaceAll(text, "replicas: 2\n", "replicaz: 2\n")), 0o600))
	if out, _, err := run(t, "kubeconform", "-strict", "-schema-location", dir+"/{{.ResourceKind}}{{.KindSuffix}}.json", broken); err == nil || !strings.Contains(out, "replicaz") {
		t.Errorf("kubeconform lets a misspelling through: %v\n%s", err, out)
	}
}

// writeSchemas writes a JSON schema of each kind of an OpenAPI v2 document, as
// kubeconform looks for it.
func writeSchemas(document []byte, kinds map[schema.GroupVersionKind]bool, dir string) error {
	var doc struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return err
	}
	for _, d := range doc.Definitions {
		closeObjects(d)
	}
	written := map[schema.GroupVersionKind]bool{}
	for name, d := range doc.Definitions {
		list, _ := d["x-kubernetes-group-version-kind"].([]any)
		for _, x := range list {
			of, _ := x.(map[string]any)
			gvk := schema.GroupVersionKind{Group: fmt.Sprint(of["group"]), Version: fmt.Sprint(of["version"]), Kind: fmt.Sprint(of["kind"])}
			if !kinds[gvk] {
				continue
			}
			suffix := gvk.Version
			if gvk.Group != "" {
				group, _, _ := strings.Cut(gvk.Group, ".")
				suffix = group + "-" + suffix
			}
			text, err := json.Marshal(map[string]any{"$ref": "#/definitions/" + name, "definitions": doc.Definitions})
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, strings.ToLower(gvk.Kind)+"-"+suffix+".json"), text, 0o600); err != nil {
				return err
			}
			written[gvk] = true
		}
	}
	for gvk := range kinds {
		if !written[gvk] {
			return fmt.Errorf("the hub publishes no schema of %s", gvk)
		}
	}
	return nil
}

// closeObjects has schemas admit no field but their own, and numbers where OpenAPI v2
// has no word for "integer or string".
func closeObjects(s map[string]any) {
	if s["format"] == "int-or-string" {
		delete(s, "type")
	}
	if s["properties"] != nil && s["additionalProperties"] == nil && s["x-kubernetes-preserve-unknown-fields"] != true {
		s["additionalProperties"] = false
	}
	properties, _ := s["properties"].(map[string]any)
	for _, p := range properties {
		if p, ok := p.(map[string]any); ok {
			closeObjects(p)
		}
	}
	if items, ok := s["items"].(map[string]any); ok {
		closeObjects(items)
	}
}
