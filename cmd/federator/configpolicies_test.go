package main

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/clitest"
)

const namesPolicy = `# METADATA
# title: ConfigMaps of one name
# custom: {severity: high, kinds: [ConfigMap], parameters: {type: object, properties: {most: {type: integer, default: 1}}}}
package names

view.names[input.ref.name] contains input.ref.namespace

violation contains {"msg": sprintf("%s is in %d members", [input.ref.name, n])} if {
	n := count(data.fleet.views.names.names[input.ref.name])
	n > input.parameters.most
}
`

// TestServe_EvaluatesPolicies serves with a policy over two members, and asks for its
// view and its metrics.
func TestServe_EvaluatesPolicies(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 2)
	clitest.CreateConfigMaps(t, members[0], "one", "both")
	clitest.CreateConfigMaps(t, members[1], "both")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "names.rego"), []byte(namesPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	bindings := clitest.WriteFile(t, "bindings.yaml", "bindings:\n- {name: once, package: names, match: {namespaces: [default]}}\n- {name: twice, package: names, parameters: {most: 2}}\n")
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0,member-1", "--kinds", "Namespace", "--policies", dir, "--bindings", bindings)
	ready(t, r)
	clitest.Eventually(t, "policies are evaluated on both members", func() error {
		metrics := mustGet(t, r.public+"/metrics", 200)
		if !strings.Contains(metrics, `federator_policy_member_violations{member="context/member-1",policy="once",severity="high"} 1`) ||
			!strings.Contains(metrics, `federator_policy_violations{binding="twice",policy="twice",severity="high"} 0`) {
			return clitest.ErrNotYet
		}
		return nil
	})
	a, err := (&queryclient.Flags{Kubeconfig: r.kubeconfig}).Client()
	if err != nil {
		t.Fatal(err)
	}
	body, err := a.Get(t.Context(), "/query/v1/rego", url.Values{"query": {`some e in data.fleet.views.names.names.both; m := e.ref.member`}}, "application/json")
	if err != nil {
		t.Fatal(err)
	}
	var answer policy.Answer
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Rows) != 2 {
		t.Errorf("the view has %s, want both members", body)
	}
}

// TestServe_RejectsInvalidPolicies says where each mistake is.
func TestServe_RejectsInvalidPolicies(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "names.rego"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.ReplaceAll(namesPolicy, "n > input.parameters.most", "n > nothing"))
	_, err := command(t, "serve", "--contexts", "a", "--policies", dir)
	var found policy.LoadErrors
	if !errors.As(err, &found) || found[0].Line != 10 || !strings.HasSuffix(found[0].File, "names.rego") {
		t.Errorf("a policy that does not compile: %v", err)
	}
	write(namesPolicy)
	bindings := clitest.WriteFile(t, "bindings.yaml", "bindings:\n- name: once\n  package: names\n  parameters: {most: many}\n")
	if _, err = command(t, "serve", "--contexts", "a", "--policies", dir, "--bindings", bindings); err == nil || !strings.Contains(err.Error(), "bindings.yaml:4") {
		t.Errorf("a binding that does not fit: %v", err)
	}
	if _, err = command(t, "serve", "--contexts", "a", "--bindings", bindings); err == nil || err.Error() != "policies.bindings: is set, but policies.dirs is empty" {
		t.Errorf("bindings without policies: %v", err)
	}
	if _, err = command(t, "serve", "--contexts", "a", "--policies", filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a directory that is not there: %v", err)
	}
}

func TestConfig_BoundsActionRetention(t *testing.T) {
	path := clitest.WriteFile(t, "config.yaml", "policies:\n  actionRetention: 59m\n  actionsKept: -1\n  signers: {SHA256:short: ann}\n  corrections:\n    protected: {kinds: [a b]}\n    bounds: {maxAway: 101}\n    gitops:\n      trusted: [{kind: Deployment.apps}]\n    maxActions: -1\n    maxActionBytes: 1024\n")
	_, err := command(t, "serve", "--config", path)
	for _, want := range []string{
		":2: policies.actionRetention: is 59m0s, must be at least 1h", ":3: policies.actionsKept: is -1, must not be negative", `:4: policies.signers: "SHA256:short": "ann" is not a fingerprint`, `:6: policies.corrections.protected: "a b" is not a pattern of a kind`, ":7: policies.corrections.bounds: a share is not of 0 to 100 percent", `:9: policies.corrections.gitops.trusted[0]: kind "Deployment.apps" is not`,
		":10: policies.corrections.maxActions: is -1, must be above policies.actionsKept, -1", ":11: policies.corrections.maxActionBytes: is 1024, must be at least 67108864",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestConfig_ReportsRequireAHub(t *testing.T) {
	path := clitest.WriteFile(t, "config.yaml", "policies:\n  reports: true\n  reportInterval: 100ms\n")
	_, err := command(t, "serve", "--config", path)
	for _, want := range []string{
		":2: policies.reports: is true, but policies.hub is false: there is no hub to write to", ":3: policies.reportInterval: is 100ms, must be at least 1s",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
