package policyquery

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/fieldchanges"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// Actions serves /query/v1/actions: the Actions on the hub whose targets the caller may read, for callers
// who may list Actions on the hub. Others are only counted, all together and whatever is selected, so that
// a selection says nothing about them. It is safe for concurrent use.
type Actions struct {
	Kinds Kinds
	Index *aggregate.Index
	Hub   Hub
	Clock func() time.Time // nil means time.Now
}

var (
	_ queryapi.Describer = Actions{}
	_ queryapi.Notifier  = Actions{}
	_ queryapi.Sharer    = Actions{}
	_ queryapi.Sharer    = Action{}
)

var actionsParameters = []queryapi.Parameter{
	{Name: "policy", Description: "Only Actions of these policies.", Repeated: true},
	{Name: "member", Description: "Only Actions in these members, <namespace>/<name>.", Repeated: true},
	{Name: "phase", Description: "Only Actions in these phases.", Repeated: true, Enum: actionPhases()},
	{Name: "kind", Description: "Only Actions on these kinds, such as Deployment.apps.", Repeated: true},
	{Name: "namespace", Description: "Only Actions in these namespaces.", Repeated: true},
	{Name: "name", Description: "Only Actions on objects of these names.", Repeated: true},
	{Name: "since", Description: "Only Actions that were recorded at or after this time, RFC 3339, or within a duration such as 24h."},
	{Name: "until", Description: "Only Actions that were recorded before this time, RFC 3339, or before a duration ago."},
	{Name: "limit", Description: fmt.Sprintf("Maximum number of items per page, 1 to %d; the default is %d.", maxLimit, defaultLimit), Type: "integer"},
	{Name: "continue", Description: "The continue value of the previous page."},
}

func actionPhases() (names []string) {
	for _, p := range []v1alpha1.ActionPhase{
		v1alpha1.PhasePending, v1alpha1.PhaseWriting, v1alpha1.PhaseSucceeded, v1alpha1.PhaseNoOp, v1alpha1.PhaseFailed,
		v1alpha1.PhaseSuperseded, v1alpha1.PhaseContended, v1alpha1.PhaseProtected, v1alpha1.PhaseManaged, v1alpha1.PhaseRolledBack,
	} {
		names = append(names, string(p))
	}
	return names
}

// Describe implements queryapi.Describer.
func (Actions) Describe() queryapi.Operation {
	return queryapi.Operation{
		Description: "List the Actions on objects that the caller may read, newest first.",
		Parameters:  actionsParameters, Response: ActionList{},
	}
}

// Changes implements queryapi.Notifier.
func (q Actions) Changes() <-chan struct{} { return q.Hub.Changes(HubActions) }

// ActionList is the response of Actions.
type ActionList struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Items      []*ActionSummary `json:"items"` // newest first
	Continue   string           `json:"continue,omitempty"`
	Total      int              `json:"total"`           // selected, on all pages
	Hidden     int              `json:"hidden"`          // of all Actions, those whose targets the caller may not read
	Older      bool             `json:"older,omitempty"` // there are older Actions, which are neither listed nor counted
	Stale      bool             `json:"stale,omitempty"` // the hub is out of reach: there may be newer ones
	// Unreadable is how many cannot be decoded, and are left out; for callers who may read all members.
	Unreadable int `json:"unreadable,omitempty"`
	// Absent are members, of those that the caller may read, that no process answers for which shares the fleet. Actions in
	// them count as hidden.
	Absent []string `json:"absent,omitempty"`
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (ActionList) SchemaName() string { return "ActionSummaries" }

// actionParams are the parameters of Actions.
type actionParams struct {
	policies, members, phases, kinds, namespaces, names []string

	since, until time.Time
	limit        int
	after        *ActionPosition
}

func parseActionParams(values url.Values, now time.Time) (*actionParams, error) {
	if err := checkParameters(values, actionsParameters); err != nil {
		return nil, err
	}
	a := &actionParams{
		policies: values["policy"], members: values["member"], phases: values["phase"], kinds: values["kind"], namespaces: values["namespace"], names: values["name"],
	}
	var err error
	if a.since, a.until, a.limit, err = parseSpan(values, now); err != nil {
		return nil, err
	}
	if text := values.Get("continue"); text != "" {
		a.after = &ActionPosition{}
		decoded, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err != nil || json.Unmarshal(decoded, a.after) != nil || a.after.Name == "" {
			return nil, badParameter("continue", "is not a value that this server returned")
		}
	}
	return a, nil
}

