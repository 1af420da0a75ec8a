// Package connection has the state of the connection to a member, the reason for it, and
// the refusal of a kubeconfig or an address. It also decides which addresses may be dialled.
package connection

import (
	"errors"
	"fmt"
	"strings"

	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// AsRefusal returns the refusal that an error of a request wraps, or nil.
func AsRefusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}

// Refuse returns a refusal with a bounded message.
func Refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: message.Clip(fmt.Sprintf(format, args...))}
}

// Refusal is why a member is not connected: a word for programs and a sentence
// for people.
type Refusal struct {
	Reason  Reason
	Message string
}

// Error returns reason and message.
func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Message }

// Reason is why a member is not connected, or not written to.
type Reason string

// Reasons that sources give.
const (
	Deleting       Reason = "Deleting"       // the Cluster, or what else describes the member, is being deleted
	NotInitialized Reason = "NotInitialized" // the control plane is not initialized
	NotAccepted    Reason = "NotAccepted"    // the hub does not accept the ManagedCluster
	NoKubeconfig   Reason = "NoKubeconfig"   // there is no kubeconfig Secret, or it has no value
	UnknownMembers Reason = "UnknownMembers" // a federator, of which it is not known which members it has
	Loop           Reason = "Loop"           // a federator that is this one
)

// Reasons for refusing a kubeconfig: the rules for kubeconfigs of a hub.
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

// NoAgents is of a member that is reached by its agent, where this federator listens for none.
const NoAgents Reason = "NoAgents"

// Reasons that requests to the member give.
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
	Panicked         Reason = "Panicked" // a goroutine of this member failed; it was restarted
)

// Transient reports whether a reason may pass without anybody changing anything.
func (r Reason) Transient() bool {
	switch r {
	case UnknownMembers, Connecting, Unreachable, Unauthorized, ServerError, UntrustedServer, ExecPluginFailed, Panicked:
		return true
	}
	return false
}

// State is whether a member is connected.
type State string

// The states of a connection.
const (
	Connected    State = "Connected"
	Disconnected State = "Disconnected" // out of reach: objects are kept, Stale
	Refused      State = "Refused"      // known, and not connected to
)

// ParseState returns the state of a name, in any case.
func ParseState(name string) (State, error) {
	for _, s := range []State{Connected, Disconnected, Refused} {
		if strings.EqualFold(string(s), name) {
			return s, nil
		}
	}
	return "", fmt.Errorf("%q is not Connected, Disconnected or Refused", name)
}
