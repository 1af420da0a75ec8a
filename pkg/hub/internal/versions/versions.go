// Package versions decides which versions a policy has, and which of them is in effect where:
// a function of its FleetPolicy, of the packages that there are, and of the record in its
// status. Every process that has the same of these comes to the same.
package versions

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/internal/versionlog"
)

// Package is a package of a set of policies, by the name that it has there. The zero value is none.
type Package struct {
	Name   string
	Digest v1alpha1.Digest
}

// Policy is what is known of a policy.
type Policy struct {
	// Rollout is its own, or that of the source of its package; nil: a version takes effect everywhere at once.
	Rollout *v1alpha1.VersionRollout
	// Active is its package, and Candidate the one that is to take its place: one of them at least.
	Active, Candidate Package
	// Replaced are packages of commits that the one of Candidate has replaced while they rolled out: a version of one that
	// was promoted stays in effect.
	Replaced []Package
	// Unsettled says that Candidate may only not be known yet: the newest commit of the source is not the
	// active one, and does not roll out either.
	Unsettled bool
	// TakenBack is why the source's commit was taken back, "" if it was not.
	TakenBack  string
	Parameters *runtime.RawExtension
	// Manifest has the parameters that the commit of Candidate gives the policy once it is active, with which Candidate
	// is judged; nil: it leaves them as they are.
	Manifest *Manifest
	Status   *v1alpha1.PolicyRolloutStatus // nil: nothing is recorded
}

// Manifest is a policy as a commit has it.
type Manifest struct{ Parameters *runtime.RawExtension }

// Version is a version of a policy.
type Version struct {
	Package    string // its name in the set
	Digest     v1alpha1.Digest
	Digests    v1alpha1.PlanDigests // of its package and parameters
	Parameters *runtime.RawExtension
}

// Short is how verdicts and Actions name the version.
func (v *Version) Short() string { return Short(v.Digest) }

// Short is the start of a digest.
func Short(d v1alpha1.Digest) string { return string(d[:min(len(d), 12)]) }

// Plan is which versions a policy has.
type Plan struct {
	Former *Version // in effect wherever Next is not; nil: the package is new
	Next   *Version // is to take its place; nil: none is
	// Phase, Waves and Message are how far Next has come, as recorded.
	Phase   v1alpha1.RolloutPhase
	Waves   int
	Message string

	rollsOut  bool
	manifest  bool                       // Next has the parameters of its commit's manifest
	unknown   bool                       // what is recorded is in effect, and its package may come again
	kept      *v1alpha1.CandidateVersion // stays in the status, though there is no Next
	effective *v1alpha1.EffectiveVersion // as recorded, where that still holds
}

// Decide returns which versions a policy has.
func Decide(p *Policy) (Plan, error) {
	active, err := newVersion(p.Active, p.Parameters)
	if err != nil {
		return Plan{}, err
	}
	// A candidate of the same digest, of which only constraints differ, is no other version.
	rolls := p.Candidate.Name != "" && p.Candidate.Digest != p.Active.Digest && p.TakenBack == ""
	wanted := active
	if rolls {
		if wanted, err = newVersion(p.Candidate, p.ofCandidate()); err != nil {
			return Plan{}, err
		}
	}
	if p.Rollout == nil {
		return p.atOnce(active, wanted), nil
	}
	out := Plan{rollsOut: true, manifest: rolls && p.Manifest != nil}
	known, err := p.inEffect(&out, wanted, rolls)
	switch unsettled := p.Unsettled && p.TakenBack == "" && !rolls; {
	case err != nil:
		return Plan{}, err
	case !known && unsettled && p.keeps(active):
		out.Former, out.unknown, out.effective, out.kept = active, true, p.Status.Effective, p.Status.Candidate
		return out, nil
	case !known && !rolls && p.ofActive() != nil: // what rolled out is active, and was not promoted
	case !known:
		out.Former = active
	case unsettled && !p.isCandidate(active): // the candidate's package may come again, as after a start
		if c := p.candidate(); c != nil && c.Package != p.Active.Digest {
			out.kept = c
		}
		if active.Digest == out.Former.Digest {
			out.Former = active
		}
		return out, nil
	}
	if wanted == nil || out.Former != nil && wanted.Digest == out.Former.Digest {
		out.Former = wanted
		return out, nil
	}
	out.Next, out.Phase = wanted, v1alpha1.RolloutShadow
	if c := p.candidate(); p.isCandidate(wanted) {
		out.Phase, out.Waves, out.Message = c.Phase, int(c.Waves), c.Message
	}
	return out, nil
}

// ofCandidate returns the parameters that the candidate is to have.
func (p *Policy) ofCandidate() *runtime.RawExtension {
	if p.Manifest != nil {
		return p.Manifest.Parameters
	}
	return p.Parameters
}

// atOnce returns the versions of a policy whose versions do not roll out. Where its source's do,
// because those of others do, it does not wait for them.
func (p *Policy) atOnce(active, wanted *Version) Plan {
	if wanted == active {
		return Plan{Former: active}
	}
	return Plan{Former: active, Next: wanted, Phase: v1alpha1.RolloutPromoted}
}

