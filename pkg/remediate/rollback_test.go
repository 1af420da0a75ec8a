package remediate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
)

const (
	aDeployment = `{"metadata":{"name":"%s","labels":{"app":"web"},"annotations":{"note":"x"}},"spec":{"replicas":3,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[
			{"name":"one","image":"i:1","env":[{"name":"A","value":"1"}],"resources":{"limits":{"cpu":"1"}}},{"name":"two","image":"j:1"}]}}}}`
	aService = `{"metadata":{"name":"%s"},"spec":{"selector":{"a":"b"},"ports":[{"port":80,"targetPort":"http"}]}}`
)

var reversible = []struct {
	name   string
	kind   policy.Kind
	object string
	remedy policy.Remedy
}{
	{"merge patch", "ConfigMap", oneMap, patch(`{"metadata":{"labels":{"app":null,"tier":"gold"},"annotations":{"x":"y"}},"data":{"a":"3","b":null,"c":"4"}}`)},
	{"merge patch of all data", "ConfigMap", oneMap, patch(`{"data":null,"binaryData":{"x":"AAEC"}}`)},
	{"JSON patch", "Deployment.apps", aDeployment, patch(`[{"op":"remove","path":"/metadata/annotations"},
		{"op":"add","path":"/spec/template/spec/containers/0/env/-","value":{"name":"B","value":"2"}},
		{"op":"remove","path":"/spec/template/spec/containers/1"},{"op":"replace","path":"/spec/replicas","value":1}]`)},
	{"merge patch of a list", "Deployment.apps", aDeployment, patch(`{"spec":{"template":{"spec":{"containers":[{"name":"one","image":"i:2"}]}}}}`)},
	{"apply", "Deployment.apps", aDeployment, apply(`{"apiVersion":"apps/v1","metadata":{"labels":{"tier":"gold"}},
		"spec":{"template":{"spec":{"containers":[{"name":"one","securityContext":{"runAsNonRoot":true}}]}}}}`)},
	{"apply that creates", "ConfigMap", "", apply(`{"apiVersion":"v1","data":{"a":"3"}}`)},
	{"delete", "ConfigMap", oneMap, policy.Remedy{Action: "delete"}},
	{"delete of a service", "Service", aService, policy.Remedy{Action: "delete"}},
	{"a Secret's label", "Secret", `{"metadata":{"name":"%s"},"stringData":{"a":"1"}}`, patch(`{"metadata":{"labels":{"tier":"gold"}}}`)},
}

// TestInverseIntent_RestoresExactly: the target's content is restored by the same guarded
// path, and recorded.
func TestInverseIntent_RestoresExactly(t *testing.T) {
	s := newFixture(t)
	for n, c := range reversible {
		t.Run(c.name, func(t *testing.T) {
			s := *s
			s.T = t
			name := fmt.Sprintf("target-%d", n)
			var object *unstructured.Unstructured
			c.remedy.Target = policy.Ref{Kind: c.kind, Namespace: s.ns, Name: name}
			if c.object != "" {
				object = s.create(c.kind, fmt.Sprintf(c.object, name))
			}
			before := s.get(c.kind, name)
			a := s.execute(s.intentFor(object, c.remedy))
			if a.Phase != v1alpha1.PhaseSucceeded {
				t.Fatalf("%s %s", a.Phase, a.Message)
			}
			if objects.Same(before, s.get(c.kind, name)) {
				t.Fatal("it has changed nothing")
			}
			known := s.recorded(a.Name)
			back := s.execute(s.rollbackIntent(known, false))
			if back.Phase != v1alpha1.PhaseSucceeded {
				t.Fatalf("back: %s %s", back.Phase, back.Message)
			}
			after := s.get(c.kind, name)
			b, a2 := objects.Content(before), objects.Content(after)
			delete(b, "status")
			delete(a2, "status")
			if !reflect.DeepEqual(b, a2) {
				t.Errorf("before %s\nafter  %s", text(b), text(a2))
			}
			if got := s.recorded(a.Name); got.Phase != v1alpha1.PhaseRolledBack || !strings.Contains(got.Message, back.Name) || !got.Ended.After(known.Ended) {
				t.Errorf("recorded: %+v", got)
			}
			if got := s.recorded(back.Name); got.RollbackOf != a.Name || got.Phase != v1alpha1.PhaseSucceeded {
				t.Errorf("recorded: %+v", got)
			}
			if _, err := inverseIntent(s.recorded(a.Name), targetState{}, true); !errors.Is(err, ErrIrreversible) {
				t.Errorf("back a second time: %v", err)
			}
		})
	}
}

