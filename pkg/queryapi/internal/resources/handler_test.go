package resources_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/route"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

func TestHandler_OptionsAreValidated(t *testing.T) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(7)})
	ok(t, err)
	sealer, err := selection.NewTokenCodec(bytes.Repeat([]byte{1}, 32), x.First())
	ok(t, err)
	pins, err := selection.NewPins(selection.PinOptions{})
	ok(t, err)
	good := resources.Options{
		Index: x, Tokens: sealer, Pins: pins,
		View: func(s *aggregate.Snapshot, _ route.Target) *catalog.View { return catalog.New(source{}).View(s) },
	}
	if _, err := resources.New(good); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*resources.Options){
		"no index":     func(o *resources.Options) { o.Index = nil },
		"no view":      func(o *resources.Options) { o.View = nil },
		"no sealer":    func(o *resources.Options) { o.Tokens = nil },
		"no pins":      func(o *resources.Options) { o.Pins = nil },
		"stall -1":     func(o *resources.Options) { o.WriteTimeout = -1 },
		"bookmark -1 ": func(o *resources.Options) { o.BookmarkInterval = -1 },
	} {
		bad := good
		spoil(&bad)
		if _, err := resources.New(bad); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestHandler_BookmarksComeInTime, to clients that take them, and when a watch ends.
func TestHandler_BookmarksComeInTime(t *testing.T) {
	for _, every := range []time.Duration{0, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, settings{clock: time.Now, bookmark: every})
			f.join("a/east")
			f.put(pod("a/east", "blue", "p0"), testObject{kind: nodes, member: "a/east", name: "n0"})
			start := f.commit()
			query := values("resourceVersion", text(start), "timeoutSeconds", "150")
			silent := f.watch(all, fleetPods, query, "")
			query.Set("allowWatchBookmarks", "true")
			s := f.watch(all, fleetPods, query, "")
			began := time.Now()
			time.Sleep(70 * time.Second)
			f.put(testObject{kind: nodes, member: "a/east", name: "n0"}) // no pod: only bookmarks are sent
			now := f.commit()
			<-s.done
			if took := time.Since(began); took != 150*time.Second {
				t.Errorf("the watch ended after %s", took)
			}
			n := 150 / 60
			if every != 0 {
				n = int(150 * time.Second / every)
			}
			events := s.end()
			if len(events) != n+1 { // one as it ends
				t.Errorf("%d bookmarks, want %d", len(events), n+1)
			}
			for i, e := range events {
				if e.Type != "BOOKMARK" || i == 0 && e.revision() != text(start) || i == n && e.revision() != text(now) {
					t.Errorf("bookmark %d: %s", i, e.text)
				}
			}
			wantEvents(t, "a client that takes none", silent.end())
		})
	}
}

// TestHandler_WatchesEndInTheirTime, whatever the client asks for, so that clients spread over
// replicas again.
func TestHandler_WatchesEndInTheirTime(t *testing.T) {
	for name, query := range map[string]url.Values{
		"without a timeout": nil, "with a long timeout": values("timeoutSeconds", "1000000"), "with the other": values("timeout", "300h"),
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, settings{clock: time.Now})
			f.join("a/east")
			f.put(pod("a/east", "blue", "p0"))
			f.commit()
			began := time.Now()
			s := f.watch(all, fleetPods, query, "")
			<-s.done
			if took := time.Since(began); took < 30*time.Minute || took > time.Hour {
				t.Errorf("a watch %s ended after %s", name, took)
			}
			wantEvents(t, name, s.end(), "ADDED a/east blue p0")
		})
	}
}

// TestHandler_ClientsHaveATimeForEachBlock that they read.
func TestHandler_ClientsHaveATimeForEachBlock(t *testing.T) {
	for _, stall := range []time.Duration{0, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, settings{clock: time.Now, stall: stall})
			f.join("a/east")
			f.put(pod("a/east", "blue", "p0"))
			f.commit()
			s := f.watch(all, fleetPods, nil, "")
			s.wait(1)
			time.Sleep(time.Minute)
			f.put(pod("a/east", "blue", "p0"))
			f.commit()
			s.wait(2)
			want := stall
			if want == 0 {
				want = 30 * time.Second
			}
			s.end() // HTTP/2 would end a stream whose deadline passes while nothing is written
			if s.allowed != want || !s.deadline.IsZero() {
				t.Errorf("a client has %s for its block, want %s, and then until %v", s.allowed, want, s.deadline)
			}
		})
	}
}

