package admissioncel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/policy/internal/admissioncel"
)

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil { // keeps whole numbers
		t.Fatal(err)
	}
	return out
}

func admission(t testing.TB, spec string) admissioncel.Policy {
	t.Helper()
	var of admissionv1.ValidatingAdmissionPolicy
	if err := yaml.UnmarshalStrict([]byte(spec), &of.Spec); err != nil {
		t.Fatal(err)
	}
	p, problems := admissioncel.FromAdmissionPolicy(&of)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p
}

func compile(t testing.TB, p admissioncel.Policy) *admissioncel.Program {
	t.Helper()
	program, problems := admissioncel.Compile(p)
	if program == nil {
		t.Fatal(problems)
	}
	return program
}

func decide(t testing.TB, p *admissioncel.Program, in admissioncel.Input) string {
	t.Helper()
	decisions, err := p.Evaluate(t.Context(), &in)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range decisions {
		s := fmt.Sprintf("%d %s", d.Validation, d.Message)
		if d.Error {
			s = "error " + s
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {replicas: 7}`

func TestProgram_Admission(t *testing.T) {
	shop := object(t, "metadata: {name: shop, labels: {team: a}}")
	params := object(t, "metadata: {name: limits}\nspec: {max: 5}")
	for _, c := range []struct{ name, spec, want string }{
		{"admitted", `validations: [{expression: object.spec.replicas <= 7}]`, ""},
		{"denied", `validations: [{expression: object.spec.replicas <= 5}]`, "0 failed expression: object.spec.replicas <= 5"},
		{"message", `validations: [{expression: object.spec.replicas <= 5, message: " too many "}]`, "0 too many"},
		{
			"messageExpression", `validations: [{expression: object.spec.replicas <= 5, message: x, messageExpression: "'has ' + string(object.spec.replicas)"}]`,
			"0 has 7",
		},
		{"a message that fails", `validations: [{expression: "false", message: x, messageExpression: "string(object.spec.none)"}]`, "0 x"},
		{"a message of two lines", `validations: [{expression: "false", message: x, messageExpression: "'a\\nb'"}]`, "0 x"},
		{"params", "paramKind: {apiVersion: v1, kind: X}\nvalidations: [{expression: object.spec.replicas <= params.spec.max}, {expression: params == null}]", "0 failed expression: object.spec.replicas <= params.spec.max; 1 failed expression: params == null"},
		{"variables", "variables: [{name: r, expression: object.spec.replicas}, {name: s, expression: variables.r + 1}]\nvalidations: [{expression: variables.s == 8}, {expression: variables.s == 9}]", "1 failed expression: variables.s == 9"},
		{"namespaceObject", `validations: [{expression: "namespaceObject.metadata.labels.team == 'b'"}]`, "0 failed expression: namespaceObject.metadata.labels.team == 'b'"},
		{"conditions that do not match", "matchConditions: [{name: a, expression: \"request.name == 'api'\"}]\nvalidations: [{expression: 'false'}]", ""},
		{"conditions that match", "matchConditions: [{name: a, expression: \"request.namespace == 'shop' && request.operation == 'CREATE' && request.kind.group == 'apps' && request.resource.resource == 'deployments'\"}]\nvalidations: [{expression: 'false', message: m}]", "0 m"},
		{"an error", `validations: [{expression: object.spec.none == 1}]`, "error 0 expression 'object.spec.none == 1' resulted in error: no such key: none"},
		{"an ignored error", "failurePolicy: Ignore\nvalidations: [{expression: object.spec.none == 1}, {expression: 'false', message: m}]", "1 m"},
		{"an error in a condition", "matchConditions: [{name: a, expression: object.spec.none == 1}]\nvalidations: [{expression: 'true'}]", "error -1 expression 'object.spec.none == 1' resulted in error: no such key: none"},
		{"a false condition beside an error", "matchConditions: [{name: a, expression: object.spec.none == 1}, {name: b, expression: 'false'}]\nvalidations: [{expression: 'false'}]", ""},
		{"conditions do not see the Namespace", "matchConditions: [{name: a, expression: namespaceObject == null}]\nvalidations: [{expression: namespaceObject == null, message: m}]", "0 m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compile(t, admission(t, c.spec))
			if got := decide(t, p, admissioncel.Input{Object: object(t, web), Params: params, Namespace: shop, Resource: "deployments"}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestProgram_Template(t *testing.T) {
	source := object(t, `
variables:
- {name: isUpdate, expression: 'has(request.operation) && request.operation == "UPDATE"'}
- {name: max, expression: 'has(variables.params.max) ? variables.params.max : 1'}
validations:
- {expression: variables.isUpdate || variables.anyObject.spec.replicas <= variables.max, messageExpression: '"at most " + string(variables.max)'}`)
	policy, problems := admissioncel.FromTemplate(source, "spec.targets[0].code[0].source")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	p := compile(t, policy)
	for params, want := range map[string]string{"{}": "0 at most 1", "{parameters: {max: 5}}": "0 at most 5", "{parameters: {max: 7}}": ""} {
		if got := decide(t, p, admissioncel.Input{Object: object(t, web), Params: object(t, "spec: "+params)}); got != want {
			t.Errorf("%s: got %q, want %q", params, got, want)
		}
	}
}

func TestCompile_RefusesWhatOnlyARequestHas(t *testing.T) {
	for expression, want := range map[string]string{
		"object.metadata.name != oldObject.metadata.name":              "reads oldObject,",
		"authorizer.group('').resource('pods').check('get').allowed()": "reads authorizer,",
		"request.userInfo.username == 'x'":                             "reads request.userInfo,",
		"has(request.options)":                                         "reads request.options,",
		"request.dryRun":                                               "reads request.dryRun,",
		"[request].all(r, r.name == 'x')":                              "reads request as a whole,",
		"object.list.all(request, request.userInfo == 'x')":            "",
		"[1].all(x, oldObject == null)":                                "reads oldObject,",
		"request.?userInfo.hasValue()":                                 "reads request.userInfo,",
		"{'a': request.userInfo.uid}['a'] == ''":                       "reads request.userInfo,",
		"request.kind.kind == 'Pod' && request.operation == 'CREATE'":  "",
		"object.request.userInfo == object.oldObject":                  "",
		".oldObject == null":                                           "reads oldObject,",
		"has(.request.userInfo)":                                       "reads request.userInfo,",
		"[1].exists(oldObject, .oldObject == null)":                    "reads oldObject,",
		".request.name == 'x' && .object != null":                      "",
		"object.x +":     "compilation failed:",
		"1":              "must evaluate to bool but got int",
		"variables.none": "compilation failed:",
		"params.x == 1":  "compilation failed:",
		"object.metadata.creationTimestamp < timestamp(now())":           "compilation failed:",
		"[1, 2].exists(oldObject, oldObject == 1)":                       "",
		"[1, 2].exists(oldObject, oldObject == 1) && oldObject == null":  "reads oldObject,",
		"namespaceObject.metadata.name == request.namespace":             "",
		"object.spec.containers.map(c, c.image).exists(i, i == 'nginx')": "",
	} {
		policy := admissioncel.Policy{At: "spec", Validations: []admissioncel.Validation{{Expression: expression}}}
		_, problems := admissioncel.Compile(policy)
		got := ""
		if len(problems) > 0 {
			got = problems[0].String()
		}
		if want == "" && got != "" || want != "" && !strings.HasPrefix(got, "spec.validations[0].expression: "+want) {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}

func TestProgram_SaysWhatItReads(t *testing.T) {
	p := compile(t, admission(t, `validations: [{expression: namespaceObject.metadata.name == request.resource.resource}]`))
	if !p.ReadsNamespace() || !p.ReadsResource() || p.HasParams() {
		t.Error("namespaceObject and request.resource are read, params are not")
	}
	if p := compile(t, admission(t, `validations: [{expression: object != null}]`)); p.ReadsNamespace() || p.ReadsResource() {
		t.Error("only the object is read")
	}
}

func TestProgram_EndsWithItsBudgetAndItsContext(t *testing.T) {
	p := compile(t, admission(t, `validations: [{expression: "object.l.all(a, object.l.all(b, object.l.all(c, a + b + c >= 0)))"}]`))
	list := make([]any, 300)
	for i := range list {
		list[i] = int64(i)
	}
	in := admissioncel.Input{Object: map[string]any{"l": list}}
	if got := decide(t, p, in); !strings.Contains(got, "error") {
		t.Errorf("got %q, want an error of the budget", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Evaluate(ctx, &in); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an end with the context", err)
	}
}

func BenchmarkProgram(b *testing.B) {
	p := compile(b, admission(b, `
variables: [{name: r, expression: object.spec.replicas}]
validations: [{expression: variables.r <= 7 && object.metadata.labels.app == 'web', messageExpression: "'has ' + string(variables.r)"}]`))
	in := admissioncel.Input{Object: object(b, web)}
	for b.Loop() {
		if d, err := p.Evaluate(b.Context(), &in); err != nil || len(d) > 0 {
			b.Fatal(d, err)
		}
	}
}

func ExampleProgram_Evaluate() {
	p, problems := admissioncel.Compile(admissioncel.Policy{
		At:          "spec",
		Validations: []admissioncel.Validation{{Expression: "object.spec.replicas <= 5", Message: "at most 5 replicas"}},
	})
	if p == nil {
		fmt.Println(problems)
		return
	}
	object := map[string]any{"spec": map[string]any{"replicas": int64(7)}}
	decisions, err := p.Evaluate(context.Background(), &admissioncel.Input{Object: object})
	fmt.Println(decisions[0].Message, err)
	// Output: at most 5 replicas <nil>
}
