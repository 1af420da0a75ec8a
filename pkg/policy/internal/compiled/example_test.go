package compiled_test

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/value"
)

func Example() {
	c := ast.MustCompileModules(map[string]string{"p.rego": `package p

violation contains sprintf("%s is privileged", [c.name]) if {
	some c in input.spec.containers
	c.securityContext.privileged
}
`})
	query, err := c.QueryCompiler().Compile(ast.MustParseBody("x = data.p.violation"))
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := compiled.Compile(c, query, []ast.Var{"x"}, compiled.Options{})
	if err != nil {
		fmt.Println(err) // topdown is to run the query
		return
	}
	body := []byte(`{"spec":{"containers":[{"name":"web","securityContext":{"privileged":true}}]}}`)
	input, err := value.Decode(nil, body, mask.Whole())
	if err != nil {
		fmt.Println(err)
		return
	}
	var m compiled.Machine
	err = m.Run(p, compiled.Input{Input: input}, func(outs []value.Value) error {
		fmt.Println(outs[0].AST())
		return nil
	})
	fmt.Println(err)
	// Output:
	// {"web is privileged"}
	// <nil>
}
