package remediate

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

// TestExecutor_SendsNoValuesOfRedactedKinds: policies do not see values of Secrets and
// ConfigMaps, so what they would write is not sent, and not recorded.
func TestExecutor_SendsNoValuesOfRedactedKinds(t *testing.T) {
	s := newFixture(t)
	s.exec.keepsValues = false
	objects := map[policy.Kind]string{
		"ConfigMap": `{"metadata":{"name":"one","labels":{"tier":"silver"}},"data":{"a":"planted"},"binaryData":{"b":"cGxhbnRlZA=="}}`,
		"Secret":    `{"metadata":{"name":"one","labels":{"tier":"silver"}},"stringData":{"a":"planted"}}`,
	}
	for kind, text := range objects {
		object := s.create(kind, text)
		for name, remedy := range map[string]policy.Remedy{
			"apply of data":              apply(`{"apiVersion":"v1","data":{"a":"planted"}}`),
			"apply of binaryData":        apply(`{"apiVersion":"v1","binaryData":{"a":"cGxhbnRlZA=="}}`),
			"apply of stringData":        apply(`{"apiVersion":"v1","stringData":{"a":"planted"}}`),
			"merge patch":                patch(`{"metadata":{"labels":{"x":"y"}},"data":{"a":"planted"}}`),
			"merge patch that removes":   patch(`{"data":null}`),
			"JSON patch":                 patch(`[{"op":"add","path":"/data/a","value":"planted"}]`),
			"JSON patch of all data":     patch(` [{"op":"remove","path":"/binaryData"}]`),
			"JSON patch of all":          patch(`[{"op":"replace","path":"","value":{"data":{"a":"planted"}}}]`),
			"JSON patch that copies":     patch(`[{"op":"copy","from":"/data/a","path":"/metadata/labels/a"}]`),
			"JSON patch that moves":      patch(`[{"op":"move","from":"/stringData/a","path":"/metadata/labels/a"}]`),
			"JSON patch that looks":      patch(`[{"op":"test","path":"/data/a","value":"planted"}]`),
			"JSON patch after others":    patch(`[{"op":"add","path":"/metadata/labels/x","value":"y"},{"op":"replace","path":"/data","value":{}}]`),
			"apply that would create":    apply(`{"apiVersion":"v1","metadata":{"labels":{"x":"y"}},"data":{}}`),
			"JSON patch with null value": patch(`[{"op":"add","path":"/data/a","value":null}]`),
		} {
			t.Run(string(kind)+" "+name, func(t *testing.T) {
				s := *s
				s.T = t
				s.exec.clients = noClient{}
				defer func() { s.exec.clients = s.clients() }()
				i := s.intentFor(object, remedy)
				a := s.execute(i)
				if a.Phase != v1alpha1.PhaseFailed || !strings.Contains(a.Message, "redacted") || !strings.Contains(a.Message, string(kind)) {
					t.Errorf("%s %s", a.Phase, a.Message)
				}
				if text := s.raw(a.Name); strings.Contains(text, "planted") || strings.Contains(text, "cGxhbnRlZA") {
					t.Errorf("recorded %s", text)
				}
				if x := s.try(i); x.DryRun != v1alpha1.DryRunInvalid || x.Message != a.Message {
					t.Errorf("dry run: %s %s", x.DryRun, x.Message)
				}
			})
		}
		// Labels can be corrected and rolled back.
		a := s.execute(s.intentFor(object, patch(`{"metadata":{"labels":{"tier":"gold"}}}`)))
		if a.Phase != v1alpha1.PhaseSucceeded {
			t.Fatalf("%s: labels: %s %s", kind, a.Phase, a.Message)
		}
		if text := s.raw(a.Name); strings.Contains(text, "planted") || strings.Contains(text, "cGxhbnRlZA") {
			t.Errorf("recorded %s", text)
		}
		if back := s.execute(s.rollbackIntent(s.recorded(a.Name), false)); back.Phase != v1alpha1.PhaseSucceeded {
			t.Errorf("%s: rollback: %s %s", kind, back.Phase, back.Message)
		}
		// A deleted object cannot be restored: its values are recorded nowhere.
		object, err := s.objects(kind).Get(t.Context(), "one", getOptions)
		if err != nil {
			t.Fatal(err)
		}
		a = s.execute(s.intentFor(object, policy.Remedy{Action: "delete"}))
		if a.Phase != v1alpha1.PhaseSucceeded || a.InverseVerb != "" || !strings.Contains(a.Irreversible, "values of "+string(kind)+"s are not stored") {
			t.Errorf("%s: delete: %s %s, inverse %q %s", kind, a.Phase, a.Message, a.InverseVerb, a.Irreversible)
		}
		if text := s.raw(a.Name); strings.Contains(text, "planted") || strings.Contains(text, "cGxhbnRlZA") {
			t.Errorf("recorded %s", text)
		}
	}
}

// TestExecutor_RefusedIntentsAreNotSent, and get an outcome.
func TestExecutor_RefusedIntentsAreNotSent(t *testing.T) {
	s := newFixture(t)
	object := s.create("ConfigMap", oneMap1)
	i := s.intentFor(object, patch(`{"metadata":{"labels":{"tier":"gold"}}}`))
	i.Refused = "two remedies contradict each other"
	s.member.before = func(r *http.Request) error {
		t.Errorf("%s %s was sent", r.Method, r.URL)
		return errors.New("refused")
	}
	if a := s.execute(i); a.Phase != v1alpha1.PhaseFailed || a.Message != i.Refused {
		t.Errorf("%s %s", a.Phase, a.Message)
	} else if known := s.recorded(a.Name); known == nil || known.Message != i.Refused {
		t.Errorf("recorded %+v", known)
	}
}

const oneMap1 = `{"metadata":{"name":"one"},"data":{"a":"1"}}`

// noClient reaches no member.
type noClient struct{}

func (noClient) Client(string, policy.Kind, string) (*Client, error) {
	return nil, errors.New("a member was asked for")
}
