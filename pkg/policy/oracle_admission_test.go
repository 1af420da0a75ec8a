package policy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
)

const limitKind = "Limit.shop.example"

// randomAdmission is a ValidatingAdmissionPolicyBinding with its policy, which says of
// Deployments, and maybe of Namespaces, that they have no more replicas than each of the
// Limits that the binding selects.
type randomAdmission struct {
	name                 string
	namespaces, except   bool   // it is about Namespaces, too; and not about Deployments a
	policyEnv, ofBinding string // labels env of Namespaces that the policy and the binding select; "": any
	owner                string // the label owner that objects have; "": any
	ref                  string // none, name or labels
	in                   string // the namespace of the parameters; "": that of the object
	deny                 bool   // what is without parameters
	ignore               bool   // failures
}

func randomAdmissions(r *rand.Rand) []randomAdmission {
	var out []randomAdmission
	for i := range 1 + r.IntN(2) {
		out = append(out, randomAdmission{
			name: fmt.Sprintf("v%d", i), namespaces: r.IntN(3) == 0, except: r.IntN(4) == 0, policyEnv: oneOf(r, "", "", "prod"), ofBinding: oneOf(r, "", "", "prod"),
			owner: oneOf(r, "", "", "me"), ref: oneOf(r, "none", "name", "name", "labels"), in: oneOf(r, "", "shop"), deny: r.IntN(2) == 0, ignore: r.IntN(4) == 0,
		})
	}
	return out
}

func (a *randomAdmission) documents() []map[string]any {
	resources := []any{map[string]any{"apiGroups": []any{"apps"}, "apiVersions": []any{"v1"}, "resources": []any{"deployments"}, "operations": []any{"CREATE"}}}
	if a.namespaces {
		resources = append(resources, map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"*"}, "resources": []any{"namespaces"}, "operations": []any{"*"}})
	}
	constraints, match := map[string]any{"resourceRules": resources}, map[string]any{}
	env := func(to map[string]any, value string) {
		if value != "" {
			to["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"env": value}}
		}
	}
	env(constraints, a.policyEnv)
	env(match, a.ofBinding)
	if a.owner != "" {
		match["objectSelector"] = map[string]any{"matchLabels": map[string]any{"owner": a.owner}}
	}
	if a.except {
		match["excludeResourceRules"] = []any{map[string]any{"apiGroups": []any{"apps"}, "apiVersions": []any{"v1"}, "resources": []any{"*"}, "operations": []any{"*"}, "resourceNames": []any{"a"}}}
	}
	spec := map[string]any{"policyName": a.name, "validationActions": []any{"Deny"}, "matchResources": match}
	ref := map[string]any{"parameterNotFoundAction": "Allow"}
	if a.deny {
		ref["parameterNotFoundAction"] = "Deny"
	}
	if a.in != "" {
		ref["namespace"] = a.in
	}
	switch a.ref {
	case "name":
		ref["name"] = "a"
		spec["paramRef"] = ref
	case "labels":
		ref["selector"] = map[string]any{"matchLabels": map[string]any{"owner": "us"}}
		spec["paramRef"] = ref
	}
	failure := "Fail"
	if a.ignore {
		failure = "Ignore"
	}
	policy := map[string]any{
		"failurePolicy": failure, "paramKind": map[string]any{"apiVersion": "shop.example/v1", "kind": "Limit"}, "matchConstraints": constraints,
		"validations": []any{map[string]any{
			"expression":        "params == null || object.kind == 'Namespace' || object.spec.replicas <= params.spec.max",
			"messageExpression": "'at most ' + string(params.spec.max)",
		}},
	}
	document := func(kind string, spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": a.name}, "spec": spec}
	}
	return []map[string]any{document("ValidatingAdmissionPolicy", policy), document("ValidatingAdmissionPolicyBinding", spec)}
}

// admits says what a binding makes of the objects of a fleet, without CEL and without what
// the product selects by.
func (f plainFleet) admits(a *randomAdmission) []string {
	var out []string
	for member, objects := range f {
		for _, o := range objects {
			kind, name, ns := textAt(o, "kind"), textAt(o, "metadata", "name"), textAt(o, "metadata", "namespace")
			isNamespace := kind == "Namespace"
			if kind != "Deployment" && !(isNamespace && a.namespaces) || a.except && kind == "Deployment" && name == "a" || a.owner != "" && textAt(o, "metadata", "labels", "owner") != a.owner {
				continue
			}
			of := o
			if !isNamespace {
				of = f.namespace(member, ns)
			}
			selects := func(env string) bool {
				return env == "" || of != nil && textAt(of, "metadata", "labels", "env") == env
			}
			if !selects(a.policyEnv) || !selects(a.ofBinding) {
				continue
			}
			limits := f.limits(member, a, cmp.Or(a.in, ns, name))
			switch {
			case a.ref != "none" && len(limits) == 0 && a.deny && !a.ignore:
				out = append(out, name+" failed: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction")
			case kind == "Deployment":
				replicas, _ := o["spec"].(map[string]any)["replicas"].(float64)
				for _, l := range limits {
					if spec, _ := l["spec"].(map[string]any); replicas > spec["max"].(float64) {
						out = append(out, strings.Join([]string{member, ns, name, fmt.Sprint("at most ", spec["max"])}, "|"))
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func (f plainFleet) limits(member string, a *randomAdmission, ns string) (out []map[string]any) {
	for _, o := range f[member] {
		if textAt(o, "kind") != "Limit" || textAt(o, "metadata", "namespace") != ns {
			continue
		}
		if a.ref == "name" && textAt(o, "metadata", "name") == "a" || a.ref == "labels" && textAt(o, "metadata", "labels", "owner") == "us" {
			out = append(out, o)
		}
	}
	return out
}

// compareAdmissions compares what the engine holds with what admits says.
func compareAdmissions(t *testing.T, f plainFleet, e *policy.Engine, fresh *policy.State, list []randomAdmission, what string) (violations int) {
	t.Helper()
	for i := range list {
		name := "ValidatingAdmissionPolicyBinding/" + list[i].name
		want := f.admits(&list[i])
		if got := messages(e.State(), name); !slices.Equal(got, want) {
			text, _ := json.Marshal(list[i].documents())
			t.Errorf("%s, %s:\ngot  %q\nwant %q", what, text, got, want)
		}
		violations += len(want)
		if a, b := e.State().Total(name), fresh.Total(name); a != b {
			t.Errorf("%s, %s: counts are %+v, and %+v when evaluated from nothing", what, name, a, b)
		}
	}
	return violations
}

// constrained is a set of templates with random constraints.
type constrained struct {
	set         *policy.Set
	constraints []randomConstraint
	admissions  []randomAdmission
}

func randomConstrained(t testing.TB, files []policy.File, seed uint64) constrained {
	t.Helper()
	out := constrained{constraints: randomConstraints(rand.New(rand.NewPCG(seed, 7))), admissions: randomAdmissions(rand.New(rand.NewPCG(seed, 9)))}
	var docs []string
	var written []map[string]any
	for i := range out.constraints {
		written = append(written, out.constraints[i].document())
	}
	for i := range out.admissions {
		written = append(written, out.admissions[i].documents()...)
	}
	for _, document := range written {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, string(text))
	}
	out.set = loadFiles(t, append(slices.Clone(files), policy.File{Path: "constraints.yaml", Data: []byte(strings.Join(docs, "\n---\n"))})...)
	return out
}
