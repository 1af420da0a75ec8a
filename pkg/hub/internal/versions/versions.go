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
	// Unsettled says that Candidate may only not be known yet: the newest commit of the source is not the
	// active one, and does not roll out either.
	Unsettled bool
	// TakenBack is why the source's commit was taken back, "" if it was not.
	TakenBack  string
	Parameters *runtime.RawExtension
	Status     *v1alpha1.PolicyRolloutStatus // nil: nothing is recorded
}

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
	kept      *v1alpha1.CandidateVersion // stays in the status, though there is no Next
	effective *v1alpha1.EffectiveVersion // as recorded, where that still holds
}

// Decide returns which versions a policy has.
func Decide(p *Policy) (Plan, error) {
	wanted, err := newVersion(p.Active, p.Parameters)
	if err != nil {
		return Plan{}, err
	}
	// A candidate of the same digest, of which only constraints differ, is no other version.
	rolls := p.Candidate.Name != "" && p.Candidate.Digest != p.Active.Digest && p.TakenBack == ""
	if p.Rollout == nil {
		return p.atOnce(wanted, rolls)
	}
	out := Plan{rollsOut: true}
	if out.Former, err = p.former(wanted); err != nil {
		return Plan{}, err
	}
	out.effective = p.recorded()
	if rolls {
		if wanted, err = newVersion(p.Candidate, p.Parameters); err != nil {
			return Plan{}, err
		}
	}
	if !rolls {
		if c := p.candidate(); c != nil && c.Package != p.Active.Digest && p.Unsettled && p.TakenBack == "" {
			out.kept = c // its package may come again, as after a start
			return out, nil
		}
		if out.Former == nil || wanted.Digest == out.Former.Digest {
			out.Former = wanted
			return out, nil
		}
	}
	out.Next, out.Phase = wanted, v1alpha1.RolloutShadow
	if c := p.candidate(); c != nil && c.Digest == wanted.Digest {
		out.Phase, out.Waves, out.Message = c.Phase, int(c.Waves), c.Message
	}
	if !rolls && out.Phase == v1alpha1.RolloutPromoted { // nothing else is waited for: the package is active
		return Plan{Former: wanted, rollsOut: true}, nil
	}
	return out, nil
}

// atOnce returns the versions of a policy whose versions do not roll out. Where its source's do,
// because those of others do, it does not wait for them.
func (p *Policy) atOnce(active *Version, rolls bool) (Plan, error) {
	if !rolls {
		return Plan{Former: active}, nil
	}
	next, err := newVersion(p.Candidate, p.Parameters)
	return Plan{Former: active, Next: next, Phase: v1alpha1.RolloutPromoted}, err
}

// former returns the version that is in effect: of the active package, with the parameters that
// were recorded of it. What is wanted of it is that where nothing was.
func (p *Policy) former(wanted *Version) (*Version, error) {
	is := p.recorded()
	if p.Active.Name == "" || is == nil {
		return wanted, nil
	}
	v, err := newVersion(p.Active, is.Parameters)
	if err != nil {
		return nil, fmt.Errorf("status.rollout.effective: %w", err)
	}
	v.Digest = is.Digest // however the hub has written the parameters down
	return v, nil
}

// recorded returns what is recorded of the active package, nil for nothing.
func (p *Policy) recorded() *v1alpha1.EffectiveVersion {
	if p.Status == nil || p.Status.Effective == nil || p.Status.Effective.Package != p.Active.Digest {
		return nil
	}
	return p.Status.Effective
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

// InEffect returns the version that is corrected and whose waves those of the corrections are.
func (p *Plan) InEffect() *Version {
	if p.Next != nil && (p.Former == nil || p.Phase == v1alpha1.RolloutWaves || p.Phase == v1alpha1.RolloutPromoted) {
		return p.Next
	}
	return p.Former
}

// Everywhere returns the version that is in effect in all members: nil for none.
func (p *Plan) Everywhere() *Version {
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
	if v := p.Former; v != nil && (out.Effective == nil || out.Effective.Digest != v.Digest) {
		out.Effective = &v1alpha1.EffectiveVersion{Digest: v.Digest, Package: v.Digests.Package, Parameters: v.Parameters.DeepCopy()}
	}
	return out
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
