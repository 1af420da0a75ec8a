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
	"federator.dev/federator/pkg/policy"
)

// Clients give access to members. Its method is safe for concurrent use.
type Clients interface {
	// Client returns how objects of a kind are written in a member. apiVersion is
	// that of the object, or "" for the one that is held.
	Client(member string, kind policy.Kind, apiVersion string) (*Client, error)
}

// Client writes objects of one kind in one member.
type Client struct {
	REST       rest.Interface // of the kind's group and version
	Resource   string         // as in paths: "deployments"
	Namespaced bool
}

const requestTimeout = 30 * time.Second

// get returns the target as it is, nil where there is none.
func (c *Client) get(ctx context.Context, i *Intent) (map[string]any, error) {
	object, err := c.do(ctx, i, &memberRequest{verb: "GET"}, false)
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) && namesObject(status.Status(), i.Remedy.Target.Name) {
		return nil, nil //nolint:nilnil // It does not exist. A kind that is not served is not found either, and not named.
	}
	return object, err
}

// validateTarget refuses what no request can be made of.
func (c *Client) validateTarget(target policy.Ref) error {
	switch {
	case c.Namespaced && target.Namespace == "":
		return fmt.Errorf("%w: %s has no namespace", errInvalidIntent, target)
	case !c.Namespaced && target.Namespace != "":
		return fmt.Errorf("%w: %s has a namespace, which its kind has not", errInvalidIntent, target)
	}
	for _, name := range []string{target.Name, target.Namespace} {
		if why := rest.IsValidPathSegmentName(name); len(why) > 0 {
			return fmt.Errorf("%w: name %q: %s", errInvalidIntent, truncateLine(name, 128), strings.Join(why, ", "))
		}
	}
	if target.Name == "" {
		return fmt.Errorf("%w: the target has no name", errInvalidIntent)
	}
	return nil
}

// do sends a request and returns the object of its answer. A DELETE's answer may be
// a Status, which is no object.
func (c *Client) do(ctx context.Context, i *Intent, w *memberRequest, dryRun bool) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	target := i.Remedy.Target
	if err := c.validateTarget(target); err != nil {
		return nil, err
	}
	r := c.REST.Verb(w.verb).NamespaceIfScoped(target.Namespace, c.Namespaced).Resource(c.Resource).
		SetHeader("Accept", "application/json").MaxRetries(0)
	if w.verb != "POST" {
		r = r.Name(target.Name)
	}
	text := w.body
	if w.delete != nil {
		// With a body the API server looks for dryRun there, and not in the query.
		options := *w.delete
		if dryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
		var err error
		if text, err = json.Marshal(options); err != nil {
			return nil, err
		}
	}
	if text != nil {
		r = r.SetHeader("Content-Type", w.contentType).Body(text)
	}
	if i.ActAs != "" {
		r = r.SetHeader("Impersonate-User", i.ActAs)
	}
	if dryRun {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	if w.fieldManager {
		// Unknown fields are a mistake of the policy, not to be dropped silently.
		r = r.Param("fieldManager", i.fieldManager()).Param("fieldValidation", metav1.FieldValidationStrict)
	}
	if w.force {
		r = r.Param("force", "true")
	}
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw() // whose own error does not say what the server answered
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := decode(body, &object); err != nil {
		return nil, fmt.Errorf("the answer is no JSON object: %w", err)
	}
	if object["kind"] == "Status" && object["apiVersion"] == "v1" {
		return nil, nil //nolint:nilnil // A DELETE is done.
	}
	return object, nil
}

// errorClass is what an error of a request means.
type errorClass struct {
	phase      v1alpha1.ActionPhase // "" when it may pass
	manager    string
	retryAfter time.Duration // to wait at least, as the server says
}

// classify says what becomes of an intent after an error of a request. Superseded is for
// the target to confirm.
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

// typedPatchError begins what an API server says of an apply that is not of its schema. It
// answers that with a 500, as if it could pass.
const typedPatchError = "failed to create typed patch object"

func namesObject(s metav1.Status, name string) bool {
	return s.Details != nil && s.Details.Name == name
}

// notExecuted reports whether an error of a request says that it has not been done, nor
// will be.
func notExecuted(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= 400 && code < 500 && !apierrors.IsTimeout(err)
	}
	var op *net.OpError
	return errors.Is(err, errInvalidIntent) || errors.As(err, &op) && op.Op == "dial"
}

// describeError is what is recorded of an error. What a member says of a Secret may have
// its values in it.
func describeError(err error, target policy.Ref) string {
	var status apierrors.APIStatus
	if !isSecret(target.Kind) || !errors.As(err, &status) {
		return truncateLine(err.Error(), maxMessage)
	}
	s := status.Status()
	text := fmt.Sprintf("refused (%d %s)", s.Code, s.Reason)
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			text += fmt.Sprintf(", %s: %s", c.Field, c.Type)
		}
	}
	return truncateLine(text, maxMessage)
}

// uidConflict reports whether an object was refused because its UID is another one.
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

// conflictingManagers are who else owns the fields that a server-side apply may not take, "" if
// nobody.
func conflictingManagers(s metav1.Status, own string) string {
	if s.Details == nil {
		return ""
	}
	var found []string
	for _, c := range s.Details.Causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict || ownConflict(c, own) {
			continue
		}
		if name := truncateLine(managerOf(c), maxManager); len(found) < 4 && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return truncateLine(strings.Join(found, ", "), maxManager)
}

// managerOf reads: conflict with "manager" using apps/v1.
func managerOf(c metav1.StatusCause) string {
	name := c.Message
	if _, rest, ok := strings.Cut(name, `conflict with "`); ok {
		name, _, _ = strings.Cut(rest, `"`)
	}
	return name
}

// ownConflict reports whether a conflict is about what federator's own writes left: the
// annotation, which every write sets anew, or fields that the same binding created or
// patched, which are not those that it has applied.
func ownConflict(c metav1.StatusCause, own string) bool {
	return c.Field == ".metadata.annotations."+actionAnnotation || managerOf(c) == own
}

// onlyOwnConflicts reports whether an apply was refused for nothing but its own binding's
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

// send does a write. An apply takes over what is its own binding's: that the target
// has not moved in between is a precondition of both requests.
func (c *Client) send(ctx context.Context, i *Intent, w *memberRequest, dryRun bool) (map[string]any, error) {
	object, err := c.do(ctx, i, w, dryRun)
	if err != nil && w.contentType == applyPatch && !w.force && onlyOwnConflicts(err, i.fieldManager()) {
		forced := *w
		forced.force = true
		return c.do(ctx, i, &forced, dryRun)
	}
	return object, err
}

// truncateLine bounds what a member says, in bytes, on one line.
func truncateLine(s string, most int) string {
	return truncate(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s), most)
}

// truncate bounds a text, in bytes.
func truncate(s string, most int) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= most {
		return s
	}
	const dots = "…"
	return strings.ToValidUTF8(s[:most-len(dots)], "") + dots
}
