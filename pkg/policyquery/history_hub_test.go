package policyquery_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/hub/transitions"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// recordedHub serves what is recorded of a hub.
func recordedHub(t *testing.T) *hubServer {
	t.Helper()
	h, err := history.Open(history.Options{Directory: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s := startHub(t, hubreader.Options{}, func(o *queryapi.Options, reader *hubreader.Reader) {
		o.Queries["history"] = policyquery.History{Kinds: planFleet{}.Kinds, Index: o.Index, History: h, Hub: reader}
	})
	if err := h.Begin(s.index); err != nil {
		t.Fatal(err)
	}
	recorder, err := transitions.New(transitions.Options{Config: shared.Fleet.Hub.DirectRESTConfig(), Namespace: "default", Log: h})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{recorder.Run, h.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, history.ErrEnded) {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

// happened returns what a caller is told of Actions and policies, in lines.
func (s *hubServer) happened(user *http.Client, query string) (lines []string, text string) {
	s.t.Helper()
	var list policyquery.HistoryList
	code, text := s.ask(user, "history?type=Action&type=Policy"+query, &list)
	if code != http.StatusOK {
		s.t.Fatalf("%s: %d %s", query, code, text)
	}
	for _, x := range list.Items {
		line := strings.Join(strings.Fields(strings.Join([]string{x.Transition, x.Action, x.Subject, x.Name, x.By}, " ")), " ")
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines, text
}

// TestHistory_TellsOfTheHubWhatItsQueriesTell, to the same callers.
func TestHistory_TellsOfTheHubWhatItsQueriesTell(t *testing.T) {
	s := recordedHub(t)
	root, web, none := newName("root"), "web", newName("none")
	all, ofWeb, stranger, b := s.user(root, nil, "*"), s.user(web, nil), s.user(none, nil), s.user(newName("narrow"), []string{"b"}, "*")
	s.mayOnHub(root, "actions", "fleetpolicies", "policysources", "approvals", "plans")
	s.mayOnHub(web, "actions")
	s.run()
	hash := strings.Repeat("a", 40)
	now := time.Now().UTC()
	at := func(d time.Duration) string { return now.Add(d).Format("2006-01-02T15:04:05.000000Z07:00") }
	s.act("a-shop", "fleet/a", "shop", nil)
	s.act("a-web", "fleet/a", "web", nil)
	s.act("former", "fleet/b", "web", func(a *v1alpha1.Action) { a.Spec.Target.MemberUID = "another" })
	s.apply("fleetpolicies", "tier", "apiVersion: federator.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: tier}\nspec: {package: none}\n", `{"observedGeneration":1}`)
	s.apply("policysources", "git", "apiVersion: federator.dev/v1alpha1\nkind: PolicySource\nmetadata: {name: git}\nspec: {url: \"https://example.com/x.git\"}\n",
		fmt.Sprintf(`{"observedGeneration":1,"activeCommit":{"hash":%q,"author":"joe"}}`, hash))
	for name, id := range map[string]string{"tier": "h1", "gone": "g1"} {
		s.keep("policystates", name, fmt.Sprintf("apiVersion: federator.dev/v1alpha1\nkind: PolicyState\nmetadata: {name: %s}\nstatus: {history: [{type: HaltBegan, id: before%s, at: %q}, {type: HaltBegan, id: %s, at: %q}]}\n",
			name, id, at(-time.Hour), id, at(time.Minute)))
	}
	s.approved("9")
	client := shared.Fleet.Hub.Client()
	s.stop(client, hub.StopScope{Scope: hub.StopMember, Name: "fleet/a"})
	s.stop(client, hub.StopScope{Scope: hub.StopPolicy, Name: "tier"})
	bad := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "federator-stop-odd", Namespace: "default"}, Data: map[string]string{"scope": "member", "name": "fleet/a", "reason": "fleet/a is odd"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), bad, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().ConfigMaps("default").Delete(context.Background(), bad.Name, metav1.DeleteOptions{})
	})

	plan := "tier-" + strings.Repeat("9", 16)
	want := []string{
		"Pending a-shop here", "Pending a-web here", "Pending former here", "CommitTaken commit " + hash + " git joe", "Halted halt h1 tier", "PlanMade " + plan, "Approved " + plan + " ann",
		"Stopped stop of member fleet/a federator-stop-member-fleet.a ann", "Stopped stop of policy tier federator-stop-policy-tier ann", "Stopped malformed stop federator-stop-odd federator.test",
	}
	slices.Sort(want)
	var got []string
	eventually(t, func() error {
		got, _ = s.happened(all, "")
		for i, line := range got { // the user of the test
			if strings.HasPrefix(line, "Stopped malformed stop federator-stop-odd") {
				got[i] = "Stopped malformed stop federator-stop-odd federator.test"
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("who may read all is told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
	of := func(user *http.Client, query string, hidden []string, want ...string) {
		t.Helper()
		got, text := s.happened(user, query)
		got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "Stopped malformed stop") })
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%q is told\n%s\nwant\n%s", query, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, h := range hidden {
			if strings.Contains(text, h) {
				t.Errorf("%q is told of %s: %s", query, h, text)
			}
		}
	}
	plans := []string{"PlanMade " + plan, "Approved " + plan}
	hidden := []string{"h1", "g1", hash, "joe", "why", "odd", "fleet/b", "ann\""}
	of(ofWeb, "", append(hidden[:4:4], "a-shop", "former"), append(plans, "Pending a-web here", "Stopped stop of policy tier federator-stop-policy-tier", "Stopped stop of member fleet/a federator-stop-member-fleet.a ann")...)
	of(stranger, "", append(hidden, "a-web", "fleet/a"), append(plans, "Stopped stop of policy tier federator-stop-policy-tier")...)
	of(b, "", append(hidden[:6:6], "a-web", "former", "fleet/a"), append(plans, "Stopped stop of policy tier federator-stop-policy-tier")...)
	of(all, "&source=git", nil, "CommitTaken commit "+hash+" git joe")
	of(all, "&policy=gone", []string{"g1"})

	// Who may list PolicyStates is told of former FleetPolicies, too.
	states := newName("states")
	user := s.user(states, nil, "*")
	s.mayOnHub(states, "fleetpolicies", "policystates")
	of(user, "&transition=Halted", nil, "Halted halt h1 tier", "Halted halt beforeh1 tier", "Halted halt g1 gone", "Halted halt beforeg1 gone")
}

// approved freezes a Plan of policy tier that ann has approved.
func (s *hubServer) approved(digit string) {
	s.t.Helper()
	digest := strings.Repeat(digit, 64)
	name := "tier-" + digest[:16]
	s.apply("plans", name, fmt.Sprintf("apiVersion: federator.dev/v1alpha1\nkind: Plan\nmetadata: {name: %s}\nspec: {policy: tier, purpose: Generation, hash: %q, generation: %q, targets: 7, parts: 1, digests: {package: %[2]q, parameters: %[2]q, spec: %[2]q, targets: %[2]q}}\n",
		name, digest, strings.Repeat("0", 32)), `{"state":"Approved","approvals":[{"name":"x","by":"ann","at":"2026-01-01T10:00:00Z","expires":"2026-01-02T10:00:00Z"}]}`)
}
