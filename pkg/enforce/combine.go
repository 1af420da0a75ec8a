package enforce

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// combine returns the intent for a target that several violations of a policy would correct,
// and how many of their remedies are left for later. Applies are merged, and so are merge
// patches. Otherwise the first remedy is chosen; the verdicts after its write say what is
// still to be done. If remedies contradict each other the intent is refused: whichever was
// written, another violation would revert it.
func combine(intents []*remediate.Intent) (out remediate.Intent, deferred int) {
	out = *intents[0]
	distinct := slices.CompactFunc(slices.SortedStableFunc(slices.Values(intents), compareRemedies), func(x, y *remediate.Intent) bool { return compareRemedies(x, y) == 0 })
	if len(distinct) == 1 {
		return out, 0
	}
	slices.SortStableFunc(distinct, compareIntents)
	if why := findContradiction(distinct); why != "" {
		out.Refused = why
		return out, 0
	}
	body := bodyOf(&out.Remedy)
	if body == nil || isList(*body) {
		return describe(out, distinct), len(distinct) - 1
	}
	merged := map[string]any{}
	var later []*remediate.Intent
	for _, i := range distinct {
		var one map[string]any
		if b := bodyOf(&i.Remedy); i.Remedy.Action != out.Remedy.Action || isList(*b) || decode(*b, &one) != nil {
			later = append(later, i)
			continue
		}
		merge(merged, one)
		if i != distinct[0] && !strings.Contains(out.Message, i.Message) {
			out.Message += "; " + i.Message
		}
	}
	text, err := json.Marshal(merged)
	if err != nil {
		panic(err) // decoded JSON
	}
	*body = text
	return describe(out, append(distinct[:1:1], later...)), len(later)
}

// describe adds to the message of an intent which others are left for later.
func describe(out remediate.Intent, list []*remediate.Intent) remediate.Intent {
	for _, i := range list[1:] {
		out.Message += fmt.Sprintf("; later, to %s the same object: %s", i.Remedy.Action, i.Message)
	}
	return out
}

func compareRemedies(x, y *remediate.Intent) int {
	return cmp.Or(
		cmp.Compare(x.Remedy.Action, y.Remedy.Action), bytes.Compare(x.Remedy.Patch, y.Remedy.Patch),
		bytes.Compare(x.Remedy.Object, y.Remedy.Object), cmp.Compare(x.Remedy.Propagation, y.Remedy.Propagation),
	)
}

// bodyOf returns the object or the patch of a remedy, nil for a deletion.
func bodyOf(r *policy.Remedy) *json.RawMessage {
	switch r.Action {
	case "apply":
		return &r.Object
	case "patch":
		return &r.Patch
	}
	return nil
}

// isList reports whether a patch is a JSON patch (RFC 6902), not a merge patch.
func isList(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) }

func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// merge adds the fields of one object to another; they do not contradict each other.
func merge(into, from map[string]any) {
	for field, value := range from {
		a, isMap := into[field].(map[string]any)
		b, toMap := value.(map[string]any)
		if isMap && toMap {
			merge(a, b)
		} else if !isMap || len(a) == 0 {
			into[field] = value
		}
	}
}

// assignment is a field that a remedy sets.
type assignment struct {
	path     []string
	value    string // JSON; "null" is removed
	fixed    bool   // by an apply or a merge patch: fields below it contradict it, too
	assigner *remediate.Intent
}

// findContradiction returns why remedies of one target cannot all be carried out, in any
// order, "" if they can.
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
	var all []assignment
	for _, i := range distinct {
		for _, a := range assignments(i) {
			for _, b := range all {
				if b.assigner != i && contradicts(&a, &b) {
					return contradiction(strings.Join(a.path[:min(len(a.path), len(b.path))], "."), b.assigner, i)
				}
			}
			all = append(all, a)
		}
	}
	return ""
}

func contradiction(in string, x, y *remediate.Intent) string {
	if x.Subject == y.Subject {
		return fmt.Sprintf("two remedies contradict each other in %s: of %s, %q and %q", in, x.Subject, x.Message, y.Message)
	}
	return fmt.Sprintf("two remedies contradict each other in %s: of %s (%q) and of %s (%q)", in, x.Subject, x.Message, y.Subject, y.Message)
}

func contradicts(a, b *assignment) bool {
	if len(a.path) > len(b.path) {
		a, b = b, a
	}
	switch {
	case !slices.Equal(a.path, b.path[:len(a.path)]):
		return false
	case len(a.path) == len(b.path):
		return a.value != b.value
	}
	return a.fixed || b.fixed
}

// assignments returns the fields that a remedy sets. Elements that a JSON patch adds to or
// removes from a list are none: their places depend on what is there.
func assignments(i *remediate.Intent) (out []assignment) {
	body := bodyOf(&i.Remedy)
	if body == nil {
		return nil
	}
	if !isList(*body) {
		var object map[string]any
		if decode(*body, &object) == nil { // what cannot be decoded fails by itself
			flatten(nil, object, func(path []string, value string) {
				out = append(out, assignment{path: path, value: value, fixed: true, assigner: i})
			})
		}
		return out
	}
	var ops []struct {
		Op, Path, From string
		Value          any
	}
	if decode(*body, &ops) != nil {
		return nil
	}
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
				out = append(out, assignment{path: pointer(op.From), value: "null", assigner: i})
			}
		}
		out = append(out, assignment{path: path, value: value, assigner: i})
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

// flatten yields the fields of an object that are no objects. Lists are values.
func flatten(path []string, value any, yield func(path []string, value string)) {
	object, ok := value.(map[string]any)
	if !ok {
		yield(slices.Clone(path), jsonText(value))
		return
	}
	for field, v := range object {
		flatten(append(path, field), v, yield)
	}
}

func jsonText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // decoded JSON
	}
	return string(text)
}
