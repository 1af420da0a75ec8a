package evaluation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/input"
	"federator.dev/federator/internal/cli/report"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/policy"
)

// newReport collects the results of a state.
func newReport(b *policyfiles.Bundle, fleet *input.Fleet, state *policy.State) (*report.Report, error) {
	r := &report.Report{Revision: fleet.SourceRevision, AsOf: fleet.AsOf, Policies: []report.Policy{}, Members: []string{}, Results: []report.Result{}}
	for m := range fleet.Members() {
		r.Members = append(r.Members, m.Name)
	}
	for _, p := range b.Set.Packages {
		if slices.ContainsFunc(b.Bindings, func(x policy.Binding) bool { return x.Package == p.Name }) {
			r.Policies = append(r.Policies, report.Policy{
				Name: p.Name, Title: p.Title, Description: strings.TrimSpace(p.Description), Severity: p.Severity, File: p.File,
			})
		}
	}
	for binding := range state.Bindings() {
		g := collector{fleet: fleet, state: state, pkg: b.Set.Package(binding.Package), binding: binding.Name, report: r}
		if binding.Constraint != "" {
			g.enforced = enforcementOf(b.Set, binding.Constraint)
		}
		if err := g.collect(); err != nil {
			return nil, err
		}
	}
	r.Sort()
	return r, nil
}

// collector collects the results of a binding.
type collector struct {
	fleet      *input.Fleet
	state      *policy.State
	pkg        *policy.Package
	binding    string
	report     *report.Report
	enforced   *report.Enforced // nil: not of a constraint
	implied    *impliedBatch    // nil: subjects are what was given
	incomplete map[incompleteKey]*incomplete
	order      []incompleteKey // of incomplete
}

// incompleteKey identifies verdicts that are unknown, or that failed for one reason.
type incompleteKey struct{ state, member, message string }

// incomplete are the unknown or failed verdicts of one key. They are one result, because
// an unreachable member makes the verdicts on all of its objects Unknown.
type incomplete struct {
	subjects int
	first    policy.Subject
	gaps     []policy.Gap
}

func (g *collector) collect() error {
	g.incomplete = map[incompleteKey]*incomplete{}
	for gap := range g.state.Incomplete(g.binding) {
		g.at(incompleteKey{state: report.Unknown, member: gap.Member}).gap(gap)
	}
	verdicts := g.state.Findings(g.binding, "")
	if c := g.state.Total(g.binding); c.Unknown+c.Errors > 0 {
		verdicts = g.state.Verdicts(g.binding, "")
	}
	for v := range verdicts {
		switch v.State {
		case policy.Unknown:
			s := g.given(v.Subject)
			at := g.at(incompleteKey{state: report.Unknown, member: s.Ref.Member})
			at.add(s)
			for _, gap := range v.Gaps {
				at.gap(gap)
			}
		case policy.Error:
			s := g.given(v.Subject)
			g.at(incompleteKey{report.Error, s.Ref.Member, g.message(v.Subject, v.Message)}).add(s)
		}
		for _, x := range v.Violations {
			if err := g.violation(v.Subject, x); err != nil {
				return err
			}
		}
	}
	for _, at := range g.order {
		g.report.Results = append(g.report.Results, g.incompleteResult(at, g.incomplete[at]))
	}
	return nil
}

func (g *collector) at(p incompleteKey) *incomplete {
	v := g.incomplete[p]
	if v == nil {
		v = &incomplete{}
		g.incomplete[p] = v
		g.order = append(g.order, p)
	}
	return v
}

func (v *incomplete) add(s policy.Subject) {
	if v.subjects++; v.subjects == 1 {
		v.first = s
	}
}

func (v *incomplete) gap(g policy.Gap) {
	if !slices.Contains(v.gaps, g) {
		v.gaps = append(v.gaps, g)
	}
}

func (g *collector) result(state string) report.Result {
	return report.Result{State: state, Severity: g.pkg.Severity, Policy: g.pkg.Name, Binding: g.binding}
}

