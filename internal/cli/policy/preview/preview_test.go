package preview_test

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/cli/policy/preview"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/kubeconfigfile"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/queryserver"
)

func TestMain(m *testing.M) { clitest.Main(m) }

const (
	active = `# METADATA
# title: Names | of things
# custom: {severity: high, kinds: ["ConfigMap"]}
package test.names

violation contains {"msg": "is old"} if input.ref.name == "old"
`
	changed = `# METADATA
# title: Names | of things
# custom: {severity: high, kinds: ["ConfigMap"], remedies: [{action: delete, kind: ConfigMap}]}
package test.names

violation contains {"msg": "is | new", "remedy": {"action": "delete"}} if input.ref.name == "new"
`
)

var configMaps = queryserver.Fleet{{Kind: "ConfigMap", Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true}}

// serve serves a fleet of one member with the ConfigMaps old and new, and returns a kubeconfig of it.
func serve(t *testing.T) string {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err == nil {
		err = index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"})
	}
	if err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScopeAs("fleet/a", "ConfigMap", "v1", "configmaps")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "old"} {
		scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: name, UID: name, ResourceVersion: "1", Body: []byte(`{"metadata":{"name":"` + name + `"}}`)}))
	}
	scope.SetStatus(aggregate.Status{State: aggregate.Synced})
	if _, err := scope.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/b", UID: "b"}); err != nil {
		t.Fatal(err)
	}
	if scope, err = index.OpenScopeAs("fleet/b", "ConfigMap", "v1", "configmaps"); err != nil {
		t.Fatal(err)
	}
	scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: "other", UID: "other", ResourceVersion: "1", Body: []byte(`{"metadata":{"name":"other"}}`)}))
	if _, err := scope.Commit(); err != nil { // it is still being listed
		t.Fatal(err)
	}
	set, err := policy.Load([]policy.Source{{Name: "git", Files: []policy.File{{Path: "names.rego", Data: []byte(active)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bindings, _ := policy.DefaultBindings(set, nil)
	loop, err := enforce.New(enforce.Options{Index: index, Set: set, Bindings: bindings})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	clitest.Eventually(t, "verdicts", func() error {
		if loop.State() == nil {
			return errors.New("there are none")
		}
		return nil
	})
	kinds := func() (map[aggregate.Kind]bool, <-chan struct{}) {
		return map[aggregate.Kind]bool{"ConfigMap": true}, nil
	}
	s := queryserver.Start(t, queryapi.Options{Local: true, Index: index, Fleet: configMaps, Queries: map[string]queryapi.Query{"preview": &policyquery.Preview{Kinds: kinds, Loop: loop}}})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kubeconfigfile.WriteLocal(path, s.Address, s.Token(), s.CertificateAuthority()); err != nil {
		t.Fatal(err)
	}
	return path
}

func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return clitest.Run(t, clitest.Root(preview.Command("devel")), append([]string{"preview"}, args...)...)
}

func TestPreview_OfADirectory(t *testing.T) {
	kubeconfig := serve(t)
	dir := clitest.PolicyTree(t, map[string]string{"names.rego": changed, "names_test.rego": "package odd"})
	out, err := command(t, dir, "--kubeconfig", kubeconfig, "--source", "git")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"test.names   Changed   high", "Appears    test.names   fleet/a ConfigMap shop/new   is | new", "Vanishes   test.names   fleet/a ConfigMap shop/old   is old", "delete   ConfigMap     0      1", "1 policy differs"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out, err = command(t, dir, "--kubeconfig", kubeconfig, "-o", "markdown")
	if err != nil || !strings.Contains(out, "| `Appears` | `test.names` | `fleet/a ConfigMap shop/new` | `is ¦ new` |") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = command(t, dir, "--kubeconfig", kubeconfig, "-o", "sarif", "--exit-code")
	if clitest.ExitCode(err) != exit.CodeFindings {
		t.Errorf("with --exit-code: %v", err)
	}
	if log := clitest.SARIF(t, out); len(log.Runs[0].Results) != 1 || log.Runs[0].Results[0].RuleID != "test.names" {
		t.Errorf("%s", out)
	}
	out, err = command(t, dir, "--kubeconfig", kubeconfig, "-o", "json")
	var r policyquery.PreviewReport
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || !r.Complete || len(r.Groups) != 1 || r.Groups[0].Namespace != "shop" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPreview_SaysWhatIsNotKnown: that nothing is found where not all could be looked at is no success.
func TestPreview_SaysWhatIsNotKnown(t *testing.T) {
	kubeconfig := serve(t)
	nothing := strings.ReplaceAll(strings.ReplaceAll(active, "test.names", "test.nothing"), `== "old"`, `== "none"`)
	dir := clitest.PolicyTree(t, map[string]string{"nothing.rego": nothing + "\nviolation contains {\"msg\": \"many\"} if data.fleet.objects[\"ConfigMap\"][_].shop.absent\n"})
	out, err := command(t, dir, "--kubeconfig", kubeconfig, "-o", "json", "--exit-code")
	if clitest.ExitCode(err) != exit.CodeUnknown {
		t.Errorf("with --exit-code: %v", err)
	}
	var r policyquery.PreviewReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Policies) != 1 || r.Policies[0].Unknown == 0 || r.Policies[0].Appear != 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPreview_OfTemplates: a constraint is sent with its template, and says what it says in the candidate.
func TestPreview_OfTemplates(t *testing.T) {
	kubeconfig := serve(t)
	const template = "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: k8snew}\nspec:\n  crd: {spec: {names: {kind: K8sNew}}}\n" +
		"  targets:\n  - target: admission.k8s.gatekeeper.sh\n    rego: |\n      package k8snew\n      violation[{\"msg\": \"\\u001b[31mred\"}] { input.review.object.metadata.name == \"new\" }\n" +
		"---\napiVersion: constraints.gatekeeper.sh/v1beta1\nkind: K8sNew\nmetadata: {name: new}\nspec: {match: {kinds: [{apiGroups: [\"\"], kinds: [ConfigMap]}]}}\n"
	dir := clitest.PolicyTree(t, map[string]string{"new.yaml": template, "kustomization.yaml": "resources: [new.yaml]\n"})
	out, err := command(t, dir, "--kubeconfig", kubeconfig)
	if err != nil || !strings.Contains(out, "K8sNew/new") || !strings.Contains(out, "shop/new") || strings.Contains(out, "\x1b") {
		t.Errorf("%v: %q", err, out)
	}
}

func TestPreview_OfACommit(t *testing.T) {
	kubeconfig := serve(t)
	dir := clitest.PolicyTree(t, map[string]string{"policies/names.rego": changed, "other/odd.rego": "package odd"})
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "-m", "policies")
	out, err := command(t, "HEAD", "--kubeconfig", kubeconfig, "--repository", dir, "--path", "policies", "-o", "json")
	var r policyquery.PreviewReport
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || len(r.Policies) != 1 || r.Policies[0].Appear != 1 || r.Policies[0].Vanish != 1 {
		t.Errorf("%v: %s", err, out)
	}
	for _, source := range []string{"", "git"} { // a host of git knows files as the repository has them
		out, err = command(t, "HEAD", "--kubeconfig", kubeconfig, "--repository", dir, "--path", "policies", "--source", source, "-o", "sarif")
		if log := clitest.SARIF(t, out); err != nil || len(log.Runs[0].Results) != 1 || log.Runs[0].Results[0].Locations[0].Physical.Artifact.URI != "policies/names.rego" {
			t.Errorf("of source %q: %v: %s", source, err, out)
		}
	}
	for _, bad := range [][]string{{"HEAD"}, {"no-such-commit"}, {"--", "--output=x"}, {"HEAD", "--path", "nowhere"}, {dir, "--path", "policies"}, {dir, "-o", "xml"}} {
		args := append([]string{"--kubeconfig", kubeconfig, "--repository", dir}, bad...)
		if _, err := command(t, args...); err == nil || slices.Equal(bad, []string{"HEAD"}) != strings.Contains(err.Error(), "cannot be loaded") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
