package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

// naiveWays answers the questions without what is counted and held for them: from all verdicts, and from all Actions as
// a hub lists them.
func naiveWays(state *policy.State, hub *actionHub, out figures) error {
	for name, answer := range map[string]func() (any, error){
		"policies":            func() (any, error) { return countEach(state, false), nil },
		"violations_groups":   func() (any, error) { return countEach(state, true), nil },
		"violations_severity": func() (any, error) { return mostSevere(state), nil },
		"actions":             hub.newest,
	} {
		var took []time.Duration
		for range naiveAnswers {
			began := time.Now()
			got, err := answer()
			if err != nil {
				return err
			}
			text, err := json.Marshal(got)
			if err != nil {
				return err
			}
			if took = append(took, time.Since(began)); len(text) < 1000 {
				return fmt.Errorf("%s: the naive way says %s", name, text)
			}
		}
		out[name+"-naive"] = ms(took, 0.5)
	}
	for b := range state.Bindings() {
		t := state.Total(b.Name)
		out["verdicts"] += float64(t.Known + t.Unknown + t.Errors)
	}
	for _, f := range mostSevere(state) {
		out["findings"] = float64(f.of)
	}
	if out["findings"] == 0 {
		return errors.New("nothing is found")
	}
	return nil
}

// countEach counts verdicts by policy or, too, by member.
func countEach(state *policy.State, byMember bool) map[string]policy.Counts {
	out := map[string]policy.Counts{}
	for b := range state.Bindings() {
		for v := range state.Verdicts(b.Name, "") {
			key := b.Name
			if byMember {
				key += " " + v.Subject.Ref.Member
			}
			c := out[key]
			switch v.State {
			case policy.Known:
				c.Known++
			case policy.Unknown:
				c.Unknown++
			default:
				c.Errors++
			}
			for i := range v.Violations {
				if v.Violations[i].Exempt != "" {
					c.Exempt++
				} else {
					c.Violations++
				}
			}
			out[key] = c
		}
	}
	return out
}

// severe is a finding, and of how many.
type severe struct {
	rank    int
	of      int
	Policy  string
	Verdict policy.Verdict
}

// mostSevere sorts all findings and returns the first page.
func mostSevere(state *policy.State) []severe {
	ranks := map[string]int{"critical": 0, "high": 1, "medium": 2, "low": 3}
	var all []severe
	for b, severity := range state.Bindings() {
		for v := range state.Verdicts(b.Name, "") {
			if len(v.Violations) > 0 || v.State != policy.Known {
				all = append(all, severe{ranks[severity], 0, b.Name, v})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y severe) int { return cmp.Or(x.rank-y.rank, cmp.Compare(x.Policy, y.Policy)) })
	page := slices.Clone(all[:min(len(all), askedPage)])
	for i := range page {
		page[i].of = len(all)
	}
	return page
}

// newest decodes all Actions, and returns the first page.
func (h *actionHub) newest() (any, error) {
	all := make([]v1alpha1.Action, len(h.actions))
	for i, text := range h.actions {
		if err := json.Unmarshal(text, &all[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(x, y v1alpha1.Action) int { return y.CreationTimestamp.Compare(x.CreationTimestamp.Time) })
	return all[:askedPage], nil
}
