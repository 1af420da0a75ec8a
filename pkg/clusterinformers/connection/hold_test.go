package connection_test

import (
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/clusterinformers/connection"
)

func TestHold_SaysWhatHoldsAndSinceWhenNot(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		paused bool
		freeze string // "-": none
		reason connection.Reason
		says   string
		ends   bool
	}{
		"nothing":                 {freeze: "-"},
		"paused":                  {paused: true, freeze: "-", reason: connection.Paused, says: "paused"},
		"paused counts for more":  {paused: true, freeze: "2026-03-01T12:00:01Z", reason: connection.Paused, says: "paused"},
		"frozen":                  {freeze: "2026-03-01T12:00:01Z", reason: connection.Frozen, says: "until 2026-03-01T12:00:01Z", ends: true},
		"in another zone":         {freeze: "2026-03-01T14:00:00+01:00", reason: connection.Frozen, says: "until 2026-03-01T13:00:00Z", ends: true},
		"at the time":             {freeze: "2026-03-01T12:00:00Z"},
		"after":                   {freeze: "2025-03-01T12:00:00Z"},
		"empty":                   {freeze: "", reason: connection.Frozen, says: "not a time"},
		"a date":                  {freeze: "2025-03-01", reason: connection.Frozen, says: "not a time"},
		"a word":                  {freeze: "tomorrow", reason: connection.Frozen, says: `"tomorrow"`},
		"30 days ahead":           {freeze: "2026-03-31T12:00:00Z", reason: connection.Frozen, says: "until 2026-03-31", ends: true},
		"more than 30 days ahead": {freeze: "2026-03-31T12:00:01Z", reason: connection.Frozen, says: "more than 30 days ahead"},
		"centuries ahead":         {freeze: "9999-03-31T12:00:01Z", reason: connection.Frozen, says: "more than 30 days ahead"},
	} {
		h := connection.Hold{Paused: tc.paused, PausedBy: "p", FrozenBy: "f"}
		if tc.freeze != "-" {
			h.Freeze = &tc.freeze
		}
		why := h.At(now)
		switch {
		case tc.reason == "" && why != nil, tc.reason != "" && (why == nil || why.Reason != tc.reason || !strings.Contains(why.Message, tc.says)):
			t.Errorf("%s: %v", name, why)
		case why != nil && !strings.Contains(why.Message, "(unproven)"):
			t.Errorf("%s does not say who: %v", name, why)
		}
		if until := h.FrozenUntil(now); (until != nil) != (tc.ends || tc.paused && tc.freeze != "-") {
			t.Errorf("%s ends at %v", name, until)
		}
	}
}
