package policyquery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

// Policies serves /query/v1/policies: the policies that are evaluated, with counts of what the
// caller may read, and what their FleetPolicies say to callers who may list these on the hub. It is
// safe for concurrent use, and must not be copied after first use.
type Policies struct {
	Kinds Kinds
	Loop  *enforce.Loop // of the policy engine
	Hub   Hub           // nil: there are no FleetPolicies
	// Series knows what policies cost while it runs; nil: nothing does.
	Series *Series
	Clock  func() time.Time // nil means time.Now
	// Tested says who has run the tests of a source's policies. Nil: nobody has.
	Tested func(source string) TestedBy

	counts keptCounts
}

var (
	_ queryapi.Describer = &Policies{}
	_ queryapi.Notifier  = &Policies{}
	_ queryapi.Sharer    = &Policies{}
)

var policiesParameters = []queryapi.Parameter{
	{Name: "policy", Description: "Only the policy with this name, with its Rego, the lines that take most time, and its FleetPolicy."},
}

// Describe implements queryapi.Describer.
func (*Policies) Describe() queryapi.Operation {
	return queryapi.Operation{
		Description: "List the policies, with counts of what they found on what the caller may read. What FleetPolicies say is for callers who may list them on the hub.",
		Parameters:  policiesParameters, Response: PolicyList{},
	}
}

// Changes implements queryapi.Notifier.
func (q *Policies) Changes() <-chan struct{} {
	return changesOf(q.Hub, q.Loop, HubFleetPolicies, HubActions)
}

// PolicyList is the response of Policies.
type PolicyList struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Revision   aggregate.Revision `json:"revision"`
	Synced     bool               `json:"synced"` // as in ViolationList
	Items      []PolicyItem       `json:"items"`  // by name
	// HubForbidden is the permission on the hub without which the caller is not sent what
	// FleetPolicies say; "" if it has it.
	HubForbidden string `json:"hubForbidden,omitempty"`
	Stale        bool   `json:"stale,omitempty"`      // the hub is out of reach: FleetPolicies may have changed
	Unreadable   int    `json:"unreadable,omitempty"` // FleetPolicies that cannot be decoded, and are left out
}

// PolicyConstraint is a constraint of Gatekeeper, or a ValidatingAdmissionPolicyBinding, as it is written. Its
// enforcement actions are those of admission, validationActions separated by commas: here it observes.
type PolicyConstraint struct {
	Kind                     string         `json:"kind"`
	Name                     string         `json:"name"`
	File                     string         `json:"file"`
	Line                     int            `json:"line"`
	EnforcementAction        string         `json:"enforcementAction"`
	ScopedEnforcementActions []any          `json:"scopedEnforcementActions,omitempty"`
	Match                    map[string]any `json:"match,omitempty"`
}

func constraintOf(b *policy.Binding) *PolicyConstraint {
	c := b.Applied()
	if c == nil {
		return nil
	}
	return &PolicyConstraint{c.Kind, c.Name, c.File, c.Line, c.EnforcementAction, c.Scoped, c.Match}
}

// PolicyItem is a policy.
type PolicyItem struct {
	Name        string        `json:"name"`
	Package     string        `json:"package"`
	Title       string        `json:"title,omitempty"`
	Description string        `json:"description,omitempty"`
	Severity    string        `json:"severity,omitempty"`
	Source      *PolicyOrigin `json:"source,omitempty"`
	// Constraint is what a policy from Gatekeeper, or a ValidatingAdmissionPolicy, is.
	Constraint *PolicyConstraint `json:"constraint,omitempty"`

	Kinds    []string `json:"kinds,omitempty"` // "*" is any
	Subject  string   `json:"subject,omitempty"`
	Withheld bool     `json:"withheld,omitempty"` // as in ViolationList: it has no counts

	// Counts are of what the caller may read. Subjects and Unknown are not set where that is only
	// some namespaces of a member: clean subjects are not counted by namespace.
	Violations *int         `json:"violations,omitempty"`
	Exempt     *int         `json:"exempt,omitempty"`
	Errors     *int         `json:"errors,omitempty"`
	Unknown    *int         `json:"unknown,omitempty"`
	Subjects   *int         `json:"subjects,omitempty"`
	Truncated  bool         `json:"truncated,omitempty"` // there are more than counted
	Cost       *PolicyCost  `json:"cost,omitempty"`      // only for callers who may read all that it evaluates
	Rego       []PolicyFile `json:"rego,omitempty"`
	// Tests are there with Rego: what is known of the package's own.
	Tests *PolicyTests `json:"tests,omitempty"`

	Quarantines []PolicyQuarantine `json:"quarantines,omitempty"` // of members that the caller may read

	// The following is for callers who may list FleetPolicies on the hub.
	Mode        string             `json:"mode,omitempty"`
	State       string             `json:"state,omitempty"` // the reason of condition Enforcing
	Message     string             `json:"message,omitempty"`
	Exemptions  []policy.Exemption `json:"exemptions,omitempty"`
	Parameters  map[string]any     `json:"parameters,omitempty"`
	Halted      *PolicyHalt        `json:"halted,omitempty"`
	Plans       []PolicyPlan       `json:"plans,omitempty"`
	FleetPolicy any                `json:"fleetPolicy,omitempty"`

	// Corrected is how many Actions have succeeded: those that /query/v1/actions lists with phase=Succeeded to the
	// same caller, who may list them on the hub.
	Corrected *int `json:"corrected,omitempty"`
}

