package policyquery

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

// Violations answers /query/v1/violations: what policies have found on what the caller
// may list. A policy that looks at more of the fleet than its subject tells of that
// in its violations, and by their being there: its violations are for those who may
// read all that it looks at; others are told that it is Withheld. It is safe for
// concurrent use.
type Violations struct {
	Kinds Kinds
	Loop  *enforce.Loop // of the policies

	// WriteTimeout is how long a client of a watch may take for a block of bytes; 0 means
	// 30 s. Bookmark is the time between bookmarks where nothing happens; 0 means
	// 1 minute.
	WriteTimeout, BookmarkInterval time.Duration
}

// Serve implements queryapi.Question.
func (q Violations) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	asked, err := parseParams(r.URL.Query())
	if err != nil {
		return err
	}
	point := q.Loop.Point()
	if point == nil {
		return errNotEvaluated
	}
	state := point.State()
	reader, err := newCallerReader(r.Context(), caller, q.Kinds, state.Snapshot)
	if err != nil {
		return err
	}
	s := &listing{params: asked, readScope: readScope{state, reader}, readable: map[string]bool{}, result: &ViolationList{
		APIVersion: "query.federator.dev/v1", Kind: "Violations", Revision: state.Snapshot.Revision(), Synced: state.Synced,
	}}
	if err := s.run(r.Context()); err != nil {
		return err
	}
	s.result.ResourceVersion = joinVersion(point.Version(), s.hiddenDigest(asked, s.readable))
	if reader.err != nil { // what was denied for want of an answer is no answer
		return reader.err
	}
	body, err := json.Marshal(s.result)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the caller may be gone
	return nil
}

var errNotEvaluated = apierrors.NewServiceUnavailable("no policy has been evaluated yet")

// ViolationList is the answer of Violations.
type ViolationList struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Revision   aggregate.Revision `json:"revision"`
	// ResourceVersion is where a watch goes on from the answer; of its first page, where
	// there are several.
	ResourceVersion string         `json:"resourceVersion"`
	Synced          bool           `json:"synced"` // false: not all that policies read has been seen yet
	Items           []Finding      `json:"items,omitempty"`
	Continue        string         `json:"continue,omitempty"` // more items: the parameter of the next page
	GroupBy         []string       `json:"groupBy,omitempty"`
	Groups          []FindingGroup `json:"groups,omitempty"`
	Truncated       bool           `json:"truncated,omitempty"` // there are more groups than are answered with
	// Withheld are policies that look at more of the fleet than the caller may read.
	// It follows from his grants, never from what they have found.
	Withheld []string `json:"withheld,omitempty"`
	// Failed are policies of which there are no verdicts, or not all.
	Failed []string `json:"failed,omitempty"`
}

// OpenAPIModelName is the name of the component in OpenAPI.
func (ViolationList) OpenAPIModelName() string { return "Found" }

// Finding is what one policy has found on one subject.
type Finding struct {
	Policy     string             `json:"policy"`
	Package    string             `json:"package"`
	Severity   string             `json:"severity"`
	Subject    Subject            `json:"subject"`
	State      string             `json:"state"` // Known, Unknown or Error
	Violations []policy.Violation `json:"violations,omitempty"`
	Gaps       []policy.Gap       `json:"gaps,omitempty"`    // why it is Unknown
	Message    string             `json:"message,omitempty"` // why it is Error
	Revision   aggregate.Revision `json:"revision"`          // when it was last found to differ
}

