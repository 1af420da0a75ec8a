package chart

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/policies"
)

var remedy = regexp.MustCompile(`(?m)^# +- \{action: (\w+), kind: ([\w.]+)\}$`)

// The role for members allows what the remedies of the shipped policies need, and may read one
// Namespace by name.
func TestMembers_TheRoleOfWritersCoversTheShippedRemedies(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(chartDir, "members", "writer.yaml"))
	must(t, err)
	var role rbacv1.ClusterRole
	for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
		if bytes.Contains(doc, []byte("\nkind: ClusterRole\n")) {
			must(t, yaml.UnmarshalStrict(doc, &role))
		}
	}
	needed := map[string][]string{"patch": {"get", "patch"}, "apply": {"get", "create", "patch"}, "delete": {"get", "delete"}}
	remedies := 0
	must(t, fs.WalkDir(policies.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".rego") || strings.HasSuffix(path, "_test.rego") {
			return err
		}
		text, err := fs.ReadFile(policies.FS, path)
		must(t, err)
		for _, m := range remedy.FindAllStringSubmatch(string(text), -1) {
			remedies++
			kind, group, _ := strings.Cut(m[2], ".")
			resource := strings.ToLower(kind) + "s"
			if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && len(r.ResourceNames) == 0 &&
					!slices.ContainsFunc(needed[m[1]], func(verb string) bool { return !slices.Contains(r.Verbs, verb) })
			}) {
				t.Errorf("%s: %s of %s is not allowed", path, m[1], m[2])
			}
		}
		return nil
	}))
	if remedies == 0 {
		t.Error("no remedies found")
	}
	for _, r := range role.Rules {
		if slices.Contains(r.Resources, "secrets") || slices.Contains(r.Verbs, "*") || slices.Contains(r.Resources, "*") {
			t.Errorf("%+v allows too much", r)
		}
	}
}

// The manifest that the chart renders is the shipped one, for the targets of its values.
func TestMembers_TheManifestOfTheChartIsForItsTargets(t *testing.T) {
	shipped, err := os.ReadFile(filepath.Join(chartDir, "members", "writer.yaml"))
	must(t, err)
	rendered := func(args ...string) []*unstructured.Unstructured {
		data, _, err := unstructured.NestedStringMap(find(t, render(t, least(args...)...), "ConfigMap", "-member-writer").Object, "data")
		must(t, err)
		return objects(t, strings.TrimPrefix(data["writer.yaml"], "---\n"))
	}
	want, got := objects(t, string(shipped)), rendered("--set", "memberWriter.create=true")
	if d := cmp.Diff(want, got); d != "" || len(got) != 5 {
		t.Errorf("without targets (-shipped +rendered):\n%s", d)
	}
	got = rendered("--set", "memberWriter.create=true,memberWriter.targets[0].resources={deployments.apps,services},memberWriter.targets[0].verbs={patch,apply}"+
		",memberWriter.targets[1].resources={certificates.cert-manager.io},memberWriter.targets[1].verbs={delete}")
	role := into[rbacv1.ClusterRole](t, find(t, got, "ClusterRole", "federator-writer"))
	var rules []string
	for _, r := range role.Rules[1:] {
		rules = append(rules, strings.Join(slices.Concat(r.Verbs, r.Resources, r.APIGroups), " "))
	}
	if list := strings.Join(rules, ", "); list != "get patch create deployments apps, get patch create services , get delete certificates cert-manager.io" || role.Rules[0].ResourceNames[0] != "kube-system" {
		t.Errorf("rules %q, first %v", list, role.Rules[0])
	}
	for _, u := range render(t, least()...) {
		if strings.HasSuffix(u.GetName(), "-member-writer") {
			t.Errorf("there is %s by default", u.GetName())
		}
	}
	member := fleet(t).Members[0]
	text, err := yaml.Marshal(role)
	must(t, err)
	must(t, member.Apply(t.Context(), text))
}
