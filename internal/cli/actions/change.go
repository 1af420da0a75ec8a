package actions

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
)

// writeChange writes what an Action changes, a line for each field: the value before, from
// the inverse, and the value after.
func writeChange(b *bytes.Buffer, a *v1alpha1.Action, color bool) {
	add, remove := side{"+", console.Green, color}, side{"-", console.Red, color}
	before, after := map[string]string{}, map[string]string{}
	verb := v1alpha1.Verb("")
	if a.Inverse != nil {
		verb = a.Inverse.Verb
		flattenText(string(a.Inverse.Patch), before)
	}
	b.WriteString("\nChange:\n")
	var ops []json.RawMessage
	switch {
	case a.Spec.Verb == "delete":
		remove.write(b, "the object", "")
	case a.Spec.Patch == "":
		fmt.Fprintf(b, "  the values of a %s are not recorded\n", cmp.Or(string(a.Spec.Target.Kind), "Secret"))
	case json.Unmarshal([]byte(a.Spec.Patch), &ops) == nil: // a JSON patch
		for _, op := range ops {
			writeOperation(b, op)
		}
	default:
		flattenText(string(a.Spec.Patch), after)
	}
	paths := map[string]bool{}
	for path := range before {
		paths[path] = true
	}
	for path := range after {
		// Fields that the inverse does not restore were not changed.
		if _, changed := before[path]; changed || verb != "patch" || related(path, before) {
			paths[path] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if old, ok := before[path]; ok && old != absent {
			remove.write(b, path, old)
		}
		if want, ok := after[path]; ok && want != absent {
			add.write(b, path, want)
		}
	}
	if a.Inverse != nil && a.Inverse.Irreversible != "" {
		fmt.Fprintf(b, "Cannot be rolled back: %s\n", console.Printable(a.Inverse.Irreversible))
	}
	if notes := notRestored(a); len(notes) > 0 {
		b.WriteString("\nA rollback does not restore:\n")
		for _, n := range notes {
			b.WriteString("  " + n + "\n")
		}
	}
}

// related reports whether a path is below or above a changed one, as when a list or an
// object was added or removed.
func related(path string, before map[string]string) bool {
	for other := range before {
		if strings.HasPrefix(path, other+".") || strings.HasPrefix(path, other+"[") || strings.HasPrefix(other, path+".") || strings.HasPrefix(other, path+"[") {
			return true
		}
	}
	return false
}

// side are the lines of one side of a change.
type side struct {
	mark, color string
	colored     bool
}

func (l side) write(b *bytes.Buffer, path, value string) {
	text := l.mark + " " + console.Printable(path)
	if value != "" {
		text += ": " + console.Printable(value)
	}
	if l.colored {
		text = "\x1b[" + l.color + "m" + text + "\x1b[0m"
	}
	b.WriteString("  " + text + "\n")
}

// writeOperation writes an operation of a JSON patch (RFC 6902).
func writeOperation(b *bytes.Buffer, text json.RawMessage) {
	var op struct {
		Op, Path, From string
		Value          json.RawMessage
	}
	if json.Unmarshal(text, &op) != nil {
		fmt.Fprintf(b, "  %s\n", console.Printable(string(text)))
		return
	}
	line := op.Op + " " + op.Path
	if op.From != "" {
		line = op.Op + " " + op.From + " to " + op.Path
	}
	if len(op.Value) > 0 {
		line += ": " + string(op.Value)
	}
	fmt.Fprintf(b, "  %s\n", console.Printable(line))
}

// absent is the value of a field that a merge patch removes.
const absent = "null"

// flattenText finds the fields of a JSON object, and what they are as JSON.
func flattenText(text string, into map[string]string) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var object any
	if d.Decode(&object) == nil {
		flatten("", object, into)
	}
}

var plainField = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// flatten records fields by their paths. Lists are values: patches replace them.
func flatten(path string, value any, into map[string]string) {
	if object, ok := value.(map[string]any); ok && len(object) > 0 {
		for name, v := range object {
			switch {
			case !plainField.MatchString(name):
				flatten(path+"["+strconv.Quote(name)+"]", v, into)
			case path == "":
				flatten(name, v, into)
			default:
				flatten(path+"."+name, v, into)
			}
		}
		return
	}
	text, err := json.Marshal(value)
	if err == nil {
		into[path] = string(text)
	}
}
