package policyquery

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/fieldchanges"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/explain"
	"federator.dev/federator/pkg/queryapi"
)

// Explain serves /query/v1/explain: how the verdict of a policy on one subject came about. It is for
// callers who may read the verdict as Violations serves it; others are told the same of all subjects.
// The number of evaluations that run at once is bounded together with those of Rego. It is safe for
// concurrent use.
type Explain struct {
	Kinds Kinds
	Loop  *enforce.Loop // of the policy engine
	Rego  *Rego         // whose bounds it shares
	Hub   Hub           // nil: there are no FleetPolicies
}

var (
	_ queryapi.Describer = Explain{}
	_ queryapi.Notifier  = Explain{}
	_ queryapi.Sharer    = Explain{}
	_ queryapi.Answerer  = Explain{}
)

var explainParameters = []queryapi.Parameter{
	{Name: "policy", Description: "The policy whose verdict is explained.", Required: true},
	{Name: "member", Description: "The member of the subject, <namespace>/<name>."},
	{Name: "kind", Description: "The kind of the subject, such as Deployment.apps."},
	{Name: "namespace", Description: "The namespace of the subject."},
	{Name: "name", Description: "The name of the subject."},
	{Name: "key", Description: "The key of a view, of a policy about keys."},
}

// Describe implements queryapi.Describer.
func (Explain) Describe() queryapi.Operation {
	return queryapi.Operation{
		Description: "Evaluate a policy on one subject again, and say which lines held, what was read, and what its remedies would change.",
		Parameters:  explainParameters, Response: Explanation{},
	}
}

// Changes implements queryapi.Notifier.
func (q Explain) Changes() <-chan struct{} {
	return changesOf(q.Hub, q.Loop, HubActions, HubPolicySources)
}

// Explanation is the response of Explain.
type Explanation struct {
	Policy    string             `json:"policy"`
	Package   string             `json:"package"`
	Title     string             `json:"title,omitempty"`
	Severity  string             `json:"severity"`
	Revision  aggregate.Revision `json:"revision"`
	Finding   Finding            `json:"finding"`
	Repeated  *Finding           `json:"repeated,omitempty"` // what evaluating again gave, if it differs
	Input     json.RawMessage    `json:"input,omitempty"`    // what the policy sees of the subject; parameters are for callers who may list FleetPolicies on the hub
	Lines     []ExplainedLine    `json:"lines"`
	Files     []PolicyFile       `json:"files"`
	Reads     []ExplainedRead    `json:"reads"`
	Freshness []ExplainedScope   `json:"freshness,omitempty"` // of all that was read
	Commit    *ExplainedCommit   `json:"commit,omitempty"`    // for callers who may list PolicySources on the hub
	Remedies  []ExplainedRemedy  `json:"remedies,omitempty"`
	// Actions are those on the subject and the targets of remedies, newest first: at most 50, and
	// for callers who may list them on the hub.
	Actions []*ActionSummary `json:"actions,omitempty"`
}

// ExplainedLine is a line of Rego and what became of it.
type ExplainedLine struct {
	File      string `json:"file"`
	Row       int    `json:"row"`
	Text      string `json:"text"`
	Evaluated int    `json:"evaluated"`
	Held      int    `json:"held"`
	Rule      bool   `json:"rule"`
}

// ExplainedRead is one document that was read.
type ExplainedRead struct {
	Path        string            `json:"path"`
	Found       bool              `json:"found"`
	Times       int               `json:"times"`
	Bytes       int64             `json:"bytes"`
	Objects     []ExplainedObject `json:"objects,omitempty"`
	MoreObjects int               `json:"moreObjects,omitempty"`
	Scopes      []ExplainedScope  `json:"scopes,omitempty"`
	MoreScopes  int               `json:"moreScopes,omitempty"`
}

// ExplainedObject is an object that a document shows.
type ExplainedObject struct {
	aggregate.Ref
	ResourceVersion string             `json:"resourceVersion"`
	Revision        aggregate.Revision `json:"revision"`
}

// ExplainedScope is how current a scope is.
type ExplainedScope struct {
	Member string         `json:"member"`
	Kind   aggregate.Kind `json:"kind"`
	State  string         `json:"state"`
	Reason string         `json:"reason,omitempty"`
}

// ExplainedCommit is the commit that the policy was read from.
type ExplainedCommit struct {
	Source string     `json:"source"`
	Hash   string     `json:"hash"`
	Ref    string     `json:"ref,omitempty"`
	Author string     `json:"author,omitempty"`
	Signer string     `json:"signer,omitempty"`
	Time   *time.Time `json:"time,omitempty"`
}

// ExplainedRemedy is what a remedy would change.
type ExplainedRemedy struct {
	Violation string                `json:"violation"` // its message
	Action    string                `json:"action"`
	Target    aggregate.Ref         `json:"target"`
	Changes   []fieldchanges.Change `json:"changes,omitempty"`
	More      int                   `json:"more,omitempty"` // changes that are not listed
	// About says that changes are what applying probably does: only a server knows its lists.
	About   bool   `json:"about,omitempty"`
	Problem string `json:"problem,omitempty"` // why there are no changes
}

