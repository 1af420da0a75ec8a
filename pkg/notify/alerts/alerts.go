package alerts

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/selection"
	"federator.dev/federator/pkg/policy"
)

// maxAlerts is how many alerts Open and Facts return at most, each.
const maxAlerts = 1000

// Values of Options.GroupBy.
const (
	ByPolicy    = "Policy"
	ByMember    = "Member"
	BySeverity  = "Severity"
	ByKind      = "Kind"
	ByNamespace = "Namespace"
	ByObject    = "Object" // and by its member, kind and namespace; or by the key of a view, where that is judged
)

// Options configure Alerts.
type Options struct {
	Selection *selection.Selection // required
	// GroupBy are what violations of one alert have in common; none: all violations are one alert.
	GroupBy []string
	// IncludeText adds what policies and people have written: messages of violations and of stops, and keys of views.
	IncludeText bool
}

// FieldError is what is wrong with a field of Options.
type FieldError struct {
	Field   string // such as groupBy[1]
	Problem string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Alert is one that is open.
type Alert struct {
	Labels      map[string]string // identify it
	Since       time.Time         // zero: not known
	Violations  int
	Unknown     int // of Violations: those of which it is not known whether they are still there
	Members     int
	Summary     string
	Description string // "" without IncludeText
}

// Alerts says which alerts are open.
type Alerts struct {
	selection *selection.Selection
	by        grouping
	text      bool
}

// New returns Alerts, or a FieldError.
func New(opts Options) (*Alerts, error) {
	if opts.Selection == nil {
		return nil, errors.New("alerts: Selection is required")
	}
	a := &Alerts{selection: opts.Selection, text: opts.IncludeText}
	for i, field := range opts.GroupBy {
		if !a.by.add(field) {
			all := []string{ByPolicy, ByMember, BySeverity, ByKind, ByNamespace, ByObject}
			return nil, &FieldError{fmt.Sprintf("groupBy[%d]", i), fmt.Sprintf("%q is not one of %s", field, strings.Join(all, ", "))}
		}
	}
	return a, nil
}

// Open returns the alerts of the violations in a state: in the order of their labels, and last the one that stands for others. judges reports
// whether this process answers for a member; nil: for all. Keys of views that are judged here are always answered for.
func (a *Alerts) Open(state *policy.State, judges func(member string) bool) []Alert {
	c := collector{Alerts: a, state: state, judges: judges, groups: map[key]*group{}}
	if c.judges == nil {
		c.judges = func(string) bool { return true }
	}
	for b := range state.Bindings() {
		c.binding(b.Name)
	}
	return c.alerts()
}

// collector groups the violations of a state.
type collector struct {
	*Alerts
	state  *policy.State
	judges func(member string) bool
	groups map[key]*group
	last   *group         // that was added to: most often the next one as well
	record history.Record // of what is asked about
}

func (c *collector) binding(name string) {
	var severity, member string
	begun, judged := false, false
	for v := range c.state.Findings(name, "") {
		if of := v.Subject.Ref.Member; !begun || of != member {
			begun, member, severity = true, of, ""
			judged = of == "" || c.judges(of)
			if p := c.state.PackageIn(name, of); p != nil {
				severity = p.Severity
			}
		}
		if judged {
			c.verdict(&v, severity)
		}
	}
}

// verdict takes the violations of a verdict.
func (c *collector) verdict(v *policy.Verdict, severity string) {
	n, since := c.count(v)
	if n == 0 || !c.selects(v, severity) {
		return
	}
	k := c.by.of(v, severity)
	g := c.last
	if g == nil || g.key != k {
		if g = c.groups[k]; g == nil {
			g = &group{key: k}
			c.groups[k] = g
		}
		c.last = g
	}
	g.add(v, severityRank(severity), n, since)
	if c.text {
		g.addText(v)
	}
}

// count returns how many violations of a verdict count, and when the first of them was seen, in seconds since 1970.
func (c *collector) count(v *policy.Verdict) (n int, since int64) {
	add := func(at int64) {
		if n++; since == 0 || at != 0 && at < since {
			since = at
		}
	}
	if v.State == policy.Error {
		hidden := c.state.SeenOf(v.Binding, v.Subject)
		if len(hidden) > 0 && c.state.Exempt(v.Binding, v.Subject) != "" {
			return 0, 0
		}
		for i := range hidden {
			add(hidden[i].At)
		}
		return n, since
	}
	for i := range v.Violations {
		if v.Violations[i].Exempt == "" {
			add(v.FirstSeen.Seconds(i))
		}
	}
	return n, since
}

// selects reports whether a violation of a verdict would be selected if it opened.
func (c *collector) selects(v *policy.Verdict, severity string) bool {
	r, ref := &c.record, &v.Subject.Ref
	r.Type, r.Transition, r.Policy, r.Severity = history.Verdict, history.Opened, v.Binding, severity
	r.Member, r.Kind, r.Namespace, r.Name, r.Subject = ref.Member, ref.Kind, ref.Namespace, ref.Name, v.Subject.Key
	return c.selection.Selects(r)
}

// alerts returns the alerts of the groups, of which those beyond the bound are one.
func (c *collector) alerts() []Alert {
	groups := make([]*group, 0, len(c.groups))
	for _, g := range c.groups {
		groups = append(groups, g)
	}
	var others *group
	more := 0
	if len(groups) > maxAlerts {
		slices.SortFunc(groups, (*group).compareWeight)
		kept := groups[:maxAlerts-1]
		others, more = &group{}, len(groups)-len(kept)
		for _, g := range groups[len(kept):] {
			others.merge(g)
		}
		groups = kept
	}
	slices.SortFunc(groups, func(a, b *group) int { return a.key.compare(&b.key) })
	out := make([]Alert, 0, len(groups)+1)
	for _, g := range groups {
		out = append(out, g.alert(g.key.labels(ViolationName, c.text), ""))
	}
	if others != nil {
		out = append(out, others.alert(othersLabels(ViolationName), ", in "+number(more, "more group")))
	}
	return out
}

func severityRank(severity string) int { return slices.Index(severities, severity) }

var severities = policy.Severities() // the lowest first
