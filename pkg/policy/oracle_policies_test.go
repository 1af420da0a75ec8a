package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"federator.dev/federator/pkg/policy"
)

// oraclePolicies are small policies that between them read everything there is, in
// every way there is.
var oraclePolicies = map[string]string{
	"unique_host": `# METADATA
# title: One host, one member
# custom: {severity: high, kinds: ["Ingress.networking.k8s.io"]}
package oracle.unique_host

view.hosts[host] contains {"class": object.get(input.object.spec, "class", "none")} if {
	some host in input.object.spec.hosts
}

violation contains {
	"msg": sprintf("host %s is also served from %s", [host, claim.ref.member]),
	"details": {"host": host, "other": claim.ref, "class": claim.value["class"]},
} if {
	some host in input.object.spec.hosts
	some claim in data.fleet.views["oracle.unique_host"].hosts[host]
	claim.ref.member != input.ref.member
}
`,
	"crowded": `# METADATA
# title: Aggregation over a key of another package's view
# custom: {severity: low, kinds: ["Ingress.networking.k8s.io"], parameters: {type: object, properties: {max: {type: integer, default: 2}}}}
package oracle.crowded

violation contains {"msg": sprintf("%s has %d", [host, n])} if {
	some host in input.object.spec.hosts
	n := count(data.fleet.views["oracle.unique_host"].hosts[host])
	n > input.parameters.max
}
`,
	"busiest": `# METADATA
# title: A view iterated whole
# custom: {severity: low, kinds: ["Namespace"]}
package oracle.busiest

violation contains {"msg": "some host is crowded", "details": {host | some host, claims in data.fleet.views["oracle.unique_host"].hosts; count(claims) > 2}} if {
	some host, claims in data.fleet.views["oracle.unique_host"].hosts
	count(claims) > 2
}
`,
	"pdb": `# METADATA
# title: Negation, with composite keys
# custom: {severity: medium, kinds: ["PodDisruptionBudget.policy"]}
package oracle.pdb

view.apps[key] contains true if {
	key := sprintf("%s/%s/%s", [input.ref.member, input.ref.namespace, input.object.spec.app])
}

violation contains {"msg": "allows none"} if input.object.spec.min == 0
`,
	"no_pdb": `# METADATA
# title: An app without a budget in its member
# custom:
#   severity: medium
#   kinds: ["Deployment.apps"]
#   remedies: [{action: apply, kind: PodDisruptionBudget.policy}]
package oracle.no_pdb

violation contains {
	"msg": "no budget",
	"remedy": {"action": "apply", "target": {"member": input.ref.member, "kind": "PodDisruptionBudget.policy", "namespace": input.ref.namespace, "name": input.object.spec.app}, "object": {"spec": {"app": input.object.spec.app}}},
} if {
	input.object.spec.replicas > 1
	not data.fleet.views["oracle.pdb"].apps[sprintf("%s/%s/%s", [input.ref.member, input.ref.namespace, input.object.spec.app])]
}
`,
	"skew": `# METADATA
# title: One name, one image
# custom: {severity: medium, kinds: ["Deployment.apps"]}
package oracle.skew

violation contains {"msg": sprintf("%s in %s", [other.spec.image, member])} if {
	some member, other in data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name]
	other.spec.image != input.object.spec.image
}
`,
	"home": `# METADATA
# title: What the home member has
# custom: {severity: low, kinds: ["Deployment.v1.apps"], parameters: {type: object, properties: {home: {type: string, default: fleet/a}}}}
package oracle.home

violation contains {"msg": "home has no such namespace"} if {
	not data.fleet.objects["Namespace"][input.parameters.home][""][input.ref.namespace]
}

violation contains {"msg": "home has more", "details": n} if {
	n := data.fleet.by_name["Deployment.v1.apps"][input.ref.namespace][input.ref.name][input.parameters.home].spec.replicas
	n > input.object.spec.replicas
}
`,
	"anywhere": `# METADATA
# title: Members iterated
# custom: {severity: low, kinds: ["Deployment.apps", "Ingress.networking.k8s.io"]}
package oracle.anywhere

violation contains {"msg": sprintf("%s scales %s to %d", [member, name, o.spec.replicas])} if {
	input.ref.kind == "Ingress.networking.k8s.io"
	some member
	some name, o in data.fleet.objects["Deployment.apps"][member][input.ref.namespace]
	o.spec.replicas > 2
}

violation contains {"msg": "single"} if {
	input.ref.kind == "Deployment.apps"
	input.object.spec.replicas == 1
}
`,
	"budget": `# METADATA
# title: A sum over members
# custom:
#   severity: high
#   kinds: ["Deployment.apps"]
#   subject: view.apps
#   remedies: [{action: patch, kind: Deployment.apps}]
#   parameters: {type: object, properties: {budget: {type: integer, default: 3}}}
package oracle.budget

view.apps[input.object.spec.app] contains {"replicas": input.object.spec.replicas}

total := sum([e.value.replicas | some e in input.entries])

violation contains {
	"msg": sprintf("%s has %d replicas in %d of %d members", [input.key, total, count({e.ref.member | some e in input.entries}), count(data.fleet.names)]),
	"remedy": {"action": "patch", "target": input.entries[0].ref, "patch": {"spec": {"replicas": 1}}},
} if total > input.parameters.budget
`,
	"members": `# METADATA
# title: Members
# custom: {severity: medium, subject: member}
package oracle.members

violation contains {"msg": "no shop"} if not data.fleet.objects["Namespace"][input.member.name][""].shop

violation contains {"msg": sprintf("namespaces are %s", [state])} if {
	state := data.fleet.scopes[input.member.name]["Namespace"]
	state != "Synced"
}

violation contains {"msg": sprintf("%s is of the same region, at %s", [name, data.fleet.members[name].version])} if {
	some name in data.fleet.names
	name != input.member.name
	data.fleet.members[name].labels.region == input.member.labels.region
}
`,
	"clusters": `# METADATA
# title: What Clusters say
# custom: {severity: medium, subject: member}
package oracle.clusters

violation contains {"msg": "is paused", "details": object.get(input.member, "topology", {})} if input.member.paused

violation contains {"msg": sprintf("%s is %s", [name, condition.status])} if {
	some name, condition in data.fleet.members[input.member.name].conditions
	condition.type == name
	condition.status != "True"
}

violation contains {"msg": sprintf("%s has the same owner", [name]), "details": input.member.annotations} if {
	some name in data.fleet.names
	name != input.member.name
	data.fleet.members[name].annotations.owner == input.member.annotations.owner
	not data.fleet.members[name].conditions.Ready.reason
}

violation contains {"msg": "another class", "details": facts} if {
	some facts in data.fleet.members
	facts.topology.class != input.member.topology.class
}
`,
	"regions": `# METADATA
# title: Regions of a host
# custom: {severity: low, kinds: ["Ingress.networking.k8s.io"]}
package oracle.regions

violation contains {"msg": "one region only", "details": regions} if {
	regions := {region |
		some host in input.object.spec.hosts
		some claim in data.fleet.views["oracle.unique_host"].hosts[host]
		region := data.fleet.members[claim.ref.member].labels.region
	}
	count(regions) == 1
}

violation contains {"msg": "of the region", "details": input.member.labels} if {
	input.member.labels.region == "eu"
	some member, facts in data.fleet.members
	facts.labels.region == "us"
	member < input.member.name
}
`,
	"divide": `# METADATA
# title: Errors
# custom: {severity: low, kinds: ["Deployment.apps"]}
package oracle.divide

violation contains {"msg": sprintf("share %v", [x])} if {
	x := 12 / input.object.spec.replicas
	x > 3
}
`,
	"plain": `# METADATA
# title: What is read is alike in many objects
# custom: {severity: low, kinds: ["*"], parameters: {type: object, properties: {max: {type: integer, default: 2}}}}
package oracle.plain

violation contains {"msg": sprintf("%s of %v", [input.ref.kind, input.object.spec.app]), "details": input.object.spec.replicas} if {
	input.object.spec.replicas > input.parameters.max
}

violation contains {"msg": "too few", "details": 1 / input.object.spec.replicas} if {
	input.object.spec.min > input.object.spec.replicas
}
`,
	"grouped": `# METADATA
# title: All kinds of groups
# custom: {severity: low, kinds: ["*.apps", "*.policy", "Namespace"]}
package oracle.grouped

violation contains {"msg": sprintf("%s without an owner, one of %d", [input.ref.kind, n])} if {
	not input.object.metadata.labels.owner
	n := count(data.fleet.views["oracle.grouped"].kinds[input.ref.kind])
}

view.kinds[input.ref.kind] contains input.object.spec.replicas
`,
	"owned": `# METADATA
# title: Everything has an owner
# custom: {severity: low, kinds: ["*"], remedies: [{action: delete, kind: Namespace}]}
package oracle.owned

violation contains {"msg": "no owner"} if {
	not input.object.metadata.labels.owner
	input.ref.kind != "Namespace"
}

violation contains {"msg": "no owner", "remedy": {"action": "delete"}} if {
	input.ref.kind == "Namespace"
	not input.object.metadata.labels.owner
}

view.owners[owner] contains input.ref.kind if owner := input.object.metadata.labels.owner
`,
	"alone": `# METADATA
# title: Owners of everything
# custom: {severity: low, kinds: ["Namespace"]}
package oracle.alone

violation contains {"msg": "owns nothing else"} if {
	owner := input.object.metadata.labels.owner
	count(data.fleet.views["oracle.owned"].owners[owner]) == 1
}
`,
	"odd": `# METADATA
# title: A view with keys that are not strings
# custom: {severity: low, kinds: ["Deployment.apps"]}
package oracle.odd

view.apps[key] contains {input.object.spec.replicas, "n"} if {
	key := {"odd": input.object.spec.replicas, "shop": input.object.spec.app}[input.object.spec.app]
}

violation contains {"msg": "shop is known", "details": data.fleet.views["oracle.odd"].apps.shop} if {
	data.fleet.views["oracle.odd"].apps.shop
	input.object.spec.replicas != 2
}
`,
	"keyed": `# METADATA
# title: Keys of a view to which not every object can contribute
# custom: {severity: low, kinds: ["Deployment.apps"], subject: view.apps}
package oracle.keyed

view.apps[key] contains {"replicas": input.object.spec.replicas} if {
	key := {"odd": input.object.spec.replicas, "shop": "shop", "pay": "pay"}[input.object.spec.app]
}

violation contains {"msg": sprintf("%s is known", [input.key]), "details": [e.ref.name | some e in input.entries]} if {
	some e in input.entries
	e.value.replicas > 1
}
`,
	"broken": `# METADATA
# title: Results that are none
# custom: {severity: low, kinds: ["Deployment.apps"], remedies: [{action: delete, kind: Pod}]}
package oracle.broken

violation contains {"details": 1} if input.object.spec.replicas == 3

violation contains {"msg": "wrong remedy", "remedy": {"action": "delete"}} if input.object.spec.replicas == 2

violation contains {"msg": "right"} if input.object.spec.replicas == 1
`,
}