func text(object any) string {
	out, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// rollbackIntent is the intent that rolls an action back, with its target's present version.
func (s *fixture) rollbackIntent(a *Action, force bool) *Intent {
	s.Helper()
	now, err := readTargetState(s.Context(), s.clients(), a, s.exec.withholds(a.Remedy.Target.Kind))
	if err != nil {
		s.Fatal(err)
	}
	i, err := inverseIntent(a, now, force)
	if err != nil {
		s.Fatal(err)
	}
	return i
}

// TestInverseIntent_RefusesChangedTargets: unless forced, and then the other fields stay.
func TestInverseIntent_RefusesChangedTargets(t *testing.T) {
	s := newFixture(t)
	object := s.create("ConfigMap", fmt.Sprintf(oneMap, "one"))
	a := s.execute(s.intentFor(object, patch(`{"data":{"a":"3"}}`)))
	s.merge("ConfigMap", "one", `{"data":{"a":"9","z":"9"}}`)
	now, err := readTargetState(t.Context(), s.clients(), a, s.exec.withholds(a.Remedy.Target.Kind))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inverseIntent(a, now, false); !errors.Is(err, ErrChanged) {
		t.Errorf("%v, want ErrChanged", err)
	}
	i, err := inverseIntent(a, now, true)
	if err != nil {
		t.Fatal(err)
	}
	// It is executed like any other: what changes in between is not overwritten.
	s.merge("ConfigMap", "one", `{"data":{"y":"8"}}`)
	if back := s.execute(i); back.Phase != v1alpha1.PhaseSuperseded || s.recorded(a.Name).Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%s %s", back.Phase, back.Message)
	}
	if back := s.execute(s.rollbackIntent(a, true)); back.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%s %s", back.Phase, back.Message)
	}
	if data := s.get("ConfigMap", "one")["data"]; !reflect.DeepEqual(data, map[string]any{"a": "1", "b": "2", "y": "8", "z": "9"}) {
		t.Errorf("data %v", data)
	}

	// What the action has not set is not a change: others may have set more, and keep it.
	object = s.create("ConfigMap", fmt.Sprintf(oneMap, "more"))
	a = s.execute(s.intentFor(object, patch(`{"data":{"a":"3"}}`)))
	s.merge("ConfigMap", "more", `{"data":{"z":"9"}}`)
	if back := s.execute(s.rollbackIntent(a, false)); back.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%s %s", back.Phase, back.Message)
	}
	if data := s.get("ConfigMap", "more")["data"]; !reflect.DeepEqual(data, map[string]any{"a": "1", "b": "2", "z": "9"}) {
		t.Errorf("data %v", data)
	}

	// A status, and notes of controllers, are not a change.
	object = s.create("Deployment.apps", fmt.Sprintf(aDeployment, "two"))
	a = s.execute(s.intentFor(object, patch(`{"spec":{"replicas":1}}`)))
	s.merge("Deployment.apps", "two", `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"2"}}}`)
	if back := s.execute(s.rollbackIntent(a, false)); back.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%s %s", back.Phase, back.Message)
	}

	// A target that is gone cannot be patched.
	object = s.create("ConfigMap", fmt.Sprintf(oneMap, "three"))
	a = s.execute(s.intentFor(object, patch(`{"data":{"a":"3"}}`)))
	s.remove("ConfigMap", "three")
	if now, err = readTargetState(t.Context(), s.clients(), a, s.exec.withholds(a.Remedy.Target.Kind)); err != nil || now != (targetState{}) {
		t.Fatal(now, err)
	}
	if _, err := inverseIntent(a, now, true); !errors.Is(err, ErrIrreversible) {
		t.Errorf("%v, want ErrIrreversible", err)
	}
	a.Phase = v1alpha1.PhaseFailed
	if _, err := inverseIntent(a, now, true); !errors.Is(err, ErrIrreversible) {
		t.Errorf("%v, want ErrIrreversible", err)
	}
}

// TestInverseIntent_IgnoresWhatServersGenerate: a Service gets another address and ports than
// in the dry run, and controllers note what they have done.
func TestInverseIntent_IgnoresWhatServersGenerate(t *testing.T) {
	s := newFixture(t)
	i := s.intentFor(nil, apply(`{"apiVersion":"v1","metadata":{"labels":{"a":"b"}},"spec":{"type":"NodePort","selector":{"a":"b"},"ports":[{"name":"x","port":80},{"name":"y","port":81}]}}`))
	i.Remedy.Target = policy.Ref{Member: memberName, Kind: "Service", Namespace: s.ns, Name: "made"}
	a := s.execute(i)
	if a.Phase != v1alpha1.PhaseSucceeded {
		t.Fatalf("%s %s", a.Phase, a.Message)
	}
	if objects.Digest(s.get("Service", "made"), false) == a.AfterHash {
		t.Error("the server has generated nothing, so that this shows nothing")
	}
	s.merge("Service", "made", `{"metadata":{"annotations":{"controller.example.com/seen":"yes"},"finalizers":["example.com/x"]}}`)
	known := s.recorded(a.Name)
	// Somebody else's fields would be deleted with it.
	s.merge("Service", "made", `{"spec":{"sessionAffinity":"ClientIP"}}`)
	now, err := readTargetState(t.Context(), s.clients(), known, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inverseIntent(known, now, false); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "somebody has set fields") {
		t.Errorf("%v, want ErrChanged", err)
	}
	now.Other = ""
	back, err := inverseIntent(known, now, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.execute(back); got.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%s %s", got.Phase, got.Message)
	}
	// A change of what the action set is one.
	s.merge("Service", "made", `{"metadata":{"finalizers":null}}`)
	b := s.execute(i)
	if b.Phase != v1alpha1.PhaseSucceeded {
		t.Fatalf("%s %s", b.Phase, b.Message)
	}
	s.merge("Service", "made", `{"spec":{"selector":{"a":"c"}}}`)
	if now, err = readTargetState(t.Context(), s.clients(), b, false); err != nil {
		t.Fatal(err)
	}
	if _, err := inverseIntent(s.recorded(b.Name), now, false); !errors.Is(err, ErrChanged) {
		t.Errorf("%v, want ErrChanged", err)
	}
}
