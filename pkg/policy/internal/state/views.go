package state

import (
	"iter"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/matview"
)

// Views returns the views of the state, for queries.
func (s *State) Views() Views { return Views{s} }

// Views are the views of a state, for queries.
type Views struct{ s *State }

// Names implements Views.
func (v Views) Names() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, w := range v.s.parts.Views {
			if hidden(w) {
				continue
			}
			if !yield(w.Pkg.Name, w.Def.Name) {
				return
			}
		}
	}
}

// hidden reports whether a view is an index of a template, or of a version that is not a policy of its own.
func hidden(v *matview.View) bool {
	return strings.HasPrefix(v.Def.Name, "$") || v.Pkg.VersionOf() != ""
}

func (v Views) find(pkg, name string) *matview.View {
	for _, w := range v.s.parts.Views {
		if w.Pkg.Name == pkg && w.Def.Name == name && !hidden(w) {
			return w
		}
	}
	return nil
}

// Keys implements Views.
func (v Views) Keys(pkg, name string) iter.Seq[string] {
	if w := v.find(pkg, name); w != nil {
		return w.Keys()
	}
	return func(func(string) bool) {}
}

// Entries implements Views.
func (v Views) Entries(pkg, name, key string) iter.Seq2[aggregate.Ref, ast.Value] {
	return func(yield func(aggregate.Ref, ast.Value) bool) {
		w := v.find(pkg, name)
		if w == nil {
			return
		}
		for e := range w.Entries(key) {
			if e.Values == "" { // the view is over its limit
				continue
			}
			values, err := e.Parse(nil)
			if err != nil {
				panic("policy: " + err.Error()) // the engine wrote it
			}
			for _, v := range values {
				if !yield(e.Object.Ref, v.AST()) {
					return
				}
			}
		}
	}
}
