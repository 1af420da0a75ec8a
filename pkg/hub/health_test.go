package hub_test

import (
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

func TestHealth_OfObjectsInTheIndex(t *testing.T) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScope("fleet/a", "Deployment.apps", "apps/v1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	of := hub.Health(hub.HealthOptions{Index: index})
	for i, c := range []struct {
		status string
		want   remediate.HealthStatus
	}{
		{`{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"availableReplicas":2}`, remediate.Healthy},
		{`{"observedGeneration":1,"replicas":2,"updatedReplicas":1,"availableReplicas":1}`, remediate.Progressing},
		{`{"observedGeneration":1,"conditions":[{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded","message":"x"}]}`, remediate.Degraded},
	} {
		scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: "1", ResourceVersion: fmt.Sprint(i), Body: fmt.Appendf(nil,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":1,"name":"web","namespace":"shop"},"spec":{"replicas":2},"status":%s}`, c.status)}))
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := of(remediate.Written{Target: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}).Status; got != c.want {
			t.Errorf("%s: %v, want %v", c.status, got, c.want)
		}
	}
	if got := of(remediate.Written{Target: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "gone"}}).Status; got != remediate.Healthy {
		t.Errorf("what is gone: %v", got)
	}
}

// TestHealth_IsUnknownUntilTheWriteIsSeen: what the index has from before the write, or does
// not have, shows nothing.
func TestHealth_IsUnknownUntilTheWriteIsSeen(t *testing.T) {
	const (
		ready      = `"metadata":{"generation":1,"name":"web","namespace":"shop"},"spec":{"replicas":1},"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"availableReplicas":1}`
		degraded   = `"metadata":{"generation":1,"name":"web","namespace":"shop"},"spec":{"replicas":1},"status":{"observedGeneration":1,"conditions":[{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded","message":"too late"}]}`
		terminated = `"metadata":{"name":"web","namespace":"shop","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x"]},"spec":{"replicas":1}`
	)
	for _, test := range []struct {
		name          string
		state         aggregate.State
		body, version string // "" body: it is not there
		written       string
		deleted       bool
		applied       string
		drop          []string
		other         string // version of another object
		want          remediate.HealthStatus
		why           string
	}{
		{name: "seen", state: aggregate.Synced, body: ready, version: "10", written: "10", want: remediate.Healthy},
		{name: "newer, of more digits", state: aggregate.Synced, body: ready, version: "100", written: "99", want: remediate.Healthy},
		{name: "degraded", state: aggregate.Synced, body: degraded, version: "10", written: "10", want: remediate.Degraded, why: "deadline"},
		{name: "older", state: aggregate.Synced, body: degraded, version: "9", written: "10", want: remediate.Unknown, why: "older"},
		{name: "versions in no order", state: aggregate.Synced, body: ready, version: "a", written: "b", want: remediate.Unknown, why: "cannot be told"},
		{name: "versions in no order, the same", state: aggregate.Synced, body: ready, version: "a", written: "a", want: remediate.Healthy},
		{name: "stale", state: aggregate.Stale, body: ready, version: "10", written: "10", want: remediate.Unknown, why: "Stale"},
		{name: "forbidden now", state: aggregate.Forbidden, written: "10", want: remediate.Unknown, why: "Forbidden"},
		{name: "syncing", state: aggregate.Syncing, body: ready, version: "10", written: "10", want: remediate.Unknown, why: "Syncing"},
		{name: "partial", state: aggregate.Partial, body: ready, version: "10", written: "10", want: remediate.Healthy},
		{name: "no status", state: aggregate.Partial, body: ready, version: "10", written: "10", drop: []string{"status"}, want: remediate.Unknown, why: "status"},
		{name: "no part of spec", state: aggregate.Partial, body: ready, version: "10", written: "10", drop: []string{"spec.replicas"}, want: remediate.Unknown, why: "spec.replicas"},
		{name: "no environment", state: aggregate.Partial, body: ready, version: "10", written: "10", drop: []string{"spec.template.spec", "metadata.annotations"}, want: remediate.Healthy},
		{name: "not created yet", state: aggregate.Synced, written: "10", applied: "9", want: remediate.Unknown, why: "not reached"},
		{name: "gone since", state: aggregate.Synced, written: "10", applied: "10", want: remediate.Healthy, why: "gone"},
		{name: "gone since, as another shows", state: aggregate.Synced, written: "10", other: "11", want: remediate.Healthy, why: "gone"},
		{name: "another is older", state: aggregate.Synced, written: "10", other: "7", want: remediate.Unknown, why: "not reached"},
		{name: "not selected", state: aggregate.Partial, written: "10", applied: "10", want: remediate.Unknown, why: "not kept"},
		{name: "deleted", state: aggregate.Synced, deleted: true, want: remediate.Healthy},
		{name: "being deleted", state: aggregate.Synced, body: terminated, version: "11", written: "10", deleted: true, want: remediate.Progressing, why: "deletion"},
		{name: "the deletion is not seen yet", state: aggregate.Synced, body: ready, version: "9", applied: "9", deleted: true, want: remediate.Unknown, why: "deletion"},
		{name: "made again", state: aggregate.Synced, body: ready, version: "9", applied: "12", deleted: true, want: remediate.Healthy},
	} {
		t.Run(test.name, func(t *testing.T) {
			index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
			if err != nil {
				t.Fatal(err)
			}
			if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
				t.Fatal(err)
			}
			scope, err := index.OpenScope("fleet/a", "Deployment.apps", "apps/v1")
			if err != nil {
				t.Fatal(err)
			}
			var items []aggregate.Item
			add := func(name, version, body string) {
				items = append(items, scope.Item(&aggregate.Record{Namespace: "shop", Name: name, UID: name, ResourceVersion: version, Body: []byte(`{"apiVersion":"apps/v1","kind":"Deployment",` + body + `}`)}))
			}
			if test.body != "" {
				add("web", test.version, test.body)
			}
			if test.other != "" {
				add("other", test.other, `"metadata":{"name":"other","namespace":"shop"}`)
			}
			if _, err := scope.Replace(items, aggregate.Status{State: test.state, Reason: "as configured"}); err != nil {
				t.Fatal(err)
			}
			of := hub.Health(hub.HealthOptions{
				Index: index, Applied: func(string, policy.Kind) string { return test.applied }, Dropped: func(policy.Kind) []string { return test.drop },
			})
			got := of(remediate.Written{
				Target: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}, ResourceVersion: test.written, Deleted: test.deleted,
			})
			if got.Status != test.want || !strings.Contains(got.Why, test.why) || got.Why == "" && test.want == remediate.Unknown {
				t.Errorf("%d %q, want %d %q", got.Status, got.Why, test.want, test.why)
			}
		})
	}
}
