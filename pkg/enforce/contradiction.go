package enforce

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/remediate"
)

// assignment is a field that a remedy sets.
type assignment struct {
	path  []string
	value string // JSON; "null" is removed
	fixed bool   // by an apply or a merge patch: fields below it contradict it, too
}

// findContradiction returns why remedies of one target cannot all be carried out, in any
// order, "" if they can. It takes time in proportion to what they assign.
func findContradiction(distinct []*remediate.Intent) string {
	for _, i := range distinct[1:] {
		first := distinct[0]
		if (i.Remedy.Action == "delete") != (first.Remedy.Action == "delete") {
			return contradiction("whether the object is to exist", first, i)
		}
		if i.Remedy.Action == "delete" { // one differs in the propagation only
			return contradiction("the propagation policy", first, i)
		}
	}
	var root field
	for n, i := range distinct {
		all := assignments(i)
		for a := range all {
			if with := root.contradicting(&all[a]); with.intent > 0 {
				return contradiction(strings.Join(all[a].path[:with.depth], "."), distinct[with.intent-1], i)
			}
		}
		for a := range all { // after all: a remedy does not contradict itself
			root.assign(&all[a], n+1)
		}
	}
	return ""
}

// contradiction returns a message of bounded length.
func contradiction(in string, x, y *remediate.Intent) string {
	in = clip.Text(in, maxMessage/8)
	a, b := clip.Text(x.Message, maxMessage/4), clip.Text(y.Message, maxMessage/4) // so that both subjects are named
	text := fmt.Sprintf("two remedies contradict each other in %s: of %s (%q) and of %s (%q)", in, x.Subject, a, y.Subject, b)
	if x.Subject == y.Subject {
		text = fmt.Sprintf("two remedies contradict each other in %s: of %s, %q and %q", in, x.Subject, a, b)
	}
	return clip.Text(text, maxMessage)
}

// field is a node in the tree of fields that remedies assign which do not contradict each
// other. Remedies are numbered from 1 in their order; 0 is none.
type field struct {
	fields map[string]*field
	value  string // as all of them assign it
	here   assigners
	below  assigners // of fields below it
}

// assigners are the first remedies that assign a field.
type assigners struct {
	first int
	fixed int // the first by an apply or a merge patch
}

func (a *assigners) add(intent int, fixed bool) {
	a.first = cmp.Or(a.first, intent)
	if fixed {
		a.fixed = cmp.Or(a.fixed, intent)
	}
}

// of returns the first remedy whose assignment, above or below another one, contradicts it.
func (a *assigners) of(fixed bool) int {
	if fixed {
		return a.first
	}
	return a.fixed
}

// conflict is a remedy that contradicts an assignment, and how deep the path is that both
// have in common. The zero conflict is none.
type conflict struct{ intent, depth int }

// or returns which of two is of the remedy that came first, and then the higher one.
func (c conflict) or(intent, depth int) conflict {
	if intent > 0 && (c.intent == 0 || intent < c.intent) {
		return conflict{intent, depth}
	}
	return c
}

// contradicting returns the first remedy that contradicts an assignment.
func (f *field) contradicting(a *assignment) (c conflict) {
	for depth, name := range a.path {
		c = c.or(f.here.of(a.fixed), depth)
		if f = f.fields[name]; f == nil {
			return c
		}
	}
	if f.here.first > 0 && f.value != a.value {
		c = c.or(f.here.first, len(a.path))
	}
	return c.or(f.below.of(a.fixed), len(a.path))
}

// assign adds an assignment of a remedy that contradicts none before.
func (f *field) assign(a *assignment, intent int) {
	for _, name := range a.path {
		f.below.add(intent, a.fixed)
		next := f.fields[name]
		if next == nil {
			if next = new(field); f.fields == nil {
				f.fields = map[string]*field{}
			}
			f.fields[name] = next
		}
		f = next
	}
	f.value = a.value
	f.here.add(intent, a.fixed)
}

// assignments returns the fields that a remedy sets, each once.
func assignments(i *remediate.Intent) []assignment {
	body := bodyOf(&i.Remedy)
	switch {
	case body == nil:
		return nil
	case isList(*body):
		return patched(*body)
	}
	var out []assignment
	var object map[string]any
	if decode(*body, &object) == nil { // what cannot be decoded fails by itself
		flatten(nil, object, func(path []string, value string) {
			out = append(out, assignment{path: path, value: value, fixed: true})
		})
	}
	return out
}

// patched returns the fields that a JSON patch sets. Where it sets one several times, the last
// one counts. Elements that it adds to or removes from a list are none: their places depend on
// what is there.
func patched(text []byte) []assignment {
	var ops []struct {
		Op, Path, From string
		Value          any
	}
	if decode(text, &ops) != nil {
		return nil
	}
	var all []assignment
	for _, op := range ops {
		path := pointer(op.Path)
		value := jsonText(op.Value)
		switch last := path[len(path)-1]; {
		case op.Op == "test", (op.Op == "add" || op.Op == "remove") && strings.Trim(last, "0123456789-") == "":
			continue
		case op.Op == "add" && (value == "{}" || value == "[]"): // so that fields can be added
			continue
		case op.Op == "remove":
			value = "null"
		case op.Op == "move" || op.Op == "copy":
			value = fmt.Sprintf("%s %s", op.Op, op.From)
			if op.Op == "move" {
				all = append(all, assignment{path: pointer(op.From), value: "null"})
			}
		}
		all = append(all, assignment{path: path, value: value})
	}
	last := map[string]int{}
	for n := range all {
		last[jsonText(all[n].path)] = n
	}
	out := make([]assignment, 0, len(last))
	for _, n := range slices.Sorted(maps.Values(last)) {
		out = append(out, all[n])
	}
	return out
}

// pointer returns the steps of a JSON pointer, RFC 6901.
func pointer(text string) []string {
	steps := strings.Split(strings.TrimPrefix(text, "/"), "/")
	for i, s := range steps {
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
	}
	return steps
}

// flatten yields the fields of an object that are no objects, in order. Lists are values.
func flatten(path []string, value any, yield func(path []string, value string)) {
	object, ok := value.(map[string]any)
	if !ok {
		yield(slices.Clone(path), jsonText(value))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		flatten(append(path, name), object[name], yield)
	}
}
