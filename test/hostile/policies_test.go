package hostile

// What judges the fleet. Verdicts on honest members follow from their objects alone: of a
// lying member nothing is looked at but what it adds to a view, under keys of its own.
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

// lenient bindings tolerate the gaps of members that lie.
const bindings = `bindings:
- {name: own, package: own, tolerate: {names: ["evil/*"]}}
- {name: hosts, package: hosts, tolerate: {names: ["evil/*"]}}
- {name: hosts-strict, package: hosts}
- {name: keys, package: keys, tolerate: {names: ["evil/*"]}}
- {name: costly, package: costly, tolerate: {names: ["evil/*"]}}
`
