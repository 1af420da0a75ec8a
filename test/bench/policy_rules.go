package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// rule is one policy about Pods, as the library of Gatekeeper has it, in Rego v1.
// Both engines take the same text: what differs is where the object is.
type rule struct {
	name, kind string // of the package, and of the constraint
	properties string // of the parameters' schema, as YAML
	parameters map[string]any
	text       string
}

// compared are the policies that both engines evaluate: all of them read the Pod only.
var compared = []rule{
	{"privileged", "K8sPrivileged", "", nil, `
violation contains {"msg": msg, "details": {"container": c.name}} if {
	some c in containers
	c.securityContext.privileged == true
	msg := sprintf("privileged container is not allowed: %v, securityContext: %v", [c.name, c.securityContext])
}

containers contains c if some c in input.object.spec.containers

containers contains c if some c in input.object.spec.initContainers

containers contains c if some c in input.object.spec.ephemeralContainers
`},
	{"requiredlabels", "K8sRequiredLabels", "labels: {type: array, items: {type: object, properties: {key: {type: string}, pattern: {type: string}}}}", map[string]any{
		"labels": []any{map[string]any{"key": "app", "pattern": "^[a-z0-9-]+$"}, map[string]any{"key": "team", "pattern": ""}},
	}, `
violation contains {"msg": msg, "details": {"missing": missing}} if {
	provided := {label | some label, _ in input.object.metadata.labels}
	required := {label.key | some label in input.parameters.labels}
	missing := required - provided
	count(missing) > 0
	msg := sprintf("you must provide labels: %v", [missing])
}

violation contains {"msg": msg, "details": {"label": key}} if {
	some key, value in input.object.metadata.labels
	some expected in input.parameters.labels
	expected.key == key
	expected.pattern != ""
	not regex.match(expected.pattern, value)
	msg := sprintf("label <%v: %v> does not satisfy allowed regex: %v", [key, value, expected.pattern])
}
`},
	{"allowedrepos", "K8sAllowedRepos", "repos: {type: array, items: {type: string}}", map[string]any{"repos": []any{"registry.k8s.io/", "quay.io/", "docker.io/", "ghcr.io/"}}, `
violation contains {"msg": msg, "details": {"image": c.image}} if {
	some c in input.object.spec.containers
	not strings.any_prefix_match(c.image, input.parameters.repos)
	msg := sprintf("container <%v> has an invalid image repo <%v>, allowed repos are %v", [c.name, c.image, input.parameters.repos])
}

violation contains {"msg": msg, "details": {"image": c.image}} if {
	some c in input.object.spec.initContainers
	not strings.any_prefix_match(c.image, input.parameters.repos)
	msg := sprintf("initContainer <%v> has an invalid image repo <%v>, allowed repos are %v", [c.name, c.image, input.parameters.repos])
}
`},
	{"requiredresources", "K8sRequiredResources", "limits: {type: array, items: {type: string}}, requests: {type: array, items: {type: string}}", map[string]any{
		"limits": []any{"memory"}, "requests": []any{"cpu", "memory"},
	}, `
violation contains {"msg": msg, "details": {"missing": missing}} if {
	some c in input.object.spec.containers
	provided := {resource | some resource, _ in c.resources.limits}
	required := {resource | some resource in input.parameters.limits}
	missing := required - provided
	count(missing) > 0
	msg := sprintf("container <%v> does not have <%v> limits defined", [c.name, missing])
}

violation contains {"msg": msg, "details": {"missing": missing}} if {
	some c in input.object.spec.containers
	provided := {resource | some resource, _ in c.resources.requests}
	required := {resource | some resource in input.parameters.requests}
	missing := required - provided
	count(missing) > 0
	msg := sprintf("container <%v> does not have <%v> requests defined", [c.name, missing])
}
`},
}

// more are those that make ten of them.
var more = []rule{
	{"hostnamespaces", "", "", nil, `
violation contains {"msg": sprintf("%s is shared with the node", [field])} if {
	some field in ["hostNetwork", "hostPID", "hostIPC"]
	input.object.spec[field] == true
}
`},
	{"hostports", "", "", nil, `
violation contains {"msg": sprintf("container %s takes port %v of the node", [c.name, port.hostPort])} if {
	some c in input.object.spec.containers
	some port in c.ports
	port.hostPort > 0
}
`},
	{"readonlyroot", "", "", nil, `
violation contains {"msg": sprintf("container %s can write to its root", [c.name])} if {
	some c in input.object.spec.containers
	not c.securityContext.readOnlyRootFilesystem == true
}
`},
	{"nonroot", "", "", nil, `
violation contains {"msg": sprintf("container %s may run as root", [c.name])} if {
	some c in input.object.spec.containers
	not c.securityContext.runAsNonRoot == true
	not input.object.spec.securityContext.runAsNonRoot == true
}
`},
	{"latest", "", "", nil, `
violation contains {"msg": sprintf("container %s runs %s", [c.name, c.image])} if {
	some c in input.object.spec.containers
	endswith(c.image, ":latest")
}
`},
	{"hostpath", "", "", nil, `
violation contains {"msg": sprintf("volume %s is %s of the node", [v.name, v.hostPath.path])} if {
	some v in input.object.spec.volumes
	not startswith(v.hostPath.path, "/var/log")
}
`},
}

// source is the rule as a package for this engine. extra is more Rego.
func (r rule) source(extra string) policy.File {
	parameters := ""
	if r.properties != "" {
		parameters = fmt.Sprintf(", parameters: {type: object, properties: {%s}}", r.properties)
	}
	text := fmt.Sprintf("# METADATA\n# title: %s\n# custom: {severity: high, kinds: [Pod]%s}\npackage bench.%s\n%s%s", r.name, parameters, r.name, r.text, extra)
	return policy.File{Path: r.name + ".rego", Data: []byte(text)}
}

// template is the rule as a template for Gatekeeper's engine.
func (r rule) template() string {
	return "package " + r.name + "\n" + strings.ReplaceAll(r.text, "input.object", "input.review.object")
}

// loadRules loads rules and binds each, with its parameters, to Pods.
func loadRules(rules []rule, extra string) (*policy.Set, []policy.Binding, error) {
	var src policy.Source
	var bindings []policy.Binding
	for _, r := range rules {
		src.Files = append(src.Files, r.source(extra))
		bindings = append(bindings, policy.Binding{Name: r.name, Package: "bench." + r.name, Parameters: r.parameters, Match: policy.Match{Kinds: []aggregate.Kind{"Pod"}}})
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	return set, bindings, err
}

// said is a violation, for comparing.
func said(binding, subject, msg string, details any) (string, error) {
	text, err := json.Marshal(details) // with sorted keys
	return strings.Join([]string{binding, subject, msg, string(text)}, "\x00"), err
}