// parseSpan returns what since, until and limit say; times that are not given are zero.
func parseSpan(values url.Values, now time.Time) (since, until time.Time, limit int, err error) {
	for name, at := range map[string]*time.Time{"since": &since, "until": &until} {
		if text := values.Get(name); text != "" {
			if *at, err = parseSince(text, now); err != nil {
				return since, until, 0, badParameter(name, err.Error())
			}
		}
	}
	limit = defaultLimit
	if values.Has("limit") {
		if limit, err = strconv.Atoi(values.Get("limit")); err != nil || limit < 1 || limit > maxLimit {
			return since, until, 0, badParameter("limit", fmt.Sprintf("is not a number from 1 to %d", maxLimit))
		}
	}
	return since, until, limit, nil
}

// parseSince parses a time, or how long ago it is.
func parseSince(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago < 0 {
		return time.Time{}, errors.New("is neither a time, RFC 3339, nor a duration such as 24h")
	}
	return now.Add(-ago), nil
}

func (a *actionParams) matches(x *ActionSummary) bool {
	t := &x.Target
	return matches(a.policies, x.Policy) && matches(a.members, x.Member) && matches(a.phases, x.Phase) && matches(a.kinds, string(t.Kind)) &&
		matches(a.namespaces, t.Namespace) && matches(a.names, t.Name) && (a.since.IsZero() || !x.Created.Before(a.since)) && (a.until.IsZero() || x.Created.Before(a.until))
}

// Serve implements queryapi.Query.
func (q Actions) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	return fleetReader{q.Kinds, q.Index}.answer(w, r, caller, func(of func() (readable, error)) error { return q.serve(w, r, caller, of) })
}

// ServeShared implements queryapi.Sharer: each process holds all Actions, and says what may be read of the members that it judges.
func (q Actions) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	return q.serve(w, r, caller, everywhere(caller, fleet))
}

func (q Actions) serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, of func() (readable, error)) error {
	now := time.Now()
	if q.Clock != nil {
		now = q.Clock()
	}
	params, err := parseActionParams(r.URL.Query(), now)
	if err != nil {
		return err
	}
	if err := requireHub(r.Context(), caller, HubActions); err != nil {
		return err
	}
	result, err := q.list(r.Context(), of, params)
	if err != nil {
		return err
	}
	return writeJSON(w, result)
}

func (q Actions) list(ctx context.Context, of func() (readable, error), params *actionParams) (*ActionList, error) {
	all, state, err := q.Hub.Actions()
	if err != nil {
		return nil, hubNotRead(err)
	}
	readable, err := of()
	if err != nil {
		return nil, err
	}
	if err := readable.Need(ctx, targetKinds(all)...); err != nil {
		return nil, err
	}
	grants := newActionGrants(readable)
	out := &ActionList{APIVersion: "query.federator.dev/v1", Kind: "Actions", Items: []*ActionSummary{}, Older: state.Older, Stale: state.Stale}
	if state.Unreadable > 0 && readable.All() {
		out.Unreadable = state.Unreadable
	}
	out.Absent = readable.Absent()
	examined := 0
	for a := range all {
		if examined++; examined%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		switch {
		case !grants.mayRead(a):
			out.Hidden++
			continue
		case !params.matches(a):
			continue
		}
		out.Total++
		switch {
		case params.after != nil && a.Position().Compare(*params.after) <= 0, out.Continue != "":
		case len(out.Items) == params.limit:
			text, err := json.Marshal(out.Items[len(out.Items)-1].Position())
			if err != nil {
				return nil, err
			}
			out.Continue = base64.RawURLEncoding.EncodeToString(text)
		default:
			out.Items = append(out.Items, a)
		}
	}
	return out, readable.Failed() // grants are unknown, not denied
}

// targetKinds returns the kinds of the targets of Actions.
func targetKinds(all iter.Seq[*ActionSummary]) []aggregate.Kind {
	kinds := map[aggregate.Kind]bool{}
	for a := range all {
		kinds[a.Target.Kind] = true
	}
	return slices.Collect(maps.Keys(kinds))
}

