package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
)

// actionText writes one Action: what it is, then what it changes.
func actionText(a *v1alpha1.Action, now time.Time, color bool) []byte {
	s, st, t := &a.Spec, &a.Status, &a.Spec.Target
	head := newTable()
	line := func(name, text string) {
		if text != "" {
			head.row(cell{text: name + ":"}, cell{text: text})
		}
	}
	line("Name", a.Name)
	phase := phaseCell(st.Phase)
	head.row(cell{text: "Phase:"}, phase)
	line("Message", st.Message)
	line("Manager", st.Manager)
	line("Policy", fmt.Sprintf("%s (package %s)", s.Binding, s.Package))
	line("Origin", originText(s.Origin))
	line("Violation", s.Violation)
	line("Subject", s.Subject)
	line("Reason", s.Reason)
	line("Rollback of", s.RollbackOf)
	line("Member", t.Member)
	line("Target", strings.TrimSpace(fmt.Sprintf("%s %s", t.Kind, strings.Trim(t.Namespace+"/"+t.Name, "/"))))
	line("Version", versionText(a))
	line("Verb", verbText(s))
	line("Acts as", s.ActAs)
	begin := begun(a)
	line("Recorded", begin.UTC().Format(time.RFC3339)+" ("+age(now, &begin)+" ago)")
	if st.EndedAt != nil {
		line("Ended", st.EndedAt.UTC().Format(time.RFC3339)+" (after "+st.EndedAt.Sub(begin).Round(time.Millisecond).String()+")")
	}
	if st.Attempts > 0 {
		line("Failed requests", fmt.Sprint(st.Attempts))
	}
	line("Revision", s.Revision)
	if st.AcknowledgedBy != "" {
		text := st.AcknowledgedBy
		if st.AcknowledgedAt != nil {
			text += " at " + st.AcknowledgedAt.UTC().Format(time.RFC3339)
		}
		if st.AcknowledgedHalt != "" {
			text += ", halt " + st.AcknowledgedHalt
		}
		line("Acknowledged by", text)
	}
	line("Asked to roll back", a.Labels[api.RollbackKey])
	line("Rollback", a.Annotations[api.RollbackOutcomeKey])
	b := bytes.NewBuffer(head.render(color))
	writeChange(b, a, color)
	return b.Bytes()
}

func originText(o v1alpha1.Origin) string {
	text := o.Path
	if o.Commit != "" {
		text += " at " + string(o.Commit)
	}
	if o.Source != "" {
		text += " of " + o.Source
	}
	return strings.TrimSpace(text)
}

func versionText(a *v1alpha1.Action) string {
	text := a.Spec.Target.ResourceVersion
	if text == "" {
		text = "none"
	}
	if a.Status.ResourceVersion != "" {
		text += " -> " + a.Status.ResourceVersion
	}
	return text
}

func verbText(s *v1alpha1.ActionSpec) string {
	text := string(s.Verb)
	for _, more := range []string{string(s.PatchType), string(s.PropagationPolicy), string(s.Mode)} {
		if more != "" {
			text += ", " + more
		}
	}
	if s.Force {
		text += ", forced"
	}
	return text
}

// writeChange writes what an Action changes, a line for each field: what was there
// before, by the inverse, and what it wants there.
func writeChange(b *bytes.Buffer, a *v1alpha1.Action, color bool) {
	add, remove := side{"+", green, color}, side{"-", red, color}
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
		b.WriteString("  the values of a Secret are not recorded\n")
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
		// What the inverse does not bring back was there before.
		if _, changed := before[path]; changed || verb != "patch" || beside(path, before) {
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
		fmt.Fprintf(b, "Cannot be taken back: %s\n", printable(a.Inverse.Irreversible))
	}
}

// beside reports whether a path is below or above one of a change: where a list or an
// object came or went as a whole.
func beside(path string, before map[string]string) bool {
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
	text := l.mark + " " + printable(path)
	if value != "" {
		text += ": " + printable(value)
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
		fmt.Fprintf(b, "  %s\n", printable(string(text)))
		return
	}
	line := op.Op + " " + op.Path
	if op.From != "" {
		line = op.Op + " " + op.From + " to " + op.Path
	}
	if len(op.Value) > 0 {
		line += ": " + string(op.Value)
	}
	fmt.Fprintf(b, "  %s\n", printable(line))
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

// flatten notes fields by their paths. Lists are values: patches replace them.
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
