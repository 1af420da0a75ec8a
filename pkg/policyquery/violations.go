package policyquery

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

// Violations serves /query/v1/violations: the findings of policies on what the caller may
// list. Findings of a policy that reads more of the fleet than its subject reveal what it
// reads: they are only for callers who may read all of that; to others the policy is
// Withheld. It is safe for concurrent use.
type Violations struct {
	Kinds Kinds
	Loop  *enforce.Loop // of the policy engine

	// WriteTimeout is how long a client of a watch may take for a block of bytes; 0 means
	// 30 s. BookmarkInterval is the time between bookmarks where nothing happens; 0 means
	// 1 minute.
	WriteTimeout, BookmarkInterval time.Duration
}

var (
	_ queryapi.Notifier = Violations{}
	_ queryapi.Sharer   = Violations{}
)

// Changes implements queryapi.Notifier.
func (q Violations) Changes() <-chan struct{} { return q.Loop.Newer(q.Loop.Point()) }

// Serve implements queryapi.Query.
func (q Violations) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	params, err := parseParams(r.URL.Query())
	if err != nil {
		return err
	}
	point := q.Loop.Point()
	if point == nil {
		return errNotEvaluated
	}
	state := point.State()
	params.part = queryapi.InPart(r.Context(), state.Snapshot)
	reader, err := newStateReader(r.Context(), caller, q.Kinds, state)
	if err != nil {
		return err
	}
	s := &listing{params: params, readScope: readScope{state, reader}, readable: map[string]bool{}, result: &ViolationList{
		APIVersion: "query.federator.dev/v1", Kind: "Violations", Revision: state.Snapshot.Revision(), Synced: state.Synced,
	}}
	if params.part {
		if s.result.Absent, _, err = caller.VisibleIn(r.Context(), state.Awaited()); err != nil {
			return err
		}
		s.result.Synced = state.SyncedNow()
	}
	if err := s.run(r.Context()); err != nil {
		return err
	}
	s.result.ResourceVersion = joinVersion(point.Version(), s.hiddenDigest(params, s.readable))
	if reader.err != nil { // grants are unknown, not denied
		return reader.err
	}
	if params.part {
		queryapi.SetPosition(w, s.result.ResourceVersion)
	}
	body, err := json.Marshal(s.result)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may be gone
	return nil
}

var errNotEvaluated = apierrors.NewServiceUnavailable("no policy has been evaluated yet")

// ViolationList is the response of Violations.
type ViolationList struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Revision   aggregate.Revision `json:"revision"`
	// ResourceVersion is where a watch can start after this list; of several pages, that
	// of the first.
	ResourceVersion string `json:"resourceVersion"`
	// Synced is false until the initial sync of what policies read is complete and, where several processes share the fleet, while one
	// of them waits for what its policies read of a member, or has taken over a member and waits for what others have to tell.
	Synced    bool           `json:"synced"`
	Items     []Finding      `json:"items,omitempty"`
	Continue  string         `json:"continue,omitempty"` // parameter of the next page; "" on the last one
	GroupBy   []string       `json:"groupBy,omitempty"`
	Groups    []FindingGroup `json:"groups,omitempty"`
	Truncated bool           `json:"truncated,omitempty"` // there are more groups than returned
	// Withheld are policies that read more of the fleet than the caller may. It follows
	// from the caller's grants, never from findings.
	Withheld []string `json:"withheld,omitempty"`
	// Failed are policies whose verdicts are missing or incomplete.
	Failed []string `json:"failed,omitempty"`
	// Absent are members, of those that the caller may read, that no process answers for which shares the fleet, or whose
	// process has yet to read what policies read of them.
	Absent []string `json:"absent,omitempty"`
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (ViolationList) SchemaName() string { return "Found" }

// Finding is the result of one policy for one subject.
type Finding struct {
	Policy   string `json:"policy"`
	Package  string `json:"package"`
	Version  string `json:"version,omitempty"` // of the policy: of two, the one that is in effect for the subject
	Title    string `json:"title,omitempty"`   // of the package
	Severity string `json:"severity"`
	// EnforcementAction is what the constraint says of admission; nothing comes of it here.
	EnforcementAction string `json:"enforcementAction,omitempty"`

	Subject    Subject            `json:"subject"`
	State      string             `json:"state"` // Known, Unknown or Error
	Violations []Violation        `json:"violations,omitempty"`
	Gaps       []policy.Gap       `json:"gaps,omitempty"`    // why it is Unknown
	Message    string             `json:"message,omitempty"` // why it is Error
	Since      *time.Time         `json:"since,omitempty"`   // since when it is an Error for this reason
	Revision   aggregate.Revision `json:"revision"`          // of its last change
}