// oracleVariant is what a second set has instead.
var oracleVariant = map[string]string{
	"crowded": strings.ReplaceAll(oraclePolicies["crowded"], "n > input.parameters.max", "n >= input.parameters.max"),
	"pdb":     strings.ReplaceAll(oraclePolicies["pdb"], "contains true if", "contains false if"),
	"unique_host": strings.ReplaceAll(oraclePolicies["unique_host"],
		"some host in input.object.spec.hosts\n}\n\nviolation", "some host in input.object.spec.hosts\n\thost != \"c.example\"\n}\n\nviolation"),
}

// policySet is a set, and what it was made from.
type policySet struct {
	set   *policy.Set
	texts map[string]string
}

var oracleSets = sync.OnceValues(func() ([]policySet, error) {
	var sets []policySet
	for i := range 3 {
		texts := map[string]string{}
		source := policy.Source{Name: fmt.Sprint("set", i)}
		for name, text := range oraclePolicies {
			if v, ok := oracleVariant[name]; ok && i == 1 {
				text = v
			}
			if i == 2 && (name == "pdb" || name == "no_pdb" || name == "odd") {
				continue
			}
			texts[name] = text
			source.Files = append(source.Files, policy.File{Path: name + ".rego", Data: []byte(text)})
		}
		slices.SortFunc(source.Files, func(a, b policy.File) int { return strings.Compare(a.Path, b.Path) })
		set, err := policy.Load([]policy.Source{source}, policy.LoadOptions{})
		if err != nil {
			return nil, err
		}
		sets = append(sets, policySet{set, texts})
	}
	return sets, nil
})

func TestOraclePolicies_Load(t *testing.T) {
	if _, err := oracleSets(); err != nil {
		t.Fatal(err)
	}
}
