package notices_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/notices"
	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs.
var shared struct {
	kube.Shared
	http   *http.Client
	client dynamic.Interface
}

func prepare(ctx context.Context) (err error) {
	cfg := hubConfig()
	if shared.http, err = rest.HTTPClientFor(cfg); err != nil {
		return err
	}
	shared.Clients = []*http.Client{shared.http}
	if shared.client, err = dynamic.NewForConfigAndClient(cfg, shared.http); err != nil {
		return err
	}
	return shared.Fleet.Hub.InstallCRDs(ctx, "../../../charts/federator/crds")
}

func hubConfig() *rest.Config {
	cfg := shared.Fleet.Hub.DirectRESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg
}

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's logs are not the test's
	if text := os.Getenv(childEnv); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	shared.Prepare = prepare
	os.Exit(shared.Main(m))
}

func resource(name string) dynamic.ResourceInterface {
	return shared.client.Resource(schema.GroupVersionResource{Group: "federator.dev", Version: "v1alpha1", Resource: name})
}

// create creates an object, with its status.
func create(t *testing.T, name, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetAPIVersion("federator.dev/v1alpha1")
	status := u.Object["status"]
	made, err := resource(name).Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status != nil && made.Object["status"] == nil {
		return setStatus(t, name, made, status)
	}
	return made
}

