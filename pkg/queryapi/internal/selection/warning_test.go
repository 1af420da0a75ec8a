package selection

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// What the configuration leaves out is the same for all members: it is said once, with
// what it is, and not as if something were wrong with each.
func TestWarning_SaysWhatIsWrongAndWhatIsLeftOut(t *testing.T) {
	const hour = "only what changed within 1h0m0s"
	event := aggregate.Kind("Event")
	partial := func(member, reason string) NotSynced {
		return NotSynced{Member: member, Kind: event, State: aggregate.Partial, Reason: reason, Age: "3s"}
	}
	stale := func(member string) NotSynced {
		return NotSynced{Member: member, Kind: event, State: aggregate.Stale, Reason: "out of reach", Age: "1m30s"}
	}
	for name, c := range map[string]struct {
		of   []NotSynced
		want string
	}{
		"nothing": {nil, ""},
		"stale": {
			[]NotSynced{stale("a/x"), {Member: "a/y", Kind: event, State: aggregate.Syncing}},
			"Event may be incomplete or old: a/x is Stale (last contact 1m30s ago), a/y is Syncing",
		},
		"partial by configuration": {
			[]NotSynced{partial("a/x", hour), partial("a/y", hour)},
			"Event is partially stored: " + hour + " (a/x, a/y)",
		},
		"both": {
			[]NotSynced{partial("a/x", hour), stale("a/y"), partial("a/z", "2 objects are left out: no name")},
			"Event may be incomplete or old: a/y is Stale (last contact 1m30s ago); partially stored: " +
				hour + " (a/x); 2 objects are left out: no name (a/z)",
		},
		"many": {
			[]NotSynced{
				partial("a/1", hour), partial("a/2", hour), partial("a/3", hour), partial("a/4", hour), partial("a/5", hour),
				stale("b/1"), stale("b/2"), stale("b/3"), stale("b/4"),
			},
			"Event may be incomplete or old: b/1 is Stale (last contact 1m30s ago), b/2 is Stale (last contact 1m30s ago), " +
				"b/3 is Stale (last contact 1m30s ago) and 1 more; partially stored: " + hour + " (a/1, a/2, a/3 and 2 more)",
		},
		"many reasons": {
			[]NotSynced{partial("a/1", "r1"), partial("a/2", "r2"), partial("a/3", "r3"), partial("a/4", "r4"), partial("a/5", "r5")},
			"Event is partially stored: r1 (a/1); r2 (a/2); r3 (a/3); and 2 more members",
		},
	} {
		if got := Warning(c.of); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

// staleFleet returns what is not fresh in a fleet whose members have the longest names there
// can be.
func staleFleet(n int) []NotSynced {
	out := make([]NotSynced, n)
	for i := range out {
		out[i] = NotSynced{
			Member: fmt.Sprintf("%s/%s-%05d", strings.Repeat("n", 63), strings.Repeat("m", 247), i), Kind: "Event",
			State: aggregate.Stale, Reason: strings.Repeat("r", 300), Age: "1m30s",
		}
		if i%2 == 1 {
			out[i].State, out[i].Reason = aggregate.Partial, fmt.Sprint(strings.Repeat("r", 300), i)
		}
	}
	return out
}

// TestHeader_IsBoundedWhateverTheFleet: so are the warning and the annotation.
func TestHeader_IsBoundedWhateverTheFleet(t *testing.T) {
	for _, n := range []int{1, 10, 11, 1000, 10_000} {
		out := staleFleet(n)
		h := http.Header{}
		SetHeaders(h, out, 0, MembersLink("app=web,federator.dev/member-namespace=fleet", "events"))
		text := h.Get(NotSyncedHeader)
		if len(text) > maxHeader {
			t.Errorf("%d members: a header of %d bytes", n, len(text))
		}
		named := strings.Count(text, ";state=")
		if more := fmt.Sprintf(", more=%d", n-named); strings.HasSuffix(text, more) != (named < n) || named == 0 {
			t.Errorf("%d members: %d are named in %q", n, named, text)
		}
		link := h.Get("Link")
		if (link != "") != (named < n) {
			t.Errorf("%d members, of which %d are named: link %q", n, named, link)
		}
		if want := `</query/v1/members?labelSelector=federator.dev%2Fmember-namespace%3Dfleet&notSynced=true&resource=events>; rel="describedby"`; link != "" && link != want {
			t.Errorf("link %q, want %q", link, want)
		}
		if w := Warning(out); len(w) > maxWarning {
			t.Errorf("%d members: a warning of %d bytes", n, len(w))
		}
		annotations, err := Annotations(out)
		if err != nil {
			t.Fatal(err)
		}
		var listed []NotSynced
		if err := json.Unmarshal([]byte(annotations[freshnessKey]), &listed); err != nil || len(annotations[freshnessKey]) > maxAnnotation || len(listed) == 0 {
			t.Errorf("%d members: an annotation of %d bytes, %v", n, len(annotations[freshnessKey]), err)
		}
		if more := annotations[freshnessMoreKey]; more != "" != (len(listed) < n) || more != "" && more != fmt.Sprint(n-len(listed)) {
			t.Errorf("%d members, of which %d are listed: %q more", n, len(listed), more)
		}
	}
	if h := Header(staleFleet(1), 7); !strings.HasSuffix(h, ", more=7") {
		t.Errorf("of eight: %q", h)
	}
}