// Violation is a violation of a policy, with when it was first seen: it is the same one for as long as its
// message is, also while its details change, its evaluation fails, its policy is edited or federator restarts.
type Violation struct {
	policy.Violation

	FirstSeen time.Time `json:"firstSeen"`
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (Violation) SchemaName() string { return "FoundViolation" }

// findingOf returns a verdict of the state as it is listed, with what its own version says.
func (s readScope) findingOf(v *policy.Verdict) Finding {
	b, p := s.state.BindingIn(v.Binding, v.Subject.Ref.Member), s.state.PackageIn(v.Binding, v.Subject.Ref.Member)
	var found []Violation
	for i, x := range v.Violations {
		found = append(found, Violation{x, v.FirstSeen.At(i)})
	}
	var since *time.Time
	if at := v.FirstSeen.At(0); v.State == policy.Error && !at.IsZero() {
		since = &at
	}
	action := ""
	if c := b.Applied(); c != nil {
		action = c.EnforcementAction
	}
	return Finding{
		EnforcementAction: action,
		Policy:            v.Binding, Package: p.Path(), Version: v.Version, Title: p.Title, Severity: p.Severity, Subject: subjectOf(v.Subject), State: v.State.String(),
		Since: since, Violations: found, Gaps: v.Gaps, Message: v.Message, Revision: v.Revision,
	}
}

// Subject is an object, a member, or a key of a view.
type Subject struct {
	Member    string         `json:"member,omitempty"`
	Kind      aggregate.Kind `json:"kind,omitempty"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name,omitempty"`
	Key       string         `json:"key,omitempty"`
}

func subjectOf(s policy.Subject) Subject {
	return Subject{s.Ref.Member, s.Ref.Kind, s.Ref.Namespace, s.Ref.Name, s.Key}
}

func (s Subject) subject() policy.Subject {
	return policy.Subject{Ref: aggregate.Ref{Member: s.Member, Kind: s.Kind, Namespace: s.Namespace, Name: s.Name}, Key: s.Key}
}

// FindingGroup counts the findings with one key: a value for each of GroupBy. Of a subject with several violations
// those are counted that exempt and firstSeenSince select.
type FindingGroup struct {
	Key        []string `json:"key"`
	Subjects   int      `json:"subjects"`
	Violations int      `json:"violations"` // without exempt ones
	Exempt     int      `json:"exempt"`
	Unknown    int      `json:"unknown"` // subjects whose verdict is Unknown
	Errors     int      `json:"errors"`  // subjects whose verdict is Error
}

// readScope is a state of the policies, as far as a caller may read it.
type readScope struct {
	state  *policy.State
	reader *callerReader
}

// listing is the state of one list request.
type listing struct {
	*params
	readScope

	result   *ViolationList
	readable map[string]bool // bindings whose findings may be read
	order    string          // its digest
	groups   map[string]*FindingGroup
	examined int
	bytes    int // of the page, approximately
}

// maxPage bounds the bytes of a page's findings, approximately, unless a single one is
// larger.
const maxPage = 8 << 20

// run lists the bindings in order.
func (s *listing) run(ctx context.Context) error {
	selected := s.inOrder(s.state)
	s.order = s.orderDigest(selected, s.readScope)
	from, err := s.from(selected, s.order, s.state)
	if err != nil {
		return err
	}
	for i, b := range selected {
		if _, again := s.readable[b.Name]; !again {
			s.readable[b.Name] = s.mayRead(b.Name)
			switch {
			case !s.readable[b.Name]:
				s.result.Withheld = append(s.result.Withheld, b.Name)
			case s.failed(b.Name):
				s.result.Failed = append(s.result.Failed, b.Name)
			}
		}
		if !s.readable[b.Name] {
			continue
		}
		if i < from || s.pageFull() {
			continue
		}
		if err := s.addFindings(ctx, b); err != nil {
			return err
		}
	}
	slices.Sort(s.result.Withheld)
	slices.Sort(s.result.Failed)
	s.result.GroupBy = s.groupBy
	s.result.Groups = s.sortedGroups()
	return nil
}

// mayRead reports whether the caller may read everything that a binding reads besides its
// subjects.
func (s readScope) mayRead(binding string) bool {
	scope := s.state.ReadScope(binding)
	for _, source := range scope.Sources {
		if !s.reader.MayReadSource(source) {
			return false
		}
	}
	kinds := scope.Kinds.Among(s.state.Kinds())
	if kinds = s.partly(kinds); len(kinds) == 0 && s.seesAllMembers() {
		return true
	}
	for _, member := range scope.Members {
		if !s.reader.MayReadMember(member) {
			return false
		}
		for _, kind := range kinds {
			if !s.reader.grant(s.state.Snapshot, member, kind).All && !s.nothingHeld(member, kind) {
				return false
			}
		}
	}
	return true
}

// partly returns the kinds of which the caller may not read all in all members: there is no need to look at
// each member for the others.
func (s readScope) partly(kinds []aggregate.Kind) (rest []aggregate.Kind) {
	for _, kind := range kinds {
		if !s.reader.everything(s.state.Snapshot, kind) {
			rest = append(rest, kind)
		}
	}
	return rest
}

// seesAllMembers reports whether no member is hidden from the caller.
func (s readScope) seesAllMembers() bool { return s.reader.seesAllMembers(s.state.Snapshot) }

// nothingHeld reports whether there is nothing to read of a kind in a member: no member
// serves it, which discovery shows to every caller, and no object is left from before.
func (s readScope) nothingHeld(member string, kind aggregate.Kind) bool {
	at, served := s.state.Snapshot, s.reader.kinds[kind]
	if s.reader.isElsewhere(member) {
		at = s.reader.there.told
		served = served || len(at.Resources(kind)) > 0
	}
	if served {
		return false
	}
	scope, _ := at.Scope(member, kind)
	return scope.Objects == 0
}

// mayReadSubject reports whether the caller may read a subject. Keys of views are for
// callers who may read everything that the view is built from, which mayRead checks.
func (s readScope) mayReadSubject(subject policy.Subject) bool {
	switch ref := subject.Ref; {
	case ref.Member == "":
		return true
	case ref.Kind == "":
		return s.reader.MayReadMember(ref.Member)
	default:
		return s.reader.MayReadMember(ref.Member) && s.reader.grant(s.state.Snapshot, ref.Member, ref.Kind).Allows(ref.Namespace)
	}
}

// membersOf returns the members that findings of a binding are listed in, in order: "" is for keys, which belong to
// none. Of two versions one may be about keys, and the other not.
func (s readScope) membersOf(binding string) (members []string) {
	keys, others := false, false
	for p := range s.state.Packages(binding) {
		keys, others = keys || p.SubjectView != "", others || p.SubjectView == ""
	}
	if keys {
		members = []string{""}
	}
	if others {
		members = append(members, s.reader.visible...)
	}
	return members
}

// failed reports whether verdicts of a binding are missing or incomplete.
func (s readScope) failed(binding string) bool {
	h, _ := s.state.Health(binding)
	return len(h.Quarantines) > 0 || h.Views != ""
}

// pageFull reports whether the page is complete.
func (s *listing) pageFull() bool { return s.result.Continue != "" }

// addFindings lists the findings of one binding, member by member. Those of members that
// are hidden from the caller are never examined.
func (s *listing) addFindings(ctx context.Context, b boundBinding) error {
	after := s.after
	if after != nil && (after.Policy != b.Name || !b.lists(s.state.PackageIn(b.Name, after.Subject.Member).Severity)) {
		after = nil
	}
	for _, member := range s.membersOf(b.Name) {
		if !matches(s.members, member) || after != nil && member < after.Subject.Member {
			continue
		}
		severity := s.state.PackageIn(b.Name, member).Severity
		if !b.lists(severity) || !matches(s.severities, severity) {
			continue
		}
		found := s.state.FindingsIn(b.Name, member)
		if after != nil && member == after.Subject.Member {
			found = s.state.FindingsAfter(b.Name, after.Subject.subject())
		}
		for v := range found {
			if s.examined++; s.examined%1024 == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !s.matchesVerdict(&v) || !s.mayReadSubject(v.Subject) {
				continue
			}
			if s.groupBy != nil {
				s.addToGroup(b.Binding, severity, &v)
				continue
			}
			for i := range v.Violations {
				s.bytes += v.Violations[i].Size()
			}
			if n := len(s.result.Items); n == s.limit || n > 0 && s.bytes > maxPage {
				last := s.result.Items[n-1]
				s.result.Continue = cursor{last.Policy, last.Subject, s.order}.encode()
				return nil
			}
			s.result.Items = append(s.result.Items, s.findingOf(&v))
		}
	}
	return nil
}

// ServeShared implements queryapi.Sharer: the findings of all processes, each of the subjects that it judges. A subject that two
// judge for a moment, as it moves, is listed once; in groups it counts twice until then.
func (q Violations) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	params, err := parseParams(r.URL.Query())
	if err != nil {
		return err
	}
	parts, err := fleet.Ask(r.URL.Query())
	if err != nil {
		return err
	}
	out := &ViolationList{APIVersion: "query.federator.dev/v1", Kind: "Violations", Revision: parts.Revision, Synced: true, GroupBy: params.groupBy}
	if out.Absent, _, err = caller.VisibleIn(r.Context(), parts.Absent); err != nil {
		return err
	}
	lists := make([]ViolationList, len(parts.Bodies))
	for i, body := range parts.Bodies {
		if err := json.Unmarshal(body, &lists[i]); err != nil {
			return fmt.Errorf("violations: a part: %w", err)
		}
		out.Synced = out.Synced && lists[i].Synced
		out.Truncated = out.Truncated || lists[i].Truncated
		out.Withheld, out.Failed, out.Absent = append(out.Withheld, lists[i].Withheld...), append(out.Failed, lists[i].Failed...), append(out.Absent, lists[i].Absent...)
	}
	out.Synced = out.Synced && len(parts.Absent) == 0 && !parts.Partial
	out.ResourceVersion = queryapi.VersionOf(parts.Revision)
	for _, list := range []*[]string{&out.Withheld, &out.Failed, &out.Absent} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if params.groupBy != nil {
		out.mergeGroups(lists)
	} else {
		state := q.Loop.State()
		if state == nil {
			return errNotEvaluated
		}
		params.part = true
		out.mergeItems(params, lists, params.orderDigest(params.inOrder(state), readScope{state: state}))
	}
	return writeJSON(w, out)
}

