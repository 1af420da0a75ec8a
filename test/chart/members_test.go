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

	rbacv1 "k8s.io/api/rbac/v1"
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
