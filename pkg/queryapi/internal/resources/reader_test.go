package resources_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/internal/federation"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
)

const onePods = "/members/a/one/api/v1/pods"

// said is what a watch has sent: objects by type and name, and states of the scope.
func said(events []event) (out []string) {
	for _, e := range events {
		meta, _ := e.Object["metadata"].(map[string]any)
		annotations, _ := meta["annotations"].(map[string]any)
		switch scope, is := annotations[federation.ScopeAnnotation].(string); {
		case is:
			out = append(out, strings.SplitN(scope, ";", 2)[0])
		case e.Type == "ERROR":
			out = append(out, e.Object["reason"].(string))
		case e.Type != "BOOKMARK":
			out = append(out, e.Type+" "+meta["name"].(string))
		}
	}
	return out
}

func (s *stream) wantSaid(what string, want ...string) {
	s.f.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		is := said(s.events())
		if slices.Equal(is, want) {
			return
		}
		select {
		case <-news:
		case <-deadline:
			s.f.t.Fatalf("%s: %q, want %q", what, is, want)
		}
	}
}

func readerFleet(t *testing.T) (*fleet, *aggregate.Scope) {
	f := newFleet(t, settings{bookmark: time.Hour})
	f.reader = "global"
	f.join("a/one")
	f.put(testObject{kind: pods, member: "a/one", namespace: "x", name: "p"})
	s := f.scope("a/one", pods)
	s.SetStatus(aggregate.Status{State: aggregate.Synced})
	f.commit()
	return f, s
}

// A federator that reads this one learns of a scope's state before what looks deleted, and after what completes it.
func TestReader_StatesComeInOrder(t *testing.T) {
	f, s := readerFleet(t)
	list := f.mustAsk(all, onePods, nil, "")
	if is := list.header.Get(federation.ScopeHeader); is != "Synced" {
		t.Errorf("the list says %q", is)
	}
	w := f.watch(all, onePods, values("resourceVersion", list.list.Metadata.ResourceVersion, "allowWatchBookmarks", "1"), "")
	if is := w.header.Get(federation.ScopeHeader); is != "Synced" {
		t.Errorf("the watch says %q", is)
	}
	s.SetStatus(aggregate.Status{State: aggregate.Stale, Reason: "10.0.0.7 is away"})
	f.commit()
	w.wantSaid("stale", "Stale")
	if strings.Contains(w.events()[0].text, "10.0.0.7") {
		t.Error("a member's own words are passed on")
	}
	f.remove(testObject{kind: pods, member: "a/one", namespace: "x", name: "p"})
	s.SetStatus(aggregate.Status{State: aggregate.OverBudget})
	f.commit()
	w.wantSaid("emptied", "Stale", "OverBudget", "DELETED p")
	f.put(testObject{kind: pods, member: "a/one", namespace: "x", name: "q"})
	s.SetStatus(aggregate.Status{State: aggregate.Synced})
	f.commit()
	w.wantSaid("complete", "Stale", "OverBudget", "DELETED p", "ADDED q", "Synced")
	f.leave("a/one")
	w.wantSaid("left", "Stale", "OverBudget", "DELETED p", "ADDED q", "Synced", "NotFound")
	w.end()
}

// Another member under the name is not what has become of the first.
func TestReader_RecreatedMemberEndsTheWatch(t *testing.T) {
	f, _ := readerFleet(t)
	w := f.watch(all, onePods, values("allowWatchBookmarks", "1"), "")
	w.wantSaid("begun", "ADDED p")
	w.held.Lock() // it writes nothing while the member leaves and comes
	f.put(testObject{kind: pods, member: "a/one", namespace: "x", name: "q"})
	f.commit()
	f.leave("a/one")
	f.join("a/one")
	f.put(testObject{kind: pods, member: "a/one", namespace: "x", name: "r"})
	f.scope("a/one", pods).SetStatus(aggregate.Status{State: aggregate.Synced})
	f.commit()
	w.held.Unlock()
	<-w.done
	is := said(w.events())
	if n := len(is); is[n-1] != "NotFound" || slices.ContainsFunc(is, func(s string) bool { return strings.HasPrefix(s, "DELETED") || s == "ADDED r" }) {
		t.Errorf("%q", is)
	}
}

// Some of a kind is none of it, to a federator.
func TestReader_SomeIsForbidden(t *testing.T) {
	f, _ := readerFleet(t)
	some := granted(authz.NewGrants(map[string]authz.MemberGrant{"a/one": {Namespaces: []string{"x"}}}, time.Time{}))
	for path, code := range map[string]int{
		onePods: http.StatusForbidden, "/members/a/one/api/v1/namespaces/x/pods": http.StatusOK, "/members/a/one/api/v1/namespaces/y/pods": http.StatusForbidden,
		fleetPods: http.StatusOK, "/members/a/one/api/v1/namespaces/x/pods/p": http.StatusOK,
	} {
		if a := f.ask(some, path, nil, ""); a.code != code {
			t.Errorf("%s: %d, want %d", path, a.code, code)
		}
	}
	f.reader = ""
	if a := f.ask(some, onePods, nil, ""); a.code != http.StatusOK || a.header.Get(federation.ScopeHeader) != "" {
		t.Errorf("anybody else gets %d", a.code)
	}
}
