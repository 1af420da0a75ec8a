package clusterinformers

import (
	"context"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// Spec is one member as a source describes it.
type Spec struct {
	Name string // <namespace>/<name> of its Cluster
	// UID is that of its Cluster; another UID under the same name is another
	// member. Empty while the source does not know it.
	UID    string
	Labels []aggregate.Label

	// Kubeconfig is how to reach the member, as found: it is checked before
	// use. Empty while there is none; Refused then says why.
	Kubeconfig []byte
	// Credentials names where Kubeconfig is from, as "Secret fleet/eu-1-kubeconfig"; it may be
	// empty.
	Credentials string
	// Write is with which other credentials the member is written to; nil: with Kubeconfig.
	Write *WriteAccess
	// Trusted is set for credentials that federator's operator gave it
	// directly, such as its own service account's: loopback addresses are
	// allowed for it. All other rules for kubeconfigs of a hub apply.
	Trusted bool
	// Own is set for contexts of a person's own kubeconfig, and never for a hub's
	// Secret: its exec plugin runs, and insecure-skip-tls-verify is honoured.
	Own bool

	// Refused says why the member is not connected to although it is known. A
	// member that was connected keeps its objects, Stale.
	Refused *connection.Refusal
	// Uninitialized is set while the control plane has never been up: such a
	// cluster is known, and does not belong to the fleet yet.
	Uninitialized bool
	// ReadOnly members are never written to.
	ReadOnly bool
	// Hold is why the member is not written to at the moment, although it is read as all
	// others are.
	Hold connection.Hold
}

// WriteAccess is with which credentials a member is written to.
type WriteAccess struct {
	Credentials string // as Spec.Credentials
	// Kubeconfig is as found: it is checked as that of the member is. One that is refused
	// prevents writes.
	Kubeconfig []byte
}

// inFleet reports whether the member belongs to the fleet. One that has not been
// reached or identified does: what it has is not known.
func (s Spec) inFleet() bool {
	return !s.Uninitialized && (s.Refused == nil || s.Refused.Reason != connection.NotInitialized)
}

// sameMember reports whether two specs of one name are of one member. One that is not
// identified may be any.
func (s Spec) sameMember(other Spec) bool {
	return s.UID == other.UID || s.UID == "" || other.UID == ""
}

// Source finds members. Run calls set with the whole current view, first as
// soon as it is known and then whenever it changes, from one goroutine at a
// time, until ctx is done; it returns when all it started is gone. set does
// not block. An error ends the source: a transient failure is retried inside.
type Source interface {
	Run(ctx context.Context, set func([]Spec)) error
}
