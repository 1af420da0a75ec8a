package clusterinformers

import (
	"context"

	"federator.dev/federator/pkg/aggregate"
)

// Spec is one member as a source describes it.
type Spec struct {
	Name string // <namespace>/<name> of its Cluster
	// UID is that of its Cluster; another UID under the same name is another
	// member. Empty while the source does not know it.
	UID    string
	Labels []aggregate.Label

	// Kubeconfig is how to reach the member, as found: it is judged before
	// use. Empty while there is none; Refused then says why.
	Kubeconfig []byte
	// Trusted is set for credentials that federator's operator gave it
	// directly, such as its own service account's: loopback addresses are
	// allowed for it. Everything else of law 9 holds all the same.
	Trusted bool
	// Own is set for contexts of a person's own kubeconfig, and never for a hub's
	// Secret: its exec plugin runs, and insecure-skip-tls-verify is honoured.
	Own bool

	// Refused says why the member is not followed although it is known. A
	// member that was followed keeps its objects, Stale.
	Refused *Refusal
	// Uninitialized is set while the control plane has never been up: such a
	// cluster is known, and does not belong to the fleet yet.
	Uninitialized bool
	// ReadOnly members are never written to.
	ReadOnly bool
	// Paused members are read as all others, and not written to meanwhile.
	Paused bool
}

// counts reports whether the member belongs to the fleet. One that nobody has
// reached, or told from others, does: what it has is not known.
func (s Spec) counts() bool {
	return !s.Uninitialized && (s.Refused == nil || s.Refused.Reason != NotInitialized)
}

// is reports whether two specs of one name are of one member. One that is not
// identified may be any.
func (s Spec) is(other Spec) bool {
	return s.UID == other.UID || s.UID == "" || other.UID == ""
}

// Refusal is a reason for not following a member: a word for programs and a
// sentence for people.
type Refusal struct {
	Reason  Reason
	Message string
}

// Error returns reason and message.
func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Message }

// Reason is why a member is not, or not fully, followed.
type Reason string

// Reasons that sources give.
const (
	Deleting       Reason = "Deleting"       // the Cluster is being deleted
	NotInitialized Reason = "NotInitialized" // the control plane has not been initialised
	NoKubeconfig   Reason = "NoKubeconfig"   // there is no kubeconfig Secret, or it has no value
)

// Reasons that judging a kubeconfig gives (law 9).
const (
	InvalidKubeconfig Reason = "InvalidKubeconfig" // it does not parse, or lacks what it must name
	ExecPlugin        Reason = "ExecPlugin"
	AuthProvider      Reason = "AuthProvider"
	FilePath          Reason = "FilePath" // certificate, key or token by path
	ProxyURL          Reason = "ProxyURL"
	Impersonation     Reason = "Impersonation"
	PlainHTTP         Reason = "PlainHTTP"
	NoCA              Reason = "NoCA"
	InsecureTLS       Reason = "InsecureTLS"
	ForbiddenAddress  Reason = "ForbiddenAddress" // loopback, link-local or metadata, found at dial time
	Redirect          Reason = "Redirect"         // the server answered with a redirect
)

// Reasons that contact with the member gives.
const (
	Connecting   Reason = "Connecting"
	Unreachable  Reason = "Unreachable"
	Unauthorized Reason = "Unauthorized" // the member does not accept the credentials
	// ServerError is of a server that answers, and not as an API server does.
	ServerError Reason = "ServerError"
	// UntrustedServer is of one whose certificate is not of the kubeconfig's authority.
	UntrustedServer Reason = "UntrustedServer"
	// ExecPluginFailed is of an exec plugin of a person's own context that gave no
	// credentials.
	ExecPluginFailed Reason = "ExecPluginFailed"
	Panicked         Reason = "Panicked" // a goroutine of this member failed; it was started anew
)

// Paused is the reason of a member that is Connected and not written to: its
// Cluster is paused, which stops controllers and not readers.
const Paused Reason = "Paused"

// passes reports whether a reason may pass without anybody changing anything.
func (r Reason) passes() bool {
	switch r {
	case Connecting, Unreachable, Unauthorized, ServerError, UntrustedServer, ExecPluginFailed, Panicked:
		return true
	}
	return false
}

// Source finds members. Run calls set with the whole current view, first as
// soon as it is known and then whenever it changes, from one goroutine at a
// time, until ctx is done; it returns when all it started is gone. set does
// not block. An error ends the source: trouble that may pass is retried inside.
type Source interface {
	Run(ctx context.Context, set func([]Spec)) error
}
