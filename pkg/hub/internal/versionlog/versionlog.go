// Package versionlog follows which versions of policies take effect, and what they change.
//
// A Log is safe for concurrent use: verdicts change on another goroutine than the one that
// configures them. It holds nothing but what a status does not have yet.
package versionlog

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// Log follows the versions of policies. A status keeps them; what took effect since it was
// read is remembered here until it does.
type Log struct {
	mu      sync.Mutex
	bound   map[string]v1alpha1.Digest           // of the policies that are in effect, by name
	next    map[string]v1alpha1.Digest           // of those that are being configured
	changed map[string]*versionDiff              // by the newest version of a policy, where it was observed
	began   map[types.UID]v1alpha1.PolicyVersion // that a status may not have yet
}

// versionDiff is what a version changed.
type versionDiff struct {
	digest             v1alpha1.Digest
	appeared, vanished int64
	members            map[string]bool
}

func New() *Log {
	return &Log{
		bound: map[string]v1alpha1.Digest{}, changed: map[string]*versionDiff{}, began: map[types.UID]v1alpha1.PolicyVersion{},
	}
}

// versionDigest is of what verdicts follow from, objects and the binding's selection aside.
func versionDigest(d *v1alpha1.PlanDigests) v1alpha1.Digest {
	sum := sha256.Sum256([]byte(string(d.Package) + " " + string(d.Parameters)))
	return v1alpha1.Digest(hex.EncodeToString(sum[:]))
}

// Configure notes what is about to take effect, by policy: verdicts that change now change
// for it.
func (v *Log) Configure(digests map[string]v1alpha1.PlanDigests) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next = make(map[string]v1alpha1.Digest, len(digests))
	for name, d := range digests {
		v.next[name] = versionDigest(&d)
	}
}

// Configured notes whether it did.
func (v *Log) Configured(ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ok {
		v.bound = v.next
	}
	v.next = nil
	for name, diff := range v.changed {
		if v.bound[name] != diff.digest {
			delete(v.changed, name)
		}
	}
}

// Observe counts what a configuration has changed, of the policies that have another version
// now. Policies that were not in effect before have no verdicts to compare with.
func (v *Log) Observe(c *policy.Changes, batch *aggregate.Batch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if batch != nil || v.next == nil || c.Before == nil || !c.Rebuilt() { // time alone changes verdicts meanwhile
		return
	}
	begins := map[string]*versionDiff{}
	for name, digest := range v.next {
		if was, bound := v.bound[name]; bound && was != digest {
			begins[name] = &versionDiff{digest: digest, members: map[string]bool{}}
		}
	}
	if len(begins) == 0 {
		return // of what else a configuration changes, such as a selection, no version is the reason
	}
	for change := range c.All() {
		count(begins, &change)
	}
	maps.Copy(v.changed, begins)
}

func count(begins map[string]*versionDiff, c *policy.Change) {
	of := c.After
	if of == nil {
		of = c.Before
	}
	diff := begins[of.Binding]
	if diff == nil {
		return
	}
	before, after := violationsOf(c.Before), violationsOf(c.After)
	appeared, vanished := without(after, before), without(before, after)
	if appeared+vanished == 0 {
		return
	}
	diff.appeared += appeared
	diff.vanished += vanished
	diff.members[of.Subject.Ref.Member] = true // "" for keys of views, which no member has
}

func violationsOf(v *policy.Verdict) []policy.Violation {
	if v == nil {
		return nil
	}
	return v.Violations
}

// without counts the violations that others have no equal of.
func without(list, others []policy.Violation) (n int64) {
	for i := range list {
		if !slices.ContainsFunc(others, func(x policy.Violation) bool { return x.Digest() == list[i].Digest() }) {
			n++
		}
	}
	return n
}

// Version is the version of a policy that is in effect.
type Version struct {
	Digests v1alpha1.PlanDigests
	Origin  *v1alpha1.Origin // nil for a package that is built into federator
	Signer  string           // of the commit; "" if nobody has signed it
}

// Of returns the versions of a policy, the last of which is the given one: those that its status
// has, and perhaps one more.
func (v *Log) Of(fp *v1alpha1.FleetPolicy, now Version, at time.Time) []v1alpha1.PolicyVersion {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, digest := fp.Status.Versions, versionDigest(&now.Digests)
	if n := len(known); n > 0 && known[n-1].Digest == digest {
		delete(v.began, fp.UID)
		return known
	}
	is, pending := v.began[fp.UID]
	if !pending || is.Digest != digest {
		is = v1alpha1.PolicyVersion{
			Digest: digest, Package: now.Digests.Package, Since: metav1.NewTime(at.Truncate(time.Second)), Generation: fp.Generation, Origin: now.Origin,
		}
		by := now.Signer
		if n := len(known); n > 0 && known[n-1].Package == is.Package {
			by = fp.Annotations[api.ChangedByKey]
		}
		is.By = v1alpha1.UserName(clip.Line(by, maxUserName))
		if diff := v.changed[fp.Name]; diff != nil && diff.digest == digest {
			is.Changes = &v1alpha1.VersionChanges{Appeared: diff.appeared, Vanished: diff.vanished, Members: int32(len(diff.members))} // at most the fleet's
		}
		v.began[fp.UID] = is
	}
	kept := known[max(0, len(known)+1-v1alpha1.MaxVersions):]
	return append(slices.Clone(kept), is)
}

// maxUserName is how long a UserName may be, as in the CRD.
const maxUserName = 512

// Prune forgets policies that are no more.
func (v *Log) Prune(here map[types.UID]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for uid := range v.began {
		if !here[uid] {
			delete(v.began, uid)
		}
	}
}
