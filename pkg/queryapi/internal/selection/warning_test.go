package selection

import (
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
