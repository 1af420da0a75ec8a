package audit

import (
	"testing"

	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/clusterinformers"
)

// TestVerdict_KnowsWhatWasNotCompared: all is well only where everything was compared, or listed.
func TestVerdict_KnowsWhatWasNotCompared(t *testing.T) {
	equal, listed := clusterinformers.AuditResult{Outcome: "equal"}, clusterinformers.AuditResult{Outcome: "listed", Repaired: true}
	for name, test := range map[string]struct {
		results []clusterinformers.AuditResult
		code    int
	}{
		"equal and listed":              {[]clusterinformers.AuditResult{equal, listed}, 0},
		"nothing":                       {nil, exit.CodeUnknown},
		"not listed before long":        {[]clusterinformers.AuditResult{equal, {Outcome: "listed", Message: "too old resource version"}}, exit.CodeUnknown},
		"answers that contradict":       {[]clusterinformers.AuditResult{{Outcome: "unconfirmed"}}, exit.CodeUnknown},
		"in flight":                     {[]clusterinformers.AuditResult{{Outcome: "inFlight"}}, exit.CodeUnknown},
		"an outcome of a later version": {[]clusterinformers.AuditResult{{Outcome: "other"}}, exit.CodeUnknown},
		"different, and not compared":   {[]clusterinformers.AuditResult{{Outcome: "different"}, {Outcome: "notSynced"}}, 1},
	} {
		got := 0
		if err := verdict(test.results); err != nil {
			got = exit.Code(err)
		}
		if got != test.code {
			t.Errorf("%s: exit code %d, want %d", name, got, test.code)
		}
	}
}
