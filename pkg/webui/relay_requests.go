package webui

import (
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"federator.dev/federator/internal/hubrequests"
	"federator.dev/federator/pkg/hub"
)

// Bounds of how long an Approval counts, in seconds.
const (
	defaultExpiry = 24 * 60 * 60
	maxExpiry     = 366 * 24 * 60 * 60
)

// checkNames refuses what is no name of an object: names are put into paths of the hub.
func checkNames(names ...string) error {
	for _, name := range names {
		if problems := validation.IsDNS1123Subdomain(name); name != "" && len(problems) > 0 {
			return apierrors.NewBadRequest("not a name: " + problems[0])
		}
	}
	return nil
}

// pathName returns the name in a request's path.
func pathName(r *http.Request) (string, error) {
	name := r.PathValue("name")
	return name, checkNames(name)
}

func (l *relay) approve(r *http.Request, c hubrequests.Client) (any, string, error) {
	var body struct {
		FleetPolicy    string `json:"fleetPolicy"`
		Plan           string `json:"plan"`
		Halt           string `json:"halt"`
		Rollback       string `json:"rollback"`
		Version        string `json:"version"`
		PolicySource   string `json:"policySource"`
		Commit         string `json:"commit"`
		Reason         string `json:"reason"`
		ExpiresSeconds int64  `json:"expiresSeconds"`
	}
	if err := decode(r, &body); err != nil {
		return nil, "", err
	}
	if body.ExpiresSeconds == 0 {
		body.ExpiresSeconds = defaultExpiry
	}
	if body.ExpiresSeconds < 0 || body.ExpiresSeconds > maxExpiry {
		return nil, "", apierrors.NewBadRequest("expiresSeconds must be between 1 and a year")
	}
	if err := checkNames(body.FleetPolicy, body.PolicySource); err != nil {
		return nil, "", err
	}
	made, what, err := c.Approve(r.Context(), &hubrequests.Approval{
		FleetPolicy: body.FleetPolicy, Plan: body.Plan, Halt: body.Halt, Rollback: body.Rollback, Version: body.Version,
		PolicySource: body.PolicySource, Commit: body.Commit, Reason: body.Reason,
		Expires: l.now().Add(time.Duration(body.ExpiresSeconds) * time.Second),
	})
	return made, what, err
}

func (l *relay) rollBackAction(r *http.Request, c hubrequests.Client) (any, string, error) {
	var body struct {
		Reason string `json:"reason"`
		Force  bool   `json:"force"`
	}
	name, err := pathName(r)
	if err == nil {
		err = decode(r, &body)
	}
	if err != nil {
		return nil, "", err
	}
	a, err := c.Action(r.Context(), name)
	if err != nil {
		return nil, name, err
	}
	outcome, err := c.RollbackAction(r.Context(), a, body.Reason, body.Force, rollbackTimeout)
	return map[string]string{"rolledBackBy": strings.TrimPrefix(outcome, "by ")}, "Action " + name, err
}

func (l *relay) rollBack(r *http.Request, c hubrequests.Client) (any, string, error) {
	var body struct {
		FleetPolicy  string   `json:"fleetPolicy"`
		Commit       string   `json:"commit"`
		Since        string   `json:"since"`
		Until        string   `json:"until"`
		Members      []string `json:"members"`
		Reason       string   `json:"reason"`
		Force        bool     `json:"force"`
		WhileStopped bool     `json:"whileStopped"`
	}
	if err := decode(r, &body); err != nil {
		return nil, "", err
	}
	switch {
	case body.FleetPolicy == "":
		return nil, "", apierrors.NewBadRequest("fleetPolicy is required")
	case len(body.Members) > 0:
		return nil, "", apierrors.NewBadRequest("a Rollback cannot be of some members only: members must be empty")
	case strings.TrimSpace(body.Reason) == "":
		return nil, "", apierrors.NewBadRequest("a reason is required: why is this rolled back?")
	}
	if err := checkNames(body.FleetPolicy); err != nil {
		return nil, "", err
	}
	spec, err := hubrequests.ParseSelection(body.FleetPolicy, body.Commit, body.Since, body.Until, l.now(), func(field string) string {
		if field == "policy" {
			return "fleetPolicy"
		}
		return field
	})
	if err != nil {
		return nil, "", err
	}
	spec.Reason, spec.Force, spec.WhileStopped = body.Reason, body.Force, body.WhileStopped
	made, err := c.CreateRollback(r.Context(), spec)
	return made, "FleetPolicy " + body.FleetPolicy, err
}

// stopAnswer is what has come of a stop, or of its end.
type stopAnswer struct {
	Scope string `json:"scope"`
	Name  string `json:"name"`
	// Text says by whom writes were stopped, since when and why; "" where they were not.
	Text string `json:"text"`
	// Created says that they had not been stopped before.
	Created bool `json:"created,omitempty"`
}

func (l *relay) stop(r *http.Request, c hubrequests.Client) (any, string, error) {
	var body struct {
		Scope  string `json:"scope"`
		Name   string `json:"name"`
		Reason string `json:"reason"`
	}
	if err := decode(r, &body); err != nil {
		return nil, "", err
	}
	of, err := stopScope(body.Scope, body.Name)
	if err != nil {
		return nil, "", err
	}
	text, created, err := hub.CreateStop(r.Context(), c, l.namespace, of, c.FieldManager(r.Context()), body.Reason)
	return stopAnswer{of.Scope, of.Name, text, created}, "stop of " + of.String(), err
}

func (l *relay) resume(r *http.Request, c hubrequests.Client) (any, string, error) {
	q := r.URL.Query()
	of, err := stopScope(q.Get("scope"), q.Get("name"))
	if err != nil {
		return nil, "", err
	}
	text, err := hub.DeleteStop(r.Context(), c, l.namespace, of)
	return stopAnswer{Scope: of.Scope, Name: of.Name, Text: text}, "stop of " + of.String(), err
}

// stopScope returns a scope whose name is one of an object: it becomes that of a ConfigMap.
func stopScope(scope, name string) (hub.StopScope, error) {
	of := hub.StopScope{Scope: scope, Name: name}
	if err := of.Validate(); err != nil {
		return of, apierrors.NewBadRequest(err.Error())
	}
	return of, checkNames(strings.SplitN(name, "/", 2)...)
}

func (l *relay) suspend(r *http.Request, c hubrequests.Client) (any, string, error) {
	var body struct {
		Suspend *bool `json:"suspend"`
	}
	name, err := pathName(r)
	if err == nil {
		err = decode(r, &body)
	}
	if err != nil {
		return nil, "", err
	}
	if body.Suspend == nil {
		return nil, "", apierrors.NewBadRequest("suspend is required: true or false")
	}
	fp, err := c.Suspend(r.Context(), name, *body.Suspend)
	return fp, "FleetPolicy " + name, err
}
