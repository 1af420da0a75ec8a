package policytest_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"federator.dev/federator/pkg/policy/policytest"
)

// The tree of these tests: a policy that needs the fleet, its tests and a fixture.
const (
	hostPolicy = `# METADATA
# title: One host, one member
# custom:
#   severity: high
#   kinds: ["Ingress.networking.k8s.io"]
#   parameters: {type: object, properties: {shared: {type: array, items: {type: string}, default: []}}}
package federator.network.host

view.hosts[host] contains true if {
	input.ref.kind == "Ingress.networking.k8s.io"
	some host in input.object.spec.hosts
}

violation contains {"msg": sprintf("host %s is also served from %s", [host, claim.ref.member])} if {
	input.ref.kind == "Ingress.networking.k8s.io"
	some host in input.object.spec.hosts
	not host in input.parameters.shared
	some claim in data.fleet.views["federator.network.host"].hosts[host]
	claim.ref.member != input.ref.member
}
`
	hostTest = `package federator.network.host_test

import data.federator.network.host

ingress := {
	"ref": {"member": "fleet/eu-1", "kind": "Ingress.networking.k8s.io", "namespace": "shop", "name": "web"},
	"object": {"spec": {"hosts": ["a.example"]}},
	"parameters": {"shared": []},
}

claimed := {"views": {"federator.network.host": {"hosts": {"a.example": [{"ref": {"member": "fleet/us-1"}, "value": true}]}}}}

test_claimed if {
	count(host.violation) == 1 with input as ingress with data.fleet as claimed
}

test_free if {
	count(host.violation) == 0 with input as ingress with data.fleet as {"views": {}}
}
`
	hostFleet = `name: two members serve a host
members:
- name: fleet/eu-1
  objects:
  - {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: web}, spec: {hosts: [a.example, b.example]}}
- name: fleet/us-1
  objects:
  - {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: web}, spec: {hosts: [a.example]}}
  - {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: other}, spec: {hosts: [c.example]}}
expect:
- subject: fleet/eu-1 Ingress.networking.k8s.io shop/web
  violations: [host a.example is also served from fleet/us-1]
- subject: fleet/us-1 Ingress.networking.k8s.io shop/web
  violations: [host a.example is also served from fleet/eu-1]
---
name: a host that is shared on purpose
parameters: {shared: [a.example]}
members:
- name: fleet/eu-1
  objects:
  - {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: web}, spec: {hosts: [a.example]}}
- name: fleet/us-1
  objects:
  - {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: web}, spec: {hosts: [a.example]}}
expect: []
---
name: a member that refuses Ingresses may serve every host
members:
- name: fleet/eu-1
  objects:
  - {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: web}, spec: {hosts: [a.example]}}
- name: fleet/us-1
  scopes: {Ingress.networking.k8s.io: Forbidden}
expect:
- subject: fleet/eu-1 Ingress.networking.k8s.io shop/web
  state: Unknown
`
)

const (
	hostFile      = "network/host/host.rego"
	hostTestFile  = "network/host/host_test.rego"
	hostFleetFile = "network/host/host_fleet.yaml"
)

// with is the tree with files in the place of others; "" takes one out.
func with(files map[string]string) fstest.MapFS {
	all := map[string]string{hostFile: hostPolicy, hostTestFile: hostTest, hostFleetFile: hostFleet}
	maps.Copy(all, files)
	tree := fstest.MapFS{}
	for name, text := range all {
		if text != "" {
			tree[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return tree
}

func run(t *testing.T, tree fstest.MapFS, opts policytest.Options) *policytest.Result {
	t.Helper()
	r, err := policytest.Run(t.Context(), tree, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func failures(r *policytest.Result) string {
	var lines []string
	for _, c := range r.Cases {
		for _, f := range c.Failures {
			lines = append(lines, f.String())
		}
	}
	return strings.Join(lines, "\n")
}

func TestRun_PassingTree(t *testing.T) {
	r := run(t, with(nil), policytest.Options{Name: "lib", Coverage: true})
	if !r.OK() || r.Count(policytest.Passed) != 5 || r.Total != 5 || r.Seed != 1 {
		t.Fatalf("%+v\n%s", r.Cases, failures(r))
	}
	for _, c := range r.Cases {
		if !strings.HasPrefix(c.File, "lib/network/host/") || c.Line == 0 || !strings.Contains(c.ID, c.Name) {
			t.Errorf("case %+v is not at its place", c)
		}
	}
	// The view is of no Rego test: its head and first line are missed. OPA does not
	// count "some … in" as missed.
	if c := r.Coverage; len(c.Files) != 1 || c.Files[0].File != "lib/"+hostFile || c.Lines != 8 || c.Covered != 6 ||
		!slices.Equal(c.Files[0].Missed, []int{9, 10}) || c.Percent != 75 {
		t.Errorf("coverage %+v", r.Coverage)
	}
}

func TestRun_SelectsCases(t *testing.T) {
	for expr, want := range map[string][]string{
		"shared":                   {"a host that is shared on purpose"},
		`^data\..*test_free$`:      {"test_free"},
		"host_fleet.yaml: a .*may": {"a member that refuses Ingresses may serve every host"},
		"none of them":             nil,
	} {
		r := run(t, with(nil), policytest.Options{Run: regexp.MustCompile(expr)})
		var got []string
		for _, c := range r.Cases {
			got = append(got, c.Name)
		}
		if !slices.Equal(got, want) || r.Total != 5 {
			t.Errorf("%s runs %q of %d, want %q of 5", expr, got, r.Total, want)
		}
	}
}
