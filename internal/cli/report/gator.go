package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Enforced is what a constraint of Gatekeeper, or a ValidatingAdmissionPolicyBinding, does
// about a violation at admission, with what Gatekeeper's own tool says of it.
type Enforced struct {
	Actions    []string        // as they are written, at the enforcement point of manifests; none: not evaluated there
	Scoped     bool            // they are scopedEnforcementActions
	Constraint map[string]any  // its manifest
	Parameters map[string]any  // with the defaults of the template's schema
	Object     json.RawMessage // that violates it, as it was given
	Details    json.RawMessage // as Gatekeeper has them; nil: none
	Order      int             // of the object among those that were given
	Again      []int           // its orders where it was given again
	Override   string          // what an ExpansionTemplate says instead of Actions; "" for nothing
}

// denies reports whether a violation would be denied, so that a check fails.
func (e *Enforced) denies() bool {
	if e == nil || e.Override == "deny" {
		return true
	}
	return (e.Override == "" || e.Scoped) && slices.ContainsFunc(e.Actions, func(a string) bool { return strings.EqualFold(a, "deny") })
}

// gatorResult is one violation as `gator test -o json` writes it.
type gatorResult struct {
	Target            string                     `json:"target"`
	Msg               string                     `json:"msg,omitempty"`
	Metadata          map[string]json.RawMessage `json:"metadata,omitempty"`
	Constraint        map[string]any             `json:"constraint"`
	EnforcementAction string                     `json:"enforcementAction"`
	Scoped            []string                   `json:"scopedActions,omitempty"`
	ViolatingObject   json.RawMessage            `json:"violatingObject"`
	Trace             *string                    `json:"trace"`

	order int
}

const gatorTarget = "admission.k8s.gatekeeper.sh"

// gator returns the violations of constraints as gator orders them.
func (r *Report) gator(denyOnly bool) []gatorResult {
	var out []gatorResult
	for _, x := range r.Results {
		if x.State != Violation || x.Enforced == nil || len(x.Enforced.Actions) == 0 || denyOnly && !x.Enforced.denies() {
			continue
		}
		g := gatorResult{Target: gatorTarget, Msg: x.Message, Constraint: defaulted(x.Enforced), ViolatingObject: x.Enforced.Object, order: x.Enforced.Order}
		if x.Enforced.Details != nil {
			g.Metadata = map[string]json.RawMessage{"details": x.Enforced.Details}
		}
		if g.EnforcementAction = strings.Join(x.Enforced.Actions, ","); x.Enforced.Scoped {
			g.EnforcementAction, g.Scoped = "scoped", x.Enforced.Actions
		}
		g.EnforcementAction = cmp.Or(x.Enforced.Override, g.EnforcementAction)
		out = append(out, g)
		for _, g.order = range x.Enforced.Again {
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(a, b gatorResult) int {
		return cmp.Or(cmp.Compare(a.EnforcementAction, b.EnforcementAction), cmp.Compare(a.Msg, b.Msg), cmp.Compare(a.order, b.order))
	})
	return out
}

// defaulted returns a constraint with its enforcementAction, which is deny if it has none,
// and the defaults of its parameters.
func defaulted(e *Enforced) map[string]any {
	spec, _ := e.Constraint["spec"].(map[string]any)
	with := map[string]any{}
	maps.Copy(with, spec)
	if action, _ := spec["enforcementAction"].(string); action == "" {
		with["enforcementAction"] = "deny"
	}
	if len(e.Parameters) > 0 {
		with["parameters"] = e.Parameters
	}
	out := maps.Clone(e.Constraint)
	out["spec"] = with
	return out
}

// IsGator reports whether a format is one of gator.
func IsGator(format string) bool { return format == "gator" || strings.HasPrefix(format, "gator-") }

// writeGator writes the violations of constraints as `gator test` does.
func (r *Report) writeGator(w io.Writer, format string, denyOnly bool) error {
	results := r.gator(denyOnly)
	switch format {
	case "gator-json":
		raw, err := json.MarshalIndent(results, "", "    ")
		if err == nil {
			_, err = w.Write(raw)
		}
		return err
	case "gator-yaml":
		raw, err := gatorYAML(results)
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

// yamlResult is one violation as `gator test -o yaml` writes it: the fields of its own
// types, which have no names for YAML.
type yamlResult struct {
	Result struct {
		Target     string
		Msg        string
		Metadata   map[string]any
		Constraint struct {
			Object map[string]any
		}
		EnforcementAction        string
		ScopedEnforcementActions []string
	}
	ViolatingObject map[string]any `yaml:"violatingObject"`
	Trace           *string        `yaml:"trace,flow"`
}

func gatorYAML(results []gatorResult) ([]byte, error) {
	out := []*yamlResult{}
	for i := range results {
		g, y := &results[i], &yamlResult{}
		y.Result.Target, y.Result.Msg = g.Target, g.Msg
		y.Result.EnforcementAction, y.Result.ScopedEnforcementActions = g.EnforcementAction, g.Scoped
		y.Result.Constraint.Object = g.Constraint
		if len(g.Metadata) > 0 {
			y.Result.Metadata = map[string]any{}
		}
		for key, raw := range g.Metadata {
			var v any
			if err := json.Unmarshal(raw, &v); err != nil {
				return nil, err
			}
			y.Result.Metadata[key] = v
		}
		if err := json.Unmarshal(g.ViolatingObject, &y.ViolatingObject); err != nil {
			return nil, err
		}
		out = append(out, y)
	}
	return yaml.Marshal(out)
}