// Action serves /query/v1/actions/{name}: one Action, as Actions would list it. It is safe for concurrent
// use.
type Action struct{ Actions }

// Describe implements queryapi.Describer.
func (Action) Describe() queryapi.Operation {
	return queryapi.Operation{Description: "Read an Action on an object that the caller may read, with what it changes field by field.", Response: ActionDetails{}}
}

// ActionDetails is the response of Action.
type ActionDetails struct {
	Summary      ActionSummary         `json:"summary"`
	Changes      []fieldchanges.Change `json:"changes"`
	More         int                   `json:"more,omitempty"`    // changes that are not listed
	Problem      string                `json:"problem,omitempty"` // why changes are not complete
	Irreversible string                `json:"irreversible,omitempty"`
	Action       any                   `json:"action"` // the hub's object
}

var actionName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// Serve implements queryapi.Query.
func (q Action) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	return fleetReader{q.Kinds, q.Index}.answer(w, r, caller, func(of func() (readable, error)) error { return q.serve(w, r, caller, of) })
}

// ServeShared implements queryapi.Sharer.
func (q Action) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	return q.serve(w, r, caller, everywhere(caller, fleet))
}

func (q Action) serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, of func() (readable, error)) error {
	if err := checkParameters(r.URL.Query(), nil); err != nil {
		return err
	}
	name := r.PathValue("name")
	if !actionName.MatchString(name) {
		return apierrors.NewBadRequest(fmt.Sprintf("%q is not a valid name of an Action", name))
	}
	if err := requireHub(r.Context(), caller, HubActions); err != nil {
		return err
	}
	missing := newNotFound(fmt.Sprintf("there is no Action %s, or you may not read its target", name))
	a, err := q.Hub.Action(r.Context(), name)
	switch {
	case apierrors.IsNotFound(err):
		return missing
	case err != nil:
		return hubError(r.Context(), err)
	}
	readable, err := of()
	if err != nil {
		return err
	}
	summary := SummaryOf(a)
	if err := readable.Need(r.Context(), summary.Target.Kind); err != nil {
		return err
	}
	may := newActionGrants(readable).mayRead(summary)
	switch {
	case readable.Failed() != nil:
		return readable.Failed() // grants are unknown, not denied
	case slices.Contains(readable.Absent(), summary.Member):
		return errAbsent(summary.Member)
	case !may:
		return missing
	}
	return writeJSON(w, detailsOf(a, summary))
}

func detailsOf(a *v1alpha1.Action, summary *ActionSummary) *ActionDetails {
	shown := *a
	shown.ManagedFields = nil
	shown.TypeMeta.APIVersion, shown.Kind = v1alpha1.SchemeGroupVersion().String(), "Action"
	out := &ActionDetails{Summary: *summary, Changes: []fieldchanges.Change{}, Action: &shown}
	record := fieldchanges.Record{Verb: string(a.Spec.Verb)}
	if a.Spec.Patch != "" {
		record.Patch = []byte(a.Spec.Patch)
	}
	if a.Inverse != nil {
		record.Inverse, out.Irreversible = string(a.Inverse.Verb), a.Inverse.Irreversible
		if a.Inverse.Patch != "" {
			record.Undo = []byte(a.Inverse.Patch)
		}
	}
	changes, before, err := fieldchanges.Of(record)
	switch {
	case err != nil:
		out.Problem = err.Error()
	case record.Verb != "delete" && record.Patch == nil:
		out.Problem = "the values of a " + string(a.Spec.Target.Kind) + " are not recorded"
	case !before:
		out.Problem = "what was before is not recorded"
	}
	if changes != nil {
		out.Changes, out.More = bounded(changes)
	}
	return out
}

// ActionSummary is an Action without what it writes.
type ActionSummary struct {
	Name           string       `json:"name"`
	Policy         string       `json:"policy"`
	Member         string       `json:"member"`
	Target         ActionTarget `json:"target"`
	Verb           string       `json:"verb"`
	Phase          string       `json:"phase"` // "" before it was written
	Message        string       `json:"message,omitempty"`
	Manager        string       `json:"manager,omitempty"`   // that it conflicts with
	Violation      string       `json:"violation,omitempty"` // its message
	Commit         string       `json:"commit,omitempty"`
	Reason         string       `json:"reason,omitempty"` // why a person requested it
	RollbackOf     string       `json:"rollbackOf,omitempty"`
	Wave           int          `json:"wave,omitempty"`
	Created        time.Time    `json:"created"`
	StartedAt      *time.Time   `json:"startedAt,omitempty"`
	EndedAt        *time.Time   `json:"endedAt,omitempty"`
	AcknowledgedBy string       `json:"acknowledgedBy,omitempty"`

	memberUID string
}

