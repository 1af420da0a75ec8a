package resources_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// grown returns a fleet after some random steps.
func grown(t testing.TB, rng *rand.Rand, o settings, steps int) *fleet {
	t.Helper()
	f := newFleet(t, o)
	for _, m := range memberNames[:4] {
		f.join(m, "env", pick(rng, envs...))
		f.put(f.randomPod(rng, m))
	}
	f.commit()
	for range steps {
		f.step(rng)
	}
	return f
}

// same holds objects that were sent to those that are expected, in order.
func same(t testing.TB, what string, got []map[string]any, want []testObject) {
	t.Helper()
	var g, w []string
	for _, o := range got {
		g = append(g, keyOf(o)+" "+versionOf(o))
	}
	for _, o := range want {
		w = append(w, o.key()+" "+o.version)
	}
	if !slices.Equal(g, w) {
		t.Fatalf("%s: got %d\n%q\nwant %d\n%q", what, len(g), g, len(w), w)
	}
}

// TestList_PagesAreThePlainSlice asks random selections in pages of random
// sizes while the fleet changes: together they are what a plain slice had when
// the list began.
func TestList_PagesAreThePlainSlice(t *testing.T) {
	rng := random(t)
	pages := 0
	for pages < 400 {
		f := grown(t, rng, settings{}, 40)
		for range 30 {
			c := randomSelection(rng)
			want := c.expected(f)
			what := fmt.Sprintf("%s?%s by %v", c.path, c.query.Encode(), c.grants)
			if len(f.members) == 0 || f.ask(c.caller, c.path, c.query, "").code == http.StatusNotFound {
				f.step(rng) // the member of the request does not serve pods
				continue
			}
			query := maps.Clone(c.query)
			limit := 0
			if rng.IntN(5) > 0 {
				limit = 1 + rng.IntN(8)
				query.Set("limit", strconv.Itoa(limit))
			}
			revision := f.index.Snapshot().Revision()
			var got []map[string]any
			for {
				a := f.mustAsk(c.caller, c.path, query, "")
				pages++
				if a.list.Kind != "PodList" || a.list.APIVersion != "v1" || a.list.Metadata.ResourceVersion != fmt.Sprint(uint64(revision)) {
					t.Fatalf("%s: %s %s at %s, want %d", what, a.list.APIVersion, a.list.Kind, a.list.Metadata.ResourceVersion, revision)
				}
				got = append(got, a.list.Items...)
				meta := a.list.Metadata
				more := len(got) < len(want)
				if more != (meta.Continue != "") || more && len(a.list.Items) != limit {
					t.Fatalf("%s: a page of %d of %d, %d of %d so far, continue %q", what, len(a.list.Items), limit, len(got), len(want), meta.Continue)
				}
				plain := !c.query.Has("labelSelector") && !c.query.Has("fieldSelector")
				if left := meta.RemainingItemCount; (left != nil) != (more && plain) || left != nil && int(*left) != len(want)-len(got) {
					t.Fatalf("%s: remaining %v, %d of %d so far", what, left, len(got), len(want))
				}
				if !more {
					break
				}
				query.Set("continue", meta.Continue)
				for range rng.IntN(3) {
					f.step(rng)
				}
				if rng.IntN(4) == 0 { // the rest at once
					query.Del("limit")
				}
			}
			same(t, what, got, want)
		}
	}
}

// twoPages returns a fleet of six pods, and the token after the first two.
func twoPages(t testing.TB) (*fleet, string) {
	t.Helper()
	f := newFleet(t, settings{})
	for _, m := range memberNames[:2] {
		f.join(m)
		for _, name := range []string{"p1", "p3", "p5"} {
			f.put(pod(m, "blue", name, "app", "web"))
		}
	}
	f.commit()
	a := f.mustAsk(all, "/fleet/api/v1/pods", values("limit", "2"), "")
	if a.list.Metadata.Continue == "" {
		t.Fatal("no token")
	}
	return f, a.list.Metadata.Continue
}