// Serve implements queryapi.Query.
func (q Explain) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	values := r.URL.Query()
	if err := checkParameters(values, explainParameters); err != nil {
		return err
	}
	name, subject := values.Get("policy"), policy.Subject{
		Ref: aggregate.Ref{Member: values.Get("member"), Kind: aggregate.Kind(values.Get("kind")), Namespace: values.Get("namespace"), Name: values.Get("name")},
		Key: values.Get("key"),
	}
	if (subject.Ref == aggregate.Ref{}) == (subject.Key == "") {
		return apierrors.NewBadRequest("either parameter key or parameter member is required")
	}
	state := q.Loop.State()
	if state == nil {
		return errNotEvaluated
	}
	reader, err := newStateReader(r.Context(), caller, q.Kinds, state)
	if err != nil {
		return err
	}
	e := &explaining{readScope: readScope{state, reader}, name: name, subject: subject}
	if err := e.check(); err != nil {
		return err
	}
	if err := e.readHub(r.Context(), caller, q.Hub); err != nil {
		return err
	}
	out, err := q.evaluate(r.Context(), e)
	if err != nil {
		return err
	}
	if reader.err != nil { // grants are unknown, not denied
		return reader.err
	}
	return writeJSON(w, out)
}

// ServeShared implements queryapi.Sharer: the process that judges a member, or a key, explains what it says of it.
func (q Explain) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	values := r.URL.Query()
	if member := values.Get("member"); member != "" || values.Get("key") == "" {
		if member == "" || fleet.Judge(member) {
			return q.Serve(w, r, caller)
		}
		return fleet.Forward(member)
	}
	state := q.Loop.State()
	if state == nil {
		return errNotEvaluated
	}
	owner := state.KeyOwner()
	if owner.Owns(values.Get("policy"), values.Get("key")) {
		return q.Serve(w, r, caller)
	}
	return fleet.ForwardTo(owner.Owner(values.Get("policy"), values.Get("key")))
}

// Answers implements queryapi.Answerer: this process judges the key. While keys move two processes may.
func (q Explain) Answers(values url.Values) bool {
	state := q.Loop.State()
	if state == nil || values.Get("key") == "" {
		return false
	}
	owner := state.KeyOwner()
	return owner.Owns(values.Get("policy"), values.Get("key"))
}

// explaining is the state of one request.
type explaining struct {
	readScope

	name     string
	subject  policy.Subject
	pkg      *policy.Package        // of the version that is in effect for the subject
	readable map[aggregate.Ref]bool // targets of remedies that the caller may read
	whole    bool                   // the caller may read what FleetPolicies say
	commit   *ExplainedCommit
	actions  []*ActionSummary
}

// check refuses callers who may not read the verdict, before anything is looked up. Which policies
// there are, and which are withheld, is for every caller.
func (e *explaining) check() error {
	resource := v1alpha1.SchemeGroupVersion().WithResource(string(HubFleetPolicies)).GroupResource()
	if e.pkg = e.state.PackageIn(e.name, e.subject.Ref.Member); e.pkg == nil {
		return apierrors.NewNotFound(resource, e.name)
	}
	may := e.mayRead(e.name)
	if !may && e.reader.err == nil {
		return apierrors.NewForbidden(resource, e.name, errors.New("it reads more of the fleet than you may"))
	}
	may = may && e.mayReadSubject(e.subject)
	if e.reader.err != nil {
		return e.reader.err // grants are unknown, not denied
	}
	v, ok := policy.Verdict{}, false
	if may {
		v, ok = e.state.Get(e.name, e.subject)
	}
	if !ok {
		return e.notFound()
	}
	// The grants of targets are fetched before the evaluation has a slot: the hub may be slow.
	e.readable = map[aggregate.Ref]bool{}
	for i := range v.Violations {
		if remedy := v.Violations[i].Remedy; remedy != nil {
			target := remedy.Target
			e.readable[target] = target.Member != "" && target.Kind != "" && e.mayReadSubject(policy.Subject{Ref: target})
		}
	}
	return e.reader.err
}

// notFound is the error for a subject that the policy does not evaluate, or that the caller may not read.
func (e *explaining) notFound() error {
	return newNotFound("policy " + e.name + " does not evaluate " + e.subject.String() + ", or you may not read it")
}

// maxExplainedActions bounds the Actions of an explanation.
const maxExplainedActions = 50

