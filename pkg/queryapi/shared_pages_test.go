package queryapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/seed"
)

// page is one page of a list.
type page struct {
	Metadata struct {
		metadata

		Continue string
	}
	Items []struct{ Metadata metadata }
}

func (p *process) page(t *testing.T, client *http.Client, path string, query url.Values) (code int, got page) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.Address+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.Token())
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode, got
}

// TestShared_PagesAreOfOneState: whatever changes between the pages of a list, members that move, join and leave among it, they
// together are what there was at the first, or 410.
func TestShared_PagesAreOfOneState(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 2))
	f := share(t, 3, nil)
	f.join(manyMembers...)
	objects := f.fill(rng, 300)
	whole := f.whole.Client(t)
	clients := map[*process]*http.Client{}
	for _, p := range f.processes {
		clients[p] = p.Client(t)
	}
	extra := 0
	change := func() (moved bool) {
		members := slices.Sorted(maps.Keys(f.judges))
		switch n := rng.IntN(10); {
		case n < 3:
			o := f.object(rng, members)
			f.put(100+rng.IntN(900), o)
			objects = append(objects, o)
		case n < 6:
			if o := objects[rng.IntN(len(objects))]; f.judges[o.member] != nil {
				f.remove(o)
			}
		case n < 8:
			f.move(choose(rng, members...), choose(rng, f.processes...))
			return true
		case n < 9:
			extra++
			name := fmt.Sprintf("%s/eu-x%d", choose(rng, "a", "d"), extra)
			f.join(name)
			f.put(5, sharedObject{name, "Pod", "blue", "first", "a", "1"}, sharedObject{name, "Node", "", "first", "a", "1"})
			return true
		case len(members) > 6:
			f.leave(choose(rng, members...))
			return true
		}
		return false
	}
	exact, expired, across := 0, 0, 0
	for i := range 150 {
		p := choose(rng, f.processes...)
		path := choose(rng, "/fleet/api/v1/pods", "/flat/api/v1/pods", "/fleet/api/v1/namespaces/blue/configmaps", "/fleet/api/v1/nodes")
		query := url.Values{"limit": {choose(rng, "3", "7", "20")}}
		want, _, err := f.whole.state(t.Context(), whole, path, url.Values{})
		f.must(err)
		var code int
		var last page
		got, moved := map[string]string{}, false
		for pages := 0; ; pages++ {
			code, last = p.page(t, clients[p], path, query)
			if code != http.StatusOK {
				break
			}
			for _, o := range last.Items {
				if _, double := got[o.Metadata.key()]; double {
					t.Fatalf("%d: %s of %s has %s twice", i, path, p.id, o.Metadata.key())
				}
				got[o.Metadata.key()] = o.Metadata.version()
			}
			if last.Metadata.Continue == "" {
				break
			}
			query.Set("continue", last.Metadata.Continue)
			for range rng.IntN(3) {
				moved = change() || moved
			}
		}
		switch {
		case code == http.StatusGone:
			expired++
		case code != http.StatusOK:
			t.Fatalf("%d: %s of %s: %d", i, path, p.id, code)
		case !maps.Equal(got, want):
			t.Fatalf("%d: the pages of %s of %s have %d objects, there were %d:\n got %v\nwant %v", i, path, p.id, len(got), len(want), got, want)
		case moved:
			across++
		default:
			exact++
		}
	}
	t.Logf("%d lists were exact, %d across moves, %d expired", exact, across, expired)
	if exact == 0 || across == 0 {
		t.Error("the test showed too little")
	}
}

// TestShared_PagesHaveNothingThatIsServedSince: what the members of a process did not serve at the first page, and do at the next, is
// not of the list.
func TestShared_PagesHaveNothingThatIsServedSince(t *testing.T) {
	f := share(t, 2, nil)
	f.join("a/eu-1")
	f.put(1, sharedObject{"a/eu-1", "Node", "", "one", "a", "1"}, sharedObject{"a/eu-1", "Node", "", "two", "a", "1"})
	f.join("b/us-1")
	there, other := f.processes[0], f.processes[1]
	f.move("b/us-1", there) // the other one has no member
	f.judges["c/eu-1"] = other
	f.publish()
	client := there.Client(t)
	query := url.Values{"limit": {"1"}}
	code, first := there.page(t, client, "/fleet/api/v1/nodes", query)
	if code != http.StatusOK || len(first.Items) != 1 || first.Metadata.Continue == "" {
		t.Fatalf("%d: %+v", code, first)
	}
	f.must(other.index.PutMember(aggregate.Member{Name: "c/eu-1", UID: "c"}))
	s := other.scope(t, "c/eu-1", "Node")
	o := sharedObject{"c/eu-1", "Node", "", "three", "a", "1"}
	s.Upsert(s.Item(o.record(1)))
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	query.Set("limit", "10")
	query.Set("continue", first.Metadata.Continue)
	if code, next := there.page(t, client, "/fleet/api/v1/nodes", query); code != http.StatusGone && len(next.Items) != 1 {
		t.Errorf("%d: %+v", code, next)
	}
}
