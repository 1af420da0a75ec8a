package notified_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/internal/notified"
)

func fleetPolicy(name string, notifications ...string) *v1alpha1.FleetPolicy {
	return &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FleetPolicySpec{Notifications: notifications}}
}

func Example() {
	var index notified.Index
	hosts := fleetPolicy("hosts", "pager", "chat")
	mayName := func(*v1alpha1.FleetPolicy) ([]string, string) {
		return []string{"chat"}, `not allowed by spec.ceiling.notifications of PolicySource "team"`
	}
	index.Set([]*v1alpha1.FleetPolicy{hosts}, mayName)
	fmt.Println(index.Policies("chat"), index.Policies("pager"))
	allowed, why := mayName(hosts)
	c := notified.Condition(hosts.Spec.Notifications, allowed, why)
	fmt.Println(c.Type, c.Status, c.Reason, c.Message)
	// Output:
	// map[hosts:true] map[]
	// Notifying False NotAllowed spec.notifications: "pager": not allowed by spec.ceiling.notifications of PolicySource "team"
}

func TestCondition_NamesWhatIsNotAllowed(t *testing.T) {
	for _, c := range []struct {
		names, allowed []string
		want           string
	}{
		{[]string{"a"}, nil, `False NotAllowed spec.notifications: "a": why`},
		{[]string{"a", "b", "c"}, []string{"b"}, `False NotAllowed spec.notifications: "a", "c": why`},
		{[]string{"a", "b"}, []string{"b", "c", "a"}, "True Allowed the Notifications of spec.notifications are sent transitions of the policy"},
		{[]string{"a", "b"}, []string{"b", "*"}, "True Allowed the Notifications of spec.notifications are sent transitions of the policy"},
		{[]string{"*"}, []string{"a"}, `False NotAllowed spec.notifications: "*": why`},
	} {
		got := notified.Condition(c.names, c.allowed, "why")
		if text := fmt.Sprint(got.Status, " ", got.Reason, " ", got.Message); text != c.want || got.Type != v1alpha1.Notifying {
			t.Errorf("%v of %v: %s %s, want %s", c.names, c.allowed, got.Type, text, c.want)
		}
	}
}

func TestIndex_HasWhatIsNamedAndAllowed(t *testing.T) {
	var index notified.Index
	if got := index.Policies("a"); got != nil {
		t.Errorf("%v is known before Set", got)
	}
	var asked []string
	index.Set([]*v1alpha1.FleetPolicy{fleetPolicy("none"), fleetPolicy("some", "a", "b"), fleetPolicy("all", "b", "a"), fleetPolicy("denied", "a")}, func(fp *v1alpha1.FleetPolicy) ([]string, string) {
		asked = append(asked, fp.Name)
		return map[string][]string{"some": {"b"}, "all": {"*"}, "none": {"*"}}[fp.Name], ""
	})
	if want := []string{"some", "all", "denied"}; !slices.Equal(asked, want) {
		t.Errorf("asked about %v, want %v", asked, want)
	}
	for name, want := range map[string]map[string]bool{"a": {"all": true}, "b": {"all": true, "some": true}, "c": {}} {
		if got := index.Policies(name); got == nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	before := index.Policies("b")
	index.Set([]*v1alpha1.FleetPolicy{fleetPolicy("all", "c")}, func(*v1alpha1.FleetPolicy) ([]string, string) { return []string{"c"}, "" })
	if got := index.Policies("b"); len(got) != 0 || len(before) != 2 {
		t.Errorf("after another Set: %v, and what was read before is %v", got, before)
	}
	if got := index.Policies("c"); !got["all"] {
		t.Errorf("%v", got)
	}
}
