package clitest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// Policies of tests: about objects across members, about keys of a view, and about
// members.
const (
	HostsPolicy = `# METADATA
# title: One host, one member
# description: An Ingress host is served from one member only.
# custom:
#   severity: high
#   kinds: ["Ingress.networking.k8s.io"]
package test.hosts

view.hosts[host] contains true if {
	some rule in input.object.spec.rules
	host := rule.host
}

violation contains {
	"msg": sprintf("host %s is also served from %s", [rule.host, claim.ref.member]),
	"details": {"host": rule.host},
} if {
	some rule in input.object.spec.rules
	some claim in data.fleet.views["test.hosts"].hosts[rule.host]
	claim.ref.member != input.ref.member
}
`
	ReplicasPolicy = `# METADATA
# title: Replicas
# description: A Deployment has more than one replica.
# custom:
#   severity: low
#   kinds: ["Deployment.apps"]
#   remedies: [{action: patch, kind: Deployment.apps}]
#   parameters:
#     type: object
#     properties:
#       least: {type: integer, default: 2}
package test.replicas

violation contains {
	"msg": sprintf("%d replicas, fewer than %d", [n, input.parameters.least]),
	"remedy": {"action": "patch", "patch": {"spec": {"replicas": input.parameters.least}}},
} if {
	n := object.get(input.object.spec, "replicas", 1)
	n < input.parameters.least
}
`
	ImagesPolicy = `# METADATA
# title: One tag
# description: An image runs with one tag in the fleet.
# custom:
#   severity: medium
#   kinds: ["Deployment.apps"]
#   subject: view.images
package test.images

view.images[name] contains tag if {
	some container in input.object.spec.template.spec.containers
	[name, tag] := split(container.image, ":")
}

violation contains {"msg": sprintf("tags %s", [concat(", ", sort(tags))])} if {
	tags := {entry.value | some entry in input.entries}
	count(tags) > 1
}
`
	Manifests = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {federator.dev/member: fleet/eu-1}}
spec: {rules: [{host: a.example.com}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {federator.dev/member: fleet/us-1}}
spec: {rules: [{host: b.example.com}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {federator.dev/member: fleet/eu-1}}
spec: {replicas: 3, template: {spec: {containers: [{name: web, image: "nginx:1.27"}]}}}
`
	StolenHost = `---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: stolen, annotations: {federator.dev/member: fleet/us-1}}
spec: {rules: [{host: a.example.com}]}
`
	SkewedDeployment = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {federator.dev/member: fleet/us-1}}
spec: {replicas: 1, template: {spec: {containers: [{name: web, image: "nginx:1.28"}]}}}
`
)

// PolicyTree writes policies to a directory, each as its name says.
func PolicyTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Evaluate evaluates policies, each as its name says, in full on a snapshot.
func Evaluate(ctx context.Context, files map[string]string, bindings string, snap *aggregate.Snapshot) (*policy.State, error) {
	var source policy.Source
	for name, text := range files {
		source.Files = append(source.Files, policy.File{Path: name, Data: []byte(text)})
	}
	set, err := policy.Load([]policy.Source{source}, policy.LoadOptions{})
	if err != nil {
		return nil, err
	}
	bound, err := policy.ParseBindings(set, "bindings.yaml", []byte(bindings))
	if err != nil {
		return nil, err
	}
	return policy.Evaluate(ctx, policy.EngineOptions{Set: set, Bindings: bound}, snap)
}

func Policies(t *testing.T) string {
	t.Helper()
	return PolicyTree(t, map[string]string{"hosts.rego": HostsPolicy, "replicas.rego": ReplicasPolicy, "images/images.rego": ImagesPolicy})
}
