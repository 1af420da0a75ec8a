package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/pkg/policy"
)

// report gathers what a state found.
func (b *bundle) report(fleet *opened, state *policy.State) (*report, error) {
	r := &report{Revision: fleet.revision, AsOf: fleet.asOf, Policies: []reportPolicy{}, Members: []string{}, Results: []result{}}
	for m := range fleet.Members() {
		r.Members = append(r.Members, m.Name)
	}
	for _, p := range b.set.Packages {
		if slices.ContainsFunc(b.bindings, func(x policy.Binding) bool { return x.Package == p.Name }) {
			r.Policies = append(r.Policies, reportPolicy{
				Name: p.Name, Title: p.Title, Description: strings.TrimSpace(p.Description), Severity: p.Severity, File: p.File,
			})
		}
	}
	for binding := range state.Bindings() {
		g := gatherer{fleet: fleet, state: state, pkg: b.set.Package(binding.Package), binding: binding.Name, report: r}
		if err := g.gather(); err != nil {
			return nil, err
		}
	}
	r.sort()
	return r, nil
}

// gatherer gathers what a binding found.
type gatherer struct {
	fleet   *opened
	state   *policy.State
	pkg     *policy.Package
	binding string
	report  *report
	vague   map[place]*vague
	order   []place // of vague
}

// place is where verdicts are not known, or failed for one reason.
type place struct{ state, member, message string }

// vague are verdicts that are not known, or failed, in one place: one result, for a
// member out of reach turns all of its objects' verdicts Unknown.
type vague struct {
	subjects int
	first    policy.Subject
	gaps     []policy.Gap
}

func (g *gatherer) gather() error {
	g.vague = map[place]*vague{}
	for gap := range g.state.Incomplete(g.binding) {
		g.at(place{state: unknown, member: gap.Member}).gap(gap)
	}
	verdicts := g.state.Findings(g.binding, "")
	if c := g.state.Total(g.binding); c.Unknown+c.Errors > 0 {
		verdicts = g.state.Verdicts(g.binding, "")
	}
	for v := range verdicts {
		switch v.State {
		case policy.Unknown:
			at := g.at(place{state: unknown, member: v.Subject.Ref.Member})
			at.add(v.Subject)
			for _, gap := range v.Gaps {
				at.gap(gap)
			}
		case policy.Error:
			g.at(place{failed, v.Subject.Ref.Member, v.Message}).add(v.Subject)
		}
		for _, x := range v.Violations {
			if err := g.violation(v.Subject, x); err != nil {
				return err
			}
		}
	}
	for _, at := range g.order {
		g.report.Results = append(g.report.Results, g.unsettled(at, g.vague[at]))
	}
	return nil
}

func (g *gatherer) at(p place) *vague {
	v := g.vague[p]
	if v == nil {
		v = &vague{}
		g.vague[p] = v
		g.order = append(g.order, p)
	}
	return v
}

func (v *vague) add(s policy.Subject) {
	if v.subjects++; v.subjects == 1 {
		v.first = s
	}
}

func (v *vague) gap(g policy.Gap) {
	if !slices.Contains(v.gaps, g) {
		v.gaps = append(v.gaps, g)
	}
}

func (g *gatherer) result(state string) result {
	return result{State: state, Severity: g.pkg.Severity, Policy: g.pkg.Name, Binding: g.binding}
}

func (g *gatherer) violation(s policy.Subject, v policy.Violation) error {
	x := g.result(violated)
	x.Subject, x.Message, x.Details = g.subject(s), v.Msg, v.Details
	if v.Exempt != "" {
		x.State, x.Reason = exempt, v.Exempt
	}
	if v.Remedy != nil {
		var err error
		if x.Remedy, err = json.Marshal(v.Remedy); err != nil {
			return err
		}
	}
	g.report.Results = append(g.report.Results, x)
	return nil
}

func (g *gatherer) subject(s policy.Subject) subject {
	if g.pkg.SubjectView != "" {
		return subject{View: g.pkg.SubjectView, Key: s.Key}
	}
	return subject{Member: s.Ref.Member, Kind: s.Ref.Kind, Namespace: s.Ref.Namespace, Name: s.Ref.Name}
}

// unsettled is the result of verdicts that are not known or failed.
func (g *gatherer) unsettled(at place, v *vague) result {
	x := g.result(at.state)
	x.Message = at.message
	switch {
	case v.subjects == 1:
		x.Subject = g.subject(v.first)
	case at.member == "":
		x.Subject = subject{View: g.pkg.SubjectView, Key: "*"}
	default:
		x.Subject = subject{Member: at.member}
	}
	if v.subjects > 1 {
		x.Count = v.subjects
	}
	if at.state == unknown {
		x.Message = g.gaps(v.gaps)
		if v.subjects == 0 {
			x.Message = "what is not seen is not judged: " + x.Message
		}
	}
	if v.subjects > 1 {
		x.Message = fmt.Sprintf("%d subjects: %s", v.subjects, x.Message)
	}
	return x
}

// gaps says what is incomplete.
func (g *gatherer) gaps(gaps []policy.Gap) string {
	var list []string
	for i, gap := range gaps {
		if i == policy.MaxGaps {
			list = append(list, fmt.Sprintf("and %d more", len(gaps)-i))
			break
		}
		why := ""
		if gap.Failure == "" {
			why = g.fleet.why(gap.Member, gap.Kind)
		}
		list = append(list, because(gap.String(), why))
	}
	return strings.Join(list, ", ")
}
