package alerts

import (
	"cmp"
	"slices"
	"strings"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify"
)

// ongoing says of the facts that are alerts how they are called, and as which record of the history they are selected.
var ongoing = map[string]struct {
	alert, transition string
	kind              aggregate.Kind
	label             string // that has the name of their object
}{
	notify.HaltBegan: {alertHalt, history.Halted, history.FleetPolicyKind, ""},
	notify.StopBegan: {alertStop, history.Stopped, history.StopKind, "stop"},
	notify.PlanWaits: {alertPlanWaits, history.PlanMade, history.PlanKind, "plan"},
}

// maxFacts is how many alerts of one name Facts returns at most.
const maxFacts = maxAlerts / 3

// Facts returns the alerts of what goes on with policies: halts, stops and plans that wait, in the order of their names and times. Facts that have
// ended, or do not go on, are none.
func (a *Alerts) Facts(facts []notify.Fact) []Alert {
	byName := map[string][]Alert{}
	for i := range facts {
		f := &facts[i]
		of, is := ongoing[f.Type]
		if !is || !f.Ongoing && f.Until == "" {
			continue
		}
		_, name, _ := strings.Cut(f.Subject, "/")
		r := history.Record{Type: history.Policy, Transition: of.transition, Kind: of.kind, Name: name, Policy: f.Data["policy"]}
		switch scope, name, _ := strings.Cut(f.Data["stopped"], " "); scope {
		case "policy":
			r.Policy = name
		case "member":
			r.Member = name
		case "source":
			r.Source = name
		}
		if !a.selection.Selects(&r) {
			continue
		}
		pairs := []string{"policy", r.Policy, "member", r.Member, "source", r.Source}
		if of.label != "" {
			pairs = append(pairs, of.label, name)
		} else {
			pairs = append(pairs, "halt", f.Data["halt"])
		}
		x := Alert{Labels: labels(of.alert, pairs...), Since: f.At.UTC(), Summary: factSummary(f, &r)}
		if a.text {
			x.Description = factText(f)
		}
		byName[of.alert] = append(byName[of.alert], x)
	}
	var out []Alert
	for _, name := range []string{alertHalt, alertPlanWaits, alertStop} {
		out = append(out, boundFacts(name, byName[name])...)
	}
	return out
}

// factSummary says what goes on.
func factSummary(f *notify.Fact, r *history.Record) string {
	switch f.Type {
	case notify.HaltBegan:
		return ended("corrections of policy "+r.Policy+" are halted", f.Data["reason"])
	case notify.PlanWaits:
		if n := f.Data["targets"]; n != "" {
			return "plan " + r.Name + " of policy " + r.Policy + " waits for approval: targets " + n
		}
		return "plan " + r.Name + " of policy " + r.Policy + " waits for approval"
	}
	if of := f.Data["stopped"]; of != "" && of != "all" {
		return "actions of " + of + " are stopped"
	}
	return "all actions are stopped"
}

// factText is what people, or federator, have written about a fact.
func factText(f *notify.Fact) string {
	text := f.Data["message"]
	if f.Type == notify.StopBegan {
		text = ended(text, f.Data["reason"])
	}
	return clip.Line(text, 2*maxMessage)
}

// ended writes a reason behind a text, if there is one.
func ended(text, reason string) string {
	if text == "" || reason == "" {
		return text + reason
	}
	return text + ": " + reason
}

// boundFacts orders alerts of one name, leaves one of those that have the same labels, and makes one of those beyond the bound.
func boundFacts(name string, list []Alert) []Alert {
	identity := func(a *Alert) string {
		l := a.Labels
		return strings.Join([]string{l["policy"], l["member"], l["source"], l["halt"], l["plan"], l["stop"]}, "\x00")
	}
	slices.SortFunc(list, func(a, b Alert) int {
		return cmp.Or(strings.Compare(identity(&a), identity(&b)), a.Since.Compare(b.Since))
	})
	list = slices.CompactFunc(list, func(a, b Alert) bool { return identity(&a) == identity(&b) })
	slices.SortStableFunc(list, func(a, b Alert) int { return a.Since.Compare(b.Since) })
	if len(list) <= maxFacts {
		return list
	}
	rest := list[maxFacts-1:]
	others := Alert{Labels: othersLabels(name), Since: rest[0].Since, Summary: number(len(rest), "more alert") + " " + name}
	return append(slices.Clip(list[:maxFacts-1]), others)
}
