package policyquery

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// actionGrants say of which Actions a caller may read the targets. It is of one request.
type actionGrants struct {
	reader   *callerReader
	snapshot *aggregate.Snapshot
	known    map[actionScope]queryapi.MemberGrant
}

// actionScope is a kind in a member, which may be another than now has its name.
type actionScope struct {
	member, uid string
	kind        aggregate.Kind
}

func newActionGrants(reader *callerReader, snapshot *aggregate.Snapshot) *actionGrants {
	return &actionGrants{reader, snapshot, map[actionScope]queryapi.MemberGrant{}}
}

// mayRead reports whether the caller may read the target of an Action. Targets in members that there are
// no more nobody may.
func (g *actionGrants) mayRead(a *ActionSummary) bool {
	scope := actionScope{a.Member, a.memberUID, a.Target.Kind}
	grant, ok := g.known[scope]
	if !ok {
		member, exists := g.snapshot.Member(a.Member)
		if exists && (a.memberUID == "" || a.memberUID == member.UID) && g.reader.MayReadMember(a.Member) {
			grant = g.reader.grant(g.snapshot, a.Member, a.Target.Kind)
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
