package queries

import (
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// MemberFacts is what another federator needs to know of a member in order to read it here.
type MemberFacts struct {
	UID string `json:"uid,omitempty"` // of what describes it on the hub; "" where nobody knows
	// Cluster is what policies may read of what describes it. Annotations, and messages of conditions, are there for
	// callers who may list everything in the member.
	Cluster aggregate.Cluster `json:"cluster"`
	// Serves are the kinds that its API server is known to serve, collected or not; null where that is not known at
	// the moment. Silent are the groups of which it is not known.
	Serves []aggregate.Kind `json:"serves"`
	Silent []string         `json:"silent,omitempty"`
	// Via are the installations of federator between this one and the member, the nearest first.
	Via []string `json:"via,omitempty"`
}

// factsOf returns the facts of a member.
func (q *memberQuery) factsOf(name string, all *authz.Grants) *MemberFacts {
	if !q.facts {
		return nil
	}
	m, _ := q.snapshot.Member(name)
	f := &MemberFacts{UID: m.UID, Cluster: m.Cluster, Serves: m.Serves, Silent: m.Silent, Via: q.options.Via(name)}
	if !all.Member(name).All {
		f.Cluster = m.Cluster.Plain()
	}
	return f
}
