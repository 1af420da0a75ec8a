package alerts

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
)

// ViolationName is the name of alerts of violations.
const ViolationName = "FederatorViolation"

// Names of the other alerts.
const (
	alertHalt      = "FederatorHalt"
	alertStop      = "FederatorStop"
	alertPlanWaits = "FederatorPlanWaits"
)

// Bounds of a description: how many violations it names, and the bytes of each message.
const (
	maxLines   = 5
	maxMessage = 512
)

// grouping is what violations of one group have in common.
type grouping struct{ policy, member, severity, kind, namespace, object bool }

// add adds a value of Options.GroupBy, and reports whether it is one.
func (g *grouping) add(field string) bool {
	switch field {
	case ByPolicy:
		g.policy = true
	case ByMember:
		g.member = true
	case BySeverity:
		g.severity = true
	case ByKind:
		g.kind = true
	case ByNamespace:
		g.namespace = true
	case ByObject: // a name alone says little
		g.member, g.kind, g.namespace, g.object = true, true, true, true
	default:
		return false
	}
	return true
}

// key identifies a group: what is not grouped by is "".
type key struct{ policy, member, severity, kind, namespace, name, view string }

// of returns the key of the group of a verdict.
func (g *grouping) of(v *policy.Verdict, severity string) (k key) {
	ref := &v.Subject.Ref
	if g.policy {
		k.policy = v.Binding
	}
	if g.member {
		k.member = ref.Member
	}
	if g.severity {
		k.severity = severity
	}
	if g.kind {
		k.kind = string(ref.Kind)
	}
	if g.namespace {
		k.namespace = ref.Namespace
	}
	if g.object {
		k.name, k.view = ref.Name, v.Subject.Key
	}
	return k
}

// compare orders keys; most that are compared differ early.
func (k *key) compare(o *key) int {
	for _, of := range [...][2]*string{
		{&k.policy, &o.policy}, {&k.member, &o.member}, {&k.severity, &o.severity}, {&k.kind, &o.kind}, {&k.namespace, &o.namespace}, {&k.name, &o.name}, {&k.view, &o.view},
	} {
		if c := strings.Compare(*of[0], *of[1]); c != 0 {
			return c
		}
	}
	return 0
}

// labels are those of an alert. The key of a view is text of objects: without text it is its digest.
func (k *key) labels(alert string, text bool) map[string]string {
	view := k.view
	if view != "" && !text {
		sum := sha256.Sum256([]byte(view))
		view = hex.EncodeToString(sum[:8])
	}
	return labels(alert, "policy", k.policy, "member", k.member, "severity", k.severity, "kind", k.kind, "namespace", k.namespace, "name", k.name, "key", view)
}

// labels returns the labels of an alert: pairs of names and values, without empty values.
func labels(alert string, pairs ...string) map[string]string {
	out := map[string]string{"alertname": alert}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out[pairs[i]] = pairs[i+1]
		}
	}
	return out
}

// othersLabels are those of the alert that stands for others, however many: it is the same alert while there are any.
func othersLabels(alert string) map[string]string { return labels(alert, "others", "true") }

// group is the violations that are one alert.
type group struct {
	key
	violations, unknown int
	since               int64 // in seconds since 1970; 0: not known
	severity            int   // the rank of the highest
	policies, members   names
	lines               []line // the first maxLines, in order
}

// line is a violation as a description names it.
type line struct {
	subject         policy.Subject
	policy, message string
}

func (l *line) compare(o *line) int {
	if c := l.subject.Compare(o.subject); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(l.policy, o.policy), strings.Compare(l.message, o.message))
}

// add adds n violations of a verdict.
func (g *group) add(v *policy.Verdict, severity, n int, since int64) {
	g.policies.add(v.Binding)
	if v.Subject.Ref.Member != "" {
		g.members.add(v.Subject.Ref.Member)
	}
	unknown := 0
	if v.State != policy.Known {
		unknown = n
	}
	g.sum(n, unknown, severity, since)
}

func (g *group) sum(violations, unknown, severity int, since int64) {
	g.violations += violations
	g.unknown += unknown
	g.severity = max(g.severity, severity)
	if g.since == 0 || since != 0 && since < g.since {
		g.since = since
	}
}

// addText adds the messages of a verdict, as far as they are among the first.
func (g *group) addText(v *policy.Verdict) {
	for i := range v.Violations {
		if x := &v.Violations[i]; x.Exempt == "" {
			g.addLine(&line{v.Subject, v.Binding, x.Msg})
		}
	}
}

func (g *group) addLine(l *line) {
	at := len(g.lines)
	for at > 0 && l.compare(&g.lines[at-1]) < 0 { // mostly it is the last
		at--
	}
	if at == maxLines {
		return
	}
	if len(g.lines) == maxLines {
		g.lines = g.lines[:maxLines-1]
	}
	g.lines = slices.Insert(g.lines, at, *l)
}

// merge adds another group.
func (g *group) merge(o *group) {
	g.sum(o.violations, o.unknown, o.severity, o.since)
	o.policies.each(g.policies.add)
	o.members.each(g.members.add)
	for i := range o.lines {
		g.addLine(&o.lines[i])
	}
}

// compareWeight orders groups by which has an alert of its own first: the most severe, and of these the one that is open longest.
func (g *group) compareWeight(o *group) int {
	if c := cmp.Or(cmp.Compare(o.severity, g.severity), cmp.Compare(g.since, o.since)); c != 0 {
		return c
	}
	return g.key.compare(&o.key)
}

// alert returns the alert of the group. rest ends the summary.
func (g *group) alert(labels map[string]string, rest string) Alert {
	a := Alert{Labels: labels, Violations: g.violations, Unknown: g.unknown, Members: g.members.count(), Description: g.description()}
	if g.since != 0 {
		a.Since = time.Unix(g.since, 0).UTC()
	}
	a.Summary = number(g.violations, "violation") + " of " + g.ofPolicies()
	if a.Members > 0 {
		a.Summary += " in " + number(a.Members, "member")
	}
	if a.Summary += rest; g.unknown > 0 {
		a.Summary += fmt.Sprintf("; %d of them cannot be checked now", g.unknown)
	}
	return a
}

func (g *group) ofPolicies() string {
	if g.policies.count() == 1 {
		return g.policies.first
	}
	return number(g.policies.count(), "policy")
}

func (g *group) description() string {
	var b strings.Builder
	for i, l := range g.lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s", l.subject, clip.Line(l.message, maxMessage))
	}
	if more := g.violations - len(g.lines); len(g.lines) > 0 && more > 0 {
		fmt.Fprintf(&b, "\nand %d more", more)
	}
	return b.String()
}

// number writes a number of things, which are named in the singular.
func number(n int, thing string) string {
	if n != 1 {
		if stem, is := strings.CutSuffix(thing, "y"); is {
			thing = stem + "ie"
		}
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// names is a set of names, which are mostly one, or added in order.
type names struct {
	first, last string
	more        map[string]struct{} // besides the first
}

func (s *names) add(name string) {
	switch {
	case name == s.last:
		return
	case s.first == "":
		s.first = name
	case name != s.first:
		if s.more == nil {
			s.more = map[string]struct{}{}
		}
		s.more[name] = struct{}{}
	}
	s.last = name
}

func (s *names) count() int {
	if s.first == "" {
		return 0
	}
	return 1 + len(s.more)
}

func (s *names) each(do func(string)) {
	if s.first == "" {
		return
	}
	do(s.first)
	for name := range s.more {
		do(name)
	}
}
