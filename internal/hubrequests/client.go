package hubrequests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
)

// ErrInput is within errors of requests that are invalid for every caller.
var ErrInput = errors.New("invalid request")

// ErrConflict is within errors of requests that the state of the hub's objects does not allow.
var ErrConflict = errors.New("not possible now")

// problem is an error with a text, and a kind that errors.Is finds.
type problem struct {
	kind error
	text string
}

func (p *problem) Error() string { return p.text }

func (p *problem) Unwrap() error { return p.kind }

func inputError(format string, args ...any) error {
	return &problem{ErrInput, fmt.Sprintf(format, args...)}
}

func conflictError(format string, args ...any) error {
	return &problem{ErrConflict, fmt.Sprintf(format, args...)}
}

// Client sends requests to the hub.
type Client struct{ kubernetes.Interface }

// Objects is a request for federator's objects. The segments of path are names that are valid on
// the hub.
func (c Client) Objects(verb, resource string, path ...string) *rest.Request {
	gv := v1alpha1.SchemeGroupVersion()
	return c.CoreV1().RESTClient().Verb(verb).AbsPath(append([]string{"apis", gv.Group, gv.Version, resource}, path...)...).
		SetHeader("Accept", "application/json")
}

// Do sends a request and decodes its answer.
func Do(ctx context.Context, r *rest.Request, into any) error {
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	body, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// Action returns an Action.
func (c Client) Action(ctx context.Context, name string) (*v1alpha1.Action, error) {
	a := &v1alpha1.Action{}
	if err := Do(ctx, c.Objects("GET", v1alpha1.Actions, name), a); err != nil {
		return nil, c.Explain(err, "action", name)
	}
	return a, nil
}

// Policy returns a FleetPolicy.
func (c Client) Policy(ctx context.Context, name string) (*v1alpha1.FleetPolicy, error) {
	fp := &v1alpha1.FleetPolicy{}
	if err := Do(ctx, c.Objects("GET", v1alpha1.FleetPolicies, name), fp); err != nil {
		return nil, c.Explain(err, "FleetPolicy", name)
	}
	return fp, nil
}

// Suspend suspends a FleetPolicy, or ends that.
func (c Client) Suspend(ctx context.Context, name string, suspend bool) (*v1alpha1.FleetPolicy, error) {
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"suspend": suspend}})
	if err != nil {
		return nil, err
	}
	fp := &v1alpha1.FleetPolicy{}
	r := c.Objects("PATCH", v1alpha1.FleetPolicies, name).SetHeader("Content-Type", string(types.MergePatchType)).
		Param("fieldManager", c.FieldManager(ctx)).Body(body)
	if err := Do(ctx, r, fp); err != nil {
		return nil, c.Explain(err, "FleetPolicy", name)
	}
	return fp, nil
}

// Explain tells the two meanings of a 404 apart: no object, or no CRD.
func (c Client) Explain(err error, kind, name string) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %q: %w", kind, name, err)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != "" {
		return &notFoundError{fmt.Sprintf("%s %q not found", kind, name), err}
	}
	return &notFoundError{fmt.Sprintf("%s %q: the hub does not serve %s; is this the kubeconfig of the hub?", kind, name, v1alpha1.GroupVersion), err}
}

// notFoundError is the error of the hub under a text that says more.
type notFoundError struct {
	text string
	err  error
}

func (e *notFoundError) Error() string { return e.text }

func (e *notFoundError) Unwrap() error { return e.err }

// whoAmI asks the hub who the caller is: Approvals and Rollbacks name their creator.
func (c Client) whoAmI(ctx context.Context) (authenticationv1.UserInfo, error) {
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("asking the hub who you are: %w", err)
	}
	return review.Status.UserInfo, nil
}

// maxFieldManager is how long the name of a field manager may be, in bytes.
const maxFieldManager = 128

// FieldManager is the caller's name on the hub, for managedFields.
func (c Client) FieldManager(ctx context.Context) string {
	name := "federator-actions"
	if me, err := c.whoAmI(ctx); err == nil && me.Username != "" {
		name = printable(me.Username)
	}
	return strings.ToValidUTF8(name[:min(len(name), maxFieldManager)], "") // bytes, as the API server counts
}

// printable replaces what is not printable by blanks.
func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
}
