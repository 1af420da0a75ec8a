// Package federation is what a federator that reads another one says to it, and what that answers,
// beyond the query API that both know.
//
// A reader names itself in each request (ReaderHeader). To a list or watch below /members it then gets all
// that there is, or an error: what it may read only some of is 403, and a watch ends with 403, or with 404 where
// the member has left, before anything of it would look deleted. The answer says in which state the scope is
// (ScopeHeader), and the bookmarks of a watch say it again whenever it is another (ScopeAnnotation): a state
// that takes something away comes before the events that it is about, one that gives something after them.
//
// All are functions and constants; they may be used from any goroutine.
package federation

import (
	"errors"
	"strconv"
	"strings"

	"federator.dev/federator/api"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
)

const (
	// ReaderHeader is set in requests of a federator, to the ID of its installation.
	ReaderHeader = "Federator-Reader"
	// ScopeHeader is the state of a scope in answers to such requests, as FormatStatus writes it.
	ScopeHeader = "Federator-Scope"
	// ScopeAnnotation is the same on the bookmarks of a watch.
	ScopeAnnotation = api.GroupName + "/scope"
	// MaxDepth is how many federators there may be between one and a cluster.
	MaxDepth = 4

	maxReason = 512 // bytes of a reason
	maxID     = 128 // bytes of an ID
)

// ErrStatus is what is wrong with a text that is no state of a scope.
var ErrStatus = errors.New("it is not the state of a scope")

// FormatStatus writes the state of a scope, and a reason where there is one, in ASCII.
func FormatStatus(s aggregate.Status) string {
	if s.Reason == "" {
		return s.State.String()
	}
	return s.State.String() + "; " + strconv.QuoteToASCII(clip.Line(s.Reason, maxReason))
}

// ParseStatus reads what FormatStatus has written.
func ParseStatus(text string) (s aggregate.Status, err error) {
	state, reason, more := strings.Cut(text, "; ")
	if s.State.UnmarshalText([]byte(state)) != nil {
		return aggregate.Status{}, ErrStatus
	}
	if more {
		if s.Reason, err = strconv.Unquote(reason); err != nil || len(s.Reason) > 2*maxReason {
			return aggregate.Status{}, ErrStatus
		}
	}
	return s, nil
}

// ValidID reports whether a text may be the ID of an installation.
func ValidID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c >= 0x7f || c == ',' || c == '"' {
			return false
		}
	}
	return true
}
