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
	Cluster ClusterFacts `json:"cluster"`
	// Serves are the kinds that its API server is known to serve, collected or not; null where that is not known at
	// the moment. Silent are the groups of which it is not known.
	Serves []aggregate.Kind `json:"serves"`
	Silent []string         `json:"silent,omitempty"`
	// Via are the installations of federator between this one and the member, the nearest first.
	Via []string `json:"via,omitempty"`
}

// ClusterFacts is what is known of what describes a member, besides its labels.
type ClusterFacts struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Paused      bool              `json:"paused,omitempty"`
	Conditions  []ConditionFacts  `json:"conditions,omitempty"`
	Class       string            `json:"class,omitempty"`   // of its topology
	Version     string            `json:"version,omitempty"` // of its topology
}

// ConditionFacts is one of its conditions.
type ConditionFacts struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Since   string `json:"since,omitempty"`
}

func clusterFacts(c aggregate.Cluster) ClusterFacts {
	f := ClusterFacts{Paused: c.Paused, Class: c.Class, Version: c.Version}
	for _, a := range c.Annotations {
		if f.Annotations == nil {
			f.Annotations = make(map[string]string, len(c.Annotations))
		}
		f.Annotations[a.Key] = a.Value
	}
	for _, condition := range c.Conditions {
		f.Conditions = append(f.Conditions, ConditionFacts(condition))
	}
	return f
}

// factsOf returns the facts of a member.
func (q *memberQuery) factsOf(name string, all *authz.Grants) *MemberFacts {
	if !q.facts {
		return nil
	}
	m, _ := q.snapshot.Member(name)
	cluster := m.Cluster
	if !all.Member(name).All {
		cluster = m.Cluster.Plain()
	}
	return &MemberFacts{UID: m.UID, Cluster: clusterFacts(cluster), Serves: m.Serves, Silent: m.Silent, Via: q.options.Via(name)}
}
