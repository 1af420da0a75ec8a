package policytest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/policytest"
)

// shapes are policies of every shape, each with a fixture that fits.
var shapes = map[string]string{
	"federator/keys/keys.rego": `# METADATA
# title: Keys of a view are evaluated
# custom: {severity: low, kinds: ["ServiceAccount"], subject: view.names}
package federator.keys

view.names[input.ref.name] contains input.object.metadata.labels.owner

violation contains {"msg": sprintf("%d owners", [count(owners)])} if {
	owners := {e.value | some e in input.entries}
	count(owners) > 1
}
`,
	"federator/keys/keys_fleet.yaml": `name: a key is not a subject
members:
- name: fleet/a
  objects:
  - {apiVersion: v1, kind: ServiceAccount, metadata: {name: bot, namespace: shop, labels: {owner: shop}}}
  - {apiVersion: v1, kind: ServiceAccount, metadata: {name: bot, namespace: pay, labels: {owner: pay}}}
  - {apiVersion: v1, kind: ServiceAccount, metadata: {name: one, namespace: pay, labels: {owner: pay}}}
- name: fleet/b
expect:
- key: bot
  violations: [2 owners]
`,
	"federator/members/members.rego": `# METADATA
# title: Members are evaluated
# custom: {severity: low, subject: member}
package federator.members

violation contains {"msg": sprintf("%s serves batch/v1beta1", [data.fleet.members[input.member.name].version])} if {
	"batch/v1beta1" in data.fleet.members[input.member.name].apis
	input.member.labels.tier == "prod"
}
`,
	"federator/members/members_fleet.yaml": `name: a member is its name
members:
- {name: fleet/a, version: v1.24.1, labels: {tier: prod}, apis: [v1, batch/v1beta1]}
- {name: fleet/b, version: v1.24.1, labels: {tier: test}, apis: [batch/v1beta1]}
- {name: fleet/c, version: v1.36.3, labels: {tier: prod}, apis: [batch/v1]}
expect:
- subject: fleet/a
  violations: [v1.24.1 serves batch/v1beta1]
`,
	"federator/errors/errors.rego": `# METADATA
# title: Some verdicts are errors
# custom: {severity: low, kinds: ["Namespace"]}
package federator.errors

violation contains {"msg": "many"} if to_number(input.object.metadata.annotations.n) > 3
`,
	"federator/errors/errors_fleet.yaml": `name: a verdict that is an error
members:
- name: fleet/a
  objects:
  - {apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {n: "4"}}}
  - {apiVersion: v1, kind: Namespace, metadata: {name: pay, annotations: {n: "1"}}}
  - {apiVersion: v1, kind: Namespace, metadata: {name: odd, annotations: {n: many}}}
  - {apiVersion: v1, kind: Namespace, metadata: {name: none}}
expect:
- {subject: fleet/a Namespace /shop, violations: [many]}
- {subject: fleet/a Namespace odd, state: Error}
`,
	"federator/configs/configs.rego": `# METADATA
# title: What is kept of ConfigMaps and Secrets, and how numbers arrive
# custom: {severity: low, kinds: ["ConfigMap", "Secret", "Widget.shop.example"]}
package federator.configs

violation contains {"msg": sprintf("%s is %q, %v", [key, value, input.object.metadata.annotations])} if {
	input.ref.kind in {"ConfigMap", "Secret"}
	some key, value in input.object.data
}

violation contains {"msg": sprintf("%v %s %s", [n, input.object.spec.text, input.object.metadata.uid])} if {
	input.ref.kind == "Widget.shop.example"
	n := [input.object.spec.i, input.object.spec.f, input.object.spec.big]
	input.object.spec.i + 1 == 8
	input.object.spec.f == 1.5
	input.object.spec.big == 12345678901234567
}
`,
	"federator/configs/configs_fleet.yaml": `name: values are cut
members:
- name: fleet/a
  objects:
  - apiVersion: v1
    kind: ConfigMap
    metadata: {namespace: shop, name: c, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}
    data: {colour: red}
  - {apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: s, annotations: {a: b}}, data: {key: c2VjcmV0}}
  - apiVersion: shop.example/v1
    kind: Widget
    metadata: {namespace: shop, name: w, uid: u-1}
    spec: {i: 0x7, f: 1.50, big: 12345678901234567, text: "a<b\u2028--- &"}
expect:
- subject: fleet/a ConfigMap shop/c
  violations: ['colour is "", {"federator.dev/redacted": "true"}']
- subject: fleet/a Secret shop/s
  violations: ['key is "", {"a": "b", "federator.dev/redacted": "true"}']
- subject: fleet/a Widget.shop.example shop/w
  violations: ["[7, 1.5, 12345678901234567] a<b\u2028--- & u-1"]
`,
	"federator/named/named.rego": `# METADATA
# title: Objects of one name in all members, at a pinned version
# custom: {severity: low, kinds: ["Deployment.v1.apps"]}
package federator.named

violation contains {"msg": sprintf("%s runs %s", [member, other.spec.image])} if {
	some member, other in data.fleet.by_name["Deployment.v1.apps"][input.ref.namespace][input.ref.name]
	other.spec.image != input.object.spec.image
}
`,
	"federator/named/named_fleet.yaml": `name: members differ, and one is out of reach
members:
- name: fleet/a
  objects: [{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}, spec: {image: web:1}}]
- name: fleet/b
  objects: [{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}, spec: {image: web:2}}]
- name: fleet/c
  scopes: {Deployment.apps: Stale}
  objects: [{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}, spec: {image: web:2}}]
expect:
- {subject: fleet/a Deployment.apps shop/web, state: Unknown, violations: ["fleet/b runs web:2", "fleet/c runs web:2"]}
- {subject: fleet/b Deployment.apps shop/web, state: Unknown, violations: ["fleet/a runs web:1"]}
- {subject: fleet/c Deployment.apps shop/web, state: Unknown, violations: ["fleet/a runs web:1"]}
---
name: those that are tolerated leave verdicts Known, and what is not served is empty
bindings:
- {name: named, package: federator.named, tolerate: {names: [fleet/c]}, match: {namespaces: [shop]}}
members:
- name: fleet/a
  objects:
  - {apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}, spec: {image: web:1}}
  - {apiVersion: apps/v1, kind: Deployment, metadata: {namespace: pay, name: web}, spec: {image: web:1}}
- name: fleet/b
  scopes: {Deployment.apps: NotServed}
- name: fleet/c
  scopes: {Deployment.apps: Syncing}
expect: []
---
name: an object at another version than the policy pins
members:
- name: fleet/a
  objects: [{apiVersion: apps/v1beta1, kind: Deployment, metadata: {namespace: shop, name: web}, spec: {image: web:1}}]
expect:
- {subject: fleet/a Deployment.apps shop/web, state: Error}
`,
}

