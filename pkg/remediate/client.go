package remediate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/values"
	"federator.dev/federator/pkg/tracing"
)

// ClientFactory creates clients of members. It is safe for concurrent use.
type ClientFactory interface {
	// Client returns a client for a kind in a member. apiVersion is that of the object, or
	// "" for the version that the index holds. Its error, or one of the client's requests, is ErrNotNow where another
	// way to the member is to be tried later.
	Client(member string, kind policy.Kind, apiVersion string) (*Client, error)
}

// Client writes objects of one kind in one member.
type Client struct {
	REST       rest.Interface // of the kind's group and version
	Resource   string         // as in paths: "deployments"
	Namespaced bool
}

const requestTimeout = 30 * time.Second

// auditIDHeader names a request in the audit log of an API server, which keeps what a client says, whatever its length.
const auditIDHeader = "Audit-ID"

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
	if req.auditID != "" {
		r = r.SetHeader(auditIDHeader, req.auditID)
	}
	if parent := tracing.Traceparent(ctx); parent != "" {
		r = r.SetHeader("Traceparent", parent)
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
// of both requests. What does so is forced from then on, which the caller may remember of the
// dry run: each request counts towards the rate of writes.
func (c *Client) send(ctx context.Context, intent *Intent, req *request, check func(*Intent) (time.Time, error)) (map[string]any, error) {
	object, err := c.sendOnce(ctx, intent, req, check)
	if err != nil && req.contentType == applyPatch && !req.force && onlyOwnConflicts(err, intent.fieldManager()) {
		req.force = true
		return c.sendOnce(ctx, intent, req, check)
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

// errorClass is the meaning of a request's error.
type errorClass struct {
	phase      v1alpha1.ActionPhase // "" when temporary
	manager    string
	retryAfter time.Duration // at least, as the server says
}

// classify returns the phase of an intent after an error of a request. Superseded is to be
// confirmed by the target.
func classify(err error, i *Intent) errorClass {
	if errors.Is(err, errInvalidIntent) {
		return errorClass{phase: v1alpha1.PhaseFailed}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errorClass{} // the network, or a time-out
	}
	if strings.HasPrefix(status.Status().Message, typedPatchError) {
		return errorClass{phase: v1alpha1.PhaseFailed}
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	wait := min(time.Duration(seconds)*time.Second, maxBackoff)
	switch {
	case apierrors.IsConflict(err):
		if m := conflictingManagers(status.Status(), i.fieldManager()); m != "" {
			return errorClass{phase: v1alpha1.PhaseContended, manager: m}
		}
		return errorClass{phase: v1alpha1.PhaseSuperseded}
	case apierrors.IsNotFound(err) && i.UID != "" && namesObject(status.Status(), i.Remedy.Target.Name), apierrors.IsAlreadyExists(err), apierrors.IsGone(err):
		return errorClass{phase: v1alpha1.PhaseSuperseded}
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsInternalError(err), apierrors.IsUnauthorized(err), status.Status().Code >= 500: // credentials are rotated
		return errorClass{retryAfter: wait}
	case status.Status().Code == 422 && uidConflict(status.Status()):
		return errorClass{phase: v1alpha1.PhaseSuperseded}
	}
	return errorClass{phase: v1alpha1.PhaseFailed}
}

// typedPatchError starts the message of an API server about an apply that violates its
// schema. It answers with a 500, as if the error were temporary.
const typedPatchError = "failed to create typed patch object"

func namesObject(s metav1.Status, name string) bool {
	return s.Details != nil && s.Details.Name == name
}

// notExecuted reports whether an error of a request says that it was not executed, and
// will not be.
func notExecuted(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= 400 && code < 500 && !apierrors.IsTimeout(err)
	}
	var op *net.OpError
	return errors.Is(err, errInvalidIntent) || errors.As(err, &op) && op.Op == "dial"
}

// describeError returns the text that is recorded for an error. A member's message about a
// Secret may contain its values.
func describeError(err error, target policy.Ref) string {
	var status apierrors.APIStatus
	if !values.IsSecret(target.Kind) || !errors.As(err, &status) {
		return clip.Line(err.Error(), maxMessage)
	}
	s := status.Status()
	text := fmt.Sprintf("refused (%d %s)", s.Code, s.Reason)
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			text += fmt.Sprintf(", %s: %s", c.Field, c.Type)
		}
	}
	return clip.Line(text, maxMessage)
}

// uidConflict reports whether a write was refused because the object has another UID.
func uidConflict(s metav1.Status) bool {
	if s.Details == nil {
		return false
	}
	for _, c := range s.Details.Causes {
		if c.Field == "metadata.uid" {
			return true
		}
	}
	return false
}

// conflictingManagers returns the other managers of the fields in the way of a server-side
// apply, "" for none.
func conflictingManagers(s metav1.Status, own string) string {
	if s.Details == nil {
		return ""
	}
	var names []string
	for _, c := range s.Details.Causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict || ownConflict(c, own) {
			continue
		}
		if name := clip.Line(managerOf(c), maxManager); len(names) < 4 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return clip.Line(strings.Join(names, ", "), maxManager)
}

// managerOf parses: conflict with "manager" using apps/v1.
func managerOf(c metav1.StatusCause) string {
	name := c.Message
	if _, rest, ok := strings.Cut(name, `conflict with "`); ok {
		name, _, _ = strings.Cut(rest, `"`)
	}
	return name
}

// ownConflict reports whether a conflict is with federator's own earlier writes: about the
// annotation, which every write replaces, or about fields that the same policy created or
// patched, which it does not own as an applier.
func ownConflict(c metav1.StatusCause, own string) bool {
	return c.Field == ".metadata.annotations."+actionAnnotation || managerOf(c) == own
}

// onlyOwnConflicts reports whether an apply was refused only because of its own policy's
// earlier writes.
func onlyOwnConflicts(err error, own string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	causes := status.Status().Details.Causes
	for _, c := range causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict || !ownConflict(c, own) {
			return false
		}
	}
	return len(causes) > 0
}
