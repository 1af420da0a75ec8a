package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"federator.dev/federator/api/v1alpha1"
)

func Example() {
	count := int32(20)
	p := v1alpha1.FleetPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "FleetPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "unique-host"},
		Spec: v1alpha1.FleetPolicySpec{
			Package: "federator.network.unique_host",
			Members: v1alpha1.MemberSelector{Names: []v1alpha1.MemberPattern{"fleet/*"}},
			Mode:    v1alpha1.Enforce,
			Limits: v1alpha1.Limits{
				Window:      &metav1.Duration{Duration: 30 * time.Minute},
				MaxAffected: v1alpha1.MaxAffected{Policy: &v1alpha1.Limit{Count: &count}},
			},
		},
	}
	text, err := json.MarshalIndent(p, "", "  ")
	fmt.Println(string(text), err)
	// Output:
	// {
	//   "kind": "FleetPolicy",
	//   "apiVersion": "federator.dev/v1alpha1",
	//   "metadata": {
	//     "name": "unique-host"
	//   },
	//   "spec": {
	//     "package": "federator.network.unique_host",
	//     "members": {
	//       "names": [
	//         "fleet/*"
	//       ]
	//     },
	//     "mode": "Enforce",
	//     "limits": {
	//       "window": "30m0s",
	//       "maxAffected": {
	//         "policy": {
	//           "count": 20
	//         }
	//       }
	//     }
	//   }
	// } <nil>
}

func TestAddToScheme_RegistersAllKinds(t *testing.T) {
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"FleetPolicy", "PolicySource", "Action", "Plan", "PlanPart", "Approval", "Rollback", "Notification"} {
		for _, name := range []string{kind, kind + "List"} {
			o, err := s.New(v1alpha1.SchemeGroupVersion().WithKind(name))
			if err != nil {
				t.Error(err)
			} else if got := reflect.TypeOf(o).Elem().Name(); got != name {
				t.Errorf("%s is a %s", name, got)
			}
		}
	}
	if got := v1alpha1.Resource(v1alpha1.Actions).String(); got != "federator.dev/v1alpha1, Resource=actions" {
		t.Errorf("got %s", got)
	}
}

func TestLabelSelector_MetaSelectsTheSame(t *testing.T) {
	var none *v1alpha1.LabelSelector
	if none.Meta() != nil {
		t.Error("no selector has become one")
	}
	s := &v1alpha1.LabelSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{"env": "prod"},
		MatchExpressions: []v1alpha1.LabelSelectorRequirement{
			{Key: "region", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"eu", "us"}},
			{Key: "canary", Operator: metav1.LabelSelectorOpDoesNotExist},
		},
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var want metav1.LabelSelector
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	for what, m := range map[string]*metav1.LabelSelector{"Meta": s.Meta(), "JSON": &want} {
		sel, err := metav1.LabelSelectorAsSelector(m)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for text, fits := range map[string]bool{
			"env=prod,region=eu": true, "env=prod,region=us": true, "env=prod,region=ap": false, "env=dev,region=eu": false, "env=prod,region=eu,canary=x": false, "env=prod": false,
		} {
			set, err := labels.ConvertSelectorToLabelsMap(text)
			if err != nil {
				t.Fatal(err)
			}
			if sel.Matches(set) != fits {
				t.Errorf("%s: %s fits %s: %t", what, sel, text, !fits)
			}
		}
	}
}

func TestAction_Ended(t *testing.T) {
	for phase, want := range map[v1alpha1.ActionPhase]bool{
		"": false, v1alpha1.PhasePending: false, v1alpha1.PhaseWriting: false,
		v1alpha1.PhaseSucceeded: true, v1alpha1.PhaseNoOp: true, v1alpha1.PhaseFailed: true, v1alpha1.PhaseSuperseded: true,
		v1alpha1.PhaseContended: true, v1alpha1.PhaseProtected: true, v1alpha1.PhaseRolledBack: true,
	} {
		a := &v1alpha1.Action{Status: v1alpha1.ActionStatus{Phase: phase}}
		if a.Ended() != want {
			t.Errorf("%q: %t", phase, a.Ended())
		}
	}
}

func TestPlanPart_GroupsDecodesTargets(t *testing.T) {
	want := []v1alpha1.PlanGroup{{
		Member: "fleet/eu-1", MemberUID: "u", APIVersion: "v1", Kind: "Pod", Verb: v1alpha1.Delete,
		Targets: []v1alpha1.PlannedTarget{{Namespace: "shop", Name: "web", UID: "v", Remedy: "00", Irreversible: "no", DryRun: v1alpha1.DryRunPassed}},
	}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.PlanPart{Spec: v1alpha1.PlanPartSpec{Targets: string(text)}}
	if got, err := p.Groups(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	p.Name, p.Spec.Targets = "x-1", "{"
	if _, err := p.Groups(); err == nil || !strings.Contains(err.Error(), `planpart "x-1": spec.targets: `) {
		t.Errorf("got %v", err)
	}
}
