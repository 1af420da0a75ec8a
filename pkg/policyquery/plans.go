package policyquery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// Plans serves /query/v1/plans/{policy}: the Plans of a FleetPolicy with those of their targets
// that the caller may list. Other targets are only counted, all together. It is safe for
// concurrent use.
type Plans struct {
	Kinds  Kinds
	Index  *aggregate.Index
	Reader PlanReader
}

// PlanReader reads the Plans on the hub. It is safe for concurrent use.
type PlanReader interface {
	// Plans returns the Plans of a policy as they are now.
	Plans(ctx context.Context, policy string) ([]v1alpha1.Plan, error)
	// Groups returns the targets in a part of a Plan, from 1, which nobody may change. They are
	// those that the Plan's hash was computed from; else the error is ErrPlanDamaged, of all
	// parts.
	Groups(ctx context.Context, plan *v1alpha1.Plan, part int) ([]v1alpha1.PlanGroup, error)
}

// ErrPlanDamaged is returned for a Plan whose parts on the hub are not those that were frozen.
var ErrPlanDamaged = errors.New("the Plan is not what was frozen")

// Bounds of a response.
const (
	maxPlans      = 10
	maxPlanCounts = 1000 // as in a Plan
	maxMessages   = 20
	maxDistinct   = 1000 // messages that are counted
)

// PlanList is the response of Plans.
type PlanList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Policy     string `json:"policy"`
	// Plans are newest first, and on the first page only.
	Plans   []PlanSummary `json:"plans,omitempty"`
	Omitted int           `json:"omitted,omitempty"` // older Plans than are listed
	// Items are targets that the caller may list: Plan by Plan, ordered by member, kind, verb,
	// namespace and name.
	Items    []PlanTarget `json:"items,omitempty"`
	Continue string       `json:"continue,omitempty"` // parameter of the next page; "" on the last one
	// Absent is as in ActionList: targets in these members count as hidden.
	Absent []string `json:"absent,omitempty"`
}

// PlanSummary is a Plan without its targets.
type PlanSummary struct {
	Name       string `json:"name"`
	Hash       string `json:"hash"` // what an Approval names
	Purpose    string `json:"purpose"`
	State      string `json:"state"`
	Since      string `json:"since,omitempty"` // when it entered the state; RFC 3339
	Created    string `json:"created"`         // RFC 3339
	Generation string `json:"generation"`
	Amends     string `json:"amends,omitempty"` // the Plan that an amendment adds to
	Halt       string `json:"halt,omitempty"`   // the id of the halt, of a Plan of one
	Required   int    `json:"required"`         // people who must approve
	Approved   int    `json:"approved"`         // who have
	Targets    int    `json:"targets"`          // in all
	Hidden     int    `json:"hidden"`           // of them, which the caller may not list
	Written    int    `json:"written"`
	// Problem is why the targets cannot be shown: such a Plan must not be approved. Hidden
	// counts all of them then.
	Problem string `json:"problem,omitempty"`
	// What follows is of the targets that the caller may list.
	Irreversible  int               `json:"irreversible"` // could not be rolled back
	Counts        []PlanTargetCount `json:"counts,omitempty"`
	CountsOmitted int               `json:"countsOmitted,omitempty"`
	DryRun        map[string]int    `json:"dryRun,omitempty"` // targets by their member's answer
	// Messages are what members said of dry runs, most targets first: at most 20.
	Messages        []PlanMessage `json:"messages,omitempty"`
	MessagesOmitted int           `json:"messagesOmitted,omitempty"`
}

// PlanMessage is what members said of a number of targets.
type PlanMessage struct {
	DryRun  string `json:"dryRun"`  // the answer
	Message string `json:"message"` // in which * is the name of the target
	Targets int    `json:"targets"`
}

// PlanTargetCount is a number of targets.
type PlanTargetCount struct {
	Member  string `json:"member"`
	Kind    string `json:"kind"`
	Verb    string `json:"verb"`
	Targets int    `json:"targets"`
}

// PlanTarget is an object that would be changed.
type PlanTarget struct {
	Plan         string `json:"plan"` // its name
	Member       string `json:"member"`
	Kind         string `json:"kind"`
	APIVersion   string `json:"apiVersion,omitempty"`
	Namespace    string `json:"namespace,omitempty"`
	Name         string `json:"name"`
	UID          string `json:"uid,omitempty"` // not set if the object does not exist
	Verb         string `json:"verb"`
	Remedy       string `json:"remedy"`                 // digest of how it would be changed
	Irreversible string `json:"irreversible,omitempty"` // why it could not be rolled back
	Diff         string `json:"diff,omitempty"`         // of a sample of the targets
	DryRun       string `json:"dryRun,omitempty"`       // the member's answer
	Message      string `json:"message,omitempty"`      // what the member said
}

var policyName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// Serve implements queryapi.Query.
func (q Plans) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	return fleetReader{q.Kinds, q.Index}.answer(w, r, caller, func(of func() (readable, error)) error { return q.serve(w, r, of) })
}

