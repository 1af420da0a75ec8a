package document

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/mask"
)

// SetJSON writes a set as an array, sorted as Rego sorts JSON values. Sets within it
// become arrays, which may make elements equal.
func SetJSON(set ast.Set) (string, error) {
	values := set.Slice()
	if slices.ContainsFunc(values, hasSet) {
		text, err := JSON(set)
		if err != nil {
			return "", err
		}
		plain, err := Value(text, mask.Whole())
		if err != nil {
			return "", err
		}
		array := plain.(*ast.Array) // A set is written as an array.
		values = make([]*ast.Term, 0, array.Len())
		array.Foreach(func(t *ast.Term) { values = append(values, t) })
		slices.SortFunc(values, ast.TermValueCompare)
		values = slices.CompactFunc(values, func(a, b *ast.Term) bool { return a.Equal(b) })
	}
	text, err := JSON(ast.NewArray(values...))
	return string(text), err
}

func hasSet(t *ast.Term) bool {
	found := false
	ast.WalkTerms(t, func(t *ast.Term) bool {
		_, set := t.Value.(ast.Set)
		found = found || set
		return found
	})
	return found
}

// JSON writes a value as JSON, with sorted keys.
func JSON(v ast.Value) ([]byte, error) {
	x, err := ast.JSONWithOpt(v, ast.JSONOpt{SortSets: true})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(x); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
