package policytest_test

import (
	"errors"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/policytest"
)

// fleetOf is a fixture of two Ingresses, one in each member, of one host, and what
// is expected.
func fleetOf(rest string) map[string]string {
	return map[string]string{hostTestFile: "", hostFleetFile: `name: case
members:
- name: fleet/eu-1
  labels: {region: eu}
  objects:
  - {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: web}, spec: {hosts: [a.example]}}
- name: fleet/us-1
  objects:
  - {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: web}, spec: {hosts: [a.example]}}
` + rest}
}

const euIngress, usIngress = "fleet/eu-1 Ingress.networking.k8s.io shop/web", "fleet/us-1 Ingress.networking.k8s.io shop/web"

const euFound, usFound = `Known with "host a.example is also served from fleet/us-1"`, `Known with "host a.example is also served from fleet/eu-1"`

func TestRun_ReportsFixturesThatDisagree(t *testing.T) {
	us := "- subject: " + usIngress + "\n  violations: [host a.example is also served from fleet/eu-1]\n"
	for name, c := range map[string]struct {
		rest string
		want []string // failures; none passes
	}{
		"as it is": {rest: "expect:\n" + us + "- subject: " + euIngress + "\n  violations: [host a.example is also served from fleet/us-1]\n"},
		"a verdict that is not listed": {
			rest: "expect:\n" + us,
			want: []string{hostFleetFile + ":1: a verdict is not expected: " + euIngress + " of federator.network.host: expected Known and clean, as it is not listed, found " + euFound},
		},
		"other messages": {
			rest: "expect:\n" + us + "- subject: " + euIngress + "\n  violations: [a, b]\n",
			want: []string{hostFleetFile + ":13: a verdict is not as expected: " + euIngress + ` of federator.network.host: expected Known with "a", "b", found ` + euFound},
		},
		"another state": {
			rest: "expect:\n" + us + "- subject: " + euIngress + "\n  state: Unknown\n  violations: [host a.example is also served from fleet/us-1]\n",
			want: []string{`expected Unknown with "host a.example is also served from fleet/us-1", found ` + euFound},
		},
		"exempt, but it is not": {
			rest: "expect:\n" + us + "- subject: " + euIngress + "\n  violations: [host a.example is also served from fleet/us-1]\n  exempt: true\n",
			want: []string{`fleet/us-1", exempt, found ` + euFound},
		},
		"a subject that is not there": {
			rest: "expect:\n" + us + "- subject: fleet/eu-1 Ingress.networking.k8s.io shop/none\n  state: Error\n",
			want: []string{
				hostFleetFile + ":13: a verdict is missing: fleet/eu-1 Ingress.networking.k8s.io shop/none of federator.network.host: expected Error, found no verdict",
				"a verdict is not expected: " + euIngress,
			},
		},
		"with exemptions": {
			rest: `bindings:
- {name: hosts, package: federator.network.host, exemptions: [{members: {labels: {matchLabels: {region: eu}}}, reason: it moves}]}
expect:
` + us + "- subject: " + euIngress + "\n  violations: [host a.example is also served from fleet/us-1]\n  exempt: true\n",
		},
		"several bindings": {
			rest: `bindings:
- {name: eu, package: federator.network.host, members: {names: [fleet/eu-*]}}
- {name: shared, package: federator.network.host, parameters: {shared: [a.example]}}
- {name: blind, package: federator.network.host, visibility: {names: [fleet/eu-1]}}
expect:
- {binding: eu, subject: ` + euIngress + `, violations: [host a.example is also served from fleet/us-1]}
- {binding: blind, subject: ` + usIngress + `, violations: [host a.example is also served from fleet/eu-1]}
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, with(fleetOf(c.rest)), policytest.Options{})
			got := r.Cases[0].Failures
			if len(got) != len(c.want) || r.OK() != (len(c.want) == 0) {
				t.Fatalf("failures:\n%s\nwant %d: %q", failures(r), len(c.want), c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(got[i].String(), want) {
					t.Errorf("failure\n%s\nwant\n%s", got[i], want)
				}
			}
		})
	}
}

func TestRun_ReportsInvalidFixturesWithTheirLines(t *testing.T) {
	const ok = "expect: []\n"
	object := func(s string) string { return "name: x\nmembers:\n- name: fleet/a\n  objects:\n  - " + s + "\n" + ok }
	meta := "apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: web"
	for text, want := range map[string]string{
		"---\n# nothing\n---\n": "the file has no case",
		"name: x\nmembers: [{name: fleet/a}]\n" + ok + "colour: red\n":                             ":4:1: error: colour is not known",
		"name: x\nmembers: [{name: fleet/a}]\n" + ok + "---\nname: y\nmembers:\n- named: a\n" + ok: ":7:3: error: members[0].named is not known",
		"name: x\nname: y\n":                    ":2:1: error: name is there twice",
		"name: [x\n":                            "error: did not find expected",
		"members: [{name: fleet/a}]\n" + ok:     ":1:1: error: a case has a name",
		"name: x\n" + ok:                        "error: a case has members",
		"name: x\nmembers: [{name: fleet/a}]\n": "error: a case must have expect",
		"name: x\nmembers: [{name: fleet/a}]\n" + ok + "---\nname: x\nmembers: [{name: fleet/a}]\n" + ok:                                                                    `:5:7: error: another case is named "x"`,
		"name: x\nmembers: [{labels: {a: b}}]\n" + ok:                                                                                                                       ":2:11: error: a member has a name",
		"name: x\nmembers: [{name: eu}]\n" + ok:                                                                                                                             `"eu" is not NAMESPACE/NAME`,
		"name: x\nmembers: [{name: fleet/a}, {name: fleet/a}]\n" + ok:                                                                                                       `another member is named "fleet/a"`,
		"name: x\nmembers: [{name: fleet/a, apis: [networking.k8s.io/v1/Ingress]}]\n" + ok:                                                                                  ":2:34: error: \"networking.k8s.io/v1/Ingress\" is not GROUP/VERSION",
		"name: x\nmembers: [{name: fleet/a, scopes: {Pod: Synced}}]\n" + ok:                                                                                                 `no bound policy is about "Pod"`,
		"name: x\nmembers: [{name: fleet/a, scopes: {Ingress.networking.k8s.io: Good}}]\n" + ok:                                                                             `Good`,
		"name: x\nparameters: {shared: 1}\nmembers: [{name: fleet/a}]\n" + ok:                                                                                               ":2:13: error: binding \"federator.network.host\": parameters: ",
		"name: x\nparameters: {}\nbindings: [{name: a, package: federator.network.host}]\nmembers: [{name: fleet/a}]\n" + ok:                                                "parameters or bindings, not both",
		"name: x\nbindings: []\nmembers: [{name: fleet/a}]\n" + ok:                                                                                                          ":2:11: error: there are no bindings",
		"name: x\nbindings: [{name: a, package: federator.none}]\nmembers: [{name: fleet/a}]\n" + ok:                                                                        `there is no package "federator.none"`,
		"name: x\nbindings: [{name: a, package: federator.network.host}, {name: a, package: federator.network.host}]\nmembers: [{name: fleet/a}]\n" + ok:                    `another binding is named "a"`,
		object("{apiVersion: v1, metadata: {name: a}}"):                                                                                                                     ":5:5: error: the object has no kind",
		object("{apiVersion: v1, kind: Pod}"):                                                                                                                               "metadata is not a map",
		object("{apiVersion: a/b/c, kind: Pod, metadata: {name: a}}"):                                                                                                       `apiVersion "a/b/c" is not`,
		object("{apiVersion: v1, kind: 'P d', metadata: {name: a}}"):                                                                                                        `"P d" is not a kind`,
		object("{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {tier: 1}}}"):                                                                                       `metadata.labels: the value of "tier" is not a string`,
		object("{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: 1}}"):                                                                                            "metadata.namespace is not a string",
		object("{apiVersion: v1, kind: Pod, metadata: {name: a, ownerReferences: [{kind: 1}]}}"):                                                                            "metadata.ownerReferences: ",
		object("{" + meta + "}}\n  - {" + meta + "}}"):                                                                                                                      ":6:5: error: fleet/a Ingress.networking.k8s.io shop/web exists twice",
		object("{" + meta + "}}\n  - {apiVersion: networking.k8s.io/v1beta1, kind: Ingress, metadata: {name: a}}"):                                                          "a scope is held at one version",
		object("{" + meta + "}}\n  scopes: {Ingress.networking.k8s.io: NotServed}"):                                                                                         "is NotServed, but there are objects of it",
		"name: x\nmembers: [{name: fleet/a}]\nexpect: [{}]\n":                                                                                                               ":3:10: error: an expectation has either subject or key",
		"name: x\nmembers: [{name: fleet/a}]\nexpect: [{subject: a b}]\n":                                                                                                   `:3:20: error: "a b" is neither`,
		"name: x\nmembers: [{name: fleet/a}]\nexpect: [{subject: a Deployment.v1.apps c/d}]\n":                                                                              "is not a kind without a version",
		"name: x\nmembers: [{name: fleet/a}]\nexpect: [{subject: a, state: Sure}]\n":                                                                                        `"Sure" is none of Known, Unknown, Error`,
		"name: x\nmembers: [{name: fleet/a}]\nexpect: [{subject: a, exempt: true}]\n":                                                                                       "without violations nothing is exempt",
		"name: x\nmembers: [{name: fleet/a}]\nexpect: [{subject: a, state: Error, violations: [x]}]\n":                                                                      "a verdict that is Error has no violations",
		"name: x\nmembers: [{name: fleet/a}]\nexpect: [{subject: a}, {subject: a}]\n":                                                                                       "a is expected twice",
		"name: x\nmembers: [{name: fleet/a}]\nexpect: [{subject: a, binding: b}]\n":                                                                                         `there is no binding "b"`,
		"name: x\nbindings: [{name: a, package: federator.network.host}, {name: b, package: federator.network.host}]\nmembers: [{name: fleet/a}]\nexpect: [{subject: a}]\n": "there are several bindings",
	} {
		_, err := policytest.Run(t.Context(), with(map[string]string{hostFleetFile: text}), policytest.Options{Name: "lib"})
		_, ok := errors.AsType[policy.LoadErrors](err)
		if !ok || !strings.HasPrefix(err.Error(), "lib/"+hostFleetFile+":") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v\nwant %s", text, err, want)
		}
	}
}

func TestRun_RefusesFixturesWithOtherNames(t *testing.T) {
	_, err := policytest.Run(t.Context(), with(map[string]string{"network/host/more_fleet.yml": "name: x\n"}), policytest.Options{})
	if err == nil || !strings.Contains(err.Error(), "network/host/more_fleet.yml: error: a fixture's name ends in _fleet.yaml") {
		t.Errorf("error %v", err)
	}
}

func TestRun_BoundsFixtures(t *testing.T) {
	for size, want := range map[int]string{5 << 20: "the file has more than 4194304 bytes", 2 << 20: "the maximum is 1048576"} {
		_, err := policytest.Run(t.Context(), with(map[string]string{hostFleetFile: "name: " + strings.Repeat("x", size)}), policytest.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestRun_FixtureWithoutAPolicyNeedsBindings(t *testing.T) {
	_, err := policytest.Run(t.Context(), with(map[string]string{"fleets/all_fleet.yaml": "name: x\nmembers: [{name: fleet/a}]\nexpect: []\n"}), policytest.Options{})
	if err == nil || !strings.Contains(err.Error(), "fleets/all_fleet.yaml:1:1: error: the directory has 0 policies") {
		t.Errorf("error %v", err)
	}
}
