// Package route reads the paths of the query API: /fleet/… over all members,
// /members/<namespace>/<name>/… over one, /query/v1/… for questions.
package route

import "context"

// Target is whom a request is about.
type Target struct {
	// Prefix is what stands before the Kubernetes path: "/fleet" or
	// "/members/<namespace>/<name>"; "" for every other path.
	Prefix string
	// Member is <namespace>/<name>, "" for the whole fleet.
	Member string
}

type contextKey struct{}

// With returns a context that carries t.
func With(ctx context.Context, t Target) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// From returns the target that With put into ctx.
func From(ctx context.Context) (Target, bool) {
	t, ok := ctx.Value(contextKey{}).(Target)
	return t, ok
}