// PolicyOrigin is where a package was read from.
type PolicyOrigin struct {
	Name   string `json:"name"`
	Commit string `json:"commit,omitempty"`
	File   string `json:"file"`
}

// PolicyFile is a file of Rego.
type PolicyFile struct {
	File string `json:"file"`
	Text string `json:"text"`
}

// PolicyQuarantine is a quarantine of a policy.
type PolicyQuarantine struct {
	Member string    `json:"member"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
}

// PolicyHalt is the halt of a FleetPolicy.
type PolicyHalt struct {
	ID      string    `json:"id"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// PolicyPlan is a Plan that waits for Approvals, or has them.
type PolicyPlan struct {
	Name      string `json:"name"`
	Hash      string `json:"hash"`
	Purpose   string `json:"purpose"`
	State     string `json:"state"`
	Targets   int    `json:"targets"`
	Required  int    `json:"required"`
	Approvals int    `json:"approvals"`
}

// Serve implements queryapi.Query.
func (q *Policies) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	values := r.URL.Query()
	if err := checkParameters(values, policiesParameters); err != nil {
		return err
	}
	state := q.Loop.State()
	if state == nil {
		return errNotEvaluated
	}
	reader, err := newStateReader(r.Context(), caller, q.Kinds, state)
	if err != nil {
		return err
	}
	l := &policyListing{
		readScope: readScope{state, reader}, counts: q.counts.of(state), only: values.Get("policy"), tested: q.Tested,
		result: &PolicyList{APIVersion: "query.federator.dev/v1", Kind: "Policies", Revision: state.Snapshot.Revision(), Synced: state.Synced, Items: []PolicyItem{}},
	}
	if _, part := queryapi.MembersInPart(r.Context(), state.Snapshot); part {
		l.result.Synced = state.SyncedNow()
	}
	if q.Series != nil {
		l.rates = q.Series.costs.rates(state, q.now())
	}
	if l.tested == nil {
		l.tested = func(string) TestedBy { return NotTested }
	}
	if err := l.readHub(r.Context(), caller, q.Hub); err != nil {
		return err
	}
	if err := l.run(r.Context()); err != nil {
		return err
	}
	if reader.err != nil { // grants are unknown, not denied
		return reader.err
	}
	return writeJSON(w, l.result)
}

func (q *Policies) now() time.Time {
	if q.Clock == nil {
		return time.Now()
	}
	return q.Clock()
}

// policyListing is the state of one request.
type policyListing struct {
	readScope

	only          string // the policy that is wanted; "": all
	tested        func(source string) TestedBy
	counts        map[string][]memberCounts
	rates         map[string]PolicyCost
	mayListHub    bool
	fleetPolicies map[string]*v1alpha1.FleetPolicy
	corrected     map[string]int // Actions that have succeeded, by policy; nil: the caller may not list them
	result        *PolicyList
	scanned       int
}