func setStatus(t *testing.T, name string, u *unstructured.Unstructured, status any) *unstructured.Unstructured {
	t.Helper()
	u.Object["status"] = status
	made, err := resource(name).UpdateStatus(t.Context(), u, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	if err := kube.Until(t.Context(), time.Minute, check); err != nil {
		t.Fatal(err)
	}
}

func at(age time.Duration) string {
	return time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000000Z")
}

const planSpec = `
  hash: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  generation: 0123456789abcdef0123456789abcdef
  digests:
    package: 60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
    parameters: fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13
    spec: a4e624d686e03ed2767c0abd85c14426b0b1157d2ce81d27bb4fe4f6f01d688a
    targets: a140c0c1eda2def2b830363ba362aa4d7d255c262960544821f556e16661b6ff
  targets: 7
  parts: 1
`

func action(name, phase string, ended time.Duration) string {
	return `kind: Action
metadata: {name: ` + name + `}
spec:
  {binding: tier, package: b, revision: "1", verb: patch, patch: "{}", patchType: Merge, patchHash: 60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752,
  target: {member: fleet/eu-1, apiVersion: v1, kind: Pod, namespace: shop, name: c, uid: d, resourceVersion: "1"}}
inverse: {verb: patch, patch: "{}"}
status: {phase: ` + phase + `, message: by tier-2, endedAt: "` + at(ended) + `"}
`
}

// TestSource_ListsWhatTheHubShows: from each kind what is to be told, and nothing else.
func TestSource_ListsWhatTheHubShows(t *testing.T) {
	shared.Start(t)
	var known atomic.Bool
	var changes atomic.Int32
	s, err := notices.New(notices.Options{
		Config: hubConfig(), Changed: func() { changes.Add(1) },
		Stops: func() ([]hub.ActiveStop, bool) {
			return []hub.ActiveStop{{
				StopScope: hub.StopScope{Scope: hub.StopMember, Name: "fleet/eu-1"}, ConfigMap: "federator-stop-member-fleet.eu-1", UID: "s1",
				Since: time.Now(), By: "ann", Reason: "disk full", Text: "by ann",
			}}, known.Load()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() { _ = s.Run(ctx) }) // its error is that of ctx

	names := map[string]string{"s1": "stop"} // by UID
	for name, o := range map[string][2]string{
		"state": {v1alpha1.PolicyStates, `kind: PolicyState
metadata: {name: tier}
status:
  halts:
  - {id: h3, reason: OverLimit, message: "11 of 600, 10 are allowed", since: "` + at(20*24*time.Hour) + `"}
  history:
  - {type: HaltBegan, id: h0, at: "` + at(9*24*time.Hour) + `", reason: Fighting}
  - {type: HaltBegan, id: h1, at: "` + at(2*time.Hour) + `", reason: Unhealthy, message: m}
  - {type: HaltEnded, id: h1, at: "` + at(time.Hour) + `", reason: Unhealthy, by: ann}
  - {type: HaltBegan, id: h3, at: "` + at(20*24*time.Hour) + `", reason: OverLimit}
  - {type: Other, id: h3, at: "` + at(time.Hour) + `"}
`},
		"waiting": {v1alpha1.Plans, "kind: Plan\nmetadata: {name: tier-9f86d081884c7d65}\nspec:\n  policy: tier\n  purpose: Halt\n  halt: {id: h3, reason: OverLimit}" + planSpec +
			"status: {state: Waiting, required: 2, message: 0 of 2}\n"},
		"approved": {v1alpha1.Plans, "kind: Plan\nmetadata: {name: b-9f86d081884c7d65}\nspec:\n  policy: b\n  purpose: Generation" + planSpec +
			`status: {state: Done, required: 2, approvals: [{name: x, by: joe, at: "` + time.Now().UTC().Format(time.RFC3339) + `", expires: "2099-01-01T00:00:00Z"}, {name: z, by: ann, at: "` + time.Now().UTC().Format(time.RFC3339) + "\", expires: \"2099-01-01T00:00:00Z\"}]}\n"},
		"freezing": {v1alpha1.Plans, "kind: Plan\nmetadata: {name: c-9f86d081884c7d65}\nspec:\n  policy: c\n  purpose: Generation" + planSpec + "status: {state: Freezing}\n"},
		"unneeded": {v1alpha1.Plans, "kind: Plan\nmetadata: {name: d-9f86d081884c7d65}\nspec:\n  policy: d\n  purpose: Generation" + planSpec + "status: {state: Approved}\n"},
		"counts": {v1alpha1.Approvals, `kind: Approval
metadata: {name: counts}
spec: {fleetPolicy: tier, halt: h3, reason: looked at it, expires: "2099-01-01T00:00:00Z", by: ann}
status: {state: Counts}
`},
		"undone":    {v1alpha1.Actions, action("undone", "RolledBack", time.Hour)},
		"long-ago":  {v1alpha1.Actions, action("long-ago", "RolledBack", 8*24*time.Hour)},
		"succeeded": {v1alpha1.Actions, action("succeeded", "Succeeded", time.Hour)},
	} {
		names[string(create(t, o[0], o[1]).GetUID())] = name
	}
	want := []string{
		`approved/PlanApproved dev.federator.plan.approved Plan/b-9f86d081884c7d65 {"by":"ann, joe","generation":"0123456789abcdef0123456789abcdef","plan":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","policy":"b","purpose":"Generation","required":"2","targets":"7"}`,
		`approved/PlanWaits dev.federator.plan.waits Plan/b-9f86d081884c7d65 {"generation":"0123456789abcdef0123456789abcdef","plan":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","policy":"b","purpose":"Generation","required":"2","targets":"7"}`,
		`counts/ApprovalGiven dev.federator.approval.given Approval/counts {"by":"ann","expires":"2099-01-01T00:00:00Z","halt":"h3","policy":"tier","reason":"looked at it","state":"Counts"}`,
		`state/HaltBegan/h1 dev.federator.halt.began FleetPolicy/tier {"halt":"h1","message":"m","policy":"tier","reason":"Unhealthy"}`,
		`state/HaltBegan/h3 dev.federator.halt.began FleetPolicy/tier {"halt":"h3","message":"11 of 600, 10 are allowed","policy":"tier","reason":"OverLimit"} ongoing`,
		`state/HaltEnded/h1 dev.federator.halt.ended FleetPolicy/tier {"by":"ann","halt":"h1","policy":"tier","reason":"Unhealthy"}`,
		`stop/stop dev.federator.stop.began ConfigMap/federator-stop-member-fleet.eu-1 {"by":"ann","message":"actions of member fleet/eu-1 are stopped: by ann","reason":"disk full","stopped":"member fleet/eu-1"} until dev.federator.stop.ended`,
		`undone/RolledBack dev.federator.action.rolledback Action/undone {"member":"fleet/eu-1","message":"by tier-2","object":"Pod shop/c","policy":"tier"}`,
		`waiting/PlanWaits dev.federator.plan.waits Plan/tier-9f86d081884c7d65 {"generation":"0123456789abcdef0123456789abcdef","halt":"h3","message":"0 of 2","plan":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","policy":"tier","purpose":"Halt","required":"2","targets":"7"} ongoing`,
	}
	eventually(t, func() error { return listed(t, s, names, want) })
	if _, complete := s.Facts(); complete {
		t.Error("it is complete though the stops are not known")
	}
	known.Store(true)
	if _, complete := s.Facts(); !complete {
		t.Error("it is not complete")
	}
	if changes.Load() == 0 {
		t.Error("nobody was told that facts have changed")
	}

	// An Action that enters the phase is found, and one that is deleted leaves.
	succeeded, err := resource(v1alpha1.Actions).Get(t.Context(), "succeeded", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	setStatus(t, v1alpha1.Actions, succeeded, map[string]any{"phase": "RolledBack", "message": "by tier-9", "endedAt": at(0)})
	if err := resource(v1alpha1.Actions).Delete(t.Context(), "undone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want[7] = `succeeded/RolledBack dev.federator.action.rolledback Action/succeeded {"member":"fleet/eu-1","message":"by tier-9","object":"Pod shop/c","policy":"tier"}`
	eventually(t, func() error { return listed(t, s, names, want) })
}

// listed compares the facts with what they should be.
func listed(t *testing.T, s *notices.Source, names map[string]string, want []string) error {
	facts, _ := s.Facts()
	var got []string
	for _, f := range facts {
		if names[f.UID] == "" {
			continue // of another test
		}
		text, err := json.Marshal(f.Data)
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s/%s %s %s %s", names[f.UID], f.Transition, f.Type, f.Subject, text)
		if f.Ongoing {
			line += " ongoing"
		}
		if f.Until != "" {
			line += " until " + f.Until
		}
		if f.At.IsZero() {
			line += " of no time"
		}
		got = append(got, line)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("facts:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return nil
}