// ServeShared implements queryapi.Sharer: Plans are on the hub, and each process says what may be read of the members that it judges.
func (q Plans) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	return q.serve(w, r, everywhere(caller, fleet))
}

func (q Plans) serve(w http.ResponseWriter, r *http.Request, of func() (readable, error)) error {
	params, err := parsePlanParams(r.URL.Query())
	if err != nil {
		return err
	}
	name := r.PathValue("policy")
	if !policyName.MatchString(name) {
		return apierrors.NewBadRequest(fmt.Sprintf("%q is not a valid name of a FleetPolicy", name))
	}
	all, err := q.Reader.Plans(r.Context(), name)
	if err != nil {
		return hubError(r.Context(), err)
	}
	readable, err := of()
	if err != nil {
		return err
	}
	if err := readable.Need(r.Context()); err != nil {
		return err
	}
	l := &planListing{
		planParams: params, plans: q.Reader, readable: readable,
		result: &PlanList{APIVersion: "query.federator.dev/v1", Kind: "Plans", Policy: name},
	}
	if err := l.run(r.Context(), all); err != nil {
		return err
	}
	if err := readable.Failed(); err != nil { // grants are unknown, not denied
		return err
	}
	l.result.Absent = readable.Absent()
	body, err := json.Marshal(l.result)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may be gone
	return nil
}

// hubError is an error of the hub, whose status is about federator and not about the caller.
func hubError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("hub: " + err.Error())
}

// planListing is the state of one request.
type planListing struct {
	*planParams

	plans    PlanReader
	readable readable
	result   *PlanList
	selected []*v1alpha1.Plan
	last     planCursor // position of the last item
	examined int
}

func (l *planListing) run(ctx context.Context, all []v1alpha1.Plan) error {
	if err := l.selectPlans(all); err != nil {
		return err
	}
	for n, p := range l.selected {
		s := l.summaryOf(p)
		if err := l.addPlan(ctx, n, p, s); err != nil {
			return err
		}
		if l.after != nil && l.result.Continue != "" {
			return nil
		}
		if l.after == nil {
			l.result.Plans = append(l.result.Plans, *s)
		}
	}
	return nil
}

