package hostile

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"federator.dev/federator/test/git"
	"federator.dev/federator/test/kube"
)

// What evaluates the fleet. Verdicts on honest members follow from their objects alone: of a
// hostile member nothing is compared but what it adds to a view, under keys of its own.
var policyFiles = map[string]string{
	"own.rego": `# METADATA
# title: Nothing is bad
# custom: {severity: low, kinds: ["ConfigMap", "Pod", "Service", "Deployment.apps"]}
package own

violation contains {"msg": sprintf("%s is bad: %v", [input.ref.name, object.get(input.object, ["spec", "externalName"], "")])} if {
	input.object.metadata.labels.bad == "true"
}
`,
	"hosts.rego": `# METADATA
# title: One host, one member
# custom: {severity: high, kinds: ["Ingress.networking.k8s.io"]}
package hosts

view.hosts[rule.host] contains true if {
	some rule in input.object.spec.rules
}

violation contains {"msg": sprintf("host %s is also served from %s", [rule.host, claim.ref.member])} if {
	some rule in input.object.spec.rules
	some claim in data.fleet.views.hosts.hosts[rule.host]
	claim.ref.member != input.ref.member
}
`,
	"keys.rego": `# METADATA
# title: Hosts have one namespace
# custom: {severity: high, kinds: ["Ingress.networking.k8s.io"], subject: view.hosts}
package keys

view.hosts[rule.host] contains {"namespace": input.ref.namespace} if {
	some rule in input.object.spec.rules
}

view.hosts[sprintf("bad-%s", [input.ref.name])] contains {"namespace": input.ref.namespace} if {
	input.object.metadata.labels.bad == "true"
}

violation contains {"msg": sprintf("%s has %d entries", [input.key, count(input.entries)])} if {
	startswith(input.key, "goodshare")
}
`,
	"tiers.rego": `# METADATA
# title: Members that come and go say where they are
# custom: {severity: low, kinds: ["ConfigMap"]}
package tiers

violation contains {"msg": sprintf("%s is in tier %s", [input.ref.name, input.member.labels.tier])} if {
	input.object.metadata.labels.bad == "true"
	input.member.labels.tier in {"first", "second"}
}
`,
	"wordy.rego": `# METADATA
# title: What is wordy is described at length
# custom: {severity: low, kinds: ["Service"]}
package wordy

violation contains {"msg": sprintf("%s is wordy", [input.ref.name]), "details": {"text": concat("", [input.object.spec.externalName | some _ in numbers.range(1, 20)])}} if {
	input.object.metadata.labels.wordy == "true"
}
`,
	"costly.rego": `# METADATA
# title: Containers differ in their images
# custom: {severity: low, kinds: ["Deployment.apps"]}
package costly

violation contains {"msg": sprintf("%s and %s have the same image", [a.name, b.name])} if {
	some a in input.object.spec.template.spec.containers
	some b in input.object.spec.template.spec.containers
	a.name < b.name
	a.image == b.image
}
`,
}

// lenient bindings tolerate the gaps of hostile members.
const bindings = `bindings:
- {name: own, package: own, tolerate: {names: ["evil/*"]}}
- {name: hosts, package: hosts, tolerate: {names: ["evil/*"]}}
- {name: hosts-strict, package: hosts}
- {name: keys, package: keys, tolerate: {names: ["evil/*"]}}
- {name: costly, package: costly, tolerate: {names: ["evil/*"]}}
- {name: wordy, package: wordy, tolerate: {names: ["evil/*"]}}
- {name: tiers, package: tiers, tolerate: {names: ["evil/*"]}}
`

// fleetPolicy is the same on the hub.
const fleetPolicy = `apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: %s}
spec: {package: %s, unknown: %s}
---
`

const (
	lenient = `{mode: Tolerate, members: {names: ["evil/*"]}}`
	strict  = `{mode: Strict}`
)

// policySource brings a policy that imports the parent of a library.
const policySource = `apiVersion: federator.dev/v1alpha1
kind: PolicySource
metadata: {name: git}
spec: {url: "file://%s", interval: 10m}
---
apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: imports}
spec: {package: imports, unknown: {mode: Tolerate, members: {names: ["evil/*"]}}}
`

const importing = `# METADATA
# title: What is bad is called as a library has it
# custom: {severity: low, kinds: ["ServiceAccount"]}
package imports

import data.federator.lib

violation contains {"msg": sprintf("%s is %s", [input.ref.name, lib.words.bad])} if {
	input.object.metadata.labels.bad == "true"
}
`

func library(word string) map[string]string {
	return map[string]string{"imports.rego": importing, "words.rego": fmt.Sprintf("package federator.lib.words\n\nbad := %q\n", word)}
}

// bind puts what binds policies on the hub.
func (r *rig) bind(ctx context.Context) (err error) {
	if err := r.hub.InstallCRDs(ctx, "../../charts/federator/crds"); err != nil {
		return err
	}
	if r.repo, err = git.Init(filepath.Join(r.dir, "git")); err != nil {
		return err
	}
	if _, err := r.repo.Commit(library("bad")); err != nil {
		return err
	}
	var all strings.Builder
	for _, name := range []string{"own", "hosts", "keys", "costly", "tiers", "wordy"} {
		fmt.Fprintf(&all, fleetPolicy, name, name, lenient)
	}
	fmt.Fprintf(&all, fleetPolicy, "hosts-strict", "hosts", strict)
	fmt.Fprintf(&all, policySource, r.repo.Dir)
	return kube.Until(ctx, patience, func() error { return r.hub.Apply(ctx, []byte(all.String())) })
}
