package policyquery

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
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

// Halts serves /query/v1/halts: the halts of FleetPolicies, those that have ended too, as far as their PolicyStates
// remember them. They are for callers who may list FleetPolicies on the hub, whose status shows the same while a halt
// stands: others of a FleetPolicy's name that ended before it was created are left out. It is safe for concurrent use.
type Halts struct {
	Hub   Hub
	Clock func() time.Time // nil means time.Now
}

var (
	_ queryapi.Describer = Halts{}
	_ queryapi.Notifier  = Halts{}
	_ queryapi.Sharer    = Halts{}
)

// HaltList is the response of Halts.
type HaltList struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Items      []HaltRecord `json:"items"`           // by when they ended or, where they stand, began: newest first
	Older      bool         `json:"older,omitempty"` // there may be older ones, which are not kept or not listed
	Stale      bool         `json:"stale,omitempty"`
	// Unreadable is how many FleetPolicies and PolicyStates cannot be decoded, whose halts are left out; of PolicyStates
	// for callers who may list them.
	Unreadable int `json:"unreadable,omitempty"`
}

// HaltRecord is a halt of a policy.
type HaltRecord struct {
	Policy  string     `json:"policy"`
	ID      string     `json:"id"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"` // why it began
	Began   *time.Time `json:"began,omitempty"`   // not set where that is not kept
	Stands  bool       `json:"stands"`            // nothing is written for the policy
	Ended   *time.Time `json:"ended,omitempty"`
	By      string     `json:"by,omitempty"`     // who acknowledged it; of Approvals, all who gave one
	Ending  string     `json:"ending,omitempty"` // why it ended
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (HaltRecord) SchemaName() string { return "RecordedHalt" }

// PolicyHalts are the halts that a PolicyState remembers.
type PolicyHalts struct {
	Halts []HaltRecord
	Full  bool // older ones are not kept
}

// HaltsOf returns what a PolicyState remembers of halts.
func HaltsOf(s *v1alpha1.PolicyState) PolicyHalts {
	out := PolicyHalts{Full: len(s.Status.History) >= v1alpha1.MaxTransitions}
	at := map[string]int{}
	of := func(id string) *HaltRecord {
		if _, known := at[id]; !known {
			at[id] = len(out.Halts)
			out.Halts = append(out.Halts, HaltRecord{Policy: s.Name, ID: id})
		}
		return &out.Halts[at[id]]
	}
	for i := range s.Status.History {
		t := &s.Status.History[i]
		when := t.At.UTC()
		switch t.Type {
		case v1alpha1.HaltBegan:
			h := of(t.ID)
			h.Reason, h.Message, h.Began = t.Reason, t.Message, &when
		case v1alpha1.HaltEnded:
			h := of(t.ID)
			h.Reason, h.Ended, h.By, h.Ending = t.Reason, &when, t.By, t.Message
		}
	}
	for i := range s.Status.Halts { // which the history may not have any more
		r := &s.Status.Halts[i]
		h, since := of(r.ID), r.Since.UTC()
		h.Reason, h.Message, h.Began, h.Stands = string(r.Reason), r.Message, &since, true
		h.Ended, h.By, h.Ending = nil, "", ""
	}
	return out
}

// last returns when it ended; where that is not kept, or it stands, when it began.
func (h *HaltRecord) last() (at time.Time) {
	for _, t := range []*time.Time{h.Began, h.Ended} {
		if t != nil {
			at = *t
		}
	}
	return at
}

// therePolicies are when the FleetPolicies that there are were created, by name.
type therePolicies map[string]time.Time

func policiesThere(items []*v1alpha1.FleetPolicy) therePolicies {
	created := therePolicies{}
	for _, fp := range items {
		created[fp.Name] = fp.CreationTimestamp.Time
	}
	return created
}

// had reports whether something is of a FleetPolicy that there is: it stands, or is not from before that was created, and so of a
// former one of its name.
func (p therePolicies) had(policy string, stands bool, last time.Time) bool {
	created, exists := p[policy]
	return exists && (stands || !last.Before(created))
}

var haltParameters = []queryapi.Parameter{
	{Name: "policy", Description: "Only halts of these policies.", Repeated: true},
	{Name: "since", Description: "Only halts that stand, or ended at or after this time, RFC 3339, or within a duration such as 24h."},
}

// Describe implements queryapi.Describer.
func (Halts) Describe() queryapi.Operation {
	return queryapi.Operation{
		Description: "List the halts of FleetPolicies, newest first: those that stand, and those that have ended, with when, by whom and why, as far as that is kept.",
		Parameters:  haltParameters, Response: HaltList{},
	}
}

// Changes implements queryapi.Notifier.
func (q Halts) Changes() <-chan struct{} { return q.Hub.Changes(HubPolicyStates, HubFleetPolicies) }

// ServeShared implements queryapi.Sharer: each process holds all that the hub has.
func (q Halts) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, _ queryapi.SharedFleet) error {
	return q.Serve(w, r, caller)
}