// readHub takes in what the hub says to this caller. Before the hub has been read there is nothing of it.
func (e *explaining) readHub(ctx context.Context, caller queryapi.Caller, hub Hub) (err error) {
	if e.whole, err = caller.HubAllows(ctx, "list", string(HubFleetPolicies)); err != nil {
		return err
	}
	if hub == nil {
		return nil
	}
	if ok, err := caller.HubAllows(ctx, "list", string(HubPolicySources)); err != nil {
		return err
	} else if sources, notRead := hub.PolicySources(); ok && notRead == nil {
		e.commit = commitOf(e.pkg, sources.Items)
	}
	ok, err := caller.HubAllows(ctx, "list", string(HubActions))
	if err != nil || !ok {
		return err
	}
	all, _, err := hub.Actions()
	if err != nil {
		return hubNotRead(err)
	}
	targets := newActionGrants(readableHere{e.reader, e.state.Snapshot})
	for a := range all {
		ref := a.ref()
		if may, isTarget := e.readable[ref]; (ref == e.subject.Ref || isTarget && may) && targets.mayRead(a) {
			if e.actions = append(e.actions, a); len(e.actions) == maxExplainedActions {
				break
			}
		}
	}
	return e.reader.err
}

// commitOf returns the commit that a package was read from, nil if it is not known.
func commitOf(p *policy.Package, sources []*v1alpha1.PolicySource) *ExplainedCommit {
	i := slices.IndexFunc(sources, func(s *v1alpha1.PolicySource) bool { return s.Name == p.Source })
	if i < 0 {
		return nil
	}
	status := &sources[i].Status
	c := status.ActiveCommit
	if p.VersionOf() != "" { // it rolls out
		if c = status.ObservedCommit; status.Rollout != nil && (c == nil || c.Hash != status.Rollout.Commit) {
			c = &v1alpha1.Commit{Hash: status.Rollout.Commit}
		}
	}
	if c == nil {
		return nil
	}
	out := &ExplainedCommit{Source: p.Source, Hash: string(c.Hash), Ref: c.Ref, Author: c.Author, Signer: c.Signer}
	if c.Time != nil {
		at := c.Time.UTC()
		out.Time = &at
	}
	return out
}

// evaluate evaluates again, in one of the caller's slots.
func (q Explain) evaluate(ctx context.Context, e *explaining) (*Explanation, error) {
	user := e.reader.caller.User().GetName()
	if err := q.Rego.limiter.acquire(ctx, user); err != nil {
		return nil, err
	}
	defer q.Rego.limiter.release(user)
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	x, err := q.Loop.Explain(ctx, e.state, e.name, e.subject)
	switch {
	case errors.Is(err, explain.ErrSubject):
		return nil, e.notFound()
	case errors.Is(err, context.DeadlineExceeded):
		return nil, apierrors.NewTimeoutError("the evaluation takes too long", 0)
	case err != nil:
		return nil, err
	}
	p := e.pkg
	out := &Explanation{
		Policy: e.name, Package: p.Path(), Title: p.Title, Severity: p.Severity, Revision: e.state.Snapshot.Revision(), Finding: e.findingOf(&x.Verdict),
		Input: e.inputOf(x.Input), Lines: []ExplainedLine{}, Files: filesOf(e.state, p), Reads: []ExplainedRead{}, Commit: e.commit, Actions: e.actions,
	}
	if x.Reevaluated != nil {
		repeated := e.findingOf(x.Reevaluated)
		out.Repeated = &repeated
	}
	for _, l := range x.Lines {
		out.Lines = append(out.Lines, ExplainedLine(l))
	}
	out.addReads(x.Reads)
	for i := range x.Verdict.Violations {
		if v := &x.Verdict.Violations[i]; v.Remedy != nil {
			out.Remedies = append(out.Remedies, e.remedyOf(v))
		}
	}
	return out, nil
}

// inputOf returns an evaluation's input as far as the caller may read it.
func (e *explaining) inputOf(input json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		return nil // it was not evaluated
	}
	if !e.whole {
		delete(fields, "parameters")
	}
	if member, ok := fields["member"]; ok {
		fields["member"] = plainMember(member)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil // it was decoded from JSON
	}
	return text
}

// plainMember is input.member without what nobody may read of Clusters by the query API: annotations, and
// messages of conditions.
func plainMember(member json.RawMessage) json.RawMessage {
	var fields map[string]any
	if json.Unmarshal(member, &fields) != nil {
		return nil // it was marshalled
	}
	delete(fields, "annotations")
	conditions, _ := fields["conditions"].(map[string]any)
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok {
			delete(c, "message")
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil // it was decoded from JSON
	}
	return text
}

// addReads adds what was read, and how current it is.
func (x *Explanation) addReads(reads []explain.Read) {
	seen := map[ExplainedScope]bool{}
	for _, r := range reads {
		read := ExplainedRead{Path: r.Path, Found: r.Found, Times: r.Times, Bytes: r.Bytes, MoreObjects: r.MoreObjects, MoreScopes: r.MoreScopes}
		for _, o := range r.Objects {
			read.Objects = append(read.Objects, ExplainedObject{o.Ref, o.ResourceVersion, o.Revision})
		}
		for _, s := range r.Scopes {
			scope := ExplainedScope{s.Member, s.Kind, s.State.String(), queryapi.ReasonFor(aggregate.Status{State: s.State, Reason: s.Reason})}
			read.Scopes = append(read.Scopes, scope)
			if !seen[scope] {
				seen[scope] = true
				x.Freshness = append(x.Freshness, scope)
			}
		}
		x.Reads = append(x.Reads, read)
	}
}
