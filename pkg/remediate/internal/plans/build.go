package plans

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
)

// Limits of the CRDs.
const (
	maxCounts = 1000
	maxDiffs  = 20 // of a Plan
	hashChars = 16 // in a Plan's name
)

// ErrTooMany is returned for more targets than a Plan may have.
var ErrTooMany = errors.New("more targets than a Plan may have")

// Build returns the Plan of targets in any order, with its parts in order. Of the spec the caller
// sets what is not computed here: hash, digests.targets, targets, irreversible, counts,
// countsOmitted and parts. An error is ErrTooMany, or ErrInvalid for a target that Validate
// refuses or that is there twice.
//
// The same targets give the same Plan, but for what is shown of them and is in no digest.
func Build(spec v1alpha1.PlanSpec, targets []Target) (*v1alpha1.Plan, []*v1alpha1.PlanPart, error) {
	if len(targets) > v1alpha1.MaxPlanTargets {
		return nil, nil, fmt.Errorf("policy %q: %w: %d, at most %d are allowed", spec.Policy, ErrTooMany, len(targets), v1alpha1.MaxPlanTargets)
	}
	targets = slices.Clone(targets)
	slices.SortFunc(targets, func(a, b Target) int { return compare(&a, &b) })
	if err := check(targets); err != nil {
		return nil, nil, fmt.Errorf("policy %q: %w", spec.Policy, err)
	}
	clipNotes(targets)

	p := &v1alpha1.Plan{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "Plan"},
		Spec:     *spec.DeepCopy(),
	}
	summarize(&p.Spec, targets)
	p.Spec.Digests.Targets = digestTargets(targets)
	hash, err := hashSpec(&p.Spec)
	if err != nil {
		return nil, nil, fmt.Errorf("policy %q: %w", spec.Policy, err)
	}
	p.Spec.Hash, p.Name = hash, nameOf(spec.Policy, hash)
	parts, err := pack(p.Name, targets)
	if err != nil {
		return nil, nil, fmt.Errorf("policy %q: %w", spec.Policy, err)
	}
	p.Spec.Parts = int32(len(parts)) // At most one for each target.
	return p, parts, nil
}

func nameOf(policy v1alpha1.PolicyName, hash v1alpha1.Digest) string {
	return string(policy) + "-" + string(hash[:hashChars])
}

// PartName is the name of a part of a Plan.
func PartName(plan string, number int32) string { return fmt.Sprintf("%s-%d", plan, number) }

// hashSpec returns the hash of a Plan whose digests are known.
func hashSpec(s *v1alpha1.PlanSpec) (v1alpha1.Digest, error) {
	text, err := json.Marshal(struct {
		Policy   v1alpha1.PolicyName       `json:"policy"`
		Purpose  v1alpha1.PlanPurpose      `json:"purpose"`
		Amends   string                    `json:"amends,omitempty"`
		Halt     *v1alpha1.PlannedHalt     `json:"halt,omitempty"`
		Rollback *v1alpha1.PlannedRollback `json:"rollback,omitempty"`
		Digests  v1alpha1.PlanDigests      `json:"digests"`
	}{s.Policy, s.Purpose, s.Amends, s.Halt, s.Rollback, s.Digests})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(appendField(nil, "plan"), text...))
	return v1alpha1.Digest(hex.EncodeToString(sum[:])), nil
}

// clipNotes truncates what is shown of targets, and keeps diffs of a few.
func clipNotes(targets []Target) {
	diffs := 0
	for i := range targets {
		t := &targets[i]
		t.Irreversible, t.Message, t.Diff = clip.Line(t.Irreversible, maxNote), clip.Line(t.Message, maxNote), clip.Text(t.Diff, maxDiff)
		if t.Diff != "" {
			diffs++
		}
	}
	if diffs <= maxDiffs {
		return
	}
	n := 0
	for i := range targets {
		if t := &targets[i]; t.Diff != "" {
			if n*maxDiffs/diffs == (n+1)*maxDiffs/diffs { // Those at which it grows are spread evenly.
				t.Diff = ""
			}
			n++
		}
	}
}

// summarize sets what a spec tells of its targets.
func summarize(s *v1alpha1.PlanSpec, targets []Target) {
	s.Targets, s.Irreversible = int32(len(targets)), 0 // At most MaxPlanTargets.
	counts := map[v1alpha1.PlanCount]int32{}
	for i := range targets {
		t := &targets[i]
		if t.Irreversible != "" {
			s.Irreversible++
		}
		counts[v1alpha1.PlanCount{Member: t.Ref.Member, Kind: string(t.Ref.Kind), Verb: t.Verb}]++
	}
	s.Counts, s.CountsOmitted = make([]v1alpha1.PlanCount, 0, len(counts)), 0
	for c, n := range counts {
		c.Targets = n
		s.Counts = append(s.Counts, c)
	}
	slices.SortFunc(s.Counts, func(a, b v1alpha1.PlanCount) int {
		return cmp.Or(cmp.Compare(b.Targets, a.Targets), strings.Compare(a.Member, b.Member), strings.Compare(a.Kind, b.Kind), strings.Compare(string(a.Verb), string(b.Verb)))
	})
	if n := len(s.Counts); n > maxCounts {
		s.Counts, s.CountsOmitted = slices.Clip(s.Counts[:maxCounts]), int32(n-maxCounts) // At most one for each target.
	}
	if len(s.Counts) == 0 {
		s.Counts = nil
	}
}
