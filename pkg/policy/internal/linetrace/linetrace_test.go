package linetrace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"federator.dev/federator/pkg/policy/internal/linetrace"
)

func TestTracer_CountsByLine(t *testing.T) {
	const module = `package p

violation contains {"msg": msg} if {
	some c in input.containers
	not approved(c.image)
	msg := sprintf("%s", [c.image])
}

violation contains {"msg": "never"} if {
	input.absent
	input.containers
}

approved(image) if {
	startswith(image, "good/")
}
`
	lines := &linetrace.Tracer{}
	q, err := rego.New(rego.Query("data.p.violation"), rego.Module("p.rego", module)).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rs, err := q.Eval(t.Context(), rego.EvalQueryTracer(lines), rego.EvalRuleIndexing(false),
		rego.EvalParsedInput(ast.MustParseTerm(`{"containers": [{"image": "good/a"}, {"image": "bad/b"}, {"image": "bad/c"}]}`).Value))
	if err != nil || len(rs) != 1 {
		t.Fatal(rs, err)
	}
	var got strings.Builder
	for _, l := range lines.Lines() {
		fmt.Fprintf(&got, "%s:%d %d/%d %v %s\n", l.File, l.Row, l.Held, l.Evaluated, l.Rule, l.Text)
	}
	t.Log("\n" + got.String())
	for _, want := range []string{
		`p.rego:3 2/1 true violation contains {"msg": msg} if {`,
		`p.rego:5 2/3 false not approved(c.image)`,
		`p.rego:10 0/1 false input.absent`,
		`p.rego:14 1/3 true approved(image) if {`,
		`p.rego:15 1/3 false startswith(image, "good/")`,
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(got.String(), "p.rego:11") {
		t.Error("a line after one that failed was evaluated")
	}
}
