package policyquery

import (
	"context"
	"errors"
	"iter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/queryapi"
)

// Hub is what is held of federator's objects on the hub. It is safe for concurrent use, and waits for
// nothing. What has not been read yet is ErrHubNotRead. Objects are shared and must not be changed.
type Hub interface {
	FleetPolicies() (HubObjects[*v1alpha1.FleetPolicy], error)  // by name
	PolicySources() (HubObjects[*v1alpha1.PolicySource], error) // by name
	Stops() (HubObjects[Stop], error)
	Halts() (HubObjects[PolicyHalts], error) // by policy
	// Actions returns summaries of the newest Actions, by position.
	Actions() (iter.Seq[*ActionSummary], HubState, error)
	// Action returns an Action as it is on the hub now. Unlike the others it waits for the hub.
	Action(ctx context.Context, name string) (*v1alpha1.Action, error)
	// Changes returns a channel that is closed when one of some resources changes next.
	Changes(resources ...HubResource) <-chan struct{}
}

// HubResource is a resource that a Hub holds.
type HubResource string

// The resources.
const (
	HubFleetPolicies HubResource = "fleetpolicies"
	HubPolicySources HubResource = "policysources"
	HubActions       HubResource = "actions"
	HubStops         HubResource = "stops"
	HubPolicyStates  HubResource = "policystates"
	// Verdicts are no resource of the hub: they change with the policies' loop.
	Verdicts HubResource = "verdicts"
)

// HubObjects are objects, and how far they are what the hub has.
type HubObjects[T any] struct {
	Items []T
	HubState
}

// HubState is how far what is held is what the hub has.
type HubState struct {
	Stale bool // the hub is out of reach: there may be newer ones
	Older bool // there are older ones, which are not held
	// Unreadable is how many there are that cannot be decoded, which are not held. They were reported.
	Unreadable int
}

// ErrHubNotRead is returned before the hub has been read for the first time.
var ErrHubNotRead = errors.New("the hub has not been read yet")

// Stop is a stop, as in ConfigMaps of federator's namespace.
type Stop struct {
	Scope  string    `json:"scope"` // "" is everything
	Name   string    `json:"name,omitempty"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
	// HubForbidden is the permission on the hub without which the caller is not sent who has stopped it, and why; "" if
	// it has it.
	HubForbidden string `json:"hubForbidden,omitempty"`
	// Problem is what is wrong with its ConfigMap, which stops everything then.
	Problem string `json:"problem,omitempty"`
}

// hubNotRead is the response before the hub has been read: 503 with Retry-After.
func hubNotRead(err error) error {
	if !errors.Is(err, ErrHubNotRead) {
		return err
	}
	status := apierrors.NewServiceUnavailable(ErrHubNotRead.Error())
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return status
}

// errAbsent is the response about a member that the caller may read, and that no process answers for: 503 with Retry-After.
func errAbsent(member string) error {
	status := apierrors.NewServiceUnavailable("no process answers for member " + member)
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return status
}

// requireHub refuses a caller who may not list a resource of federator's on the hub.
func requireHub(ctx context.Context, caller queryapi.Caller, resource HubResource) error {
	ok, err := caller.HubAllows(ctx, "list", string(resource))
	if err != nil || ok {
		return err
	}
	return apierrors.NewForbidden(v1alpha1.SchemeGroupVersion().WithResource(string(resource)).GroupResource(), "",
		errors.New("you may not "+permission(resource)+" on the hub"))
}

// permission is what a caller needs to be sent a resource.
func permission(resource HubResource) string { return "list " + string(resource) + "." + api.GroupName }

// changesOf returns a channel that is closed at the next change of the verdicts of a loop, or of
// resources of a Hub, which may be nil.
func changesOf(hub Hub, loop *enforce.Loop, resources ...HubResource) <-chan struct{} {
	if hub != nil {
		return hub.Changes(append(resources, Verdicts)...)
	}
	return loop.Newer(loop.Point())
}