func findingOf(b policy.Binding, severity string, v *policy.Verdict) Finding {
	return Finding{
		Policy: b.Name, Package: b.Package, Severity: severity, Subject: subjectOf(v.Subject), State: v.State.String(),
		Violations: v.Violations, Gaps: v.Gaps, Message: v.Message, Revision: v.Revision,
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

// FindingGroup counts findings of one key: a value for each of GroupBy.
type FindingGroup struct {
	Key        []string `json:"key"`
	Subjects   int      `json:"subjects"`
	Violations int      `json:"violations"` // exempt ones not included
	Exempt     int      `json:"exempt"`
}

// readScope is what somebody may read of a state.
type readScope struct {
	state  *policy.State
	reader *callerReader
}

// listing is one question being answered.
type listing struct {
	*params
	readScope

	result   *ViolationList
	readable map[string]bool // bindings whose findings may be read
	groups   map[string]*FindingGroup
	examined int
	bytes    int // of the page, about
}

// maxPage is how many bytes the findings of a page take, about, unless a single one
// takes more.
const maxPage = 8 << 20

// run looks at the bindings in order.
func (s *listing) run(ctx context.Context) error {
	for b, severity := range s.state.Bindings() {
		if !s.matchesBinding(boundBinding{b, severity}) {
			continue
		}
		s.readable[b.Name] = s.mayRead(b.Name)
		if !s.readable[b.Name] {
			s.result.Withheld = append(s.result.Withheld, b.Name)
			continue
		}
		if s.failed(b.Name) {
			s.result.Failed = append(s.result.Failed, b.Name)
		}
		if s.after != nil && b.Name < s.after.Policy || s.pageFull() {
			continue
		}
		if err := s.addFindings(ctx, b, severity); err != nil {
			return err
		}
	}
	s.result.GroupBy = s.groupBy
	s.result.Groups = s.sortedGroups()
	return nil
}

// mayRead reports whether the caller may read all that a binding looks at beside its
// subjects.
func (s readScope) mayRead(binding string) bool {
	scope := s.state.ReadScope(binding)
	kinds := scope.Kinds
	if scope.AnyKind {
		kinds = slices.Collect(s.state.Snapshot.Kinds())
	}
	for _, member := range scope.Members {
		if !s.reader.Member(member) {
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

// nothingHeld reports whether there is nothing to be read of a kind: no member serves it,
// which discovery tells everybody, and none of it is held from when one did.
func (s readScope) nothingHeld(member string, kind aggregate.Kind) bool {
	if s.reader.kinds[kind] {
		return false
	}
	scope, _ := s.state.Snapshot.Scope(member, kind)
	return scope.Objects == 0
}

// mayReadSubject reports whether the caller may read a subject. Keys of views belong to who
// may read all that feeds them.
func (s readScope) mayReadSubject(subject policy.Subject) bool {
	switch ref := subject.Ref; {
	case ref.Member == "":
		return true
	case ref.Kind == "":
		return s.reader.Member(ref.Member)
	default:
		return s.reader.Member(ref.Member) && s.reader.grant(s.state.Snapshot, ref.Member, ref.Kind).Allows(ref.Namespace)
	}
}

// membersOf returns the members that a binding's findings are looked for in.
func (s readScope) membersOf(binding string) []string {
	if p := s.state.Package(binding); p != nil && p.SubjectView != "" {
		return []string{""} // keys are of no member
	}
	return s.reader.visible
}

// failed reports whether a binding has no verdicts, or not all.
func (s readScope) failed(binding string) bool {
	h, _ := s.state.Health(binding)
	return len(h.Quarantines) > 0 || h.Views != ""
}

// pageFull reports whether the page has ended.
func (s *listing) pageFull() bool { return s.result.Continue != "" }

// addFindings takes in what one binding has found, member by member: what is of members
// that the caller may not see is not looked at.
func (s *listing) addFindings(ctx context.Context, b policy.Binding, severity string) error {
	cursor := s.after
	if cursor != nil && cursor.Policy != b.Name {
		cursor = nil
	}
	for _, member := range s.membersOf(b.Name) {
		if !matches(s.members, member) || cursor != nil && member < cursor.Subject.Member {
			continue
		}
		found := s.state.Findings(b.Name, member)
		if cursor != nil && member == cursor.Subject.Member {
			found = s.state.FindingsAfter(b.Name, cursor.Subject.subject())
		}
		for v := range found {
			if s.examined++; s.examined%1024 == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !s.matchesVerdict(&v) || !s.mayReadSubject(v.Subject) {
				continue
			}
			if s.groupBy != nil {
				s.addToGroup(b, severity, &v)
				continue
			}
			for i := range v.Violations {
				s.bytes += v.Violations[i].Size()
			}
			if n := len(s.result.Items); n == s.limit || n > 0 && s.bytes > maxPage {
				last := s.result.Items[n-1]
				s.result.Continue = encodeCursor(last.Policy, last.Subject)
				return nil
			}
			s.result.Items = append(s.result.Items, findingOf(b, severity, &v))
		}
	}
	return nil
}
