package resources_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// readRows returns the header of an answer, and "member namespace name phase" of its rows.
func readRows(t testing.TB, a answer) (*rows.Header, []string) {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != rows.MediaType {
		t.Fatalf("Content-Type %s", got)
	}
	in, err := rows.NewReader(bytes.NewReader(a.body))
	ok(t, err)
	h := in.Header()
	phase := slices.IndexFunc(h.Columns, func(c rows.Column) bool { return c.Name == "phase" })
	var out []string
	for {
		row, err := in.Next()
		if errors.Is(err, io.EOF) {
			return h, out
		}
		ok(t, err)
		var text [4]string
		for i, column := range []int{0, 1, 2, phase} {
			if column >= 0 && row.Cells[column] != nil {
				ok(t, json.Unmarshal(row.Cells[column], &text[i]))
			}
		}
		out = append(out, strings.Join(text[:], " "))
	}
}

// TestRows_PagesAreThePlainSlice asks for rows of random selections, within random grants, in pages while the fleet changes: together
// they are what a plain slice had when the list began.
func TestRows_PagesAreThePlainSlice(t *testing.T) {
	rng := random(t)
	for pages := 0; pages < 150; {
		f := grown(t, rng, settings{}, 40)
		for range 20 {
			c := randomSelection(rng)
			if strings.HasPrefix(c.path, "/flat") || len(f.members) == 0 || f.ask(c.caller, c.path, c.query, "").code != http.StatusOK {
				f.step(rng)
				continue
			}
			var want []string
			for _, o := range c.expected(f) {
				want = append(want, o.key()+" "+o.phase)
			}
			what := fmt.Sprintf("%s?%s by %v", c.path, c.query.Encode(), c.grants)
			query := maps.Clone(c.query)
			query.Set("columns", "phase=.status.phase")
			query.Set("printerColumns", strconv.FormatBool(rng.IntN(2) == 0))
			query.Set("limit", strconv.Itoa(1+rng.IntN(8)))
			revision := fmt.Sprint(uint64(f.index.Snapshot().Revision()))
			var got []string
			for {
				pages++
				h, page := readRows(t, f.mustAsk(c.caller, c.path, query, rows.Accept))
				if h.Metadata.ResourceVersion != revision || h.Objects != "Pod" {
					t.Fatalf("%s: %+v, want %s", what, h, revision)
				}
				got = append(got, page...)
				if left := h.Metadata.RemainingItemCount; left != nil && len(got)+int(*left) != len(want) {
					t.Fatalf("%s: %d rows, and %d are left, of %d", what, len(got), *left, len(want))
				}
				if h.Metadata.Continue == "" {
					break
				}
				query.Set("continue", h.Metadata.Continue)
				for range rng.IntN(3) {
					f.step(rng)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s:\n got %q\nwant %q", what, got, want)
			}
		}
	}
}

// TestRows_OtherKindsAreOfTheRevision that the first were of, though the fleet has changed.
func TestRows_OtherKindsAreOfTheRevision(t *testing.T) {
	f := newFleet(t, settings{})
	f.join("a/one")
	f.put(pod("a/one", "x", "p1"), testObject{kind: nodes, member: "a/one", name: "n1"})
	f.commit()
	h, first := readRows(t, f.mustAsk(all, "/fleet/api/v1/pods", nil, rows.Accept))
	if len(first) != 1 || !slices.Equal(h.Members, []string{"a/one"}) || len(h.NotSynced) != 0 {
		t.Fatalf("%+v, %q", h, first)
	}
	f.put(pod("a/one", "x", "p2"), testObject{kind: nodes, member: "a/one", name: "n2"})
	f.commit()
	at := values("resourceVersion", h.Metadata.ResourceVersion, "resourceVersionMatch", "Exact")
	for _, path := range []string{"/fleet/api/v1/nodes", "/fleet/api/v1/pods"} {
		again, got := readRows(t, f.mustAsk(all, path, at, rows.Accept))
		if again.Metadata.ResourceVersion != h.Metadata.ResourceVersion || len(got) != 1 {
			t.Errorf("%s: %+v, %q", path, again, got)
		}
	}
	f.now = f.now.Add(6 * time.Minute)
	wantRefusal(t, "after six minutes", f.ask(all, "/fleet/api/v1/nodes", at, rows.Accept), http.StatusGone, metav1.StatusReasonExpired)
}

// TestRows_SayWhatIsNotFresh, to callers that may read it.
func TestRows_SayWhatIsNotFresh(t *testing.T) {
	f := newFleet(t, settings{})
	f.join("a/one")
	f.join("b/two")
	f.put(pod("a/one", "x", "p1"), pod("b/two", "x", "p1"))
	f.commit()
	f.scope("b/two", pods).SetStatus(aggregate.Status{State: aggregate.Stale, Reason: "a secret of the member's"})
	_, err := f.scope("b/two", pods).Commit()
	ok(t, err)
	h, got := readRows(t, f.mustAsk(all, "/fleet/api/v1/pods", nil, rows.Accept))
	if len(got) != 2 || len(h.NotSynced) != 1 || h.NotSynced[0].Member != "b/two" || h.NotSynced[0].State != "Stale" || strings.Contains(h.NotSynced[0].Reason, "secret") {
		t.Errorf("%q, %+v", got, h.NotSynced)
	}
	one := granted(authz.NewGrants(map[string]authz.MemberGrant{"a/one": {All: true}}, time.Time{}))
	h, got = readRows(t, f.mustAsk(one, "/fleet/api/v1/pods", nil, rows.Accept))
	if len(got) != 1 || len(h.NotSynced) != 0 || !slices.Equal(h.Members, []string{"a/one"}) {
		t.Errorf("with limited grants: %q, %+v", got, h)
	}
	wantRefusal(t, "require=synced", f.ask(all, "/fleet/api/v1/pods", values("require", "synced"), rows.Accept), http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
}

// TestRows_AreOfListsAlone, and other formats have no columns to choose.
func TestRows_AreOfListsAlone(t *testing.T) {
	f := newFleet(t, settings{})
	f.join("a/one")
	f.put(pod("a/one", "x", "p1"))
	f.commit()
	for path, query := range map[string][]string{
		"/fleet/api/v1/namespaces/x/pods/p1": nil, "/flat/api/v1/pods": nil, "/fleet/api/v1/pods": {"watch", "true"},
	} {
		wantRefusal(t, path, f.ask(all, path, values(query...), rows.Accept), http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable)
	}
	wantRefusal(t, "another media type", f.ask(all, "/fleet/api/v1/pods", nil, rows.MediaType), http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable)
	for _, query := range []string{"columns", "printerColumns"} {
		wantRefusal(t, query, f.ask(all, "/fleet/api/v1/pods", values(query, "false"), ""), http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	for _, columns := range []string{"x", "x=y", "x=.a,x=.b", "x=.a["} {
		wantRefusal(t, columns, f.ask(all, "/fleet/api/v1/pods", values("columns", columns), rows.Accept), http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	// Who accepts both gets what there is.
	if a := f.mustAsk(all, "/flat/api/v1/pods", nil, rows.Accept+",application/json;q=0.5"); a.list.Kind != "PodList" {
		t.Errorf("%s", a.body)
	}
}
