package selection

import (
	"fmt"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// NotSynced says that a response is not fresh for a kind of a member.
type NotSynced struct {
	Member string          `json:"member"` // <namespace>/<name>
	Kind   aggregate.Kind  `json:"kind"`
	State  aggregate.State `json:"state"`
	// Reason is what the state means, in federator's words: errors of members may contain
	// addresses, names and credentials of others.
	Reason string `json:"reason,omitempty"`
	// Age is the time since the last contact with the member about the kind, rounded to
	// seconds and formatted as in Go ("1m30s"); "" without any.
	Age string `json:"age,omitempty"`
}

// reasons are what states mean. The causes are shown to operators only, by federator members
// and the log.
var reasons = map[aggregate.State]string{
	aggregate.Unknown:    "it is not known which objects the member has",
	aggregate.Forbidden:  "the member forbids federator to read it",
	aggregate.Syncing:    "it is being listed for the first time",
	aggregate.Stale:      "the member is unreachable, or is being relisted",
	aggregate.OverBudget: "it exceeds the member's memory budget",
}

// reasonFor returns the reason that is shown to callers. That of Partial is federator's own
// configuration.
func reasonFor(s aggregate.Status) string {
	if s.State == aggregate.Partial {
		return s.Reason
	}
	return reasons[s.State]
}

// Freshness returns, by member, the scopes of a kind that are neither Synced nor known to be
// empty, among members; nil is all. lastContact returns the last contact with a member about a
// kind, the zero time when there was none; nil is none.
func Freshness(s *aggregate.Snapshot, kind aggregate.Kind, members []string, lastContact func(member string, kind aggregate.Kind) time.Time, now time.Time) []NotSynced {
	var out []NotSynced
	add := func(member string) {
		info, _ := s.Scope(member, kind)
		if info.Status.State.Complete() {
			return
		}
		n := NotSynced{Member: member, Kind: kind, State: info.Status.State, Reason: reasonFor(info.Status)}
		if lastContact != nil {
			if at := lastContact(member, kind); !at.IsZero() {
				n.Age = max(0, now.Sub(at)).Round(time.Second).String()
			}
		}
		out = append(out, n)
	}
	if members == nil {
		for m := range s.Members() {
			add(m.Name)
		}
		return out
	}
	for _, name := range members {
		if _, ok := s.Member(name); ok {
			add(name)
		}
	}
	return out
}

// maxInWarning bounds the members, and the reasons, that a warning names.
const maxInWarning = 3

// Warning returns a sentence on what is not fresh, "" when everything is. It is for the
// Warning header of RFC 7234, which kubectl prints. Members that are partial for one reason,
// which is mostly the configuration, are grouped.
func Warning(out []NotSynced) string {
	if len(out) == 0 {
		return ""
	}
	var stale, reasons []string
	partial := map[string][]string{} // reason to members
	for _, n := range out {
		if n.State == aggregate.Partial {
			if partial[n.Reason] == nil {
				reasons = append(reasons, n.Reason)
			}
			partial[n.Reason] = append(partial[n.Reason], n.Member)
			continue
		}
		is := n.Member + " is " + n.State.String()
		if n.Age != "" {
			is += " (last contact " + n.Age + " ago)"
		}
		stale = append(stale, is)
	}
	var parts []string
	if len(stale) > 0 {
		parts = append(parts, fmt.Sprintf("%s may be incomplete or old: %s", out[0].Kind, joinFirst(stale)))
	}
	if len(reasons) > 0 {
		what := "partially stored: "
		if len(stale) == 0 {
			what = string(out[0].Kind) + " is " + what
		}
		parts = append(parts, what+partialReasons(reasons, partial))
	}
	return strings.Join(parts, "; ")
}

// partialReasons formats reasons, each with its members.
func partialReasons(reasons []string, members map[string][]string) string {
	var parts []string
	for _, reason := range reasons[:min(len(reasons), maxInWarning)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", reason, joinFirst(members[reason])))
	}
	more := 0
	for _, reason := range reasons[len(parts):] {
		more += len(members[reason])
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more members", more))
	}
	return strings.Join(parts, "; ")
}

// joinFirst joins the first names, and appends how many more there are.
func joinFirst(names []string) string {
	text := strings.Join(names[:min(len(names), maxInWarning)], ", ")
	if more := len(names) - maxInWarning; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// NotSyncedHeader is the name of the response header that Header makes.
const NotSyncedHeader = "Federator-Not-Synced"

// maxHeader bounds the header's value in bytes; proxies refuse long ones.
const maxHeader = 4 << 10

// Header formats what is not fresh as the value of a response header, "" when everything is:
// comma-separated elements, each a member, its state and, if there ever was contact, its
// age: "fleet/eu-1;state=Stale;age=1m30s". If it becomes too long, the last element is the
// number of members that are omitted: "more=17".
func Header(out []NotSynced) string {
	var b strings.Builder
	for i, n := range out {
		element := n.Member + ";state=" + n.State.String()
		if n.Age != "" {
			element += ";age=" + n.Age
		}
		if b.Len()+len(element) > maxHeader {
			fmt.Fprintf(&b, ", more=%d", len(out)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(element)
	}
	return b.String()
}
