package remediate

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
)

// correction is a correction of an object, and its expected outcome.
type correction struct {
	name    string
	kind    policy.Kind // ConfigMap by default
	object  string      // the target as it is evaluated; "" where there is none
	remedy  policy.Remedy
	intent  func(*Intent)
	between func(s *fixture, target string) // after the target was evaluated
	phase   v1alpha1.ActionPhase
	message string         // a substring
	manager string         // of a Contended one
	gives   map[string]any // fields of the target afterwards; nil: it is gone
	same    bool           // nothing was written
}

const oneMap = `{"metadata":{"name":"%s","labels":{"app":"web"}},"data":{"a":"1","b":"2"}}`

func apply(object string) policy.Remedy {
	return policy.Remedy{Action: "apply", Object: json.RawMessage(object)}
}

func patch(text string) policy.Remedy {
	return policy.Remedy{Action: "patch", Patch: json.RawMessage(text)}
}

var corrections = []correction{
	{
		name: "apply adds to an object", object: oneMap, remedy: apply(`{"apiVersion":"v1","data":{"c":"3"}}`), phase: v1alpha1.PhaseSucceeded,
		gives: map[string]any{"data.a": "1", "data.c": "3", "metadata.labels.app": "web"},
	},
	{
		name: "apply creates an object", remedy: apply(`{"apiVersion":"v1","data":{"c":"3"}}`), phase: v1alpha1.PhaseSucceeded,
		gives: map[string]any{"data.c": "3"},
	},
	{
		name: "apply creates an object of a cluster", kind: "PriorityClass.scheduling.k8s.io",
		remedy: apply(`{"apiVersion":"scheduling.k8s.io/v1","value":7}`), phase: v1alpha1.PhaseSucceeded, gives: map[string]any{"value": int64(7)},
	},
	{
		name: "apply to be created finds an object", remedy: apply(`{"apiVersion":"v1","data":{"a":"3"}}`), phase: v1alpha1.PhaseSuperseded, message: "has changed", same: true,
		between: func(s *fixture, target string) { s.create("ConfigMap", fmt.Sprintf(oneMap, target)) },
		gives:   map[string]any{"data.a": "1"},
	},
	{
		name: "apply over a field of another", object: oneMap, remedy: apply(`{"apiVersion":"v1","data":{"a":"3"}}`), phase: v1alpha1.PhaseContended,
		manager: "somebody", message: "conflict", same: true, gives: map[string]any{"data.a": "1"},
	},
	{
		name: "apply over a field of another by force", object: oneMap, remedy: apply(`{"apiVersion":"v1","data":{"a":"3"}}`), phase: v1alpha1.PhaseSucceeded,
		intent: func(i *Intent) { i.Force = true }, gives: map[string]any{"data.a": "3", "data.b": "2"},
	},
	{
		name: "apply of what is there", object: oneMap, remedy: apply(`{"apiVersion":"v1","data":{"a":"1"}}`), phase: v1alpha1.PhaseNoOp, same: true,
		gives: map[string]any{"data.a": "1"},
	},
	{
		name: "apply of what the index has cut", object: oneMap, phase: v1alpha1.PhaseFailed, message: "are redacted", same: true,
		remedy: apply(`{"apiVersion":"v1","metadata":{"annotations":{"federator.dev/redacted":"true"}},"data":{"a":""}}`), gives: map[string]any{"data.a": "1"},
	},
	{
		name: "apply with a field that there is not", object: oneMap, remedy: apply(`{"apiVersion":"v1","dota":{"a":"3"}}`), phase: v1alpha1.PhaseFailed, message: "dota", same: true,
		gives: map[string]any{"data.a": "1"},
	},
	{
		name: "apply in a namespace that there is not", remedy: apply(`{"apiVersion":"v1","data":{"a":"3"}}`), phase: v1alpha1.PhaseFailed, message: `namespaces "nowhere" not found`, same: true,
		intent: func(i *Intent) { i.Remedy.Target.Namespace = "nowhere" },
	},
	{
		name: "a kind that is not served", kind: "Widget.example.com", remedy: apply(`{"apiVersion":"example.com/v1","spec":{}}`), phase: v1alpha1.PhaseFailed, same: true,
		message: "could not find the requested resource",
	},
	{
		name: "merge patch", object: oneMap, remedy: patch(`{"data":{"a":"3","b":null}}`), phase: v1alpha1.PhaseSucceeded,
		gives: map[string]any{"data.a": "3", "data.b": nil, "metadata.labels.app": "web"},
	},
	{
		name: "merge patch of what is there", object: oneMap, remedy: patch(`{"data":{"a":"1"}}`), phase: v1alpha1.PhaseNoOp, same: true, gives: map[string]any{"data.a": "1"},
	},
	{
		name: "merge patch with a field that there is not", object: oneMap, remedy: patch(`{"dota":{"a":"3"}}`), phase: v1alpha1.PhaseFailed, message: "dota", same: true,
		gives: map[string]any{"data.a": "1"},
	},
	{
		name: "merge patch that removes the metadata", object: oneMap, remedy: patch(`{"metadata":null}`), phase: v1alpha1.PhaseFailed, message: "cannot be removed entirely", same: true,
		gives: map[string]any{"data.a": "1"},
	},
	{
		name: "patch of what is not there", remedy: patch(`{"data":{"a":"3"}}`), phase: v1alpha1.PhaseFailed, message: "cannot be recorded", same: true,
	},
	{
		name: "JSON patch of an object without annotations", object: oneMap, phase: v1alpha1.PhaseSucceeded,
		remedy: patch(`[{"op":"test","path":"/data/a","value":"1"},{"op":"replace","path":"/data/a","value":"3"},{"op":"add","path":"/metadata/annotations/x","value":"y"}]`),
		gives:  map[string]any{"data.a": "3", "metadata.annotations.x": "y"},
	},
	{
		name: "JSON patch of an object with annotations", object: `{"metadata":{"name":"%s","annotations":{"x":"y"}},"data":{"a":"1"}}`, phase: v1alpha1.PhaseSucceeded,
		remedy: patch(`[{"op":"remove","path":"/data/a"}]`), gives: map[string]any{"data.a": nil, "metadata.annotations.x": "y"},
	},
	{
		name: "JSON patch that removes the annotations", object: `{"metadata":{"name":"%s","annotations":{"x":"y"}},"data":{"a":"1"}}`, phase: v1alpha1.PhaseSucceeded,
		remedy: patch(`[{"op":"remove","path":"/metadata/annotations"}]`), gives: map[string]any{"data.a": "1", "metadata.annotations.x": nil},
	},
	{
		name: "JSON patch whose test fails", object: oneMap, remedy: patch(`[{"op":"test","path":"/data/a","value":"7"},{"op":"remove","path":"/data/a"}]`),
		phase: v1alpha1.PhaseFailed, same: true, gives: map[string]any{"data.a": "1"},
	},
	{
		name: "delete", object: oneMap, remedy: policy.Remedy{Action: "delete", Propagation: "Background"}, phase: v1alpha1.PhaseSucceeded,
	},
	{
		name: "delete of what is being deleted", object: `{"metadata":{"name":"%s","finalizers":["example.com/wait"]},"data":{"a":"1"}}`, phase: v1alpha1.PhaseNoOp, same: true,
		remedy: policy.Remedy{Action: "delete"}, gives: map[string]any{"data.a": "1"},
	},
	{
		name: "delete in the foreground waits for finalizers", object: oneMap, remedy: policy.Remedy{Action: "delete", Propagation: "Foreground"}, phase: v1alpha1.PhaseSucceeded,
		gives: map[string]any{"data.a": "1", "metadata.finalizers": []any{"foregroundDeletion"}},
	},
	{
		name: "an object that has changed", object: oneMap, remedy: patch(`{"data":{"a":"3"}}`), phase: v1alpha1.PhaseSuperseded, message: "has changed", same: true,
		between: func(s *fixture, target string) { s.merge("ConfigMap", target, `{"data":{"z":"9"}}`) }, gives: map[string]any{"data.a": "1", "data.z": "9"},
	},
	{
		name: "an object that is another one", object: oneMap, remedy: policy.Remedy{Action: "delete"}, phase: v1alpha1.PhaseSuperseded, same: true,
		between: func(s *fixture, target string) {
			s.remove("ConfigMap", target)
			s.create("ConfigMap", fmt.Sprintf(oneMap, target))
		},
		gives: map[string]any{"data.a": "1"},
	},
	{
		name: "an object that is protected", object: `{"metadata":{"name":"%s","annotations":{"federator.dev/protect":""}},"data":{"a":"1"}}`, phase: v1alpha1.PhaseProtected, same: true,
		remedy: patch(`{"data":{"a":"3"}}`), message: "annotated", gives: map[string]any{"data.a": "1"},
	},
	{
		name: "a kind that is protected", kind: "Role.rbac.authorization.k8s.io", object: `{"metadata":{"name":"%s"},"rules":[]}`, phase: v1alpha1.PhaseProtected, same: true,
		remedy: policy.Remedy{Action: "delete"}, message: "RBAC", gives: map[string]any{},
	},
	{
		name: "a patch that is too large to be recorded", object: oneMap, phase: v1alpha1.PhaseFailed, message: "at most 262144 are recorded", same: true,
		remedy: patch(`{"data":{"a":"` + strings.Repeat("x", maxPatch) + `"}}`), gives: map[string]any{"data.a": "1"},
	},
	{
		name: "an apiVersion of another group", object: oneMap, remedy: apply(`{"apiVersion":"apps/v1","data":{"a":"3"}}`), phase: v1alpha1.PhaseFailed, message: "does not serve", same: true,
		gives: map[string]any{"data.a": "1"},
	},
	{
		name: "an immutable field", kind: "Deployment.apps", phase: v1alpha1.PhaseFailed, message: "immutable", same: true,
		object: `{"metadata":{"name":"%s"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		remedy: patch(`{"spec":{"selector":{"matchLabels":{"a":"c"}},"template":{"metadata":{"labels":{"a":"c"}}}}}`), gives: map[string]any{"spec.selector.matchLabels.a": "b"},
	},
}

// TestExecutor_Outcomes is the table of all outcomes of a correction while hub and member
// answer.
func TestExecutor_Outcomes(t *testing.T) {
	s := newFixture(t)
	for n, c := range corrections {
		t.Run(c.name, func(t *testing.T) {
			s := *s
			s.T = t
			c.run(&s, fmt.Sprintf("%s-%d", s.ns, n))
		})
	}
}

func (c *correction) run(s *fixture, name string) {
	if c.kind == "" {
		c.kind = "ConfigMap"
	}
	var object *unstructured.Unstructured
	if c.object != "" {
		object = s.create(c.kind, fmt.Sprintf(c.object, name))
		if len(object.GetFinalizers()) > 0 {
			s.remove(c.kind, name)
			var err error
			if object, err = s.objects(c.kind).Get(s.Context(), name, metav1.GetOptions{}); err != nil {
				s.Fatal(err)
			}
		}
	}
	c.remedy.Target = policy.Ref{Kind: c.kind, Name: name, Namespace: s.ns}
	if !servedKinds[c.kind].Namespaced {
		c.remedy.Target.Namespace = ""
	}
	i := s.intentFor(object, c.remedy)
	if c.intent != nil {
		c.intent(i)
	}
	if c.between != nil {
		c.between(s, name)
	}
	before := s.get(c.kind, name)
	a := s.execute(i)
	if a.Phase != c.phase || !strings.Contains(a.Message, c.message) || a.Manager != c.manager {
		s.Errorf("%s %q by %q, want %s %q by %q", a.Phase, a.Message, a.Manager, c.phase, c.message, c.manager)
	}
	if len(a.Message) > maxMessage {
		s.Errorf("a message of %d bytes", len(a.Message))
	}
	after := s.get(c.kind, name)
	if c.same != reflect.DeepEqual(before, after) {
		s.Errorf("before %v, after %v: the same: want %v", before, after, c.same)
	}
	if (c.gives == nil) != (after == nil) {
		s.Fatalf("after: %v", after)
	}
	for field, want := range c.gives {
		if got, _, _ := unstructured.NestedFieldNoCopy(after, strings.Split(field, ".")...); !reflect.DeepEqual(got, want) {
			s.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	c.record(s, a, after)
}

// record compares the record on the hub with the action.
func (c *correction) record(s *fixture, a *Action, after map[string]any) {
	s.Helper()
	known := s.recorded(a.Name)
	switch c.phase {
	case v1alpha1.PhaseNoOp, v1alpha1.PhaseProtected, v1alpha1.PhaseSuperseded:
		if known != nil {
			s.Errorf("recorded: %+v", known)
		}
		return
	}
	if strings.Contains(a.Message, "recorded") {
		if known != nil {
			s.Errorf("recorded: %+v", known)
		}
		return
	}
	if known == nil {
		s.Fatal("it is not recorded")
	}
	if known.Phase != a.Phase || known.Message != a.Message || known.Manager != a.Manager || known.WrittenVersion != a.WrittenVersion || known.Ended.IsZero() {
		s.Errorf("recorded %+v, want %+v", known, a)
	}
	if c.phase != v1alpha1.PhaseSucceeded {
		return
	}
	if known.InverseVerb == "" && known.Irreversible == "" {
		s.Errorf("no inverse: %+v", known)
	}
	if got := objects.Digest(after, c.kind == "Secret"); c.remedy.Action != "delete" && (got != known.AfterHash || known.BeforeHash == known.AfterHash) {
		s.Errorf("digest %s, recorded after %s, before %s", got, known.AfterHash, known.BeforeHash)
	}
	if after == nil || c.remedy.Action == "delete" {
		return
	}
	if objects.Annotations(after)[actionAnnotation] != a.Name {
		s.Errorf("annotations %v, want %s", objects.Annotations(after), a.Name)
	}
	if _, version := objects.Identity(after); version != known.WrittenVersion {
		s.Errorf("resourceVersion %s, recorded %s", version, known.WrittenVersion)
	}
	managed := fmt.Sprint(after["metadata"].(map[string]any)["managedFields"])
	if !strings.Contains(managed, "federator/"+s.binding) {
		s.Errorf("managed by %s", managed)
	}
}
