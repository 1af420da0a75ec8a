package selection

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/route"
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
	// seconds and formatted as in Go ("1m30s"); "" without any, and beyond MaxListed.
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

// ReasonFor returns the reason that is shown to callers. That of Partial is federator's own
// configuration.
func ReasonFor(s aggregate.Status) string {
	if s.State == aggregate.Partial {
		return s.Reason
	}
	return reasons[s.State]
}

// NewNotSynced describes a scope that is not complete, as Freshness does.
func NewNotSynced(info aggregate.ScopeInfo, lastContact func(member string, kind aggregate.Kind) time.Time, now time.Time) NotSynced {
	n := NotSynced{Member: info.Member, Kind: info.Kind, State: info.Status.State, Reason: ReasonFor(info.Status)}
	if lastContact != nil {
		if at := lastContact(info.Member, info.Kind); !at.IsZero() {
			n.Age = max(0, now.Sub(at)).Round(time.Second).String()
		}
	}
	return n
}

// MaxListed bounds the members that a response lists as not fresh: it must not grow with the
// fleet. The others are counted.
const MaxListed = 500

// Freshness returns, by member, the scopes of a kind that are neither Synced nor known to be
// empty, among members; nil is all. lastContact returns the last contact with a member about a
// kind, the zero time when there was none; nil is none.
func Freshness(s *aggregate.Snapshot, kind aggregate.Kind, members []string, lastContact func(member string, kind aggregate.Kind) time.Time, now time.Time) []NotSynced {
	var out []NotSynced
	add := func(member string) {
		info, _ := s.Scope(member, kind)
		switch {
		case info.Status.State.Complete():
		case len(out) < MaxListed:
			out = append(out, NewNotSynced(info, lastContact, now))
		default:
			out = append(out, NewNotSynced(info, nil, now))
		}
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

// Listed returns the first of what is not fresh, and the number of the others.
func Listed(out []NotSynced) (first []NotSynced, more int) {
	n := min(len(out), MaxListed)
	return out[:n:n], len(out) - n
}

// Bounds of a warning: the members, and the reasons, that it names; the bytes of a reason
// and of all.
const (
	maxInWarning     = 3
	maxReasonWarning = 256
	maxWarning       = 2 << 10
)

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
	return clip.Line(strings.Join(parts, "; "), maxWarning)
}

// partialReasons formats reasons, each with its members.
func partialReasons(reasons []string, members map[string][]string) string {
	var parts []string
	for _, reason := range reasons[:min(len(reasons), maxInWarning)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", clip.Text(reason, maxReasonWarning), joinFirst(members[reason])))
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

// Bounds of the header: clients and proxies refuse responses whose headers are long, many
// above 8 KiB in all.
const (
	maxInHeader = 10
	maxHeader   = 2 << 10 // bytes
)

// Header formats what is not fresh as the value of a response header, "" when everything is:
// comma-separated elements, each a member, its state and, if there ever was contact, its
// age: "fleet/eu-1;state=Stale;age=1m30s". If there are many, the last element is the
// number of those that are omitted: "more=990". more are omitted in any case.
func Header(out []NotSynced, more int) string {
	text, _ := header(out, more)
	return text
}

// header is Header, and says whether elements are omitted.
func header(out []NotSynced, omitted int) (text string, some bool) {
	var b strings.Builder
	for i, n := range out {
		element := n.Member + ";state=" + n.State.String()
		if n.Age != "" {
			element += ";age=" + n.Age
		}
		if i > 0 {
			element = ", " + element
		}
		more := fmt.Sprintf(", more=%d", len(out)-i+omitted)
		if i == maxInHeader || i > 0 && b.Len()+len(element)+len(more) > maxHeader {
			return b.String() + more, true
		}
		b.WriteString(element)
	}
	if omitted > 0 {
		fmt.Fprintf(&b, ", more=%d", omitted)
	}
	return b.String(), omitted > 0
}

// SetHeaders sets the response header of what is not fresh, if anything is not, and where
// members are omitted, as more of them are in any case, a Link header to all of them, as
// MembersLink makes it.
func SetHeaders(h http.Header, out []NotSynced, more int, link string) {
	text, omitted := header(out, more)
	if text == "" {
		return
	}
	h.Set(NotSyncedHeader, text)
	if omitted && link != "" && len(link) <= maxHeader {
		h.Set("Link", link)
	}
}

// MembersLink returns the value of a Link header (RFC 8288) to the members for which
// resources are not fresh, among those that a label selector of objects selects.
func MembersLink(labelSelector string, resources ...string) string {
	query := url.Values{"notSynced": {"true"}}
	if len(resources) > 0 {
		query["resource"] = resources
	}
	if text := memberRequirements(labelSelector); text != "" {
		query.Set("labelSelector", text)
	}
	return "<" + route.Query + "/members?" + query.Encode() + `>; rel="describedby"`
}

// memberRequirements returns those requirements of a label selector that select members.
func memberRequirements(labelSelector string) string {
	requirements, err := labels.ParseToRequirements(labelSelector)
	if err != nil {
		return ""
	}
	requirements = slices.DeleteFunc(requirements, func(r labels.Requirement) bool { return !IsMemberLabel(r.Key()) })
	return labels.NewSelector().Add(requirements...).String()
}

// Annotations of a list with the members that are not fresh: as JSON, and how many more
// there are.
const (
	freshnessKey     = "federator.dev/freshness"
	freshnessMoreKey = "federator.dev/freshness-more"
	// maxAnnotation bounds the former in bytes.
	maxAnnotation = 64 << 10
)

// Annotations returns those of a list, nil when everything is fresh.
func Annotations(out []NotSynced) (map[string]string, error) {
	if len(out) == 0 {
		return nil, nil
	}
	text := []byte{'['}
	listed := 0
	for first, _ := Listed(out); listed < len(first); listed++ {
		element, err := json.Marshal(first[listed])
		if err != nil {
			return nil, err
		}
		if listed > 0 {
			element = append([]byte{','}, element...)
		}
		if len(text)+len(element) >= maxAnnotation {
			break
		}
		text = append(text, element...)
	}
	annotations := map[string]string{freshnessKey: string(append(text, ']'))}
	if more := len(out) - listed; more > 0 {
		annotations[freshnessMoreKey] = fmt.Sprint(more)
	}
	return annotations, nil
}
