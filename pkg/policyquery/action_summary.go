package policyquery

import (
	"cmp"
	"net/http"
	"strings"
	"time"
	"unique"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

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
