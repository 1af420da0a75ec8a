package resources_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/resources"
)

// event is an event of a watch.
type event struct {
	Type   string
	Object map[string]any
	text   string
}

func (e event) revision() string { return field(e.Object, "metadata", "resourceVersion") }

// summary is an event in short: its type and the object's key, or what else it is.
func (e event) summary() string {
	switch e.Type {
	case "BOOKMARK":
		return e.Type
	case "ERROR":
		return fmt.Sprint(e.Type, " ", e.Object["code"])
	}
	return e.Type + " " + keyOf(e.Object)
}

// stream is a watch under way: the ResponseWriter that its Handler writes to
// on a goroutine of its own.
type stream struct {
	f      *fleet
	header http.Header
	cancel context.CancelFunc
	open   chan struct{} // closed when the watch has begun
	done   chan struct{} // closed when it has ended, or was refused
	status metav1.Status // of a refusal; once done
	panics any           // once done

	held sync.Mutex // while it is held the client does not read

	mu       sync.Mutex
	lines    []byte
	most     int // bytes of a write
	deadline time.Time
	allowed  time.Duration // for the newest write
	news     chan struct{}
	fail     error // what writes get
}

// SetWriteDeadline is for http.ResponseController.
func (s *stream) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
	return nil
}

func (s *stream) Header() http.Header { return s.header }

func (s *stream) WriteHeader(int) { close(s.open) }

func (s *stream) Write(b []byte) (int, error) {
	s.held.Lock()
	defer s.held.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return 0, s.fail
	}
	s.most = max(s.most, len(b))
	s.allowed = time.Until(s.deadline)
	s.lines = append(s.lines, b...)
	close(s.news)
	s.news = make(chan struct{})
	return len(b), nil
}

func (s *stream) Flush() {}

// watch opens a watch, which has begun or was refused when it returns.
func (f *fleet) watch(c resources.Caller, path string, query url.Values, accept string) *stream {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context())) // ended by end, whatever the order of cleanups
	s := &stream{f: f, header: http.Header{}, cancel: cancel, open: make(chan struct{}), done: make(chan struct{}), news: make(chan struct{})}
	if f.slow {
		s.held.Lock()
	}
	query = maps.Clone(query)
	if query == nil {
		query = url.Values{}
	}
	query.Set("watch", "1")
	r := f.request(ctx, path, query, accept)
	go func() {
		defer close(s.done)
		defer func() { s.panics = recover() }()
		s.status = f.serve(s, r, c)
	}()
	f.t.Cleanup(func() {
		cancel()
		<-s.done
		if s.panics != nil && s.panics != http.ErrAbortHandler { //nolint:errorlint // a panic's value
			f.t.Errorf("watch of %s panicked: %v", path, s.panics)
		}
	})
	select {
	case <-s.open:
	case <-s.done:
	}
	return s
}

// events are those that were sent so far.
func (s *stream) events() []event {
	s.f.t.Helper()
	s.mu.Lock()
	lines := bytes.Clone(s.lines)
	s.mu.Unlock()
	var out []event
	for line := range bytes.Lines(lines) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil || line[len(line)-1] != '\n' {
			s.f.t.Fatalf("%v: %s", err, line)
		}
		e.text = string(line)
		out = append(out, e)
	}
	return out
}

// end ends the watch, and returns all that it has sent: everything up to now.
func (s *stream) end() []event {
	s.f.t.Helper()
	s.cancel()
	<-s.done
	if s.status.Code != 0 {
		s.f.t.Fatalf("the watch was refused: %+v", s.status)
	}
	if s.panics != nil {
		s.f.t.Fatalf("the watch failed: %v", s.panics)
	}
	return s.events()
}

// wantExpired holds the watch to be refused, since its revision is lost.
func (s *stream) wantExpired(what string) {
	s.f.t.Helper()
	select {
	case <-s.open:
		s.f.t.Errorf("%s: the watch was opened", what)
		return
	case <-s.done:
	}
	if s.panics != nil || s.status.Code != http.StatusGone || s.status.Reason != metav1.StatusReasonExpired {
		s.f.t.Errorf("%s: %+v, %v, want 410", what, s.status, s.panics)
	}
}

// wait waits until so many events were sent, and returns them.
func (s *stream) wait(n int) []event {
	s.f.t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		have, news := bytes.Count(s.lines, []byte("\n")), s.news
		s.mu.Unlock()
		if have >= n {
			return s.events()
		}
		select {
		case <-news:
		case <-s.done:
			if len(s.events()) < n {
				s.f.t.Fatalf("the watch ended after %d events of %d: %+v, %v", have, n, s.status, s.panics)
			}
		case <-timeout:
			s.f.t.Fatalf("%d events of %d came", have, n)
		}
	}
}

