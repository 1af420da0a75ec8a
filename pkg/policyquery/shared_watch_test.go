package policyquery_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/test/seed"
)

// processOf returns the process that judges a member.
func processOf(processes []*sharer, member string) *sharer {
	for _, p := range processes {
		for _, m := range p.judges {
			if m == member {
				return p
			}
		}
	}
	return nil
}

// settle waits until all processes have evaluated what there is, and a list of each is whole and the same twice.
func settle(processes []*sharer) {
	for _, p := range processes {
		p.awaitEvaluation()
	}
}

// ended returns the Status that ends a watch, after all its events.
func (s *stream) ended() (string, error) {
	for {
		e, err := s.next()
		if err != nil {
			return "", err
		}
		if e.Type == "ERROR" {
			return string(e.Object), nil
		}
	}
}

// TestSharedWatch_IsThatOfOneProcess: whatever happens to a fleet that two processes share, a watch of either, from wherever it
// goes on, has what one process has that judges all of it: each change once, and none is missing.
func TestSharedWatch_IsThatOfOneProcess(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 7)) // a mix, not a secret
	set := load(t, "high")
	processes, _ := pair(t, set, bindings[1:])
	whole := startWith(t, func(o *enforce.Options) { o.Set, o.Bindings = set, bindings[1:] }, nil)
	members := []string{"fleet/a", "fleet/b", "fleet/c"}
	for _, m := range members {
		whole.join(m)
	}
	queries := []string{"", "member=fleet/b", "severity=high", "namespace=other"}
	var streams []*stream
	for i, q := range queries {
		streams = append(streams, processes[i%2].watch(q, nil))
	}
	type known struct {
		of             *sharer
		query, version string
		table          table
	}
	var lists []known
	for step := range 40 {
		for range 1 + rng.IntN(4) {
			member, name, replicas := members[rng.IntN(3)], string(rune('a'+rng.IntN(5))), rng.IntN(5)
			whole.put(member, name, replicas, "")
			processOf(processes, member).put(member, name, replicas, "")
		}
		if rng.IntN(3) > 0 {
			continue // several changes may come together
		}
		whole.awaitEvaluation()
		settle(processes)
		for i, q := range queries {
			_, want := whole.list("limit=5000&" + q)
			p := processes[i%2]
			found, has := p.list("limit=5000&" + q)
			if !sameFindings(has, want) {
				t.Fatalf("step %d, %q: a list has\n%v\none process has\n%v", step, q, has, want)
			}
			streams[i].reachShared(found.Revision, has)
			lists = append(lists, known{p, q, found.ResourceVersion, has})
		}
		l := lists[rng.IntN(len(lists))]
		found, has := l.of.list("limit=5000&" + l.query)
		s := l.of.watch(l.query+"&resourceVersion="+l.version, l.table)
		s.reachShared(found.Revision, has)
		if s.mark.InitialEnd {
			t.Error("a watch that goes on has initial events")
		}
		// It stays open: what a slower watch is told in between does not keep others from where they have to be.
	}
}

// reachShared reads until the watch, at the revision of a list of a shared fleet or a later one, knows what the list has. A later
// one stands for the same where another client was told of a part of it in between.
func (s *stream) reachShared(revision aggregate.Revision, has table) {
	s.j.t.Helper()
	for s.mark.Revision < revision || !maps.Equal(s.knows, has) {
		if _, err := s.next(); err != nil {
			s.j.t.Fatalf("at %d on the way to %d: %v; it knows\n%v\nthe list has\n%v", s.mark.Revision, revision, err, s.knows, has)
		}
	}
}

// sameFindings compares findings of processes that saw them at different times.
func sameFindings(a, b table) bool {
	if len(a) != len(b) {
		return false
	}
	for key, text := range a {
		if untimed(text) != untimed(b[key]) {
			return false
		}
	}
	return true
}

func untimed(text string) string {
	for {
		before, after, found := strings.Cut(text, `"firstSeen":"`)
		if !found {
			return text
		}
		_, after, _ = strings.Cut(after, `"`)
		text = before + after
	}
}