func TestList_TokensAreForOneListOnly(t *testing.T) {
	f, token := twoPages(t)
	query := values("limit", "2", "continue", token)
	same(t, "the second page", f.mustAsk(all, "/fleet/api/v1/pods", query, "").list.Items, (&podSelection{}).expected(f)[2:4])
	bob := all
	bob.name = "bob"
	for what, a := range map[string]answer{
		"another caller":    f.ask(bob, "/fleet/api/v1/pods", query, ""),
		"another target":    f.ask(all, "/members/a/east/api/v1/pods", query, ""),
		"another namespace": f.ask(all, "/fleet/api/v1/namespaces/blue/pods", query, ""),
		"another selector":  f.ask(all, "/fleet/api/v1/pods", values("limit", "2", "continue", token, "labelSelector", "app=web"), ""),
		"another field":     f.ask(all, "/fleet/api/v1/pods", values("limit", "2", "continue", token, "fieldSelector", "spec.nodeName="), ""),
		"a revision":        f.ask(all, "/fleet/api/v1/pods", values("limit", "2", "continue", token, "resourceVersion", "5"), ""),
		"garbage":           f.ask(all, "/fleet/api/v1/pods", values("limit", "2", "continue", "garbage"), ""),
		"a changed byte":    f.ask(all, "/fleet/api/v1/pods", values("limit", "2", "continue", token[:60]+"x"+token[61:]), ""),
		"a limit below 0":   f.ask(all, "/fleet/api/v1/pods", values("limit", "-1"), ""),
		"half of it":        f.ask(all, "/fleet/api/v1/pods", values("continue", token[:len(token)/2]), ""),
	} {
		if what == "a changed byte" && token[60] == 'x' {
			continue
		}
		wantRefusal(t, what, a, http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
}

// TestList_TokensThatExpireContinueAtTheNewest: of another process, or older than
// snapshots are kept.
func TestList_TokensThatExpireContinueAtTheNewest(t *testing.T) {
	for name, expire := range map[string]func(f *fleet) *fleet{
		"another process": func(*fleet) *fleet {
			again := newFleet(t, settings{block: 8})
			for _, m := range memberNames[:2] {
				again.join(m)
				for _, name := range []string{"p1", "p3", "p5"} {
					again.put(pod(m, "blue", name, "app", "web"))
				}
			}
			again.commit()
			return again
		},
		"too old": func(f *fleet) *fleet {
			f.now = f.now.Add(time.Hour)
			return f
		},
	} {
		f, token := twoPages(t)
		f.put(pod("a/east", "blue", "p0"), pod("a/east", "blue", "p4")) // before and after the position
		f.commit()
		f = expire(f)
		f.put(pod("a/west", "blue", "p4"))
		f.commit()
		a := f.ask(all, "/fleet/api/v1/pods", values("limit", "2", "continue", token), "")
		wantRefusal(t, name, a, http.StatusGone, metav1.StatusReasonExpired)
		var got []map[string]any
		next := a.status.Continue
		for next != "" {
			a = f.mustAsk(all, "/fleet/api/v1/pods", values("limit", "2", "continue", next), "")
			got, next = append(got, a.list.Items...), a.list.Metadata.Continue
		}
		var rest []testObject
		for _, o := range (&podSelection{}).expected(f) {
			if o.member > "a/east" || o.name > "p3" {
				rest = append(rest, o)
			}
		}
		same(t, name, got, rest)
	}
}

func TestList_IsAtTheRequestedRevision(t *testing.T) {
	f, _ := twoPages(t) // which pins the snapshot
	pinned := f.index.Snapshot().Revision()
	before := (&podSelection{}).expected(f)
	f.put(pod("a/east", "blue", "p9"))
	revision := f.commit()
	at := func(r aggregate.Revision, match string) answer {
		return f.ask(all, "/fleet/api/v1/pods", values("resourceVersion", fmt.Sprint(uint64(r)), "resourceVersionMatch", match), "")
	}
	same(t, "exactly the pinned one", at(pinned, "Exact").list.Items, before)
	for what, a := range map[string]answer{
		"exactly the newest":        at(revision, "Exact"),
		"not older than the pinned": at(pinned, "NotOlderThan"),
		"any":                       at(0, "NotOlderThan"),
	} {
		same(t, what, a.list.Items, (&podSelection{}).expected(f))
	}
	wantRefusal(t, "exactly one that is not kept", at(pinned-1, "Exact"), http.StatusGone, metav1.StatusReasonExpired)
	for _, match := range []string{"Exact", "NotOlderThan"} {
		wantRefusal(t, "another process's "+match, at(pinned+aggregate.BlockSize, match), http.StatusGone, metav1.StatusReasonExpired)
	}
	wantRefusal(t, "words", f.ask(all, "/fleet/api/v1/pods", values("resourceVersion", "new"), ""), http.StatusBadRequest, metav1.StatusReasonBadRequest)
}

// TestList_RevisionsToComeAreWaitedFor, for as long as an API server does.
func TestList_RevisionsToComeAreWaitedFor(t *testing.T) {
	for _, match := range []string{"Exact", "NotOlderThan"} {
		synctest.Test(t, func(t *testing.T) {
			f, _ := twoPages(t)
			next := f.index.Snapshot().Revision() + 1
			query := values("resourceVersion", fmt.Sprint(uint64(next)), "resourceVersionMatch", match)
			began := time.Now()
			a := f.ask(all, "/fleet/api/v1/pods", query, "")
			wantRefusal(t, match, a, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
			if d := a.status.Details; d == nil || d.RetryAfterSeconds != 1 || len(d.Causes) != 1 || d.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge {
				t.Errorf("%s: %+v is not what client-go takes for a server that lags", match, d)
			}
			if took := time.Since(began); took != 3*time.Second {
				t.Errorf("%s: it took %s", match, took)
			}
			done := make(chan answer)
			go func() { done <- f.ask(all, "/fleet/api/v1/pods", query, "") }()
			synctest.Wait()
			f.put(pod("a/east", "blue", "p9"))
			f.commit()
			if a := <-done; len(a.list.Items) != 7 {
				t.Errorf("%s: %d pods, %s", match, len(a.list.Items), a.status.Message)
			}
		})
	}
}

// TestList_LongListsAreInOrder: they are encoded by several goroutines.
func TestList_LongListsAreInOrder(t *testing.T) {
	f := newFleet(t, settings{})
	for _, m := range memberNames {
		f.join(m)
		for i := range 200 {
			f.put(pod(m, "blue", fmt.Sprintf("p%04d", i)))
		}
	}
	f.commit()
	want := (&podSelection{}).expected(f)
	for range 2 {
		same(t, "a long list", f.mustAsk(all, "/fleet/api/v1/pods", nil, "").list.Items, want)
	}
}

// TestList_NamesAreFoundInAllMembers: nobody has it, one, or several, which a Table
// has all of.
func TestList_NamesAreFoundInAllMembers(t *testing.T) {
	rng := random(t)
	seen := map[string]int{}
	for range 10 {
		f := grown(t, rng, settings{}, 40)
		for range 60 {
			c := randomSelection(rng)
			ns, name := pick(rng, namespaces...), fmt.Sprint("p", rng.IntN(8))
			prefix, members := "/fleet", memberNames
			if rng.IntN(3) == 0 {
				members = []string{pick(rng, memberNames...)}
				prefix = "/members/" + members[0]
			}
			path := prefix + "/api/v1/namespaces/" + ns + "/pods/" + name
			whole := &podSelection{grants: c.grants}
			var want []testObject
			for _, o := range whole.expected(f) {
				if o.namespace == ns && o.name == name && slices.Contains(members, o.member) {
					want = append(want, o)
				}
			}
			a := f.ask(c.caller, path, nil, "")
			switch {
			case len(want) == 0:
				wantRefusal(t, path, a, http.StatusNotFound, metav1.StatusReasonNotFound)
				seen["none"]++
			case len(want) == 1:
				if a.code != http.StatusOK || a.list.Kind != "Pod" || a.list.Metadata.Name != name || a.list.Metadata.Annotations["federator.dev/member"] != want[0].member ||
					a.list.Metadata.Annotations["federator.dev/resource-version"] != want[0].version {
					t.Fatalf("%s: %d %s, want %+v", path, a.code, a.body, want[0])
				}
				seen["one"]++
			default:
				wantAmbiguous(t, path, a, want)
				if rows := f.mustAsk(c.caller, path, nil, asTable).list.Rows; len(rows) != len(want) {
					t.Fatalf("%s: %d rows, want %d", path, len(rows), len(want))
				}
				seen["several"]++
			}
		}
	}
	for _, n := range []string{"none", "one", "several"} {
		if seen[n] == 0 {
			t.Errorf("no name was had by %s", n)
		}
	}
}

// wantAmbiguous holds a refusal to naming those members that have the name and may
// be read, and what to ask instead.
func wantAmbiguous(t *testing.T, path string, a answer, want []testObject) {
	t.Helper()
	wantRefusal(t, path, a, http.StatusConflict, "AmbiguousName")
	name, namespace := want[0].name, want[0].namespace
	for _, says := range []string{"--context " + want[0].member, "kubectl get pods -n " + namespace + " --field-selector metadata.name=" + name} {
		if !strings.Contains(a.status.Message, says) {
			t.Errorf("%s: %q does not say %q", path, a.status.Message, says)
		}
	}
	var named []string
	for _, c := range a.status.Details.Causes {
		named = append(named, c.Field)
	}
	var members []string
	for _, o := range want {
		members = append(members, o.member)
	}
	if !slices.Equal(named, members) {
		t.Errorf("%s: names %v, want %v", path, named, members)
	}
}

func TestList_NamespacesAreWhereTheyBelong(t *testing.T) {
	f := newFleet(t, settings{})
	f.join("a/east")
	f.put(testObject{kind: nodes, member: "a/east", name: "n0"}, testObject{kind: "Namespace", member: "a/east", name: "blue"}, pod("a/east", "blue", "p0"))
	f.commit()
	for _, path := range []string{"/nodes", "/nodes/n0", "/namespaces/blue", "/namespaces", "/namespaces/blue/pods/p0"} {
		f.mustAsk(all, "/fleet/api/v1"+path, nil, "")
	}
	for _, path := range []string{"/namespaces/blue/nodes/n0", "/namespaces/blue/nodes", "/pods/p0", "/nodes/p0", "/namespaces/red"} {
		wantRefusal(t, path, f.ask(all, "/fleet/api/v1"+path, nil, ""), http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	wantRefusal(t, "a subresource", f.ask(all, "/fleet/api/v1/namespaces/blue/pods/p0/log", nil, ""), http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed)
	wantRefusal(t, "an unknown resource", f.ask(all, "/fleet/api/v1/dreams", nil, ""), http.StatusNotFound, metav1.StatusReasonNotFound)
	for _, path := range []string{"/pods", "/namespaces/blue/pods/p0"} {
		wantRefusal(t, path, f.ask(granted(nil), "/fleet/api/v1"+path, nil, ""), http.StatusForbidden, metav1.StatusReasonForbidden)
	}
	wantRefusal(t, "a watch", f.ask(granted(nil), "/fleet/api/v1/pods", values("watch", "1"), ""), http.StatusForbidden, metav1.StatusReasonForbidden)
}

// TestList_AnswersSayWhatIsNotFresh, of what the caller may read and no other.
func TestList_AnswersSayWhatIsNotFresh(t *testing.T) {
	f := newFleet(t, settings{})
	for _, m := range memberNames[:3] {
		f.join(m, "env", "prod")
		f.put(pod(m, "blue", "p0"))
	}
	for _, m := range memberNames[1:3] {
		f.scope(m, pods).SetStatus(aggregate.Status{State: aggregate.Stale, Reason: "out of reach"})
	}
	f.commit()
	some := granted(authz.NewGrants(map[string]authz.MemberGrant{"a/east": {All: true}, "a/west": {Namespaces: []string{"blue"}}}, time.Time{}))
	const list, get = "/fleet/api/v1/pods", "/fleet/api/v1/namespaces/blue/pods/p0"
	for _, c := range []struct {
		path, query string
		caller      caller
		want        string
	}{
		{list, "", all, "a/west;state=Stale, b/east;state=Stale"},
		{list, "", some, "a/west;state=Stale"},
		{list, "federator.dev/member-name=west", all, "a/west;state=Stale"},
		{list, "federator.dev/member=a.east", all, ""},
		{get, "", all, "a/west;state=Stale, b/east;state=Stale"},
		{get, "", some, "a/west;state=Stale"},
		{"/members/a/east/api/v1/pods", "", all, ""},
	} {
		query := values()
		if c.query != "" {
			query.Set("labelSelector", c.query)
		}
		a := f.mustAsk(c.caller, c.path, query, asTable)
		if got := a.header.Get("Federator-Not-Synced"); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.path, c.query, got, c.want)
		}
		warning := ""
		if c.want != "" && strings.HasPrefix(c.path, list) {
			warning = `299 - "Pod may be incomplete or old: a/west is Stale`
			if strings.Contains(c.want, ",") {
				warning += ", b/east is Stale"
			}
			warning += `"`
		}
		if got := a.header.Get("Warning"); got != warning {
			t.Errorf("%s %q: warned %q, want %q", c.path, c.query, got, warning)
		}
		if said := a.list.Metadata.Annotations["federator.dev/freshness"]; (said == "") != (c.want == "") {
			t.Errorf("%s %q: annotation %q", c.path, c.query, said)
		}
		query.Set("require", "synced")
		if a = f.ask(c.caller, c.path, query, ""); c.want == "" && a.code != http.StatusOK {
			t.Errorf("%s %q: %d %s", c.path, c.query, a.code, a.status.Message)
		} else if c.want != "" {
			wantRefusal(t, c.path, a, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		}
	}
}