func TestRun_FixturesOfEveryShapeInAnyOrder(t *testing.T) {
	tree := with(shapes)
	for seed := range uint64(20) {
		r := run(t, tree, policytest.Options{Seed: seed + 1})
		if !r.OK() || r.Count(policytest.Passed) != 12 || r.Seed != seed+1 {
			t.Fatalf("seed %d: %d passed\n%s", seed+1, r.Count(policytest.Passed), failures(r))
		}
	}
}

func TestRun_EveryExpectationMatters(t *testing.T) {
	for name, text := range shapes {
		if !strings.HasSuffix(name, "_fleet.yaml") {
			continue
		}
		docs := strings.Split(text, "---\n")
		before, after, ok := strings.Cut(docs[0], "expect:\n")
		if !ok {
			continue
		}
		lines := strings.SplitAfter(after, "\n- ")
		files := map[string]string{}
		for n, s := range shapes {
			files[n] = s
		}
		files[name] = before + "expect: []\n"
		r := run(t, with(files), policytest.Options{})
		if r.OK() || len(r.Cases) == 0 || strings.Count(failures(r), "is not expected") != len(lines) {
			t.Errorf("%s without expectations: %s\nwant %d verdicts that are not expected", name, failures(r), len(lines))
		}
	}
}

func ExampleRun() {
	r, err := policytest.Run(context.Background(), with(nil), policytest.Options{Name: "policies", Coverage: true})
	if err != nil {
		panic(err)
	}
	for _, c := range r.Cases {
		fmt.Println(c.Outcome, c.Name)
	}
	fmt.Printf("%.0f%%\n", r.Coverage.Percent)
	// Output:
	// pass two members serve a host
	// pass a host that is shared on purpose
	// pass a member that refuses Ingresses may serve every host
	// pass test_claimed
	// pass test_free
	// 75%
}
