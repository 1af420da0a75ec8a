package e2e

import (
	"fmt"
	"testing"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube"
)

// queryRig is a federator with its query API over members of their own.
type queryRig struct {
	story   *story
	api     *queries
	names   []string // <namespace>/<name>
	members []*kube.ControlPlane
}

// newQueryRig starts it; the test's end ends it.
func newQueryRig(t *testing.T, namespace string, members int) *queryRig {
	t.Helper()
	return newQueryRigWith(t, namespace, members, nil)
}

func newQueryRigWith(t *testing.T, namespace string, members int, change func(*queryapi.Options)) *queryRig {
	t.Helper()
	hub, err := shared.hub()
	if err != nil {
		t.Fatal(err)
	}
	r := &queryRig{story: newStory(hub, namespace, t.TempDir(), "")}
	t.Cleanup(func() {
		if t.Failed() && r.story.fed != nil {
			t.Logf("what was logged:\n%s", tail(r.story.fed.log.String(), 60))
		}
		if err := r.story.end(); err != nil {
			t.Error(err)
		}
	})
	for i := range members {
		r.join(t, fmt.Sprintf("m%d", i))
	}
	r.serveAt(t, "127.0.0.1:0", change)
	return r
}

// serveAt starts federator and its query API.
func (r *queryRig) serveAt(t *testing.T, address string, change func(*queryapi.Options)) {
	t.Helper()
	if err := r.story.start(""); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.api, err = serveQueriesAt(r.story.fed, r.story.hub, t.TempDir(), address, change); err != nil {
		t.Fatal(err)
	}
	r.story.api = r.api
}

// join lets a control plane join, under a name that is new to the rig.
func (r *queryRig) join(t *testing.T, name string) {
	t.Helper()
	c, err := r.story.cluster(name)
	if err != nil {
		t.Fatal(err)
	}
	err = r.story.hub.Register(t.Context(), kube.Cluster{
		Namespace: r.story.namespace, Name: name, Kubeconfig: c.Kubeconfig(), Labels: map[string]string{"env": name},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.story.joined[name] = true
	r.names, r.members = append(r.names, r.story.member(name)), append(r.members, c)
}

// exact waits until the index holds what the members do.
func (r *queryRig) exact(t *testing.T) {
	t.Helper()
	for i, name := range r.names {
		if err := until(t.Context(), patience, func() error { return expectations["synced"].check(r.story, []string{name}) }); err != nil {
			t.Fatal(err)
		}
		if _, err := r.story.fed.exact(t.Context(), patience, name, r.members[i]); err != nil {
			t.Fatal(err)
		}
	}
}
