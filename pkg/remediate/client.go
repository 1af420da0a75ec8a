package remediate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
)

// ClientFactory creates clients of members. It is safe for concurrent use.
type ClientFactory interface {
	// Client returns a client for a kind in a member. apiVersion is that of the object, or
	// "" for the version that the index holds.
	Client(member string, kind policy.Kind, apiVersion string) (*Client, error)
}

// Client writes objects of one kind in one member.
type Client struct {
	REST       rest.Interface // of the kind's group and version
	Resource   string         // as in paths: "deployments"
	Namespaced bool
}

const requestTimeout = 30 * time.Second

// get returns the target, nil where there is none.
func (c *Client) get(ctx context.Context, intent *Intent) (map[string]any, error) {
	object, err := c.do(ctx, intent, &request{verb: "GET"}, false)
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) && namesObject(status.Status(), intent.Remedy.Target.Name) {
		return nil, nil // It does not exist. For a kind that is not served the error names no object.
	}
	return object, err
}

// validateTarget refuses a target that no request can name.
func (c *Client) validateTarget(target policy.Ref) error {
	switch {
	case c.Namespaced && target.Namespace == "":
		return fmt.Errorf("%w: %s has no namespace", errInvalidIntent, target)
	case !c.Namespaced && target.Namespace != "":
		return fmt.Errorf("%w: %s has a namespace, but its kind is cluster-scoped", errInvalidIntent, target)
	}
	for _, name := range []string{target.Name, target.Namespace} {
		if problems := rest.IsValidPathSegmentName(name); len(problems) > 0 {
			return fmt.Errorf("%w: name %q: %s", errInvalidIntent, clip.Line(name, 128), strings.Join(problems, ", "))
		}
	}
	if target.Name == "" {
		return fmt.Errorf("%w: the target has no name", errInvalidIntent)
	}
	return nil
}

// do sends a request and returns the object of its response, nil for the Status that a
// DELETE may return.
func (c *Client) do(ctx context.Context, intent *Intent, req *request, dryRun bool) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	target := intent.Remedy.Target
	if err := c.validateTarget(target); err != nil {
		return nil, err
	}
	r := c.REST.Verb(req.verb).NamespaceIfScoped(target.Namespace, c.Namespaced).Resource(c.Resource).
		SetHeader("Accept", "application/json").MaxRetries(0)
	if req.verb != "POST" {
		r = r.Name(target.Name)
	}
	text := req.body
	if req.delete != nil {
		// With a body the API server reads dryRun from it, not from the query.
		options := *req.delete
		if dryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
		var err error
		if text, err = json.Marshal(options); err != nil {
			return nil, err
		}
	}
	if text != nil {
		r = r.SetHeader("Content-Type", req.contentType).Body(text)
	}
	if intent.ActAs != "" {
		r = r.SetHeader("Impersonate-User", intent.ActAs)
	}
	if dryRun {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	if req.fieldManager {
		// Unknown fields are a mistake in the policy, not to be dropped silently.
		r = r.Param("fieldManager", intent.fieldManager()).Param("fieldValidation", metav1.FieldValidationStrict)
	}
	if req.force {
		r = r.Param("force", "true")
	}
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw() // whose own error does not have the server's message
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := decode(body, &object); err != nil {
		return nil, fmt.Errorf("the response is not a JSON object: %w", err)
	}
	if object["kind"] == "Status" && object["apiVersion"] == "v1" {
		return nil, nil // A DELETE is done.
	}
	return object, nil
}

// send sends a write, or without a check its dry run. An apply takes over the fields of its
// own policy's earlier writes: that the target has not changed in between is a precondition
// of both requests.
func (c *Client) send(ctx context.Context, intent *Intent, req *request, check func(*Intent) (time.Time, error)) (map[string]any, error) {
	object, err := c.sendOnce(ctx, intent, req, check)
	if err != nil && req.contentType == applyPatch && !req.force && onlyOwnConflicts(err, intent.fieldManager()) {
		forced := *req
		forced.force = true
		return c.sendOnce(ctx, intent, &forced, check)
	}
	return object, err
}

// sendOnce sends one request, which ends with the lease that it begins under.
func (c *Client) sendOnce(ctx context.Context, intent *Intent, req *request, check func(*Intent) (time.Time, error)) (map[string]any, error) {
	if check == nil {
		return c.do(ctx, intent, req, true)
	}
	until, err := check(intent)
	if err != nil {
		return nil, &checkError{err}
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	return c.do(ctx, intent, req, false)
}