// selectPlans decides which Plans are listed: on a later page, those of the first that were not
// listed wholly.
func (l *planListing) selectPlans(all []v1alpha1.Plan) error {
	slices.SortFunc(all, func(a, b v1alpha1.Plan) int {
		return cmp.Or(b.CreationTimestamp.Time.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for i := range all {
		p := &all[i]
		switch {
		case l.after != nil:
			if !slices.Contains(l.after.Plans, string(p.UID)) {
				continue
			}
		case !l.matchesPlan(p):
			continue
		case len(l.selected) == maxPlans:
			l.result.Omitted++
			continue
		}
		l.selected = append(l.selected, p)
	}
	if l.after != nil && len(l.selected) != len(l.after.Plans) {
		return errPlanGone
	}
	return nil
}

var errPlanGone = apierrors.NewResourceExpired("a Plan of the first page is gone, or has been damaged: list again")

func (l *planListing) summaryOf(p *v1alpha1.Plan) *PlanSummary {
	s := &PlanSummary{
		Name: p.Name, Hash: string(p.Spec.Hash), Purpose: string(p.Spec.Purpose), State: string(cmp.Or(p.Status.State, v1alpha1.PlanFreezing)),
		Created: p.CreationTimestamp.UTC().Format(time.RFC3339), Generation: p.Spec.Generation, Amends: p.Spec.Amends,
		Required: int(p.Status.Required), Approved: len(p.Status.Approvals), Targets: int(p.Spec.Targets), Hidden: int(p.Spec.Targets), Written: int(p.Status.Written),
	}
	if p.Status.Since != nil {
		s.Since = p.Status.Since.UTC().Format(time.RFC3339)
	}
	if p.Spec.Halt != nil {
		s.Halt = p.Spec.Halt.ID
	}
	return s
}

// addPlan lists the targets of a Plan, and counts them for its summary.
func (l *planListing) addPlan(ctx context.Context, n int, p *v1alpha1.Plan, s *PlanSummary) error {
	if s.State == string(v1alpha1.PlanFreezing) {
		s.Problem = "its parts are being recorded"
		return nil
	}
	part, tally := 1, planTally{counts: map[PlanTargetCount]int{}}
	if l.after != nil && n == 0 {
		part = l.after.Part
	}
	for ; part <= int(p.Spec.Parts) && (l.after == nil || l.result.Continue == ""); part++ {
		groups, err := l.plans.Groups(ctx, p, part)
		switch {
		case errors.Is(err, ErrPlanDamaged) && l.after == nil && part == 1:
			s.Problem = "its parts on the hub are not those that were frozen"
			return nil
		case errors.Is(err, ErrPlanDamaged):
			return errPlanGone // it has been since some of it was listed
		case err != nil:
			return hubError(ctx, err)
		}
		if err := l.readable.Need(ctx, kindsOf(groups)...); err != nil {
			return err
		}
		for i := range groups {
			if err := l.addGroup(ctx, n, p, part, &groups[i], &tally); err != nil {
				return err
			}
		}
	}
	tally.addTo(s)
	return nil
}

// kindsOf returns the kinds of targets.
func kindsOf(groups []v1alpha1.PlanGroup) []aggregate.Kind {
	kinds := make([]aggregate.Kind, len(groups))
	for i := range groups {
		kinds[i] = aggregate.Kind(groups[i].Kind)
	}
	return kinds
}

// addGroup lists the targets of a group that the caller may list.
func (l *planListing) addGroup(ctx context.Context, n int, p *v1alpha1.Plan, part int, g *v1alpha1.PlanGroup, tally *planTally) error {
	if uid, visible := l.readable.UID(g.Member); !visible || uid != g.MemberUID {
		return nil // what has its name now is another member
	}
	grant := l.readable.Grant(g.Member, aggregate.Kind(g.Kind))
	for i := range g.Targets {
		if l.examined++; l.examined%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t := &g.Targets[i]
		if !grant.Allows(t.Namespace) {
			continue
		}
		tally.add(g, t)
		l.addTarget(n, p, part, g, t)
	}
	return nil
}

func (l *planListing) addTarget(n int, p *v1alpha1.Plan, part int, g *v1alpha1.PlanGroup, t *v1alpha1.PlannedTarget) {
	if l.result.Continue != "" || !l.matchesTarget(g, t) {
		return
	}
	item := PlanTarget{
		Plan: p.Name, Member: g.Member, Kind: g.Kind, APIVersion: g.APIVersion, Namespace: t.Namespace, Name: t.Name, UID: t.UID, Verb: string(g.Verb),
		Remedy: string(t.Remedy), Irreversible: t.Irreversible, Diff: t.Diff, DryRun: string(t.DryRun), Message: t.Message,
	}
	if l.after != nil && n == 0 && part == l.after.Part && compareTargets(&item, &l.after.Target) <= 0 {
		return
	}
	if len(l.result.Items) == l.limit {
		l.result.Continue = l.last.encode(l.selected)
		return
	}
	l.result.Items = append(l.result.Items, item)
	l.last = planCursor{
		Selection: l.selection, Part: part, first: n,
		Target: PlanTarget{Member: g.Member, Kind: g.Kind, APIVersion: g.APIVersion, Verb: string(g.Verb), Namespace: t.Namespace, Name: t.Name},
	}
}

// compareTargets orders the targets of a Plan, of members that there are now.
func compareTargets(a, b *PlanTarget) int {
	return cmp.Or(strings.Compare(a.Member, b.Member), strings.Compare(a.Kind, b.Kind), strings.Compare(a.APIVersion, b.APIVersion),
		strings.Compare(a.Verb, b.Verb), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// planTally counts targets that a caller may list.
type planTally struct {
	visible, irreversible int
	counts                map[PlanTargetCount]int
	dryRun                map[string]int
	messages              map[PlanMessage]int
	omitted               int // distinct messages beyond those
}

func (t *planTally) add(g *v1alpha1.PlanGroup, target *v1alpha1.PlannedTarget) {
	t.visible++
	t.counts[PlanTargetCount{Member: g.Member, Kind: g.Kind, Verb: string(g.Verb)}]++
	if target.Irreversible != "" {
		t.irreversible++
	}
	if target.DryRun != "" {
		if t.dryRun == nil {
			t.dryRun = map[string]int{}
		}
		t.dryRun[string(target.DryRun)]++
	}
	if target.Message != "" {
		t.addMessage(target)
	}
}

// addMessage counts what a member said, of all targets of which it says the same.
func (t *planTally) addMessage(target *v1alpha1.PlannedTarget) {
	m := PlanMessage{DryRun: string(target.DryRun), Message: strings.ReplaceAll(target.Message, `"`+target.Name+`"`, `"*"`)}
	if t.messages == nil {
		t.messages = map[PlanMessage]int{}
	}
	if t.messages[m] == 0 && len(t.messages) == maxDistinct {
		t.omitted++
		return
	}
	t.messages[m]++
}

func (t *planTally) addTo(s *PlanSummary) {
	s.Hidden, s.Irreversible, s.DryRun = s.Targets-t.visible, t.irreversible, t.dryRun
	for _, c := range slices.SortedFunc(maps.Keys(t.counts), func(a, b PlanTargetCount) int {
		return cmp.Or(cmp.Compare(t.counts[b], t.counts[a]), strings.Compare(a.Member, b.Member), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Verb, b.Verb))
	}) {
		if len(s.Counts) == maxPlanCounts {
			s.CountsOmitted++
			continue
		}
		c.Targets = t.counts[c]
		s.Counts = append(s.Counts, c)
	}
	s.MessagesOmitted = t.omitted
	for _, m := range slices.SortedFunc(maps.Keys(t.messages), func(a, b PlanMessage) int {
		return cmp.Or(cmp.Compare(t.messages[b], t.messages[a]), strings.Compare(a.DryRun, b.DryRun), strings.Compare(a.Message, b.Message))
	}) {
		if len(s.Messages) == maxMessages {
			s.MessagesOmitted++
			continue
		}
		m.Targets = t.messages[m]
		s.Messages = append(s.Messages, m)
	}
}
