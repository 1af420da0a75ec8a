package policyquery

import (
	"net/http"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

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
