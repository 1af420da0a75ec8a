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

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// Log follows the versions of policies. A status keeps them; what took effect since it was
// read is remembered here until it does.
type Log struct {
	mu      sync.Mutex
	bound   map[string]bound                       // the policies that are in effect, by name
	next    map[string]bound                       // those that are being configured
	changed map[types.UID]*versionDiff             // by the newest version of a policy, where it was observed
	began   map[types.UID][]v1alpha1.PolicyVersion // that a status may not have yet, in order
}

// bound is what is in effect under a name: a policy that was deleted and created again is another one.
type bound struct {
	uid    types.UID
	digest v1alpha1.Digest
	partly bool
}

// versionDiff is what a version changed.
type versionDiff struct {
	digest             v1alpha1.Digest
	appeared, vanished int64
	members            map[string]bool
}

func New() *Log {
	return &Log{bound: map[string]bound{}, changed: map[types.UID]*versionDiff{}, began: map[types.UID][]v1alpha1.PolicyVersion{}}
}

// Digest names a version: it is of what verdicts follow from, objects and the binding's
// selection aside. The digest of the spec is no part of it.
func Digest(d *v1alpha1.PlanDigests) v1alpha1.Digest {
	sum := sha256.Sum256([]byte(string(d.Package) + " " + string(d.Parameters)))
	return v1alpha1.Digest(hex.EncodeToString(sum[:]))
}

// Policy is a policy that takes effect.
type Policy struct {
	UID     types.UID
	Digests v1alpha1.PlanDigests
	// Partly says that another version has taken its place in some members already: what changes when that
	// does in the others is not all that it changes.
	Partly bool
}

// Configure notes what is about to take effect, by name: verdicts that change now change
// for it.
func (v *Log) Configure(policies map[string]Policy) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next = make(map[string]bound, len(policies))
	for name, p := range policies {
		v.next[name] = bound{p.UID, Digest(&p.Digests), p.Partly}
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
	is := make(map[types.UID]v1alpha1.Digest, len(v.bound))
	for _, b := range v.bound {
		is[b.uid] = b.digest
	}
	maps.DeleteFunc(v.changed, func(uid types.UID, diff *versionDiff) bool { return is[uid] != diff.digest })
}

// Observe counts what a configuration has changed, of the policies that have another version
// now. Policies that were not in effect before have no verdicts to compare with, and of what
// changed where everything was evaluated again, nobody can say why.
func (v *Log) Observe(c *policy.Changes, batch *aggregate.Batch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if batch != nil || v.next == nil || c.Before == nil || c.Reset() {
		return
	}
	begins := map[string]*versionDiff{}
	for name, now := range v.next {
		if was, known := v.bound[name]; known && was.uid == now.uid && was.digest != now.digest && !was.partly && (c.Rebuilt() || promotes(c, name)) {
			begins[name] = &versionDiff{digest: now.digest, members: map[string]bool{}}
		}
	}
	if len(begins) == 0 {
		return // of what else a configuration changes, such as a selection, no version is the reason
	}
	for change := range c.All() {
		count(begins, &change)
	}
	for name, diff := range begins {
		v.changed[v.next[name].uid] = diff
	}
}

// promotes reports whether a version that was judged already takes effect everywhere. Time alone, which
// changes verdicts meanwhile, does neither that nor build anything.
func promotes(c *policy.Changes, name string) bool {
	whole := func(s *policy.State) bool {
		for b := range s.Bindings() {
			if b.Name == name {
				return b.Next != nil && b.Next.Whole
			}
		}
		return false
	}
	return !whole(c.Before) && whole(c.After)
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
	if len(list) == 0 {
		return 0
	}
	has := make(map[uint64]bool, len(others))
	for i := range others {
		has[others[i].Digest()] = true
	}
	for i := range list {
		if !has[list[i].Digest()] {
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
	// Author returns who has changed the FleetPolicy, "" if that is not proven; false while that may be
	// known later. It is asked about a new version of the same package only; nil: nothing is proven.
	Author func() (name string, known bool)
}

// Of returns the versions of a policy, the last of which is the given one, unless its author is
// not known yet: those that its status has, and those that took effect since. It belongs to the
// goroutine that writes statuses.
func (v *Log) Of(fp *v1alpha1.FleetPolicy, now Version, at time.Time) []v1alpha1.PolicyVersion {
	begins, samePackage := v.begins(fp, &now)
	by, settled := now.Signer, true
	if begins && samePackage {
		if by = ""; now.Author != nil {
			by, settled = now.Author() // outside the lock: it asks others
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	known := fp.Status.Versions
	pending := notStored(known, v.began[fp.UID])
	if begins && settled {
		pending = append(pending, v.begin(fp, &now, by, at))
	}
	pending = pending[max(0, len(pending)-v1alpha1.MaxVersions):]
	if len(pending) == 0 {
		delete(v.began, fp.UID)
		return known
	}
	v.began[fp.UID] = pending
	kept := known[max(0, len(known)+len(pending)-v1alpha1.MaxVersions):]
	return slices.Concat(kept, pending)
}

// begins reports whether a version is another than the last one, and whether that has the same package.
func (v *Log) begins(fp *v1alpha1.FleetPolicy, now *Version) (begins, samePackage bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	last := lastOf(notStored(fp.Status.Versions, v.began[fp.UID]))
	if last == nil {
		last = lastOf(fp.Status.Versions)
	}
	if last == nil {
		return true, false
	}
	return last.Digest != Digest(&now.Digests), last.Package == now.Digests.Package
}

// begin returns the version that begins. The caller holds v.mu.
func (v *Log) begin(fp *v1alpha1.FleetPolicy, now *Version, by string, at time.Time) v1alpha1.PolicyVersion {
	is := v1alpha1.PolicyVersion{
		Digest: Digest(&now.Digests), Package: now.Digests.Package, Since: metav1.NewTime(at.Truncate(time.Second)), Generation: fp.Generation, Origin: now.Origin,
		By: v1alpha1.UserName(clip.Line(by, maxUserName)),
	}
	if diff := v.changed[fp.UID]; diff != nil && diff.digest == is.Digest {
		is.Changes = &v1alpha1.VersionChanges{Appeared: diff.appeared, Vanished: diff.vanished, Members: int32(len(diff.members))} // at most the fleet's
	}
	return is
}

func lastOf(list []v1alpha1.PolicyVersion) *v1alpha1.PolicyVersion {
	if len(list) == 0 {
		return nil
	}
	return &list[len(list)-1]
}

// notStored returns the pending versions without those at the end of a status: as many as there are,
// or the first, which another process may have stored as of another time.
func notStored(known, pending []v1alpha1.PolicyVersion) []v1alpha1.PolicyVersion {
	same := func(a, b v1alpha1.PolicyVersion) bool {
		return a.Digest == b.Digest && a.Since.Unix() == b.Since.Unix()
	}
	for n := min(len(known), len(pending)); n > 0; n-- {
		if slices.EqualFunc(known[len(known)-n:], pending[:n], same) {
			return slices.Clone(pending[n:])
		}
	}
	if last := lastOf(known); last != nil && len(pending) > 0 && last.Digest == pending[0].Digest {
		return slices.Clone(pending[1:])
	}
	return slices.Clone(pending)
}

// maxUserName is how long a UserName may be, as in the CRD.
const maxUserName = 512

// Prune forgets policies that are no more.
func (v *Log) Prune(here map[types.UID]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.began, func(uid types.UID, _ []v1alpha1.PolicyVersion) bool { return !here[uid] })
}
