package versions

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/hub/internal/promotion"
	"federator.dev/federator/pkg/remediate"
)

// maxMessage is how long a message may be, as in the CRD.
const maxMessage = 2048

// Step returns how far the next version has come now, after what is recorded of it. There must
// be one.
func (p *Plan) Step(recorded *v1alpha1.PolicyRolloutStatus, t *promotion.Terms, f *promotion.Facts, evidence *v1alpha1.RolloutEvidence, origin *v1alpha1.Origin, now time.Time) *v1alpha1.CandidateVersion {
	now = now.Truncate(time.Second) // as the hub stores it
	state, shown := promotion.Begin(now), evidence
	if recorded != nil && recorded.Candidate != nil && recorded.Candidate.Digest == p.Next.Digest {
		c := recorded.Candidate
		state = promotion.State{Phase: c.Phase, Began: c.Began.Time, Since: c.Since.Time, Waves: int(c.Waves), Message: c.Message}
		if evidence == nil || ended(c.Phase) && c.Evidence != nil {
			shown = c.Evidence // of what ended, that by which it did
		}
		if f.Missing != "" && !ended(c.Phase) {
			shown = promotion.Older(c.Evidence)
		}
	}
	if evidence != nil {
		f.Evidence = *evidence
	}
	f.First = p.First()
	state = state.Next(t, f, now)
	return &v1alpha1.CandidateVersion{
		Digest: p.Next.Digest, Package: p.Next.Digests.Package, Origin: origin, Phase: state.Phase, Began: metav1.NewTime(state.Began), Since: metav1.NewTime(state.Since),
		Waves: int32(state.Waves), Message: clip.Text(state.Message, maxMessage), Evidence: shown.DeepCopy(), // at most as many waves as the CRD allows
	}
}

// ended reports whether a version stays in its phase.
func ended(p v1alpha1.RolloutPhase) bool {
	return p == v1alpha1.RolloutTakenBack || p == v1alpha1.RolloutPromoted
}

// WavesOf returns how far corrections have come of a generation.
func WavesOf(st *remediate.Status, generation string) promotion.Waves {
	out := promotion.Waves{Held: st.Waiting}
	if w := st.Wave; w != nil && w.Generation == generation && generation != "" {
		out.Known, out.Wave, out.Done = true, w.Number-1, w.Phase == v1alpha1.WaveDone
	}
	for _, h := range st.Halts {
		if h.Reason == v1alpha1.Unhealthy && h.Generation == generation && out.Failed == "" {
			out.Failed = "a wave did not pass its health gate: " + h.Message
		}
	}
	if st.Halted != nil {
		out.Held = "halted: " + st.Halted.Message
	}
	return out
}
