package queryapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/seed"
)

// follower lists and watches as client-go's reflector does, of one process: it resumes from the
// revision of the last event, and lists again at 410.
type follower struct {
	f      *sharedFleet
	p      *process
	client *http.Client
	path   string
	query  url.Values
	accept string
	listed bool // by a list, not by initial events
	end    context.CancelFunc
	done   chan struct{}

	mu        sync.Mutex
	state     map[string]string // the member's own version of each object, by its key
	revision  string
	interrupt context.CancelFunc
	highest   uint64 // of the revisions that it has seen
	log       []string
	counts    map[string]int
}

const (
	sharedPartial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	sharedTable   = "application/json;as=Table;g=meta.k8s.io;v=v1"
)

func (f *sharedFleet) follow(t *testing.T, p *process, path string, query url.Values, accept string, listed bool) *follower {
	ctx, cancel := context.WithCancel(t.Context())
	w := &follower{f: f, p: p, client: p.Client(t), path: path, query: query, accept: accept, listed: listed, end: cancel, done: make(chan struct{}), counts: map[string]int{}}
	w.client.Timeout = 0
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			w.turn(ctx)
		}
	}()
	t.Cleanup(w.stop)
	return w
}

func (w *follower) stop() {
	w.end()
	<-w.done
}

// cut interrupts the watch.
func (w *follower) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.interrupt != nil {
		w.interrupt()
	}
}

type metadata struct {
	Name, Namespace, ResourceVersion string
	Annotations                      map[string]string
}

func (m metadata) key() string {
	return m.Annotations["federator.dev/member"] + " " + m.Namespace + " " + m.Name
}

func (m metadata) version() string { return m.Annotations["federator.dev/resource-version"] }

