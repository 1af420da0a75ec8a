package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/charts"
	"federator.dev/federator/internal/admission"
	"federator.dev/federator/test/kube"
)

// TestAdmission_IsWhatTheBinaryComparesWith: the chart renders the policies that the
// binary has, for the ServiceAccount of the release.
func TestAdmission_IsWhatTheBinaryComparesWith(t *testing.T) {
	for user, args := range map[string][]string{
		"system:serviceaccount:system:federator": least(),
		"system:serviceaccount:system:mine":      least("--set", "serviceAccount.create=false,serviceAccount.name=mine"),
	} {
		want, err := charts.Admission(user)
		must(t, err)
		if len(want) != 4 {
			t.Errorf("there are %d policies", len(want))
		}
		rendered := render(t, args...)
		for name, text := range want {
			for _, doc := range strings.Split(text, "\n---\n") {
				var o struct {
					Kind string
					Spec map[string]any
				}
				must(t, yaml.Unmarshal([]byte(doc), &o))
				got := find(t, rendered, o.Kind, name)
				a, err := yaml.Marshal(o.Spec)
				must(t, err)
				b, err := yaml.Marshal(got.Object["spec"])
				must(t, err)
				if string(a) != string(b) {
					t.Errorf("%s %s of %s is rendered as\n%s\nwant\n%s", o.Kind, name, user, b, a)
				}
			}
		}
	}
	for _, u := range render(t, least("--set", "admission.create=false")...) {
		if strings.HasPrefix(u.GetKind(), "ValidatingAdmission") {
			t.Errorf("there is %s %s", u.GetKind(), u.GetName())
		}
	}
	if _, err := charts.Admission("a' || true || '"); err == nil {
		t.Error("a name that ends its quotes is taken")
	}
}

// namesAreProven: with exactly the chart's permissions and policies, federator proves who
// creates Approvals and who changes FleetPolicies.
func namesAreProven(t *testing.T, hub *kube.Hub) {
	token, err := hub.IssueToken(t.Context(), system, "federator", time.Hour)
	must(t, err)
	cfg := hub.RESTConfigWith(token)
	transport, err := rest.HTTPClientFor(cfg)
	must(t, err)
	defer transport.CloseIdleConnections()
	client, err := kubernetes.NewForConfigAndClient(cfg, transport)
	must(t, err)
	must(t, until(t.Context(), func() error {
		known, err := admission.NewKeeper(client, system).Check(t.Context())
		if err == nil && (known.Approvals.Since.IsZero() || known.Authors.Since.IsZero() || known.Rollbacks.Since.IsZero()) {
			err = fmt.Errorf("known %+v", known)
		}
		return err
	}))
}

// TestRoles_OfPeople: what each role may, and that nobody but an approver may approve.
func TestRoles_OfPeople(t *testing.T) {
	all := render(t, "--values", "testdata/full.yaml")
	may := func(role *rbacv1.Role, verb, group, resource string) bool {
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb) && len(r.ResourceNames) == 0
		})
	}
	const group = "federator.dev"
	for _, c := range []struct{ kind, name, may, not string }{
		{
			"ClusterRole", "federator-viewer", "get fleetpolicies, list policysources, watch actions, list plans, list approvals, watch rollbacks, list notifications",
			"get planparts, get policystates, patch fleetpolicies, create approvals, approve fleetpolicies, patch actions, create rollbacks, rollback fleetpolicies, patch notifications",
		},
		{
			"ClusterRole", "federator-operator", "list fleetpolicies, patch fleetpolicies, patch actions, list plans, create rollbacks, delete rollbacks, rollback fleetpolicies",
			"get planparts, create fleetpolicies, delete fleetpolicies, delete actions, create approvals, approve fleetpolicies, approve policysources, create notifications, patch notifications",
		},
		{
			"ClusterRole", "federator-approver", "list fleetpolicies, list plans, create approvals, delete approvals, approve fleetpolicies, approve policysources",
			"get planparts, patch fleetpolicies, patch actions, update approvals, create plans, create rollbacks, rollback fleetpolicies",
		},
		{
			"ClusterRole", "system-federator", "create approvals, create planparts, update policystates, list plans, delete planparts, watch rollbacks, watch notifications, patch notifications/status",
			"approve fleetpolicies, approve policysources, delete approvals, update approvals, patch policysources, create rollbacks, rollback fleetpolicies, create notifications, patch notifications",
		},
	} {
		role := into[rbacv1.Role](t, find(t, all, c.kind, c.name))
		for list, want := range map[string]bool{c.may: true, c.not: false} {
			for text := range strings.SplitSeq(list, ", ") {
				verb, resource, _ := strings.Cut(text, " ")
				if may(&role, verb, group, resource) != want {
					t.Errorf("%s may %s: %t, want %t", c.name, text, !want, want)
				}
			}
		}
	}
	stop := into[rbacv1.Role](t, find(t, all, "Role", "federator-operator"))
	if stop.Namespace == "" || !may(&stop, "create", "", "configmaps") || !may(&stop, "delete", "", "configmaps") {
		t.Errorf("%+v cannot stop", stop)
	}
	for _, u := range all {
		if kind := u.GetKind(); kind != "ClusterRole" && kind != "Role" || u.GetName() == "federator-approver" {
			continue
		}
		for _, r := range into[rbacv1.Role](t, u).Rules {
			if slices.Contains(r.Verbs, "approve") {
				t.Errorf("%s may approve", u.GetName())
			}
		}
	}
}

// TestChart_NeedsSelectableFields: API servers without them are refused.
func TestChart_NeedsSelectableFields(t *testing.T) {
	if _, stderr, err := run(t, "helm", append([]string{"template", "federator", chartDir, "--kube-version", "1.31.9"}, least()...)...); err == nil || !strings.Contains(stderr, "requires kubeVersion: >=1.32.0-0") {
		t.Errorf("%v: %s", err, stderr)
	}
	helm(t, append([]string{"template", "federator", chartDir, "--kube-version", "1.32.0"}, least()...)...)
}
