// Package hubclient sends requests about federator's own objects to the hub, and again after a
// temporary error.
package hubclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/sleep"
)

const (
	timeout  = 10 * time.Second // of one request
	attempts = 6
	backoff  = 100 * time.Millisecond // after the first attempt; then twice as long each time
)

// JSON is the content type of bodies.
const JSON = "application/json"

// Client sends requests to the hub. It is safe for concurrent use.
type Client struct{ REST rest.Interface }

// Request returns a request about objects of the group federator.dev.
func (c Client) Request(verb string, path ...string) *rest.Request {
	gv := v1alpha1.SchemeGroupVersion()
	return c.REST.Verb(verb).AbsPath(append([]string{"apis", gv.Group, gv.Version}, path...)...).
		SetHeader("Accept", JSON).MaxRetries(0)
}

// Do sends a request once and decodes its response, which nobody wants if into is nil.
func (c Client) Do(ctx context.Context, r *rest.Request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result := r.Do(ctx)
	if err := result.Error(); err != nil || into == nil {
		return err
	}
	body, err := result.Raw() // whose own error does not have the hub's message
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("hub response: %w", err)
	}
	return nil
}

// Retry calls f until it succeeds, or fails for good: with one of the errors that are final, or
// one of the hub that is not temporary. A conflict is temporary: f reads what has changed.
func (c Client) Retry(ctx context.Context, f func(context.Context) error, final ...error) error {
	for try, wait := 1, backoff; ; try++ {
		err := f(ctx)
		if err == nil || try == attempts || ctx.Err() != nil || !temporary(err) || slices.ContainsFunc(final, func(e error) bool { return errors.Is(err, e) }) {
			return err
		}
		if sleep.For(ctx, wait) != nil {
			return err
		}
		wait *= 2
	}
}

func temporary(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // the network, or a time-out
	}
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || status.Status().Code >= 500
}
