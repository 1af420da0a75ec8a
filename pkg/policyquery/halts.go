package policyquery

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/queryapi"
)

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
	created := map[string]time.Time{}
	for _, fp := range policies.Items {
		created[fp.Name] = fp.CreationTimestamp.Time
	}
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
			from, exists := created[h.Policy]
			if exists && matches(values["policy"], h.Policy) && (h.Stands || !h.last().Before(from) && !h.last().Before(since)) {
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