// mergeItems makes a page of the pages of parts. What comes after the end of one of these that goes on is left for the next
// page: another part has more before it, perhaps.
func (l *ViolationList) mergeItems(params *params, lists []ViolationList, order string) {
	var end *Finding
	for i := range lists {
		items := lists[i].Items
		if lists[i].Continue == "" || len(items) == 0 {
			continue
		}
		if last := &items[len(items)-1]; end == nil || params.compare(last, end) < 0 {
			end = last
		}
	}
	for _, list := range lists {
		for i := range list.Items {
			if end == nil || params.compare(&list.Items[i], end) <= 0 {
				l.Items = append(l.Items, list.Items[i])
			}
		}
	}
	slices.SortStableFunc(l.Items, func(a, b Finding) int { return params.compare(&a, &b) })
	l.Items = slices.CompactFunc(l.Items, func(a, b Finding) bool { return params.compare(&a, &b) == 0 })
	if more := len(l.Items) > params.limit; more || end != nil {
		l.Items = l.Items[:min(len(l.Items), params.limit)]
		last := l.Items[len(l.Items)-1]
		l.Continue = cursor{last.Policy, last.Subject, order}.encode()
	}
}

// compare compares two findings by their places in a list.
func (a *params) compare(x, y *Finding) int {
	rank := 0
	if a.orderBy == orderSeverity {
		rank = cmp.Compare(slices.Index(severities, y.Severity), slices.Index(severities, x.Severity))
	}
	return cmp.Or(rank, strings.Compare(x.Policy, y.Policy), strings.Compare(x.Subject.Member, y.Subject.Member), x.Subject.subject().Compare(y.Subject.subject()))
}

// mergeGroups adds the groups of parts.
func (l *ViolationList) mergeGroups(lists []ViolationList) {
	all := &listing{groups: map[string]*FindingGroup{}}
	for _, list := range lists {
		for _, g := range list.Groups {
			key := strings.Join(g.Key, "\x00")
			sum := all.groups[key]
			if sum == nil {
				sum = &FindingGroup{Key: g.Key}
				all.groups[key] = sum
			}
			sum.Subjects, sum.Violations, sum.Exempt = sum.Subjects+g.Subjects, sum.Violations+g.Violations, sum.Exempt+g.Exempt
			sum.Unknown, sum.Errors = sum.Unknown+g.Unknown, sum.Errors+g.Errors
		}
	}
	if l.Groups = all.sortedGroups(); len(l.Groups) > maxGroups {
		l.Groups, l.Truncated = l.Groups[:maxGroups], true
	}
}
