package hubside

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/agent/internal/identity"
)

// memberOf returns a Member that has an agent, and such a status.
func memberOf(namespace, name string, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion().String(), "kind": "Member",
		"metadata": map[string]any{"name": name, "namespace": namespace, "uid": name}, "spec": map[string]any{"agent": map[string]any{}},
		"status": status,
	}}
}

func fakeHub(members ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.Resource(v1alpha1.Members): "MemberList"}, members...)
}

// followed follows Members until the test ends.
func followed(t *testing.T, client *dynamicfake.FakeDynamicClient, namespaces ...string) *registry {
	t.Helper()
	r := newRegistry(1, time.Hour)
	members, err := newMemberInformers(client, namespaces, r, slog.New(slog.DiscardHandler))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	members.run(ctx, &running)
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	members.synced(soon)
	return r
}

// TestMembers_OneThatIsOddIsOneAsAnyOther (law 7): the API server takes times that Go does not read, and who may write a status, or has an
// older schema, more.
func TestMembers_OneThatIsOddIsOneAsAnyOther(t *testing.T) {
	odd := map[string]any{"lastContactTime": "2020-01-01t00:00:00z", "connected": "yes", "process": int64(1)}
	r := followed(t, fakeHub(memberOf("edge", "honest", nil), memberOf("edge", "odd", odd)))
	for _, name := range []string{"honest", "odd"} {
		if err := r.hello(identity.Identity{Namespace: "edge", Name: name, UID: name}, ""); err != nil {
			t.Error(err)
		}
	}
}

// TestMembers_OneNamespaceIsApartFromOthers: what cannot be read keeps its own agents waiting.
func TestMembers_OneNamespaceIsApartFromOthers(t *testing.T) {
	client := fakeHub(memberOf("edge", "a", nil), memberOf("hidden", "b", nil))
	client.PrependReactor("list", "members", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetNamespace() == "hidden", nil, errors.New("forbidden")
	})
	r := followed(t, client, "hidden", "edge")
	for of, want := range map[identity.Identity]error{
		{Namespace: "edge", Name: "a", UID: "a"}:   nil,
		{Namespace: "hidden", Name: "b", UID: "b"}: errNotYet,
	} {
		if err := r.hello(of, ""); !errors.Is(err, want) {
			t.Errorf("%s: %v", of.Member(), err)
		}
	}
	for _, of := range []identity.Identity{{Namespace: "edge", Name: "c", UID: "c"}, {Namespace: "other", Name: "a", UID: "a"}} {
		var p *problem
		if err := r.hello(of, ""); !errors.As(err, &p) || p.code != 403 {
			t.Errorf("%s: %v", of.Member(), err)
		}
	}
}

// statuses is a Member that processes write the status of, as a hub that has it.
type statuses struct {
	t      *testing.T
	member *v1alpha1.Member
	said   []bool // what connected was
}

func (h *statuses) patch(text []byte) {
	h.t.Helper()
	was, err := json.Marshal(h.member)
	must(h.t, err)
	now, err := jsonpatch.MergePatch(was, text)
	must(h.t, err)
	h.member = &v1alpha1.Member{}
	must(h.t, json.Unmarshal(now, h.member))
	h.said = append(h.said, h.member.Status.Connected != nil && *h.member.Status.Connected)
}

// on has a hub that takes patches.
func (h *statuses) on() *dynamicfake.FakeDynamicClient {
	client := fakeHub()
	client.PrependReactor("patch", "members", func(a clienttesting.Action) (bool, runtime.Object, error) {
		h.patch(a.(clienttesting.PatchAction).GetPatch())
		return true, memberOf("edge", "a", nil), nil
	})
	return client
}

// TestStatus_OfAMemberWithoutAnAgent is empty, as of one that had an agent and has a kubeconfig now.
func TestStatus_OfAMemberWithoutAnAgent(t *testing.T) {
	now, yes := time.Now(), true
	h := &statuses{t: t, member: &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "a", UID: "a"}, Status: *by("other", stampedStatus(now, now, &yes))}}
	w := &statusWriter{client: h.on(), process: "federator-0"}
	w.see([]*v1alpha1.Member{h.member}, now)
	if do := w.due(h.member, state{}, now); do != empty {
		t.Fatalf("%d is to be done", do)
	}
	must(t, w.patch(t.Context(), h.member, empty, state{}))
	if h.member.Status != (v1alpha1.MemberStatus{}) || w.due(h.member, state{}, now) != keep {
		t.Errorf("%+v", h.member.Status)
	}
}

// TestStatus_OfTwoProcesses: who loses an agent does not say that it is not connected while the other one has it; where both
// have lost it, it is said soon.
func TestStatus_OfTwoProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &statuses{t: t, member: &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "a", UID: "a"}, Spec: v1alpha1.MemberSpec{Agent: &v1alpha1.MemberAgent{}}}}
		client := h.on()
		has := map[string]bool{"federator-0": true, "federator-1": true}
		var writers []*statusWriter
		for _, process := range []string{"federator-0", "federator-1"} {
			writers = append(writers, &statusWriter{client: client, process: process, started: time.Now().Add(-time.Hour), limit: rate.NewLimiter(rate.Inf, 1)})
		}
		for at := range 60 {
			switch at {
			case 10:
				has["federator-0"] = false
			case 30:
				if len(h.said) == 0 || len(h.said) > 4 || h.member.Status.Process != "federator-1" {
					t.Errorf("%v, by %q", h.said, h.member.Status.Process)
				}
				for _, connected := range h.said {
					if !connected {
						t.Errorf("it was said not to be connected: %v", h.said)
					}
				}
				has["federator-1"] = false
			}
			for _, w := range writers {
				s := state{connected: has[w.process], version: "v1", heard: time.Now(), expires: time.Now().Truncate(time.Hour).Add(2 * time.Hour)}
				if !s.connected {
					s = state{}
				}
				w.see([]*v1alpha1.Member{h.member}, time.Now())
				if do := w.due(h.member, s, time.Now()); do != keep {
					w.written["a"] = time.Now()
					must(t, w.patch(t.Context(), h.member, do, s))
				}
			}
			time.Sleep(statusInterval)
		}
		if n := len(h.said); h.said[n-1] || n > 6 {
			t.Errorf("%v", h.said)
		}
	})
}
