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
	object, err := c.do(ctx, i, &write{verb: "GET"}, false)
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) && named(status.Status(), i.Remedy.Target.Name) {
		return nil, nil //nolint:nilnil // It does not exist. A kind that is not served is not found either, and not named.
	}
	return object, err
}

// check refuses what no request can be made of.
func (c *Client) check(target policy.Ref) error {
	switch {
	case c.Namespaced && target.Namespace == "":
		return fmt.Errorf("%w: %s has no namespace", ErrIntent, target)
	case !c.Namespaced && target.Namespace != "":
		return fmt.Errorf("%w: %s has a namespace, which its kind has not", ErrIntent, target)
	}
	for _, name := range []string{target.Name, target.Namespace} {
		if why := rest.IsValidPathSegmentName(name); len(why) > 0 {
			return fmt.Errorf("%w: name %q: %s", ErrIntent, clip(name, 128), strings.Join(why, ", "))
		}
	}
	if target.Name == "" {
		return fmt.Errorf("%w: the target has no name", ErrIntent)
	}
	return nil
}

// do sends a request and returns the object of its answer. A DELETE's answer may be
// a Status, which is no object.
func (c *Client) do(ctx context.Context, i *Intent, w *write, dryRun bool) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	target := i.Remedy.Target
	if err := c.check(target); err != nil {
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
	if w.manager {
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

// refusal is what an error of a request means.
type refusal struct {
	phase   Phase // "" when it may pass
	manager string
	after   time.Duration // to wait at least, as the server says
}

// judge says what becomes of an intent after an error of a request. Superseded is for
// the target to confirm.
func judge(err error, i *Intent) refusal {
	if errors.Is(err, ErrIntent) {
		return refusal{phase: Failed}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return refusal{} // the network, or a time-out
	}
	if strings.HasPrefix(status.Status().Message, untyped) {
		return refusal{phase: Failed}
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	wait := min(time.Duration(seconds)*time.Second, lastBackoff)
	switch {
	case apierrors.IsConflict(err):
		if m := managers(status.Status(), i.fieldManager()); m != "" {
			return refusal{phase: Contended, manager: m}
		}
		return refusal{phase: Superseded}
	case apierrors.IsNotFound(err) && i.UID != "" && named(status.Status(), i.Remedy.Target.Name), apierrors.IsAlreadyExists(err), apierrors.IsGone(err):
		return refusal{phase: Superseded}
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsInternalError(err), apierrors.IsUnauthorized(err), status.Status().Code >= 500: // credentials are rotated
		return refusal{after: wait}
	case status.Status().Code == 422 && moved(status.Status()):
		return refusal{phase: Superseded}
	}
	return refusal{phase: Failed}
}

// untyped begins what an API server says of an apply that is not of its schema. It
// answers that with a 500, as if it could pass.
const untyped = "failed to create typed patch object"

func named(s metav1.Status, name string) bool { return s.Details != nil && s.Details.Name == name }

// unsent reports whether an error of a request says that it has not been done, nor
// will be.
func unsent(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= 400 && code < 500 && !apierrors.IsTimeout(err)
	}
	var op *net.OpError
	return errors.Is(err, ErrIntent) || errors.As(err, &op) && op.Op == "dial"
}

// explain is what is recorded of an error. What a member says of a Secret may have
// its values in it.
func explain(err error, target policy.Ref) string {
	var status apierrors.APIStatus
	if !isSecret(target.Kind) || !errors.As(err, &status) {
		return clip(err.Error(), mostMessage)
	}
	s := status.Status()
	text := fmt.Sprintf("refused (%d %s)", s.Code, s.Reason)
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			text += fmt.Sprintf(", %s: %s", c.Field, c.Type)
		}
	}
	return clip(text, mostMessage)
}

// moved reports whether an object was refused because its UID is another one.
func moved(s metav1.Status) bool {
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

// managers are who else owns the fields that a server-side apply may not take, "" if
// nobody.
func managers(s metav1.Status, own string) string {
	if s.Details == nil {
		return ""
	}
	var found []string
	for _, c := range s.Details.Causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict || mine(c, own) {
			continue
		}
		if name := clip(managerOf(c), mostManager); len(found) < 4 && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return clip(strings.Join(found, ", "), mostManager)
}

// managerOf reads: conflict with "manager" using apps/v1.
func managerOf(c metav1.StatusCause) string {
	name := c.Message
	if _, rest, ok := strings.Cut(name, `conflict with "`); ok {
		name, _, _ = strings.Cut(rest, `"`)
	}
	return name
}

// mine reports whether a conflict is about what federator's own writes left: the
// annotation, which every write sets anew, or fields that the same binding created or
// patched, which are not those that it has applied.
func mine(c metav1.StatusCause, own string) bool {
	return c.Field == ".metadata.annotations."+ActionAnnotation || managerOf(c) == own
}

// onlyMine reports whether an apply was refused for nothing but its own binding's
// earlier writes.
func onlyMine(err error, own string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	causes := status.Status().Details.Causes
	for _, c := range causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict || !mine(c, own) {
			return false
		}
	}
	return len(causes) > 0
}

// send does a write. An apply takes over what is its own binding's: that the target
// has not moved in between is a precondition of both requests.
func (c *Client) send(ctx context.Context, i *Intent, w *write, dryRun bool) (map[string]any, error) {
	object, err := c.do(ctx, i, w, dryRun)
	if err != nil && w.contentType == applyPatch && !w.force && onlyMine(err, i.fieldManager()) {
		forced := *w
		forced.force = true
		return c.do(ctx, i, &forced, dryRun)
	}
	return object, err
}

// clip bounds what a member says, in bytes, on one line.
func clip(s string, most int) string {
	return cut(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s), most)
}

// cut bounds a text, in bytes.
func cut(s string, most int) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= most {
		return s
	}
	const dots = "…"
	return strings.ToValidUTF8(s[:most-len(dots)], "") + dots
}