// readHub takes in what the hub says to this caller.
func (l *policyListing) readHub(ctx context.Context, caller queryapi.Caller, hub Hub) (err error) {
	if l.mayListHub, err = caller.HubAllows(ctx, "list", string(HubFleetPolicies)); err != nil {
		return err
	}
	if !l.mayListHub {
		l.result.HubForbidden = permission(HubFleetPolicies)
		return nil
	}
	if hub == nil {
		return nil
	}
	found, err := hub.FleetPolicies()
	if err != nil {
		return hubNotRead(err)
	}
	l.result.Stale, l.result.Unreadable, l.fleetPolicies = found.Stale, found.Unreadable, map[string]*v1alpha1.FleetPolicy{}
	for _, fp := range found.Items {
		l.fleetPolicies[fp.Name] = fp
	}
	return l.countActions(ctx, caller, hub)
}

// countActions counts the Actions that have succeeded, of those that the caller may list and whose targets it may read.
func (l *policyListing) countActions(ctx context.Context, caller queryapi.Caller, hub Hub) error {
	may, err := caller.HubAllows(ctx, "list", string(HubActions))
	if err != nil || !may {
		return err
	}
	all, _, err := hub.Actions()
	if err != nil {
		return hubNotRead(err)
	}
	grants := newActionGrants(readableHere{l.reader, l.state.Snapshot})
	l.corrected = map[string]int{}
	members, part := queryapi.MembersInPart(ctx, l.state.Snapshot) // that this process holds without judging them are another's to count
	for a := range all {
		if part {
			if _, counted := slices.BinarySearch(members, a.Member); !counted {
				continue
			}
		}
		if a.Phase == string(v1alpha1.PhaseSucceeded) && (l.only == "" || a.Policy == l.only) && grants.mayRead(a) {
			l.corrected[a.Policy]++
		}
	}
	return nil
}

func (l *policyListing) run(ctx context.Context) error {
	bound := map[string]bool{}
	for b := range l.state.Bindings() {
		bound[b.Name] = true
		if l.only != "" && b.Name != l.only {
			continue
		}
		item, err := l.itemOf(ctx, b)
		if err != nil {
			return err
		}
		l.result.Items = append(l.result.Items, item)
	}
	for name, fp := range l.fleetPolicies { // those that are not in effect
		if !bound[name] && (l.only == "" || name == l.only) {
			item := PolicyItem{Name: name, Package: fp.Spec.Package}
			l.addFleetPolicy(&item, fp)
			l.result.Items = append(l.result.Items, item)
		}
	}
	slices.SortFunc(l.result.Items, func(a, b PolicyItem) int { return strings.Compare(a.Name, b.Name) })
	if l.only != "" && len(l.result.Items) == 0 {
		return apierrors.NewNotFound(v1alpha1.SchemeGroupVersion().WithResource(string(HubFleetPolicies)).GroupResource(), l.only)
	}
	return nil
}

func (l *policyListing) itemOf(ctx context.Context, b policy.Binding) (PolicyItem, error) {
	p := l.state.Package(b.Name)
	if n := b.Next; n != nil && n.Whole { // it speaks for the policy
		mode := b.Mode
		b = n.Binding
		b.Mode = mode
	}
	item := PolicyItem{
		Name: b.Name, Package: p.Path(), Title: p.Title, Description: p.Description, Severity: p.Severity, Source: &PolicyOrigin{Name: p.Source, File: p.File},
		Kinds: p.Evaluates().Names(), Subject: p.Subject.String(), Withheld: !l.mayRead(b.Name), Constraint: constraintOf(&b),
	}
	if l.mayListHub {
		item.Mode, item.State, item.Exemptions, item.Parameters = string(b.Mode), "Observing", b.Exemptions, b.Parameters
		if b.Mode == "" {
			item.Mode = string(policy.Observe)
		}
		if fp := l.fleetPolicies[b.Name]; fp != nil {
			l.addFleetPolicy(&item, fp)
		}
	}
	if item.Withheld {
		return item, nil
	}
	if l.only != "" && (l.mayListHub || len(l.reader.visible) > 0) {
		item.Rego = filesOf(l.state, p)
		item.Tests = &PolicyTests{Rego: l.state.Set().TestsOf(p.Name), By: l.tested(p.Source)}
	}
	h, _ := l.state.Health(b.Name)
	for _, x := range h.Quarantines {
		if l.reader.MayReadMember(x.Member) {
			item.Quarantines = append(item.Quarantines, PolicyQuarantine{x.Member, x.Until, x.Reason})
		}
	}
	return item, l.addCounts(ctx, &item)
}

