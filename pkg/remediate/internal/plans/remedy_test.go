package plans_test

import (
	"encoding/json"
	"testing"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

// TestRemedyDigest: changes in one class are the same change; those in different ones are not.
func TestRemedyDigest(t *testing.T) {
	t.Parallel()
	apply := func(text string) *policy.Remedy {
		return &policy.Remedy{Action: "apply", Object: json.RawMessage(text)}
	}
	patch := func(text string) *policy.Remedy { return &policy.Remedy{Action: "patch", Patch: json.RawMessage(text)} }
	classes := [][]*policy.Remedy{
		{
			apply(`{"spec":{"a":1,"b":[1,2]}}`),
			apply(` {"spec": {"b":[1, 2],"a":1}, "status":{"x":1}}`),
			apply(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"n","namespace":"ns","uid":"u","resourceVersion":"7","generation":2,
				"managedFields":[],"creationTimestamp":"t","annotations":{"federator.dev/action":"a-1"}},"spec":{"a":1,"b":[1,2]}}`),
		},
		{apply(`{"spec":{"a":1,"b":[2,1]}}`)},
		{apply(`{"spec":{"a":1.0,"b":[1,2]}}`)},
		{apply(`{"spec":{"a":12345678901234567890}}`)},
		{apply(`{"spec":{"a":12345678901234567891}}`)},
		{apply(`{"metadata":{"annotations":{"a":"b","federator.dev/action":"x"}}}`), apply(`{"metadata":{"annotations":{"a":"b"}}}`)},
		{apply(`{"metadata":{"labels":{"a":"b"}}}`)},
		{apply(`{}`)},
		{apply(`{`)},
		{apply(`{} {}`)},
		{apply(`null`)},
		{apply(``)},
		{
			patch(`{"spec":{"a":1,"b":[1,2]}}`),
			patch(`{"metadata":{"uid":"u","resourceVersion":"9","annotations":{"federator.dev/action":"a-2"}},"spec":{"b":[1,2],"a":1}}`),
		},
		{patch(`{"spec":{"a":null}}`)},
		{patch(`{}`)},
		{patch(`{"status":{}}`)},
		{patch(`{"metadata":{"name":"n"}}`)},
		{
			patch(`[{"op":"replace","path":"/spec/a","value":1}]`),
			patch(`[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"value":1,"path":"/spec/a","op":"replace"}]`),
			patch(`[{"op":"test","path":"/metadata/uid","value":"u"},{"value":1,"path":"/spec/a","op":"replace"}]`),
		},
		{patch(`[{"op":"test","path":"/spec/a","value":2},{"op":"replace","path":"/spec/a","value":1}]`)},
		{patch(`[{"op":"replace","path":"/metadata/resourceVersion","value":"7"},{"op":"replace","path":"/spec/a","value":1}]`)},
		{patch(`[{"op":"remove","path":"/a"},{"op":"remove","path":"/b"}]`)},
		{patch(`[{"op":"remove","path":"/b"},{"op":"remove","path":"/a"}]`)},
		{patch(`[]`)},
		{{Action: "delete"}},
		{{Action: "delete", Propagation: "Orphan"}},
		{{Action: "delete", Propagation: "Foreground"}},
	}
	seen := map[string]int{}
	for n, class := range classes {
		for _, r := range class {
			r.Target = policy.Ref{Member: "m", Kind: "Deployment.apps", Name: "n"}
			got := string(plans.RemedyDigest(r, "apps/v1", false, ""))
			if at, ok := seen[got]; ok && at != n {
				t.Errorf("%s%s has the digest of class %d", r.Object, r.Patch, at)
			} else if !ok && r != class[0] {
				t.Errorf("%s%s is another change than the first of class %d", r.Object, r.Patch, n)
			}
			seen[got] = n
		}
	}
	r := classes[0][0]
	for name, got := range map[string]string{
		"another API version": string(plans.RemedyDigest(r, "apps/v2", false, "")),
		"force":               string(plans.RemedyDigest(r, "apps/v1", true, "")),
		"another user":        string(plans.RemedyDigest(r, "apps/v1", false, "jo")),
	} {
		if _, ok := seen[got]; ok {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	other := *r
	other.Target = policy.Ref{Member: "x", Kind: "K", Name: "y"}
	if got := string(plans.RemedyDigest(&other, "apps/v1", false, "")); seen[got] != 0 || len(got) != 64 {
		t.Error("the digest depends on the target")
	}
}