// turn is one list, where needed, and one watch.
func (w *follower) turn(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.interrupt = cancel
	revision := w.revision
	w.mu.Unlock()
	query := maps.Clone(w.query)
	initial := false
	if revision == "" && w.listed {
		var ok bool
		if revision, ok = w.list(ctx); !ok {
			return
		}
	}
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	if revision == "" {
		initial = true
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		query.Set("resourceVersion", revision)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.p.Address+w.path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Accept", w.accept)
	r.Header.Set("Authorization", "Bearer "+w.p.Token())
	resp, err := w.client.Do(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	w.note("watch from %q: %d", revision, resp.StatusCode)
	if resp.StatusCode == http.StatusGone {
		w.set("", nil)
		return
	}
	if resp.StatusCode != http.StatusOK {
		return
	}
	state := map[string]string{}
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var e struct {
			Type   string
			Object json.RawMessage
		}
		var o struct {
			Kind     string
			Code     int
			Message  string
			Metadata metadata
			Rows     []struct{ Object struct{ Metadata metadata } }
		}
		if err := json.Unmarshal(line, &e); err != nil {
			w.note("%s: %v", line, err)
			return
		}
		if err := json.Unmarshal(e.Object, &o); err != nil {
			w.note("%s: %v", line, err)
			return
		}
		of := o.Metadata
		at := of.ResourceVersion
		if len(o.Rows) == 1 {
			of = o.Rows[0].Object.Metadata
		}
		if e.Type != "ERROR" && (!initial || e.Type == "BOOKMARK") { // an initial event is at its object's own
			w.saw(e.Type, at)
		}
		switch e.Type {
		case "ERROR":
			w.note("ended: %d %s", o.Code, o.Message)
			if o.Code == http.StatusGone {
				w.set("", nil)
			}
			return
		case "BOOKMARK":
			if initial && o.Metadata.Annotations["k8s.io/initial-events-end"] == "true" {
				initial = false
				w.set(at, state)
				continue
			}
			if !initial {
				w.set(at, nil)
			}
			continue
		}
		if initial {
			if e.Type == "DELETED" {
				delete(state, of.key())
			} else {
				state[of.key()] = of.version()
			}
			continue
		}
		w.apply(e.Type, of, at)
	}
}

// saw takes note of a revision. Those of the fleet are of the process that is asked, and never go back.
func (w *follower) saw(what, at string) {
	revision, err := strconv.ParseUint(at, 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.HasPrefix(w.path, "/members/") {
		return
	}
	if err != nil || revision < w.highest {
		w.counts["back"]++
		w.log = append(w.log, fmt.Sprintf("%s at %s, after %d", what, at, w.highest))
	}
	w.highest = max(w.highest, revision)
}

func (w *follower) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// set sets from where to go on, and with which state, nil: the one that there is.
func (w *follower) set(revision string, state map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if revision == "" {
		w.counts["expired"]++
	}
	w.revision = revision
	if state != nil {
		w.state = state
		w.counts["begun"]++
	}
}

func (w *follower) apply(kind string, m metadata, at string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision = at
	w.counts[kind]++
	w.log = append(w.log, fmt.Sprintf("%s %s %s at %s", kind, m.key(), m.version(), at))
	if kind == "DELETED" {
		delete(w.state, m.key())
		return
	}
	w.state[m.key()] = m.version()
}

func (w *follower) list(ctx context.Context) (string, bool) {
	state, revision, err := w.p.state(ctx, w.client, w.path, w.query)
	if err != nil {
		w.note("list: %v", err)
		return "", false
	}
	w.saw("list", revision)
	w.set(revision, state)
	w.note("listed %d at %s", len(state), revision)
	return revision, true
}

// state lists.
func (p *process) state(ctx context.Context, client *http.Client, path string, query url.Values) (map[string]string, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.Address+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Authorization", "Bearer "+p.Token())
	resp, err := client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	var list struct {
		Metadata metadata
		Items    []struct{ Metadata metadata }
	}
	if resp.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("it answered %s", resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, "", err
	}
	state := map[string]string{}
	for _, o := range list.Items {
		state[o.Metadata.key()] = o.Metadata.version()
	}
	return state, list.Metadata.ResourceVersion, nil
}

// has reports whether the follower holds what there is.
func (w *follower) has(want map[string]string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Equal(w.state, want)
}

// move moves a member to another process: it joins there, before it leaves where it was.
func (f *sharedFleet) move(member string, to *process) {
	f.t.Helper()
	from := f.judges[member]
	if from == to {
		return
	}
	at, _ := from.index.Snapshot().Member(member)
	joining := at
	joining.Role = aggregate.Joining
	f.must(to.index.PutMember(joining))
	for _, k := range sharedKinds {
		s := to.scope(f.t, member, k.Kind)
		list, err := from.index.Snapshot().List(aggregate.Query{Kind: k.Kind, Members: []string{member}})
		f.must(err)
		for o := range list {
			body, err := o.AppendBody(nil)
			f.must(err)
			r := &aggregate.Record{Namespace: o.Namespace(), Name: o.Name(), UID: o.UID(), ResourceVersion: o.ResourceVersion(), Body: body}
			app, _ := o.Label("app")
			r.Labels = []aggregate.Label{{Key: "app", Value: app}}
			s.Upsert(s.Item(r))
		}
		_, err = s.Commit()
		f.must(err)
	}
	f.judges[member] = to
	f.publish()
	joining.Role = aggregate.Judge
	f.must(to.index.PutMember(joining))
	at.Role = aggregate.Standby
	f.must(from.index.PutMember(at))
	from.forget(member)
	from.index.RemoveMember(member)
}

func (p *process) forget(member string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range sharedKinds {
		delete(p.open, member+" "+string(k.Kind))
	}
}

func (f *sharedFleet) leave(member string) {
	judge := f.judges[member]
	delete(f.judges, member)
	f.publish()
	for _, p := range []*process{f.whole, judge} {
		p.forget(member)
		p.index.RemoveMember(member)
	}
}

func (f *sharedFleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestShared_WatchesHoldWhatExists has clients follow a fleet whose objects change, whose members join,
// leave and move, while their watches are interrupted.
func TestShared_WatchesHoldWhatExists(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 1))
	f := share(t, 3, nil)
	f.join(manyMembers...)
	objects := f.fill(rng, 100)
	var followers []*follower
	for range 10 {
		query := url.Values{}
		if rng.IntN(2) == 0 {
			query.Set("labelSelector", choose(rng, "app=a", "app!=b", "federator.dev/member-namespace in (a,b)"))
		}
		path := choose(rng, "/fleet/api/v1/pods", "/flat/api/v1/pods", "/fleet/api/v1/namespaces/blue/configmaps", "/fleet/api/v1/nodes", "/members/a/eu-1/api/v1/pods")
		followers = append(followers, f.follow(t, choose(rng, f.processes...), path, query, choose(rng, "application/json", sharedPartial, sharedTable), rng.IntN(2) == 0))
	}
	extra := 0
	for round := range 12 {
		for range 25 {
			members := slices.Sorted(maps.Keys(f.judges))
			switch n := rng.IntN(20); {
			case n < 12:
				o := f.object(rng, members)
				f.put(100+rng.IntN(900), o)
				objects = append(objects, o)
			case n < 18:
				o := objects[rng.IntN(len(objects))]
				if f.judges[o.member] != nil {
					f.remove(o)
				}
			default:
				followers[rng.IntN(len(followers))].cut()
			}
		}
		members := slices.Sorted(maps.Keys(f.judges))
		switch round % 4 {
		case 1:
			f.move(choose(rng, members...), choose(rng, f.processes...))
		case 2:
			extra++
			name := fmt.Sprintf("d/eu-%d", extra)
			f.join(name)
			f.put(5, sharedObject{name, "Pod", "blue", "first", "a", "1"})
		case 3:
			if m := choose(rng, members...); !strings.HasPrefix(m, "a/") {
				f.leave(m)
			}
		}
		for i, w := range followers {
			var want map[string]string
			until(t, fmt.Sprintf("follower %d (%s of %s?%s) holds what there is in round %d", i, w.accept, w.path, w.query.Encode(), round), func() bool {
				var err error
				want, _, err = f.whole.state(t.Context(), f.whole.Client(t), w.path, w.query)
				f.must(err)
				return w.has(want)
			})
		}
	}
	total := map[string]int{}
	for _, w := range followers {
		w.stop()
		if w.counts["back"] > 0 {
			t.Errorf("%s of %s: revisions went back:\n%s", w.accept, w.path, strings.Join(w.log, "\n"))
		}
		for k, n := range w.counts {
			total[k] += n
		}
	}
	t.Log(total)
	if total["ADDED"] == 0 || total["MODIFIED"] == 0 || total["DELETED"] == 0 || total["expired"] == 0 {
		t.Errorf("the test showed too little: %v", total)
	}
}
