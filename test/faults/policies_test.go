package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/offline"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/clitest"
)

// What evaluates the fleet: of one object, of several members together, of a custom kind, and what
// is corrected.
var policyFiles = map[string]string{
	"claims.rego": `# METADATA
# title: One claim, one member
# custom: {severity: high, kinds: ["ConfigMap"]}
package faults.claims

view.claims[claim] contains true if {
	claim := input.object.metadata.labels.claim
}

violation contains {"msg": sprintf("%s is also claimed by %s of %s", [claim, other.ref.name, other.ref.member])} if {
	claim := input.object.metadata.labels.claim
	some other in data.fleet.views["faults.claims"].claims[claim]
	other.ref.member != input.ref.member
}
`,
	"sizes.rego": `# METADATA
# title: Widgets are small
# custom: {severity: low, kinds: ["Widget.faults.example"]}
package faults.sizes

violation contains {"msg": sprintf("%s has size %d", [input.ref.name, input.object.spec.size])} if {
	input.object.spec.size > 5
}
`,
	"replicas.rego": `# METADATA
# title: Deployments have replicas
# custom: {severity: low, kinds: ["Deployment.apps"]}
package faults.replicas

violation contains {"msg": sprintf("%s has %d replicas", [input.ref.name, input.object.spec.replicas])} if {
	input.object.spec.replicas < 3
}
`,
	"fix.rego": `# METADATA
# title: What is wanted is
# description: Label is has the value of label wanted.
# custom:
#   severity: medium
#   kinds: ["ConfigMap"]
#   remedies: [{action: patch, kind: ConfigMap}]
package faults.fix

violation contains {
	"msg": sprintf("%s is not %s", [input.ref.name, wanted]),
	"remedy": {"action": "patch", "patch": {"metadata": {"labels": {"is": wanted}}}},
} if {
	wanted := input.object.metadata.labels.wanted
	object.get(input.object.metadata.labels, "is", "") != wanted
}
`,
}

const bindings = `apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: claims}
spec: {package: faults.claims}
---
apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: sizes}
spec: {package: faults.sizes}
---
apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: replicas}
spec: {package: faults.replicas}
---
apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: fix}
spec:
  package: faults.fix
  mode: Enforce
  limits: {window: 1h, maxAffected: {policy: {count: 100000}, member: {count: 100000}}}
`

// sameBindings are those of bindings for an evaluation without a hub.
const sameBindings = `bindings:
- {name: claims, package: faults.claims}
- {name: sizes, package: faults.sizes}
- {name: replicas, package: faults.replicas}
- {name: fix, package: faults.fix}
`

// verdicts are the messages of violations, by policy and subject.
type verdicts map[string][]string

func (v verdicts) add(binding, member, kind, namespace, name string, violations []policy.Violation) {
	at := fmt.Sprintf("%s of %s %s %s/%s", binding, member, kind, namespace, name)
	for _, x := range violations {
		v[at] = append(v[at], x.Msg)
	}
	slices.Sort(v[at])
}

// fullEvaluation evaluates fresh lists of the members.
func (r *rig) fullEvaluation(ctx context.Context) (verdicts, error) {
	fleet, err := offline.New(offline.Options{})
	if err != nil {
		return nil, err
	}
	for _, m := range r.members {
		for _, path := range []string{configMaps, deployments, widgets} {
			body, err := get(ctx, m.direct, m.host+path)
			if err != nil {
				return nil, err
			}
			if err := fleet.Add(m.name, bytes.NewReader(body), m.name); err != nil {
				return nil, err
			}
		}
	}
	index, err := fleet.Index([]aggregate.Kind{"ConfigMap", "Deployment.apps", "Widget.faults.example"})
	if err != nil {
		return nil, err
	}
	state, err := clitest.Evaluate(ctx, policyFiles, sameBindings, index.Snapshot())
	if err != nil {
		return nil, err
	}
	out := verdicts{}
	for b := range state.Bindings() {
		for _, m := range r.members {
			for v := range state.Findings(b.Name, m.name) {
				if v.State != policy.Known {
					return nil, fmt.Errorf("%s is %s: %s", b.Name, v.State, v.Message)
				}
				ref := v.Subject.Ref
				out.add(b.Name, ref.Member, string(ref.Kind), ref.Namespace, ref.Name, v.Violations)
			}
		}
	}
	return out, nil
}

// verdictsEqual compares federator's violations with a full evaluation of what the members have.
func (r *rig) verdictsEqual(ctx context.Context) error {
	got := verdicts{}
	for q := (url.Values{"limit": {"500"}}); ; {
		body, err := get(ctx, r.client, "https://"+r.query+"/query/v1/violations?"+q.Encode())
		if err != nil {
			return err
		}
		var page struct {
			Items []struct {
				Policy, State, Message string
				Subject                struct{ Member, Kind, Namespace, Name string }
				Violations             []policy.Violation
			}
			Continue string
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return err
		}
		for _, x := range page.Items {
			if s := x.Subject; x.State == "Known" {
				got.add(x.Policy, s.Member, s.Kind, s.Namespace, s.Name, x.Violations)
				continue
			}
			return fmt.Errorf("%s of %+v is %s: %s", x.Policy, x.Subject, x.State, x.Message)
		}
		if page.Continue == "" {
			break
		}
		q.Set("continue", page.Continue)
	}
	maps.DeleteFunc(got, func(_ string, m []string) bool { return len(m) == 0 })
	want, err := r.fullEvaluation(ctx)
	if err != nil {
		return err
	}
	for _, at := range slices.Sorted(maps.Keys(want)) {
		if !reflect.DeepEqual(got[at], want[at]) {
			return fmt.Errorf("%s is %.300q, a full evaluation says %.300q", at, got[at], want[at])
		}
	}
	for at, messages := range got {
		if want[at] == nil {
			return fmt.Errorf("%s is %.300q, a full evaluation finds nothing", at, messages)
		}
	}
	if len(want) == 0 {
		return fmt.Errorf("no violations: the policies find nothing")
	}
	return nil
}
