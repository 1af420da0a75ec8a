package adhoc

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/mask"
)

// readMask is what a compiled query can read of objects: what its refs into objects and
// by_name name below an object, or everything where a ref ends at or above one.
func readMask(body ast.Body) *mask.Mask {
	var m *mask.Mask
	ast.WalkRefs(body, func(r ast.Ref) bool {
		if !r[0].Equal(ast.DefaultRootDocument) || len(r) < 3 {
			return false
		}
		switch r[2].Value {
		case ast.String("objects"), ast.String("by_name"):
			m = mask.Union(m, below(r[3:], 4))
		}
		return false
	})
	return m
}

// below is the mask of a ref's steps after the first n.
func below(steps ast.Ref, n int) *mask.Mask {
	if len(steps) <= n {
		return mask.Whole()
	}
	path := make([]string, 0, len(steps)-n)
	for _, step := range steps[n:] {
		s, ok := step.Value.(ast.String)
		switch {
		case !ok:
			path = append(path, "*") // a variable, or an index of an array
		case s == "*":
			return mask.Path(mask.Whole(), path...)
		default:
			path = append(path, string(s))
		}
	}
	return mask.Path(mask.Whole(), path...)
}
