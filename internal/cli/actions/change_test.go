package actions

import (
	"strings"
	"testing"
	"time"

	"federator.dev/federator/api/v1alpha1"
)

// TestWriteChange_ShowsEachField: a line for each field, and nothing that steers a
// terminal.
func TestWriteChange_ShowsEachField(t *testing.T) {
	for _, test := range []struct {
		name, verb, patch, inverseVerb, inverse, irreversible string
		want                                                  string
	}{
		{"merge", "patch", `{"data":{"a":"2","same":"x","b":null}}`, "patch", `{"data":{"a":"1","b":"3"}}`, "", "  - data.a: \"1\"\n  + data.a: \"2\"\n  - data.b: \"3\"\n"},
		{
			"added", "patch", `{"metadata":{"annotations":{"x.io/y":"\u001b[31m"}}}`, "patch", `{"metadata":{"annotations":null}}`, "",
			"  + metadata.annotations[\"x.io/y\"]: \"\\u001b[31m\"\n",
		},
		{"apply that creates", "apply", `{"apiVersion":"v1","data":{"a":"2"}}`, "delete", "", "", "  + apiVersion: \"v1\"\n  + data.a: \"2\"\n"},
		{"delete", "delete", "", "apply", `{"apiVersion":"v1","data":{"a":"1"}}`, "", "  - the object\n  - apiVersion: \"v1\"\n  - data.a: \"1\"\n"},
		{
			"JSON patch", "patch", `[{"op":"replace","path":"/spec/replicas","value":1},{"op":"move","from":"/a","path":"/b"}]`, "patch", `{"spec":{"replicas":3}}`, "",
			"  replace /spec/replicas: 1\n  move /a to /b\n  - spec.replicas: 3\n",
		},
		{"a Secret", "patch", "", "", "", "its values are not recorded", "  the values of a Secret are not recorded\nCannot be rolled back: its values are not recorded\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &v1alpha1.Action{Spec: v1alpha1.ActionSpec{Verb: v1alpha1.Verb(test.verb), Patch: v1alpha1.JSONText(test.patch)}}
			a.Inverse = &v1alpha1.Inverse{Verb: v1alpha1.Verb(test.inverseVerb), Patch: v1alpha1.JSONText(test.inverse), Irreversible: test.irreversible}
			_, got, _ := strings.Cut(string(actionText(a, time.Now(), false)), "\nChange:\n")
			if got != test.want {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
		})
	}
}