// TestSharedWatch_IsNeverShort: a watch says which members it lacks, ends with 410 when a process is lost, and a
// revision that this process has not minted is expired.
func TestSharedWatch_IsNeverShort(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings[1:])
	for _, p := range processes {
		p.put(p.judges[0], "web", 1, "")
	}
	settle(processes)
	found, has := processes[0].list("")
	s := processes[0].watch("", nil)
	s.reach(found.ResourceVersion)
	if !s.mark.Synced || len(s.mark.Absent) > 0 || !s.mark.InitialEnd || !maps.Equal(s.knows, has) || len(has) != 2 {
		t.Fatalf("%+v knows %v, the list %v", s.mark, s.knows, has)
	}
	processes[1].refused("watch=true&resourceVersion="+found.ResourceVersion, http.StatusGone)
	processes[0].refused("watch=true&resourceVersion=1", http.StatusGone)
	processes[0].refused("watch=true&resourceVersion=a.b", http.StatusGone)
	processes[0].refused("watch=true&groupBy=policy", http.StatusBadRequest)
	processes[1].listener.Listener.Close()
	processes[1].listener.CloseClientConnections()
	if why, err := s.ended(); err != nil || !strings.Contains(why, `"code":410`) || !strings.Contains(why, "p-1") {
		t.Errorf("it ends with %s, %v", why, err)
	}
	if _, err := s.next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	processes[0].refused("watch=true&resourceVersion="+found.ResourceVersion, http.StatusServiceUnavailable)
	short := processes[0].watch("", nil)
	for short.mark.ResourceVersion == "" {
		if _, err := short.next(); err != nil {
			t.Fatal(err)
		}
	}
	if short.mark.Synced || fmt.Sprint(short.mark.Absent) != "[fleet/b]" || len(short.knows) != 1 {
		t.Errorf("without a process: %+v, %v", short.mark, short.knows)
	}
}

// TestSharedWatch_EndsWhenAMemberMoves, as what the processes send of it is no change.
func TestSharedWatch_EndsWhenAMemberMoves(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings[1:])
	processes[0].put("fleet/a", "web", 1, "")
	processes[0].put("fleet/c", "web", 1, "")
	settle(processes)
	found, has := processes[1].list("")
	s := processes[1].watch("resourceVersion="+found.ResourceVersion, has)
	if err := processes[0].index.PutMember(aggregate.Member{Name: "fleet/c", UID: "fleet/c", Role: aggregate.Standby}); err != nil {
		t.Fatal(err)
	}
	why, err := s.ended()
	if err != nil || !strings.Contains(why, `"code":410`) {
		t.Errorf("it ends with %s, %v", why, err)
	}
	if !maps.Equal(s.knows, has) {
		t.Errorf("what moved was sent as changed: %v, before %v", s.knows, has)
	}
	processes[0].awaitEvaluation()
	processes[1].refused("watch=true&resourceVersion="+found.ResourceVersion, http.StatusGone)
}

// TestSharedWatch_IsWithinTheGrantsOfItsCaller: nothing is sent of members that the caller may not read, and what is
// taken away from it in a member of another process is deleted.
func TestSharedWatch_IsWithinTheGrantsOfItsCaller(t *testing.T) {
	processes, hub := pair(t, load(t, "high"), bindings[1:])
	var taken atomic.Bool
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		if taken.Load() {
			return false
		}
		switch s.User {
		case "ann":
			return true
		case "bob":
			return a.Namespace == "fleet" && a.Name == "b"
		}
		return false
	}
	for _, p := range processes {
		for _, member := range p.judges {
			p.put(member, "web", 1, "")
		}
	}
	settle(processes)
	for user, want := range map[string]string{"ann": "[fleet/a fleet/b fleet/c]", "bob": "[fleet/b]", "eve": "[]"} {
		for _, p := range processes {
			p.token = user
			s := p.watch("", nil)
			for s.mark.ResourceVersion == "" {
				if _, err := s.next(); err != nil {
					t.Fatal(err)
				}
			}
			if got := membersOf(s.knows); got != want {
				t.Errorf("%s at %s has findings of %s, want %s", user, p.id, got, want)
			}
			s.close()
		}
	}
	processes[0].token = "ann"
	s := processes[0].watch("", nil)
	for s.mark.ResourceVersion == "" {
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
	taken.Store(true)
	for end := time.Now().Add(patience); len(s.knows) > 0; {
		if _, err := s.next(); err != nil || time.Now().After(end) {
			t.Fatalf("after its grants were taken away a caller has %v, %v", s.knows, err)
		}
	}
}

func membersOf(t table) string {
	var members []string
	for key := range t {
		members = append(members, strings.Fields(key)[1])
	}
	slices.Sort(members)
	return fmt.Sprint(members)
}

// TestSharedWatch_StreamsCarryIt, as the web UI has it.
func TestSharedWatch_StreamsCarryIt(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings[1:])
	processes[1].put("fleet/b", "web", 1, "")
	settle(processes)
	path := "/query/v1/stream?watch=true&s=" + url.QueryEscape("v /query/v1/violations?watch=true")
	resp := processes[0].get(t.Context(), path)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%d: %s", resp.StatusCode, text)
	}
	line := make([]byte, 0, 1<<16)
	for !strings.Contains(string(line), `"fleet/b"`) {
		buf := make([]byte, 4096)
		n, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		line = append(line, buf[:n]...)
	}
}
