package actions

import (
	"strings"
	"testing"
	"time"

	"federator.dev/federator/api/v1alpha1"
)

// TestNotRestored_SaysWhatARollbackCannotUndo, before it is asked for.
func TestNotRestored_SaysWhatARollbackCannotUndo(t *testing.T) {
	for _, test := range []struct {
		name, kind, verb, inverse, body, propagation, irreversible string
		phase                                                      v1alpha1.ActionPhase
		want                                                       []string
		not                                                        string
	}{
		{"a deleted claim", "PersistentVolumeClaim", "delete", "apply", `{}`, "", "", v1alpha1.PhaseSucceeded, []string{"data of its volume", "UID", "dependents"}, ""},
		{"a deleted Pod of a controller", "Pod", "delete", "apply", `{"metadata":{"generateName":"web-","ownerReferences":[{"name":"web"}]}}`, "", "", v1alpha1.PhaseSucceeded, []string{"emptyDir", "generated name", "owner is gone"}, ""},
		{"a StatefulSet, whose dependents stay", "StatefulSet.apps", "delete", "apply", `{}`, "Orphan", "", v1alpha1.PhaseSucceeded, []string{"claims"}, "dependents"},
		{"one that was made", "Service", "apply", "delete", "", "", "", v1alpha1.PhaseSucceeded, []string{"others have made since"}, "UID"},
		{"a patch", "Deployment.apps", "patch", "patch", `{"spec":{"replicas":1}}`, "", "", v1alpha1.PhaseSucceeded, []string{"Pods that were replaced"}, "UID"},
		{"an irreversible one", "Secret", "delete", "", "", "", "values of Secrets are not stored", v1alpha1.PhaseSucceeded, nil, "not restore"},
		{"one that was not written", "Pod", "delete", "apply", `{}`, "", "", v1alpha1.PhaseFailed, nil, "not restore"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &v1alpha1.Action{Spec: v1alpha1.ActionSpec{Verb: v1alpha1.Verb(test.verb), Target: v1alpha1.Target{Kind: v1alpha1.Kind(test.kind)}, Patch: `{}`}}
			a.Spec.PropagationPolicy = "Background"
			if test.propagation == "Orphan" {
				a.Spec.PropagationPolicy = "Orphan"
			}
			a.Inverse = &v1alpha1.Inverse{Verb: v1alpha1.Verb(test.inverse), Patch: v1alpha1.JSONText(test.body), Irreversible: test.irreversible}
			a.Status.Phase = test.phase
			text := string(actionText(a, time.Now(), false))
			_, got, there := strings.Cut(text, "A rollback does not restore:\n")
			if there != (test.want != nil) {
				t.Fatalf("shown:\n%s", text)
			}
			for _, w := range test.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q is not in\n%s", w, got)
				}
			}
			if test.not != "" && strings.Contains(got, test.not) {
				t.Errorf("%q is in\n%s", test.not, got)
			}
		})
	}
}
