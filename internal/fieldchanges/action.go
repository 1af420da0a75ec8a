package fieldchanges

import "bytes"

// Record is what is recorded of a write: what was sent, and what undoes it.
type Record struct {
	Verb    string // apply, patch or delete
	Patch   []byte // an object to apply, a JSON merge patch or a JSON patch; nil: not recorded
	Inverse string // apply, patch or delete; "": there is none
	Undo    []byte // the object, or a merge patch
}

// Of returns what a write has changed as far as its record says. Where before is false the record does not have
// what was before: all that was sent counts as changed.
func Of(r Record) (changes []Change, before bool, err error) {
	was, sent := Absent, Absent
	if r.Undo != nil {
		if was, err = Decode(r.Undo); err != nil {
			return nil, false, err
		}
	}
	var operations []Operation
	switch {
	case r.Patch == nil:
	case isJSONPatch(r.Patch):
		operations, err = ParsePatch(r.Patch)
	default:
		sent, err = Decode(r.Patch)
	}
	if err != nil {
		return nil, false, err
	}
	switch {
	case r.Verb == "delete":
		return []Change{{Before: encode(was)}}, r.Undo != nil, nil
	case r.Inverse == "delete": // it was created
		return Between(Absent, sent), true, nil
	case r.Inverse == "patch":
		return changed(was, sent, operations, r.Verb == "apply"), true, nil
	case operations != nil:
		sent = doLenient(map[string]any{}, operations)
	case sent == Absent:
		return nil, false, nil
	}
	for _, path := range leaves(sent) {
		steps, _ := parsePointer(path)
		value, err := get(sent, steps)
		if err == nil {
			changes = append(changes, Change{Path: path, After: encode(value)})
		}
	}
	return changes, false, nil
}

// changed returns what has changed of the fields that a merge patch restores.
func changed(undo, sent any, operations []Operation, apply bool) []Change {
	before := Merge(map[string]any{}, undo)
	after := before
	switch {
	case operations != nil:
		after = doLenient(before, operations)
	case sent == Absent:
	case apply:
		after = Apply(before, sent)
	default:
		after = Merge(before, sent)
	}
	restored := newPaths(leaves(undo))
	var out []Change
	for _, c := range Between(before, after) {
		if restored.related(c.Path) {
			out = append(out, c)
		}
	}
	return out
}

// doLenient does the operations that fit a part of an object.
func doLenient(value any, operations []Operation) any {
	for _, o := range operations {
		if next, err := o.Do(value); err == nil {
			value = next
		}
	}
	return value
}

// isJSONPatch reports whether a patch is a list of operations.
func isJSONPatch(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) }
