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
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // It does not exist.
	}
	return object, err
}

// do sends a request and returns the object of its answer. A DELETE's answer may be
// a Status, which is no object.
func (c *Client) do(ctx context.Context, i *Intent, w *write, dryRun bool) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	target := i.Remedy.Target
	r := c.REST.Verb(w.verb).NamespaceIfScoped(target.Namespace, c.Namespaced).Resource(c.Resource).
		SetHeader("Accept", "application/json").MaxRetries(0)
	if w.verb != "POST" {
		r = r.Name(target.Name)
	}
	if w.body != nil {
		r = r.SetHeader("Content-Type", w.contentType).Body(w.body)
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
	body, err := r.Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("the answer is no JSON: %w", err)
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

// judge says what becomes of an action after an error of a request.
func judge(err error, verb string) refusal {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return refusal{} // the network, or a time-out
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	wait := time.Duration(seconds) * time.Second
	switch {
	case apierrors.IsConflict(err):
		if m := managers(status.Status()); m != "" {
			return refusal{phase: Contended, manager: m}
		}
		return refusal{phase: Superseded}
	case apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && verb != "POST", apierrors.IsGone(err):
		return refusal{phase: Superseded}
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err), status.Status().Code >= 500:
		return refusal{after: wait}
	case status.Status().Code == 422 && moved(status.Status()):
		return refusal{phase: Superseded}
	}
	return refusal{phase: Failed}
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

// managers are who owns the fields that a server-side apply may not take.
func managers(s metav1.Status) string {
	if s.Details == nil {
		return ""
	}
	var found []string
	for _, c := range s.Details.Causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		// conflict with "manager" using apps/v1
		name := c.Message
		if _, rest, ok := strings.Cut(name, `conflict with "`); ok {
			name, _, _ = strings.Cut(rest, `"`)
		}
		if name = clip(name, 128); len(found) < 4 && !contains(found, name) {
			found = append(found, name)
		}
	}
	return strings.Join(found, ", ")
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// clip bounds what a member says.
func clip(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
