package adhoc

import (
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/limits"
)

// compileQuery checks what rego does not. It also returns the positions of
// comprehensions that OPA indexes: it evaluates them for all values of their outer
// variables at once.
func compileQuery(query string) (ast.Body, map[position]bool, error) {
	if len(query) > 64<<10 {
		return nil, nil, fmt.Errorf("%w: it is longer than 64 KiB", ErrQuery)
	}
	body, err := ast.ParseBody(query)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	c := ast.NewCompiler().WithCapabilities(limits.Capabilities())
	c.Compile(nil)
	qc := c.QueryCompiler()
	compiled, err := qc.Compile(body)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	if err := limits.CheckBody(compiled); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrLimit, err)
	}
	var wide error
	ast.WalkRefs(compiled, func(r ast.Ref) bool {
		if r[0].Equal(ast.DefaultRootDocument) && !queryable(r) && wide == nil {
			wide = fmt.Errorf("%w: %s: only data.fleet.%s can be read", ErrQuery, r, "{objects, by_name, members, names, scopes, views, passed, external}")
		}
		return false
	})
	indexed := map[position]bool{}
	ast.WalkTerms(compiled, func(t *ast.Term) bool {
		if qc.ComprehensionIndex(t) != nil {
			indexed[positionOf(t)] = true
		}
		return false
	})
	return compiled, indexed, wide
}

// sections are the documents of data.fleet.
var sections = []string{"objects", "by_name", "members", "names", "scopes", "views", "passed", "external"}

func queryable(r ast.Ref) bool {
	if len(r) < 3 || !r[1].Equal(ast.InternedTerm("fleet")) {
		return false
	}
	s, ok := r[2].Value.(ast.String)
	return ok && slices.Contains(sections, string(s))
}