// inEffect sets the version that is in effect, as recorded, and reports whether that is known: its
// package is the active one or, until its commit or a newer one is active, the one that rolls out or did.
func (p *Policy) inEffect(out *Plan, wanted *Version, rolls bool) (bool, error) {
	if p.Status == nil {
		return false, nil
	}
	of := func(digest v1alpha1.Digest) Package {
		switch {
		case p.Active.Name != "" && p.Active.Digest == digest:
			return p.Active
		case rolls && p.Candidate.Digest == digest:
			return p.Candidate
		case p.TakenBack != "":
			return Package{}
		}
		for _, replaced := range p.Replaced {
			if replaced.Digest == digest {
				return replaced
			}
		}
		return Package{}
	}
	e, c := p.Status.Effective, p.Status.Candidate
	if c != nil && c.Phase == v1alpha1.RolloutPromoted {
		list := []*Version{wanted}
		for _, parameters := range []*runtime.RawExtension{p.Parameters, effectiveParameters(e)} {
			v, err := newVersion(of(c.Package), parameters)
			if err != nil {
				return false, err
			}
			list = append(list, v)
		}
		for _, v := range list {
			if v != nil && v.Digest == c.Digest {
				out.Former = v
				return true, nil
			}
		}
	}
	if e == nil {
		return false, nil
	}
	v, err := newVersion(of(e.Package), e.Parameters)
	if err != nil {
		return false, fmt.Errorf("status.rollout.effective: %w", err)
	}
	if v == nil {
		return false, nil
	}
	v.Digest = e.Digest // however the hub has written the parameters down
	out.Former, out.effective = v, e
	return true, nil
}

func effectiveParameters(e *v1alpha1.EffectiveVersion) *runtime.RawExtension {
	if e == nil {
		return nil
	}
	return e.Parameters
}

// keeps reports whether the record stays though none of its packages is known: that may come again.
func (p *Policy) keeps(active *Version) bool {
	return p.Status != nil && p.Status.Effective != nil && (p.ofActive() == nil || !p.isCandidate(active))
}

// isCandidate reports whether a version is the recorded candidate.
func (p *Policy) isCandidate(v *Version) bool {
	c := p.candidate()
	return c != nil && v != nil && c.Digest == v.Digest
}

// ofActive returns the recorded candidate if the active package is its package.
func (p *Policy) ofActive() *v1alpha1.CandidateVersion {
	if c := p.candidate(); c != nil && p.Active.Name != "" && c.Package == p.Active.Digest {
		return c
	}
	return nil
}

func (p *Policy) candidate() *v1alpha1.CandidateVersion {
	if p.Status == nil {
		return nil
	}
	return p.Status.Candidate
}

// First reports whether there is no former version.
func (p *Plan) First() bool { return p.Former == nil }

// OfPackage reports whether the next version is of another package than the former one.
func (p *Plan) OfPackage() bool {
	return p.Next != nil && (p.Former == nil || p.Next.Package != p.Former.Package)
}

// ByCommit reports whether the next version differs from the former one by what a commit changes.
func (p *Plan) ByCommit() bool {
	switch {
	case !p.OfPackage():
		return false
	case p.manifest:
		return true
	case p.Former == nil:
		return p.Next.Parameters == nil
	}
	return p.Next.Digests.Parameters == p.Former.Digests.Parameters
}

// InEffect returns the version that is corrected and whose waves those of the corrections are.
func (p *Plan) InEffect() *Version {
	if p.Next != nil && (p.Former == nil || p.Phase == v1alpha1.RolloutWaves || p.Phase == v1alpha1.RolloutPromoted) {
		return p.Next
	}
	return p.Former
}

// Everywhere returns the version that is in effect in all members: nil for none, or while that is not
// known.
func (p *Plan) Everywhere() *Version {
	if p.unknown {
		return nil
	}
	if p.Next != nil && p.Phase == v1alpha1.RolloutPromoted {
		return p.Next
	}
	return p.Former
}

// TakenBack returns why the candidate was taken back, "" if it was not.
func (p *Plan) TakenBack() string {
	if p.Next == nil || p.Phase != v1alpha1.RolloutTakenBack {
		return ""
	}
	return fmt.Sprintf("version %s was taken back: %s", p.Next.Short(), p.Message)
}

// Status returns what is to be recorded, but for the candidate if there is a next version: nil
// where versions do not roll out.
func (p *Plan) Status() *v1alpha1.PolicyRolloutStatus {
	if !p.rollsOut {
		return nil
	}
	out := &v1alpha1.PolicyRolloutStatus{Effective: p.effective.DeepCopy(), Candidate: p.kept.DeepCopy()}
	if v := p.Former; v != nil && !p.unknown && (out.Effective == nil || out.Effective.Digest != v.Digest) {
		out.Effective = v.effective()
	}
	return out
}

// Promoted returns what is to be recorded as in effect once Next is.
func (p *Plan) Promoted() *v1alpha1.EffectiveVersion { return p.Next.effective() }

func (v *Version) effective() *v1alpha1.EffectiveVersion {
	return &v1alpha1.EffectiveVersion{Digest: v.Digest, Package: v.Digests.Package, Parameters: v.Parameters.DeepCopy()}
}

// newVersion returns a version of a package; nil for none.
func newVersion(of Package, parameters *runtime.RawExtension) (*Version, error) {
	_, digest, err := Parameters(parameters)
	if err != nil || of.Name == "" {
		return nil, err
	}
	v := &Version{Package: of.Name, Digests: v1alpha1.PlanDigests{Package: of.Digest, Parameters: digest}, Parameters: parameters}
	v.Digest = versionlog.Digest(&v.Digests)
	return v, nil
}

// Parameters returns parameters, and their digest: however they are written, it is the same.
func Parameters(p *runtime.RawExtension) (parameters any, digest v1alpha1.Digest, err error) {
	if p != nil && len(p.Raw) > 0 {
		d := json.NewDecoder(bytes.NewReader(p.Raw))
		d.UseNumber()
		if err := d.Decode(&parameters); err != nil {
			return nil, "", fmt.Errorf("spec.parameters: %w", err)
		}
	}
	text, err := json.Marshal(parameters) // keys are sorted
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(text)
	return parameters, v1alpha1.Digest(hex.EncodeToString(sum[:])), nil
}