func (g *collector) violation(s policy.Subject, v policy.Violation) error {
	x := g.result(report.Violation)
	x.Subject, x.Message, x.Details = g.subject(g.given(s)), g.message(s, v.Msg), v.Details
	if v.Exempt != "" {
		x.State, x.Reason = report.Exempt, v.Exempt
	}
	if v.Remedy != nil {
		var err error
		if x.Remedy, err = json.Marshal(v.Remedy); err != nil {
			return err
		}
	}
	if g.enforced != nil {
		if err := g.enforce(s, &v, &x); err != nil {
			return err
		}
	}
	g.report.Results = append(g.report.Results, x)
	return nil
}

// enforcementOf is what a constraint says that is done at admission.
func enforcementOf(set *policy.Set, name string) *report.Enforced {
	c := set.Constraint(name)
	if c == nil {
		return nil
	}
	return &report.Enforced{Actions: c.ActionsAt(policy.GatorPoint), Scoped: c.EnforcementAction == "scoped", Constraint: c.Body, Parameters: c.Parameters}
}

// enforce adds what a constraint says of a violation.
func (g *collector) enforce(s policy.Subject, v *policy.Violation, x *report.Result) error {
	of := *g.enforced
	x.EnforcementActions, x.Enforced = of.Actions, &of
	if of.Details = x.Details; of.Details == nil && g.pkg.CEL == nil && !strings.HasPrefix(v.Msg, policy.Unmatched) {
		of.Details = json.RawMessage("{}") // as Gatekeeper has those of Rego
	}
	if made := g.generated(s); made != nil && made.EnforcementAction != "" && len(of.Actions) > 0 {
		of.Override, x.EnforcementActions = made.EnforcementAction, []string{made.EnforcementAction}
	}
	ref := g.given(s).Ref
	o, ok := g.fleet.Snapshot.Get(ref)
	if !ok {
		return nil
	}
	var err error
	if of.Object, err = o.AppendBody(nil); err != nil || g.fleet.Manifests == nil {
		return err
	}
	from := g.fleet.Manifests.Origin(ref)
	of.Order, of.Again = from.Order, from.Again
	of.Object, err = withoutMetadata(of.Object, from.Added)
	return err
}

// withoutMetadata returns an object without fields of its metadata.
func withoutMetadata(object json.RawMessage, fields []string) (json.RawMessage, error) {
	o, err := decodeObject(object)
	if err != nil {
		return nil, err
	}
	metadata, _ := o["metadata"].(map[string]any)
	for _, field := range fields {
		delete(metadata, field)
	}
	return json.Marshal(o)
}

// decodeObject decodes an object, with its numbers as they are written.
func decodeObject(raw []byte) (o map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&o)
	return o, err
}

func (g *collector) subject(s policy.Subject) report.Subject {
	if g.pkg.SubjectView != "" {
		return report.Subject{View: g.pkg.SubjectView, Key: s.Key}
	}
	return report.Subject{Member: s.Ref.Member, Kind: s.Ref.Kind, Namespace: s.Ref.Namespace, Name: s.Ref.Name}
}

// incompleteResult is the result of unknown or failed verdicts.
func (g *collector) incompleteResult(at incompleteKey, v *incomplete) report.Result {
	x := g.result(at.state)
	x.Message = at.message
	switch {
	case v.subjects == 1:
		x.Subject = g.subject(v.first)
	case at.member == "":
		x.Subject = report.Subject{View: g.pkg.SubjectView, Key: "*"}
	default:
		x.Subject = report.Subject{Member: at.member}
	}
	if v.subjects > 1 {
		x.Count = v.subjects
	}
	if at.state == report.Unknown {
		x.Message = g.gaps(v.gaps)
		if v.subjects == 0 {
			x.Message = "subjects may be missing: " + x.Message
		}
	}
	if v.subjects > 1 {
		x.Message = fmt.Sprintf("%d subjects: %s", v.subjects, x.Message)
	}
	return x
}

// gaps describes which data is incomplete.
func (g *collector) gaps(gaps []policy.Gap) string {
	var list []string
	for i, gap := range gaps {
		if i == policy.MaxGaps {
			list = append(list, fmt.Sprintf("and %d more", len(gaps)-i))
			break
		}
		why := ""
		if gap.Failure == "" {
			why = g.fleet.Reason(gap.Member, gap.Kind)
		}
		list = append(list, console.WithReason(gap.String(), why))
	}
	return strings.Join(list, ", ")
}
