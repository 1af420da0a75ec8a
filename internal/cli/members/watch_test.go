package members

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// testServer is a fleet of members, by name; it counts the pages that are requested.
type testServer struct {
	members []clusterinformers.MemberStatus
	pages   int
}

// fetch returns a page as a server does, apart from selectors.
func (s *testServer) fetch(_ context.Context, q clusterinformers.MemberQuery) (fleet.Status, error) {
	s.pages++
	var out fleet.Status
	for _, m := range s.members {
		if m.Name <= q.After || len(q.States) > 0 && !slices.Contains(q.States, m.State) || q.NotReady && m.Ready() {
			continue
		}
		if len(out.Members) == q.Limit {
			out.Continue = out.Members[q.Limit-1].Name
			break
		}
		out.Members = append(out.Members, m)
	}
	return out, nil
}

func connected(name string, objects int) clusterinformers.MemberStatus {
	return clusterinformers.MemberStatus{Name: name, State: connection.Connected, Synced: true, Objects: objects, Scopes: map[aggregate.State]int{aggregate.Synced: 3}}
}

func TestFetcher_GetsAllPages(t *testing.T) {
	s := &testServer{}
	for i := range 2*pageSize + 1 {
		s.members = append(s.members, connected(fmt.Sprintf("fleet/m%05d", i), i))
	}
	got, err := fetcher(s.fetch).all(t.Context(), clusterinformers.MemberQuery{})
	if err != nil || len(got.Members) != len(s.members) || s.pages != 3 || got.Continue != "" {
		t.Errorf("%d members of %d in %d pages, %v", len(got.Members), len(s.members), s.pages, err)
	}
	s.pages = 0
	if _, err := fetcher(s.fetch).all(t.Context(), clusterinformers.MemberQuery{Details: true}); err != nil || s.pages != 2*pageSize/detailedPageSize+1 {
		t.Errorf("with details in %d pages, %v", s.pages, err)
	}
}

// TestWatcher_PrintsOnlyWhatChanges: in columns as wide as before, and of a member that is no
// longer selected what has become of it.
func TestWatcher_PrintsOnlyWhatChanges(t *testing.T) {
	var out bytes.Buffer
	s := &testServer{members: []clusterinformers.MemberStatus{connected("fleet/a", 1), connected("fleet/b-with-a-long-name", 2), connected("fleet/c", 3)}}
	q := clusterinformers.MemberQuery{States: []connection.State{connection.Connected}}
	w := &watcher{opts: &options{}, out: &out, seen: map[string]string{}}
	poll := func(want ...string) {
		t.Helper()
		out.Reset()
		status, err := fetcher(s.fetch).all(t.Context(), q)
		if err == nil {
			err = w.print(t.Context(), status, s.fetch)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSuffix(out.String(), "\n"); got != strings.Join(want, "\n") {
			t.Errorf("printed:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
		}
	}
	poll(
		"NAME                       STATE       VERSION   SCOPES     OBJECTS   MEMORY   FRESHNESS   REASON",
		"fleet/a                    Connected   -         3 Synced         1       0B   -           -",
		"fleet/b-with-a-long-name   Connected   -         3 Synced         2       0B   -           -",
		"fleet/c                    Connected   -         3 Synced         3       0B   -           -",
	)
	poll()
	age := time.Second
	s.members[0].Bytes, s.members[0].Freshness = 100, &age // no change
	s.members[2].Objects = 4
	poll("fleet/c                    Connected   -         3 Synced         4       0B   -           -")
	s.members[0].State, s.members[0].Reason = connection.Disconnected, "Timeout"
	s.members = s.members[:2]
	poll(
		"fleet/a                    Disconnected   -         3 Synced         1     100B   1s          Timeout",
		"fleet/c                    Gone           -         -                0       0B   -           -",
	)
	s.members[0].State = connection.Connected
	poll("fleet/a                    Connected      -         3 Synced         1     100B   1s          Timeout")
}

func TestWatcher_PrintsDocuments(t *testing.T) {
	for output, want := range map[string]string{
		"json": "{\n  \"name\": \"fleet/a\",",
		"yaml": "name: fleet/a\n",
	} {
		var out bytes.Buffer
		s := &testServer{members: []clusterinformers.MemberStatus{connected("fleet/a", 1)}}
		w := &watcher{opts: &options{output: output}, out: &out, seen: map[string]string{}}
		for objects := range 3 {
			s.members[0].Objects = objects / 2 // 0, 0, 1
			status, err := fetcher(s.fetch).all(t.Context(), clusterinformers.MemberQuery{Details: true})
			if err == nil {
				err = w.print(t.Context(), status, s.fetch)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(out.String(), want); n != 2 {
			t.Errorf("%s: %d documents, want 2:\n%s", output, n, &out)
		}
		if strings.Contains(out.String(), "---") != (output == "yaml") {
			t.Errorf("%s:\n%s", output, &out)
		}
	}
}

// TestWatcher_OfOneMemberPrintsScopes that change.
func TestWatcher_OfOneMemberPrintsScopes(t *testing.T) {
	var out bytes.Buffer
	m := connected("fleet/a", 1)
	m.Details = []clusterinformers.ScopeStatus{{Kind: "Node", State: aggregate.Synced}, {Kind: "Pod", State: aggregate.Syncing}}
	w := &watcher{opts: &options{name: "a"}, out: &out, seen: map[string]string{}}
	for range 2 {
		out.Reset()
		if err := w.print(t.Context(), fleet.Status{Members: []clusterinformers.MemberStatus{m}}, nil); err != nil {
			t.Fatal(err)
		}
		m.Details = []clusterinformers.ScopeStatus{m.Details[0], {Kind: "Pod", State: aggregate.Synced, Objects: 7}}
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "Pod    -         Synced          7 ") {
		t.Errorf("printed:\n%s", got)
	}
}

func TestOptions_Query(t *testing.T) {
	q, err := (&options{selector: "env in (prod)", states: []string{"refused", "Disconnected"}, notReady: true, output: "json"}).query()
	if err != nil || !q.Details || !q.NotReady || !slices.Equal(q.States, []connection.State{connection.Refused, connection.Disconnected}) || q.Selector.String() != "env in (prod)" {
		t.Errorf("%+v, %v", q, err)
	}
	back, err := fleet.ParseMemberParams(fleet.MemberParams(q))
	if err != nil || fmt.Sprint(back) != fmt.Sprint(q) {
		t.Errorf("as parameters and back: %+v, %v, want %+v", back, err, q)
	}
	for _, bad := range []options{{selector: "a in"}, {states: []string{"Gone"}}} {
		if _, err := bad.query(); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
