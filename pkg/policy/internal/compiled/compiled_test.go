package compiled_test

import (
	"context"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/value"
)

const module = `package p

violation contains {"msg": msg, "details": {"container": c.name}} if {
	some c in containers
	c.securityContext.privileged == true
	msg := sprintf("privileged %v in %v", [c.name, input.name])
}

containers contains c if some c in input.spec.containers

containers contains c if some c in input.spec.initContainers

violation contains {"msg": msg} if {
	provided := {label | some label, _ in input.labels}
	missing := {"app", "team"} - provided
	count(missing) > 0
	msg := sprintf("missing %v", [missing])
}

violation contains {"msg": f(c)} if {
	some i
	c := input.spec.containers[i]
	not startswith(c.image, "quay.io/")
	every k, v in c.env { k != v }
}

f(c) := x if { x := concat(":", ["image", c.image]) } else := "none"

by_name[c.name] := c if some c in input.spec.containers

total := count(by_name) 

violation contains {"msg": n} if {
   some n
   by_name[n].image == "docker.io/x"
   total > 1
   by_name["b"].image
}
`

func TestRun_Smoke(t *testing.T) {
	c := ast.MustCompileModules(map[string]string{"p.rego": module})
	body, err := c.QueryCompiler().Compile(ast.MustParseBody("x = data.p.violation"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := compiled.Compile(c, body, []ast.Var{"x"}, compiled.Options{})
	if err != nil {
		t.Fatal(err)
	}
	input := ast.MustParseTerm(`{"name": "pod", "labels": {"app": "x"}, "spec": {"containers": [
		{"name": "a", "image": "docker.io/x", "securityContext": {"privileged": true}, "env": {"a": "b"}},
		{"name": "b", "image": "quay.io/x"}], "initContainers": [{"name": "i", "image": "x", "securityContext": {"privileged": true}}]}}`)
	var m compiled.Machine
	var got ast.Value
	for range 3 {
		err = m.Run(p, compiled.Input{Input: value.Of(nil, input.Value)}, func(outs []value.Value) error {
			got = outs[0].AST()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var want ast.Value
	err = topdown.NewQuery(body).WithCompiler(c).WithInput(input).WithStrictBuiltinErrors(true).Iter(context.Background(), func(r topdown.QueryResult) error {
		want = r["x"].Value
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want.Compare(got) != 0 {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
