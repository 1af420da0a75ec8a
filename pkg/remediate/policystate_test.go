package remediate

import (
	"testing"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/ledger"
)

// TestPolicyState_ShowsWhatWasWrittenAfterATakeover: the outcomes that a takeover restores are
// shown for the policy's window, which is known only later.
func TestPolicyState_ShowsWhatWasWrittenAfterATakeover(t *testing.T) {
	at := time.Unix(0, 0)
	target := policy.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}
	s := newPolicyState("p", ledger.New(time.Hour))
	s.removed, s.longest = true, time.Hour
	s.outcomes.set(target, &targetOutcome{outcome: outcome{Phase: v1alpha1.PhaseSucceeded, At: at}})
	s.restored(at.Add(time.Minute))
	if s.advance(at.Add(2 * time.Minute)); len(s.outcomes.of) != 1 {
		t.Fatal("what was written is forgotten before the policy is known")
	}
	s.removed, s.spec.Limits.Window = false, 10*time.Minute
	s.showForWindow(at.Add(3 * time.Minute))
	if s.advance(at.Add(9 * time.Minute)); len(s.outcomes.of) != 1 {
		t.Error("what was written within the window is forgotten")
	}
	if s.advance(at.Add(10 * time.Minute)); len(s.outcomes.of) != 0 {
		t.Error("what was written before the window is shown")
	}
}
