package selection

import (
	"k8s.io/apimachinery/pkg/labels"
	kubeselection "k8s.io/apimachinery/pkg/selection"

	"federator.dev/federator/pkg/history"
)

// set is a set of the rules of a block, by their positions.
type set uint64

const blockRules = 64

// block is up to blockRules rules, compiled: for each field it says at once which of them a value matches.
type block struct {
	size                                                 int
	transitions, severities, kinds, policies, namespaces field
	members                                              field // their names
	selecting                                            set   // rules that select members
	labelled                                             set   // those that select them by labels
	selectors                                            []selector
}

// field says which rules a value of a field matches.
type field struct {
	free     set // rules that do not restrict it
	values   map[string]set
	patterns []rulePattern
}

type rulePattern struct {
	rule set
	pattern
}

// among returns which of some rules a value matches.
func (f *field) among(rules set, value string) set {
	found := f.free & rules
	if found == rules {
		return found
	}
	if len(f.values) > 0 {
		found |= f.values[value] & rules
	}
	for i := range f.patterns {
		if p := &f.patterns[i]; p.rule&rules&^found != 0 && p.matches(value) {
			found |= p.rule
		}
	}
	return found
}

// add has a rule match the values that a pattern does.
func (f *field) add(rule set, p pattern) {
	if p.form != literal {
		f.patterns = append(f.patterns, rulePattern{rule, p})
		return
	}
	if f.values == nil {
		f.values = map[string]set{}
	}
	f.values[p.text] |= rule
}

// selector is what rules want of the labels of a member.
type selector struct {
	rules        set
	text         string // equal for equal ones
	requirements []requirement
}

// requirement is one of a label selector. Most want one value, which is found without the costs of a general one.
type requirement struct {
	labels.Requirement
	key, value string // "" for other requirements
}

func newSelector(s labels.Selector) selector {
	out := selector{text: s.String()}
	all, _ := s.Requirements()
	for _, r := range all {
		x := requirement{Requirement: r}
		if values := r.ValuesUnsorted(); len(values) == 1 && (r.Operator() == kubeselection.In || r.Operator() == kubeselection.Equals) {
			x.key, x.value = r.Key(), values[0]
		}
		out.requirements = append(out.requirements, x)
	}
	return out
}

func (s *selector) matches(set labels.Set) bool {
	for i := range s.requirements {
		r := &s.requirements[i]
		if r.key == "" {
			if !r.Matches(set) {
				return false
			}
		} else if value, is := set[r.key]; !is || value != r.value {
			return false
		}
	}
	return true
}

// matches reports whether a rule matches a record with a transition.
func (b *block) matches(r *history.Record, transition string, known func(string) (map[string]string, bool)) bool {
	rules := ^set(0) >> (blockRules - b.size)
	rules = b.transitions.among(rules, transition)
	rules = b.severities.among(rules, r.Severity)
	rules = b.kinds.among(rules, string(r.Kind))
	rules = b.policies.among(rules, r.Policy)
	rules = b.namespaces.among(rules, r.Namespace)
	if r.Member == "" {
		rules &^= b.selecting
	}
	rules = b.members.among(rules, r.Member)
	if rules&^b.labelled != 0 || rules == 0 {
		return rules != 0
	}
	of, is := known(r.Member)
	if !is {
		return false
	}
	for i := range b.selectors {
		if s := &b.selectors[i]; s.rules&rules != 0 && s.matches(of) {
			return true
		}
	}
	return false
}

// add adds a rule, for which there is room.
func (b *block) add(x *rule) {
	of := set(1) << b.size
	b.size++
	for _, f := range [...]struct {
		field    *field
		patterns []pattern
	}{
		{&b.transitions, x.transitions},
		{&b.severities, x.severities},
		{&b.kinds, x.kinds},
		{&b.policies, x.policies},
		{&b.namespaces, x.namespaces},
		{&b.members, x.members},
	} {
		if len(f.patterns) == 0 {
			f.field.free |= of
		}
		for _, p := range f.patterns {
			f.field.add(of, p)
		}
	}
	if len(x.members) > 0 {
		b.selecting |= of
	}
	if x.labels == nil {
		return
	}
	b.selecting |= of
	b.labelled |= of
	want := newSelector(x.labels)
	for i := range b.selectors {
		if s := &b.selectors[i]; s.text == want.text {
			s.rules |= of
			return
		}
	}
	want.rules = of
	b.selectors = append(b.selectors, want)
}

// full reports whether there is no room for another rule.
func (b *block) full() bool { return b.size == blockRules }