// TestWatch_NewSnapshotsReachAllWatches, whether Run announces them or each waits by itself.
func TestWatch_NewSnapshotsReachAllWatches(t *testing.T) {
	f, _ := pair(t)
	var open []*stream
	for range 20 {
		open = append(open, f.watch(all, fleetPods, nil, ""))
	}
	sent := 2
	news := func(what string) {
		t.Helper()
		for range 5 {
			f.put(pod("a/east", "blue", "p1"))
			f.commit()
			sent++
		}
		for _, s := range open {
			if events := s.wait(sent); len(events) != sent {
				t.Fatalf("%s: %d events, want %d", what, len(events), sent)
			}
		}
		open = append(open, f.watch(all, fleetPods, values("resourceVersion", text(f.index.Snapshot().Revision())), ""))
		open[len(open)-1].end()
		open = open[:len(open)-1]
	}
	news("without Run")
	for range 2 { // it can be run again
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.handler.Run(ctx)
		}()
		news("with Run")
		open = append(open, f.watch(all, fleetPods, values("resourceVersion", "0", "fieldSelector", "metadata.name=none"), ""))
		open = open[:len(open)-1]
		cancel()
		<-done
		news("after Run")
	}
	for _, s := range open {
		s.end()
	}
}

// odd puts an object into a member that has no form at another version. The rest of
// its metadata begins with the namespace.
func (f *fleet) odd(member, name, namespace string) {
	f.t.Helper()
	s := f.scope(member, hpas)
	s.Upsert(s.Item(&aggregate.Record{
		Namespace: "blue", Name: name, UID: name, ResourceVersion: "9",
		Body: []byte(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"` + name + `","namespace":` + namespace + `,"spec":"none"}`),
	}))
	f.commit()
}

// TestHandler_ObjectsThatCannotBeConvertedComeAsTheyAreHeld among others, and are never left
// out: one object takes the others from nobody. Alone they are an error.
func TestHandler_ObjectsThatCannotBeConvertedComeAsTheyAreHeld(t *testing.T) {
	f := newLargeFleet(t)
	const v1, v2 = "/fleet/apis/autoscaling/v1", "/fleet/apis/autoscaling/v2"
	start := f.index.Snapshot().Revision()
	s := f.watch(all, v1+"/horizontalpodautoscalers", values("resourceVersion", text(start)), "")
	f.put(testObject{kind: hpas, member: "a/east", namespace: "blue", name: "even"})
	f.commit()
	f.odd("a/east", "odd", `"blue"}`)
	alone := "/namespaces/blue/horizontalpodautoscalers/odd"
	f.mustAsk(all, v2+alone, nil, "")
	if a := f.ask(all, v1+alone, nil, ""); a.code != http.StatusNotAcceptable {
		t.Errorf("%s: %d %s", alone, a.code, a.body)
	}
	versions := map[any]int{}
	for _, item := range f.mustAsk(all, v1+"/horizontalpodautoscalers", nil, "").list.Items {
		versions[item["apiVersion"]]++
	}
	if versions["autoscaling/v2"] != 1 || versions["autoscaling/v1"] < 2 {
		t.Errorf("a list has items at %v", versions)
	}
	wantEvents(t, "a watch", s.wait(2), "ADDED a/east blue even", "ADDED a/east blue odd")
	s.end()
}

// TestHandler_ListThatFailsOnTheWayIsCutOff: a part is not taken for the whole.
func TestHandler_ListThatFailsOnTheWayIsCutOff(t *testing.T) {
	f := newLargeFleet(t)
	for i := range 300 {
		f.put(testObject{kind: hpas, member: "a/east", namespace: "blue", name: fmt.Sprintf("p%03d", i)})
	}
	f.odd("b/east", "odd", `"blue","annotations":"none"}`) // which members' informers leave out
	defer func() {
		if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // a panic's value
			t.Errorf("%v, want the connection ended", v)
		}
	}()
	a := f.ask(all, "/fleet/apis/autoscaling/v1/horizontalpodautoscalers", nil, "")
	t.Errorf("%d with %d bytes", a.code, len(a.body))
}

// FuzzContinue gives lists any token: each is good, a 400, or a 410 with one
// that is good.
func FuzzContinue(f *testing.F) {
	x, token := twoPages(f)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	ok(f, err)
	f.Add(token)
	f.Add(token + "=")
	f.Add(token[:len(token)/2])
	f.Add("")
	f.Add("garbage")
	for _, i := range []int{0, 4, 12, 28, 29, len(raw) - 1} { // version, process, revision, binding, position, seal
		changed := bytes.Clone(raw)
		changed[i] ^= 1
		f.Add(base64.RawURLEncoding.EncodeToString(changed))
	}
	f.Fuzz(func(t *testing.T, token string) {
		x.t = t
		a := x.ask(all, fleetPods, values("limit", "2", "continue", token), "")
		switch a.code {
		case http.StatusOK, http.StatusBadRequest:
		case http.StatusGone:
			next := x.mustAsk(all, fleetPods, values("limit", "2", "continue", a.status.Continue), "")
			if len(next.list.Items) > 2 {
				t.Errorf("%d pods on a page of 2", len(next.list.Items))
			}
		default:
			t.Errorf("%q: %d %s", token, a.code, fmt.Sprint(a.status.Message))
		}
	})
}
