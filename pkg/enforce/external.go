package enforce

import (
	"context"

	"federator.dev/federator/pkg/policy"
)

type externalRequest struct {
	documents *policy.External
	done      chan error // buffered
}

// SetExternal says what the documents from outside the fleet are from now on, and returns when what read any that differs is
// evaluated. It takes effect between batches.
func (l *Loop) SetExternal(ctx context.Context, documents *policy.External) error {
	r := externalRequest{documents: documents, done: make(chan error, 1)}
	return ask(ctx, l, l.externals, r, r.done)
}

// setExternal changes the documents and reports whether the engine can continue.
func (l *Loop) setExternal(ctx context.Context, r externalRequest) bool {
	return l.answer(ctx, r.done, func() (*policy.Changes, error) { return l.engine.SetExternal(ctx, r.documents) })
}