// wantEvents compares summaries of events.
func wantEvents(t testing.TB, what string, events []event, want ...string) {
	t.Helper()
	var got []string
	for _, e := range events {
		got = append(got, e.summary())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

// revisionOf reads a resourceVersion.
func revisionOf(t testing.TB, text string) aggregate.Revision {
	t.Helper()
	r, err := strconv.ParseUint(text, 10, 64)
	ok(t, err)
	return aggregate.Revision(r)
}

func text(r aggregate.Revision) string { return fmt.Sprint(uint64(r)) }

const fleetPods = "/fleet/api/v1/pods"

// TestWatch_SelectorTransitionsComeAndGo: an object that a change brings into the
// selection is ADDED, one that it takes out is DELETED as it was, at the
// change's revision.
func TestWatch_SelectorTransitionsComeAndGo(t *testing.T) {
	f := newFleet(t, settings{})
	f.join("a/east", "env", "prod")
	f.put(pod("a/east", "blue", "p0", "app", "web"))
	start := f.commit()
	for query, want := range map[string][]string{
		"":                                            {"MODIFIED a/east blue p0", "MODIFIED a/east blue p0", "DELETED a/east blue p0", "ADDED a/east blue p0", "DELETED a/east blue p0"},
		"labelSelector=app=web":                       {"DELETED a/east blue p0", "ADDED a/east blue p0", "DELETED a/east blue p0", "ADDED a/east blue p0", "DELETED a/east blue p0"},
		"labelSelector=app=shop":                      {"ADDED a/east blue p0", "DELETED a/east blue p0"},
		"fieldSelector=spec.nodeName=n1":              {"ADDED a/east blue p0", "DELETED a/east blue p0"},
		"fieldSelector=spec.nodeName!=n1":             {"MODIFIED a/east blue p0", "DELETED a/east blue p0", "ADDED a/east blue p0", "DELETED a/east blue p0"},
		"fieldSelector=metadata.name=p1":              nil,
		"labelSelector=member.federator.dev/env=test": nil,
	} {
		f := newFleet(t, settings{})
		f.join("a/east", "env", "prod")
		f.put(pod("a/east", "blue", "p0", "app", "web"))
		if f.commit() != start {
			t.Fatal("revisions differ")
		}
		name, value, _ := bytes.Cut([]byte(query), []byte("="))
		q := values("resourceVersion", text(start), string(name), string(value))
		q.Del("")
		s := f.watch(all, fleetPods, q, "")
		f.put(pod("a/east", "blue", "p0", "app", "shop"))
		f.commit()
		o := pod("a/east", "blue", "p0", "app", "web")
		o.node = "n1"
		f.put(o)
		last := f.commit()
		reborn := pod("a/east", "blue", "p0", "app", "web")
		reborn.uid = "another"
		f.put(reborn)
		f.commit()
		f.remove(reborn)
		f.commit()
		events := s.end()
		wantEvents(t, query, events, want...)
		for i, e := range events {
			if e.summary() == "DELETED a/east blue p0" && i+2 == len(events) && e.revision() == text(last) {
				t.Errorf("%s: a deletion at the revision of what it deletes", query)
			}
		}
	}
}

// TestWatch_DeletionsAreAtTheirOwnRevision, and show the object as it was.
func TestWatch_DeletionsAreAtTheirOwnRevision(t *testing.T) {
	f := newFleet(t, settings{})
	f.join("a/east")
	f.put(pod("a/east", "blue", "p0", "app", "web"))
	start := f.commit()
	held := f.objects[pods]["a/east blue p0"]
	out := f.watch(all, fleetPods, values("resourceVersion", text(start), "labelSelector", "app=web"), "")
	gone := f.watch(all, fleetPods, values("resourceVersion", text(start)), "")
	f.put(pod("a/east", "blue", "p0", "app", "shop"))
	changed := f.commit()
	f.remove(f.objects[pods]["a/east blue p0"])
	removed := f.commit()
	events := out.end()
	wantEvents(t, "a selected object", events, "DELETED a/east blue p0")
	if e := events[0]; e.revision() != text(changed) || versionOf(e.Object) != held.version || field(e.Object, "metadata", "labels", "app") != "web" {
		t.Errorf("%s, want %s as of version %s", e.text, text(changed), held.version)
	}
	events = gone.end()
	wantEvents(t, "any object", events, "MODIFIED a/east blue p0", "DELETED a/east blue p0")
	if e := events[1]; e.revision() != text(removed) || field(e.Object, "metadata", "labels", "app") != "shop" {
		t.Errorf("%s, want %s with its last labels", e.text, text(removed))
	}
}

// TestWatch_InitialEventsEndWithABookmark.
func TestWatch_InitialEventsEndWithABookmark(t *testing.T) {
	f, _ := twoPages(t)
	now := f.index.Snapshot().Revision()
	var want []string
	for _, o := range (&podSelection{}).expected(f) {
		want = append(want, "ADDED "+o.key())
	}
	streaming := values("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true")
	s := f.watch(all, fleetPods, streaming, "")
	s.wait(7)
	f.put(pod("a/west", "blue", "p9"))
	f.commit()
	events := s.end()
	wantEvents(t, "a streamed list", events, append(want, "BOOKMARK", "ADDED a/west blue p9", "BOOKMARK")...)
	if e := events[6]; e.revision() != text(now) || field(e.Object, "metadata", "annotations", metav1.InitialEventsAnnotationKey) != "true" || field(e.Object, "kind") != "Pod" {
		t.Errorf("%s ends no list at %d", e.text, now)
	}
	if e := events[8]; e.revision() != text(now+1) || field(e.Object, "metadata", "annotations", metav1.InitialEventsAnnotationKey) != "" {
		t.Errorf("%s is no bookmark at %d", e.text, now+1)
	}
	// A client that lists first and is served at once, and one that says no.
	want = append(want, "ADDED a/west blue p9")
	for i := range want[:7] {
		want[i] = "ADDED " + (&podSelection{}).expected(f)[i].key()
	}
	s = f.watch(all, fleetPods, values("resourceVersion", "0"), "")
	s.wait(1) // one that ends before it has told anything is over at once
	wantEvents(t, "from any revision", s.end(), want[:7]...)
	wantEvents(t, "no initial events", f.watch(all, fleetPods, values("sendInitialEvents", "false", "resourceVersionMatch", "NotOlderThan"), "").end())
	// Not older than a revision that has been: at the newest.
	streaming.Set("resourceVersion", text(now))
	s = f.watch(all, fleetPods, streaming, "")
	s.wait(1)
	events = s.end()
	wantEvents(t, "not older than", events, append(want[:7:7], "BOOKMARK", "BOOKMARK")...)
}

// TestWatch_LostRevisionsAreExpired: of another process, or before what the
// log of changes holds.
func TestWatch_LostRevisionsAreExpired(t *testing.T) {
	f := newFleet(t, settings{logBytes: 4 << 10})
	f.join("a/east")
	f.put(pod("a/east", "blue", "p0"))
	start := f.commit()
	behind := f.watch(all, fleetPods, values("resourceVersion", text(start)), "")
	behind.held.Lock()
	for range 100 {
		f.put(pod("a/east", "blue", "p0"), pod("a/east", "blue", "p1"))
		f.commit()
	}
	refused := func(what string, revision aggregate.Revision) {
		t.Helper()
		f.watch(all, fleetPods, values("resourceVersion", text(revision)), "").wantExpired(what)
	}
	refused("passed by", start)
	refused("an earlier process", start-aggregate.BlockSize)
	refused("a later process", start+aggregate.BlockSize)
	// One that was open and did not read receives it, and is ended.
	behind.held.Unlock()
	<-behind.done
	events := behind.end()
	if n := len(events); n == 0 || events[n-1].summary() != "ERROR 410" || events[n-1].Object["reason"] != "Expired" ||
		events[n-1].Object["kind"] != "Status" || events[n-1].Object["apiVersion"] != "v1" { // else client-go cannot decode it
		t.Errorf("a client that was passed by got %d events, %s", n, behind.lines)
	}
}

// TestWatch_ClientThatDoesNotReadIsGivenUp.
func TestWatch_ClientThatDoesNotReadIsGivenUp(t *testing.T) {
	f, _ := twoPages(t)
	s := f.watch(all, fleetPods, nil, "")
	s.wait(6)
	s.mu.Lock()
	s.fail = errors.New("deadline exceeded")
	s.mu.Unlock()
	f.put(pod("a/west", "blue", "p9"))
	f.commit()
	<-s.done
	if s.panics != http.ErrAbortHandler { //nolint:errorlint // a panic's value
		t.Errorf("%v, want the connection ended", s.panics)
	}
}
