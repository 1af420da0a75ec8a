package remediate

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
)

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
	if !isSecret(target.Kind) || !errors.As(err, &status) {
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