// ActionTarget is an object that an Action writes.
type ActionTarget struct {
	Member    string         `json:"member"`
	Kind      aggregate.Kind `json:"kind"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name"`
	UID       string         `json:"uid,omitempty"`
}

// maxSummaryText bounds the texts of a summary, in bytes: many are held.
const maxSummaryText = 512

// SummaryOf returns the summary of an Action, which shares no memory with it.
func SummaryOf(a *v1alpha1.Action) *ActionSummary {
	t, s := &a.Spec.Target, &a.Status
	out := &ActionSummary{
		Name: strings.Clone(a.Name), Policy: shared(a.Spec.Binding), Member: shared(t.Member), memberUID: shared(t.MemberUID),
		Target: ActionTarget{shared(t.Member), aggregate.Kind(shared(string(t.Kind))), shared(t.Namespace), strings.Clone(t.Name), strings.Clone(t.UID)},
		Verb:   shared(string(a.Spec.Verb)), Phase: shared(string(s.Phase)), Message: clipped(s.Message), Manager: shared(s.Manager), Violation: clipped(a.Spec.Violation),
		Commit: shared(string(a.Spec.Origin.Commit)), Reason: clipped(a.Spec.Reason), RollbackOf: strings.Clone(a.Spec.RollbackOf), Wave: int(a.Spec.Wave),
		Created: a.CreationTimestamp.UTC(), AcknowledgedBy: shared(s.AcknowledgedBy),
	}
	if s.StartedAt != nil {
		at := s.StartedAt.UTC()
		out.StartedAt = &at
	}
	if s.EndedAt != nil {
		at := s.EndedAt.UTC()
		out.EndedAt = &at
	}
	return out
}

// shared returns a text that all summaries with it share.
func shared(s string) string { return unique.Make(s).Value() }

func clipped(s string) string { return strings.Clone(clip.Text(s, maxSummaryText)) }

// ActionPosition is a place in the order of Actions: the newest first, then by name.
type ActionPosition struct {
	Created time.Time `json:"t"`
	Name    string    `json:"n"`
}

// Position returns the place of an Action.
func (a *ActionSummary) Position() ActionPosition { return ActionPosition{a.Created, a.Name} }

// Compare orders positions.
func (p ActionPosition) Compare(o ActionPosition) int {
	return cmp.Or(o.Created.Compare(p.Created), strings.Compare(p.Name, o.Name))
}

// actionGrants say of which Actions a caller may read the targets. It is of one request.
type actionGrants struct {
	readable
	known map[actionScope]queryapi.MemberGrant
}

// actionScope is a kind in a member, which may be another than now has its name.
type actionScope struct {
	member, uid string
	kind        aggregate.Kind
}

func newActionGrants(of readable) *actionGrants {
	return &actionGrants{of, map[actionScope]queryapi.MemberGrant{}}
}

// mayRead reports whether the caller may read the target of an Action. Targets in members that there are
// no more nobody may.
func (g *actionGrants) mayRead(a *ActionSummary) bool {
	scope := actionScope{a.Member, a.memberUID, a.Target.Kind}
	grant, ok := g.known[scope]
	if !ok {
		if uid, visible := g.UID(a.Member); visible && (a.memberUID == "" || a.memberUID == uid) {
			grant = g.Grant(a.Member, a.Target.Kind)
		}
		g.known[scope] = grant
	}
	return grant.Allows(a.Target.Namespace)
}

// ref is what names the target.
func (a *ActionSummary) ref() aggregate.Ref {
	return aggregate.Ref{Member: a.Target.Member, Kind: a.Target.Kind, Namespace: a.Target.Namespace, Name: a.Target.Name}
}

// newNotFound is the error for what does not exist, or may not be read.
func newNotFound(text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: text}}
}
