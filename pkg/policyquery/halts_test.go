package policyquery_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/policyquery"
)

func toldHalts(halts []policyquery.HaltRecord) string {
	clock := func(at *time.Time) string {
		if at == nil {
			return "?"
		}
		return at.Format("15:04")
	}
	var out []string
	for _, h := range halts {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s/%s %s %s-%s stands=%v %s %s", h.Policy, h.ID, h.Reason, clock(h.Began), clock(h.Ended), h.Stands, h.By, h.Ending)))
	}
	return strings.Join(out, "\n")
}

// TestHaltsOf_ArePairedAsFarAsTheyAreKept: what a PolicyState does not have any more is left open, and not invented.
func TestHaltsOf_ArePairedAsFarAsTheyAreKept(t *testing.T) {
	at := func(minute int) metav1.MicroTime {
		return metav1.NewMicroTime(time.Date(2026, 1, 1, 10, minute, 0, 0, time.UTC))
	}
	s := &v1alpha1.PolicyState{ObjectMeta: metav1.ObjectMeta{Name: "tier"}}
	s.Status.History = []v1alpha1.PolicyTransition{
		{Type: v1alpha1.HaltEnded, ID: "old", At: at(1), Reason: "Fighting", By: "ann", Message: "the halt was acknowledged"},
		{Type: v1alpha1.HaltBegan, ID: "a", At: at(2), Reason: "OverLimit", Message: "too many"},
		{Type: "Other", ID: "x", At: at(3)},
		{Type: v1alpha1.HaltBegan, ID: "b", At: at(4), Reason: "Unhealthy"},
		{Type: v1alpha1.HaltEnded, ID: "a", At: at(5), Reason: "OverLimit", By: "ann, bob", Message: "the halt was acknowledged"},
		{Type: v1alpha1.HaltEnded, ID: "b", At: at(6), Reason: "Unhealthy", Message: "the policy has been changed and its cause is gone"},
		{Type: v1alpha1.HaltBegan, ID: "lost", At: at(7), Reason: "OverLimit"},
	}
	s.Status.Halts = []v1alpha1.RecordedHalt{{ID: "now", Reason: "OverLimit", Message: "again", Since: at(8)}}
	want := `tier/old Fighting ?-10:01 stands=false ann the halt was acknowledged
tier/a OverLimit 10:02-10:05 stands=false ann, bob the halt was acknowledged
tier/b Unhealthy 10:04-10:06 stands=false  the policy has been changed and its cause is gone
tier/lost OverLimit 10:07-? stands=false
tier/now OverLimit 10:08-? stands=true`
	got := policyquery.HaltsOf(s)
	if text := toldHalts(got.Halts); text != want || got.Full {
		t.Errorf("full: %v\n%s\nwant\n%s", got.Full, text, want)
	}
	for len(s.Status.History) < 50 {
		s.Status.History = append(s.Status.History, v1alpha1.PolicyTransition{Type: "Other", ID: "x", At: at(9)})
	}
	if got := policyquery.HaltsOf(s); !got.Full || len(got.Halts) != 5 {
		t.Errorf("%+v", got)
	}
}

// TestHalts_AreOfThoseWhoMayListFleetPolicies, and of the FleetPolicies that there are.
func TestHalts_AreOfThoseWhoMayListFleetPolicies(t *testing.T) {
	s := startHub(t, hubreader.Options{})
	root, part := newName("root"), newName("part")
	all, without := s.user(root, nil, "*"), s.user(part, nil, "*")
	s.mayOnHub(root, "fleetpolicies")
	s.mayOnHub(part, "actions", "policysources", "policystates")
	if code, text := s.ask(all, "halts", nil); code != http.StatusServiceUnavailable {
		t.Errorf("before the hub is read: %d %s", code, text)
	}
	s.run()
	now := time.Now().UTC()
	ago := func(d time.Duration) string { return now.Add(-d).Format("2006-01-02T15:04:05.000000Z07:00") }
	for _, name := range []string{"halted", "other"} {
		s.apply("fleetpolicies", name, "apiVersion: federator.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: "+name+"}\nspec: {package: none}\n", `{"observedGeneration":1}`)
	}
	state := func(name, status string) {
		t.Helper()
		s.keep("policystates", name, "apiVersion: federator.dev/v1alpha1\nkind: PolicyState\nmetadata: {name: "+name+"}\nstatus: "+status+"\n")
	}
	state("halted", fmt.Sprintf(`{history: [{type: HaltBegan, id: before, at: %q, reason: Fighting}, {type: HaltEnded, id: before, at: %q, reason: Fighting, by: eve},
  {type: HaltBegan, id: h1, at: %q, reason: OverLimit, message: "too many"}, {type: HaltEnded, id: h1, at: %q, reason: OverLimit, by: ann, message: the halt was acknowledged}],
  halts: [{id: h2, reason: Unhealthy, message: "not healthy", since: %q}]}`, ago(48*time.Hour), ago(47*time.Hour), ago(time.Hour), ago(-time.Minute), ago(26*time.Hour)))
	state("gone", fmt.Sprintf(`{history: [{type: HaltBegan, id: g1, at: %q, reason: OverLimit, message: secret}]}`, ago(-time.Minute)))
	ids := func(query string) (ids []string) {
		t.Helper()
		var list policyquery.HaltList
		if code, text := s.ask(all, "halts"+query, &list); code != http.StatusOK || list.Stale || list.Older {
			t.Errorf("%s: %d %s", query, code, text)
		}
		for _, h := range list.Items {
			ids = append(ids, h.Policy+"/"+h.ID)
		}
		return ids
	}
	eventually(t, func() error {
		if got := ids(""); !slices.Equal(got, []string{"halted/h1", "halted/h2"}) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	for query, want := range map[string][]string{
		"?policy=other": nil, "?policy=halted&policy=other": {"halted/h1", "halted/h2"}, "?policy=gone": nil, "?since=1h": {"halted/h1", "halted/h2"},
		"?since=" + now.Add(time.Hour).Format(time.RFC3339): {"halted/h2"}, // it stands
	} {
		if got := ids(query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for _, wrong := range []string{"?since=x", "?x=y", "?since=1h&since=2h"} {
		if code, text := s.ask(all, "halts"+wrong, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", wrong, code, text)
		}
	}
	for _, query := range []string{"", "?policy=halted", "?policy=none"} { // there is no telling whether there are any
		code, text := s.ask(without, "halts"+query, nil)
		if code != http.StatusForbidden || !strings.Contains(text, "list fleetpolicies.federator.dev") || strings.Contains(text, "h1") {
			t.Errorf("%s without a grant: %d %s", query, code, text)
		}
	}
	changed := policyquery.Halts{Hub: s.reader}.Changes()
	state("halted", fmt.Sprintf(`{history: [{type: HaltEnded, id: h2, at: %q, reason: Unhealthy}]}`, ago(-time.Minute)))
	select {
	case <-changed:
	case <-time.After(patience):
		t.Error("nothing is told of the change")
	}
	eventually(t, func() error {
		if got := ids("?since=" + now.Add(time.Hour).Format(time.RFC3339)); len(got) != 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}