// Serve implements queryapi.Query.
func (q Halts) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	values := r.URL.Query()
	if err := checkParameters(values, haltParameters); err != nil {
		return err
	}
	now, since := time.Now(), time.Time{}
	if q.Clock != nil {
		now = q.Clock()
	}
	if text := values.Get("since"); text != "" {
		var err error
		if since, err = parseSince(text, now); err != nil {
			return badParameter("since", err.Error())
		}
	}
	if err := requireHub(r.Context(), caller, HubFleetPolicies); err != nil {
		return err
	}
	policies, err := q.Hub.FleetPolicies()
	if err != nil {
		return hubNotRead(err)
	}
	states, err := q.Hub.Halts()
	if err != nil {
		return hubNotRead(err)
	}
	there := policiesThere(policies.Items)
	out := HaltList{APIVersion: "query.federator.dev/v1", Kind: "Halts", Items: []HaltRecord{}, Stale: policies.Stale || states.Stale, Unreadable: policies.Unreadable}
	may, err := caller.HubAllows(r.Context(), "list", string(HubPolicyStates)) // of former FleetPolicies, too
	if err != nil {
		return err
	}
	if may {
		out.Unreadable += states.Unreadable
	}
	for _, s := range states.Items {
		for _, h := range s.Halts {
			if matches(values["policy"], h.Policy) && there.had(h.Policy, h.Stands, h.last()) && (h.Stands || !h.last().Before(since)) {
				out.Items = append(out.Items, h)
				out.Older = out.Older || s.Full
			}
		}
	}
	slices.SortFunc(out.Items, func(a, b HaltRecord) int {
		return cmp.Or(b.last().Compare(a.last()), strings.Compare(a.Policy, b.Policy), strings.Compare(a.ID, b.ID))
	})
	if len(out.Items) > maxLimit {
		out.Items, out.Older = out.Items[:maxLimit], true
	}
	return writeJSON(w, out)
}

// Sources serves /query/v1/sources: the PolicySources on the hub, for callers who may list them there. It is
// safe for concurrent use.
type Sources struct{ Hub Hub }

// Stops serves /query/v1/stops: what is stopped. Stops of members are for callers who may read these; who has stopped a
// policy or a source, and why, for those who may list these on the hub. It is safe for concurrent use.
type Stops struct {
	Kinds Kinds
	Index *aggregate.Index
	Hub   Hub
}

var (
	_, _ queryapi.Describer = Sources{}, Stops{}
	_, _ queryapi.Notifier  = Sources{}, Stops{}
	_, _ queryapi.Sharer    = Sources{}, Stops{}
)

// stoppedResources are what stops are of, by scope.
var stoppedResources = map[string]HubResource{"policy": HubFleetPolicies, "source": HubPolicySources}

// SourceList is the response of Sources.
type SourceList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []any  `json:"items"` // PolicySources, by name
	Stale      bool   `json:"stale,omitempty"`
	Unreadable int    `json:"unreadable,omitempty"` // that cannot be decoded, and are left out
}

// StopList is the response of Stops.
type StopList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []Stop `json:"items"`
	Stale      bool   `json:"stale,omitempty"`
	// Absent is as in ActionList: stops of these members are left out.
	Absent []string `json:"absent,omitempty"`
}

// Describe implements queryapi.Describer.
func (Sources) Describe() queryapi.Operation {
	return queryapi.Operation{Description: "List the PolicySources of the hub.", Response: SourceList{}}
}

// Describe implements queryapi.Describer.
func (Stops) Describe() queryapi.Operation {
	return queryapi.Operation{Description: "List what is stopped: everything, or policies, sources and the members that the caller may read. Who has stopped a policy or a source, and why, is for callers who may list FleetPolicies or PolicySources on the hub.", Response: StopList{}}
}

// Changes implements queryapi.Notifier.
func (q Sources) Changes() <-chan struct{} { return q.Hub.Changes(HubPolicySources) }

// Changes implements queryapi.Notifier.
func (q Stops) Changes() <-chan struct{} { return q.Hub.Changes(HubStops) }

// ServeShared implements queryapi.Sharer: each process holds all that the hub has.
func (q Sources) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, _ queryapi.SharedFleet) error {
	return q.Serve(w, r, caller)
}

// Serve implements queryapi.Query.
func (q Sources) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	if err := checkParameters(r.URL.Query(), nil); err != nil {
		return err
	}
	if err := requireHub(r.Context(), caller, HubPolicySources); err != nil {
		return err
	}
	found, err := q.Hub.PolicySources()
	if err != nil {
		return hubNotRead(err)
	}
	out := SourceList{APIVersion: "query.federator.dev/v1", Kind: "PolicySources", Items: []any{}, Stale: found.Stale, Unreadable: found.Unreadable}
	for _, s := range found.Items {
		out.Items = append(out.Items, s)
	}
	return writeJSON(w, out)
}

// Serve implements queryapi.Query.
func (q Stops) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	return fleetReader{q.Kinds, q.Index}.answer(w, r, caller, func(of func() (readable, error)) error { return q.serve(w, r, caller, of) })
}

// ServeShared implements queryapi.Sharer: each process holds all stops, and says which of the members that it judges may be read.
func (q Stops) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	return q.serve(w, r, caller, everywhere(caller, fleet))
}

func (q Stops) serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, of func() (readable, error)) error {
	if err := checkParameters(r.URL.Query(), nil); err != nil {
		return err
	}
	found, err := q.Hub.Stops()
	if err != nil {
		return hubNotRead(err)
	}
	readable, err := of()
	if err != nil {
		return err
	}
	if err := readable.Need(r.Context()); err != nil {
		return err
	}
	out := StopList{APIVersion: "query.federator.dev/v1", Kind: "Stops", Items: []Stop{}, Stale: found.Stale, Absent: readable.Absent()}
	for _, s := range found.Items {
		if s.Problem != "" && !readable.All() { // it may name a member
			s.Problem, s.Reason = "a ConfigMap that looks like a stop is malformed, which stops everything", ""
		}
		if resource, is := stoppedResources[s.Scope]; is {
			may, err := caller.HubAllows(r.Context(), "list", string(resource))
			if err != nil {
				return err
			}
			if !may {
				s.By, s.Reason, s.HubForbidden = "", "", permission(resource)
			}
		}
		if s.Scope == "member" {
			if _, visible := readable.UID(s.Name); !visible {
				continue
			}
		}
		out.Items = append(out.Items, s)
	}
	return writeJSON(w, out)
}
