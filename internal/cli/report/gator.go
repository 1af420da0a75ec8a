package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Enforced is what a constraint of Gatekeeper, or a ValidatingAdmissionPolicyBinding, does
// about a violation at admission, with what Gatekeeper's own tool says of it.
type Enforced struct {
	Actions    []string        // as they are written, at the enforcement point of manifests; none: not evaluated there
	Scoped     bool            // they are scopedEnforcementActions
	Constraint map[string]any  // its manifest
	Object     json.RawMessage // that violates it
}

// denies reports whether a violation would be denied, so that a check fails.
func (e *Enforced) denies() bool {
	return e == nil || slices.ContainsFunc(e.Actions, func(a string) bool { return strings.EqualFold(a, "deny") })
}

// gatorResult is one violation as `gator test -o json` writes it.
type gatorResult struct {
	Target            string                     `json:"target"`
	Msg               string                     `json:"msg"`
	Metadata          map[string]json.RawMessage `json:"metadata,omitempty"`
	Constraint        map[string]any             `json:"constraint"`
	EnforcementAction string                     `json:"enforcementAction"`
	Scoped            []string                   `json:"scopedActions,omitempty"`
	ViolatingObject   json.RawMessage            `json:"violatingObject"`
	Trace             *string                    `json:"trace"`
}

const gatorTarget = "admission.k8s.gatekeeper.sh"

// gator returns the violations of constraints as gator orders them.
func (r *Report) gator() []gatorResult {
	var out []gatorResult
	for _, x := range r.Results {
		if x.State != Violation || x.Enforced == nil || len(x.Enforced.Actions) == 0 {
			continue
		}
		g := gatorResult{Target: gatorTarget, Msg: x.Message, Constraint: x.Enforced.Constraint, ViolatingObject: x.Enforced.Object}
		if x.Details != nil {
			g.Metadata = map[string]json.RawMessage{"details": x.Details}
		}
		if g.EnforcementAction = strings.Join(x.Enforced.Actions, ","); x.Enforced.Scoped {
			g.EnforcementAction, g.Scoped = "scoped", x.Enforced.Actions
		}
		out = append(out, g)
	}
	slices.SortStableFunc(out, func(a, b gatorResult) int {
		return cmp.Or(cmp.Compare(a.EnforcementAction, b.EnforcementAction), cmp.Compare(a.Msg, b.Msg))
	})
	return out
}

// writeGator writes the violations of constraints as `gator test` does.
func (r *Report) writeGator(w io.Writer, asJSON bool) error {
	results := r.gator()
	if asJSON {
		raw, err := json.MarshalIndent(results, "", "    ")
		if err == nil {
			_, err = w.Write(raw)
		}
		return err
	}
	var b bytes.Buffer
	for _, g := range results {
		var o struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct{ Namespace, Name string }
		}
		if err := json.Unmarshal(g.ViolatingObject, &o); err != nil {
			return fmt.Errorf("object that violates %s: %w", g.Msg, err)
		}
		name := strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/")
		metadata, _ := g.Constraint["metadata"].(map[string]any)
		fmt.Fprintf(&b, "%s/%s %s: [%q] Message: %q\n", o.APIVersion, o.Kind, name, fmt.Sprint(metadata["name"]), g.Msg)
	}
	_, err := w.Write(b.Bytes())
	return err
}
