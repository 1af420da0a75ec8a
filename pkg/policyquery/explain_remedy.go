package policyquery

import (
	"bytes"
	"slices"
	"strings"

	"federator.dev/federator/api"
	"federator.dev/federator/internal/fieldchanges"
	"federator.dev/federator/pkg/policy"
)

// maxChanges bounds the changes that are listed of one write.
const maxChanges = 500

// remedyOf says what a remedy would change in its target, as the snapshot has it.
func (e *explaining) remedyOf(v *policy.Violation) ExplainedRemedy {
	remedy := v.Remedy
	out := ExplainedRemedy{Violation: v.Msg, Action: remedy.Action, Target: remedy.Target}
	if !e.readable[remedy.Target] {
		out.Problem = "you may not read the target"
		return out
	}
	before, problem := e.target(remedy)
	if problem != "" {
		out.Problem = problem
		return out
	}
	after, err := afterRemedy(before, remedy)
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	out.About = remedy.Action == "apply" && before != fieldchanges.Absent
	out.Changes = fieldchanges.Between(before, after)
	if isRedacted(before) {
		out.Changes = redact(out.Changes)
	}
	out.Changes, out.More = bounded(out.Changes)
	return out
}

// bounded returns the changes that are listed, and how many there are besides.
func bounded(changes []fieldchanges.Change) ([]fieldchanges.Change, int) {
	if len(changes) <= maxChanges {
		return changes, 0
	}
	return changes[:maxChanges], len(changes) - maxChanges
}

// target returns the target of a remedy, Absent where there is none, or why it is not known.
func (e *explaining) target(remedy *policy.Remedy) (object any, problem string) {
	o, ok := e.state.Snapshot.Get(remedy.Target)
	if !ok {
		if remedy.Action == "apply" {
			return fieldchanges.Absent, ""
		}
		return nil, "the target does not exist"
	}
	body, err := o.AppendBody(nil)
	if err != nil {
		return nil, "the target cannot be read: " + err.Error()
	}
	if object, err = fieldchanges.Decode(body); err != nil {
		return nil, "the target cannot be read: " + err.Error()
	}
	return object, ""
}

// afterRemedy returns what an object is after a remedy.
func afterRemedy(before any, remedy *policy.Remedy) (any, error) {
	switch {
	case remedy.Action == "delete":
		return fieldchanges.Absent, nil
	case remedy.Action == "apply":
		config, err := fieldchanges.Decode(remedy.Object)
		if err != nil {
			return nil, err
		}
		return fieldchanges.Apply(before, config), nil
	case bytes.HasPrefix(bytes.TrimSpace(remedy.Patch), []byte("[")):
		operations, err := fieldchanges.ParsePatch(remedy.Patch)
		if err != nil {
			return nil, err
		}
		return fieldchanges.Patch(before, operations)
	}
	patch, err := fieldchanges.Decode(remedy.Patch)
	if err != nil {
		return nil, err
	}
	return fieldchanges.Merge(before, patch), nil
}

// isRedacted reports whether values of an object are not held.
func isRedacted(object any) bool {
	fields, _ := object.(map[string]any)
	meta, _ := fields["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	return notes[api.RedactedKey] != nil
}

// redact leaves out values that are not held: what there is instead of them is no value.
func redact(changes []fieldchanges.Change) []fieldchanges.Change {
	out := slices.Clone(changes)
	for i, c := range out {
		field, _, _ := strings.Cut(strings.TrimPrefix(c.Path, "/"), "/")
		if c.Path == "" || field == "data" || field == "stringData" || field == "binaryData" {
			out[i] = fieldchanges.Change{Path: c.Path, Redacted: true}
		}
	}
	return out
}