// addCounts counts what the caller may read of a policy.
func (l *policyListing) addCounts(ctx context.Context, item *PolicyItem) error {
	var total policy.Counts
	all := true // the caller may read all that is counted
	partly := false
	everywhere := l.everywhere(item.Name)
	for _, m := range l.counts[item.Name] {
		switch {
		case everywhere || l.whole(item.Name, m.member):
			total.Add(m.Counts)
		case l.reader.MayReadMember(m.member):
			all, partly = false, true
			if err := l.scan(ctx, item, m.member, &total); err != nil {
				return err
			}
		default:
			all = false
		}
	}
	item.Violations, item.Exempt, item.Errors = &total.Violations, &total.Exempt, &total.Errors
	if !partly {
		subjects := total.Known + total.Unknown + total.Errors
		item.Unknown, item.Subjects = &total.Unknown, &subjects
	}
	if rate, ok := l.rates[item.Name]; ok && all {
		if l.only != "" {
			rate.addRules(l.state, item.Name)
		}
		item.Cost = &rate
	}
	return nil
}

// maxScanned bounds the findings that one request counts one by one.
const maxScanned = 100_000

// scan counts the findings in a member of which the caller may read some namespaces.
func (l *policyListing) scan(ctx context.Context, item *PolicyItem, member string, total *policy.Counts) error {
	for v := range l.readableFindings(item.Name, member) {
		if l.scanned++; l.scanned > maxScanned {
			item.Truncated = true
			return nil
		}
		if l.scanned%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if v.State == policy.Error {
			total.Errors++
		}
		for i := range v.Violations {
			if v.Violations[i].Exempt != "" {
				total.Exempt++
			} else {
				total.Violations++
			}
		}
	}
	return nil
}

// addFleetPolicy adds what a FleetPolicy says.
func (l *policyListing) addFleetPolicy(item *PolicyItem, fp *v1alpha1.FleetPolicy) {
	item.Mode, item.State, item.Message = string(fp.Spec.Mode), "Unknown", ""
	if l.corrected != nil {
		n := l.corrected[fp.Name]
		item.Corrected = &n
	}
	for _, c := range fp.Status.Conditions {
		if c.Type == v1alpha1.Enforcing {
			item.State, item.Message = c.Reason, c.Message
		}
	}
	if o := fp.Status.Origin; o != nil && item.Source != nil {
		item.Source.Commit = string(o.Commit)
	}
	if h := fp.Status.Halted; h != nil {
		item.Halted = &PolicyHalt{h.ID, string(h.Reason), h.Message, h.Since.Time}
	}
	if a := fp.Status.Approval; a != nil {
		for _, p := range a.Plans {
			item.Plans = append(item.Plans, PolicyPlan{p.Name, string(p.Hash), string(p.Purpose), string(p.State), int(p.Targets), int(a.Required), len(p.Approvals)})
		}
	}
	if l.only != "" {
		shown := *fp
		shown.ManagedFields = nil
		item.FleetPolicy = &shown
	}
}

func filesOf(s *policy.State, p *policy.Package) (files []PolicyFile) {
	for _, f := range s.Set().Files(p.Name) {
		files = append(files, PolicyFile{f.Path, string(f.Data)})
	}
	return files
}

// checkParameters refuses parameters that a query does not have, and repeats of those that it has once.
func checkParameters(values url.Values, known []queryapi.Parameter) error {
	for name, given := range values {
		i := slices.IndexFunc(known, func(p queryapi.Parameter) bool { return p.Name == name })
		switch {
		case i < 0:
			return badParameter(name, "is not supported")
		case !known[i].Repeated && len(given) > 1:
			return badParameter(name, "is given more than once")
		}
		for _, v := range given {
			if allowed := known[i].Enum; allowed != nil && !slices.Contains(allowed, v) {
				return badParameter(name, fmt.Sprintf("%q is not one of %s", v, strings.Join(allowed, ", ")))
			}
		}
	}
	for _, p := range known {
		if p.Required && values.Get(p.Name) == "" {
			return badParameter(p.Name, "is required")
		}
	}
	return nil
}

// writeJSON writes a response.
func writeJSON(w http.ResponseWriter, response any) error {
	body, err := json.Marshal(response)
	if err != nil {
		return errors.New("response: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may be gone
	return nil
}
