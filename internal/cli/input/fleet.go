package input

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/offline"
	"federator.dev/federator/pkg/policy"
)

// Fleet is a fleet at one revision.
type Fleet struct {
	*aggregate.Snapshot
	SourceRevision aggregate.Revision                       // of the index that it was read from
	AsOf           time.Time                                // as of which it is judged: when it was read, unless the flags say otherwise
	members        map[string]clusterinformers.MemberStatus // by name; of clusters only
	Manifests      *offline.Fleet                           // that the objects are of; nil: of none
	AsGiven        bool                                     // they are judged as "gator test" does
}

// Kinds are kinds that will be read.
type Kinds struct {
	Refs []policy.KindRef // with a version if that matters
	Open policy.KindSet   // others that a wildcard names
}

// names are the kinds without their versions, sorted.
func (w Kinds) names() []aggregate.Kind {
	var out []aggregate.Kind
	for _, k := range w.Refs {
		out = append(out, k.Kind)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// rules select what is required; nil is everything.
func (w Kinds) rules() (rules []clusterinformers.KindRule) {
	if w.Open.All || slices.Contains(w.Open.Groups, "") { // no rule is of the core group
		return nil
	}
	for _, kind := range w.names() {
		rules = append(rules, clusterinformers.KindRule{Kind: string(kind)})
	}
	for _, group := range w.Open.Groups {
		rules = append(rules, clusterinformers.KindRule{Kind: "*." + group})
	}
	return rules
}

// Everything is all kinds.
func Everything() Kinds { return Kinds{Open: policy.KindSet{All: true}} }

// anyReached reports whether any member has ever been reached.
func (o *Fleet) anyReached() bool {
	for m := range o.Members() {
		if m.Version != "" {
			return true
		}
	}
	return false
}

// Reason says why a scope has its state. For a member that was never reached it is the
// member's.
func (o *Fleet) Reason(member string, kind aggregate.Kind) string {
	if info, there := o.Scope(member, kind); there {
		return info.Status.Reason
	}
	if m, ok := o.members[member]; ok && m.State != connection.Connected {
		return console.WithReason(string(m.Reason), m.Message)
	}
	return ""
}

// errUnreachable says why no member was reached.
func (o *Fleet) errUnreachable() error {
	text := "no member was reached"
	for _, name := range slices.Sorted(maps.Keys(o.members)) {
		m := o.members[name]
		text += fmt.Sprintf("\nmember %s is %s", name, console.WithReason(string(m.State), cmp.Or(m.Message, string(m.Reason))))
	}
	return errors.New(text)
}

// LastContact returns when a scope last heard from its member, the zero time if that is not
// known.
func (o *Fleet) LastContact(member string, kind aggregate.Kind) time.Time {
	for _, s := range o.members[member].Details {
		if s.Kind == kind && s.LastContact != nil {
			return *s.LastContact
		}
	}
	return time.Time{}
}

// maxIncomplete is how many scopes of a member are named.
const maxIncomplete = 3

// WarnIncomplete prints which members are incomplete in the required kinds, and why.
func (o *Fleet) WarnIncomplete(w io.Writer, required Kinds) error {
	names := required.names()
	for m := range o.Members() {
		scopes := map[aggregate.Kind]aggregate.Status{}
		for _, kind := range names {
			info, _ := o.Scope(m.Name, kind)
			scopes[kind] = aggregate.Status{State: info.Status.State, Reason: o.Reason(m.Name, kind)}
		}
		for s := range o.Scopes(m.Name) {
			if required.Open.Has(s.Kind) {
				scopes[s.Kind] = s.Status
			}
		}
		if text := o.incomplete(m.Name, scopes); text != "" {
			if _, err := fmt.Fprintf(w, "member %s: %s\n", m.Name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// incomplete lists the scopes of a member that are incomplete; "" for none.
func (o *Fleet) incomplete(member string, scopes map[aggregate.Kind]aggregate.Status) string {
	var list []string
	for kind, status := range scopes {
		if !status.State.Complete() {
			list = append(list, console.WithReason(fmt.Sprintf("%s is %s", kind, status.State), status.Reason))
		}
	}
	slices.Sort(list)
	if n := len(list); n > maxIncomplete {
		list = append(list[:maxIncomplete], fmt.Sprintf("and %d more", n-maxIncomplete))
	}
	if m, ok := o.members[member]; ok && m.State != connection.Connected && (len(list) > 0 || len(scopes) == 0) {
		list = append([]string{console.WithReason(string(m.State), cmp.Or(m.Message, m.LastError))}, list...)
	}
	return console.Printable(strings.Join(list, ", "))
}
