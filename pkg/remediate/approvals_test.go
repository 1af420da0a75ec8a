package remediate_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// approved is a spec of a generation that requires two people, of a FleetPolicy in a version.
func approved(generation string, version int64) remediate.RolloutSpec {
	digests := v1alpha1.PlanDigests{Spec: v1alpha1.Digest(generation)}
	return remediate.RolloutSpec{Generation: generation, Digests: digests, Approval: remediate.ApprovalTerms{
		Required: []v1alpha1.ApprovalRequirement{{Required: 2}}, UID: "fp", Version: version, Authors: []v1alpha1.UserName{"ann"}, AuthorsProven: true,
	}}
}

// waiting returns the Plan that waits.
func (d *running) waiting(t *testing.T) remediate.PlanInfo {
	t.Helper()
	synctest.Wait()
	st, _ := d.Status("b")
	for _, p := range st.Plans {
		if p.State == v1alpha1.PlanWaiting {
			return p
		}
	}
	t.Fatalf("no Plan waits: %+v", st)
	return remediate.PlanInfo{}
}

// approve has Plans approved for a day, and no others.
func (d *running) approve(list ...remediate.PlanInfo) {
	all := map[types.UID]remediate.Approved{}
	for _, p := range list {
		all[p.UID] = remediate.Approved{Required: 2, Met: true, Until: time.Now().Add(24 * time.Hour), Given: []v1alpha1.GivenApproval{{Name: "a", By: "bob"}, {Name: "b", By: "eve"}}}
	}
	d.SetApprovals("b", all)
}

// states are the Plans of the hub as purpose, state and number of targets.
func (f *fleet) states() string {
	var out []string
	for _, p := range f.plans() {
		out = append(out, string(p.Spec.Purpose)+" "+string(p.Status.State)+" "+string('0'+p.Spec.Targets))
	}
	return strings.Join(out, ", ")
}

// TestDispatcher_MakesAPlanAgainOnceItsEndIsRecorded: the next Plan of the same targets has the name
// of the one whose Approvals have ended, which the hub is slow to record.
func TestDispatcher_MakesAPlanAgainOnceItsEndIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var slow atomic.Bool
		var requests atomic.Int32
		f.onHub = func(method, path string) *metav1.Status {
			switch {
			case strings.Contains(path, "/plans") && requests.Add(1) > 100:
				time.Sleep(time.Hour) // else it would go on forever, and no time pass
			case slow.Load() && method == http.MethodPut && strings.Contains(path, "/plans/"):
				time.Sleep(5 * time.Second)
			}
			return nil
		}
		var once sync.Once
		var withdraw func()
		f.onDryRun = func(string) { once.Do(func() { withdraw() }) } // before the Plan is done
		d := run(t, f, remediate.Options{})
		withdraw = func() {
			time.Sleep(5 * time.Second) // its approval is recorded
			slow.Store(true)
			d.approve()
		}
		d.set(t, approved("1", 1), 20, intents("1", "m1 a"))
		time.Sleep(time.Minute)
		d.approve(d.waiting(t))
		time.Sleep(time.Minute)
		slow.Store(false)
		if got := f.states(); got != "Generation Waiting 1" {
			t.Errorf("the hub has %s", got)
		}
		if is, has := d.waiting(t).UID, f.plans()[0].UID; is != has {
			t.Errorf("Plan %s waits, the hub has %s", is, has)
		}
		d.approve(d.waiting(t))
		time.Sleep(time.Minute)
		d.expect(t, "approved again", "m1 a@2m0s")
		if n := requests.Load(); n > 100 {
			t.Errorf("%d requests for 2 Plans", n)
		}
	})
}

// TestDispatcher_LeavesPlansThatItHasReadAgain: a request for a Plan hangs while all that lasts is read
// again, and the Plan is made, approved and done. It is not made once more for the one that hung.
func TestDispatcher_LeavesPlansThatItHasReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var hung atomic.Bool
		f.onHub = func(method, path string) *metav1.Status {
			if method == http.MethodPost && strings.HasSuffix(path, "/plans") && !hung.Swap(true) {
				time.Sleep(time.Minute)
				return failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "")
			}
			return nil
		}
		d := run(t, f, remediate.Options{})
		d.set(t, approved("1", 1), 20, intents("1", "m1 a"))
		time.Sleep(time.Second)
		f.putState("b", f.state("b")) // as somebody else
		d.set(t, approved("1", 2), 20, intents("1", "m1 a"))
		time.Sleep(10 * time.Second)
		first := d.waiting(t)
		d.approve(first)
		time.Sleep(time.Hour)
		d.expect(t, "approved", "m1 a@11s")
		if got := f.states(); got != "Generation Done 1" {
			t.Errorf("the hub has %s", got)
		}
		if has := f.plans()[0].UID; has != first.UID {
			t.Errorf("Plan %s was approved, the hub has %s", first.UID, has)
		}
	})
}

// TestDispatcher_WritesWhatIsApproved: nothing of a generation before its Plan is approved,
// what is in it then, and of what comes later only what an amendment has.
func TestDispatcher_WritesWhatIsApproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		d.set(t, approved("1", 1), 20, intents("1", "m1 a", "m1 b", "m2 c"))
		time.Sleep(time.Minute)
		d.expect(t, "not approved", "")
		first := d.waiting(t)
		st, _ := d.Status("b")
		if first.Targets != 3 || first.Purpose != v1alpha1.PlanGeneration || st.Pending != 3 || !strings.Contains(st.Waiting, first.Name+" of 3 targets waits") {
			t.Fatalf("%+v", st)
		}
		if len(first.Authors) != 1 || first.Authors[0] != "ann" || !first.AuthorsProven {
			t.Errorf("authors: %+v", first)
		}
		d.SetApprovals("b", map[types.UID]remediate.Approved{first.UID: {Required: 2, Given: []v1alpha1.GivenApproval{{Name: "a", By: "bob"}}}})
		d.expect(t, "one of two", "")
		d.set(t, approved("1", 1), 20, intents("1", "m1 a", "m1 b", "m2 c", "m2 d"))
		d.approve(first)
		d.expect(t, "approved", "m1 a@1m0s, m1 b@1m0s, m2 c@1m0s")
		time.Sleep(time.Minute)
		if got := f.states(); got != "Generation Done 3, Amendment Waiting 1" {
			t.Errorf("plans: %s", got)
		}
		d.expect(t, "the amendment waits", "")
		second := d.waiting(t)
		if second.Hash == first.Hash || len(second.Authors) != 1 {
			t.Errorf("the amendment is %+v", second)
		}
		// Drift of what is approved, also of one that was made again; but no other change of it.
		drift := intents("2", "m1 a", "m1 b")
		drift[0].UID = "another"
		drift[1].Remedy.Patch = []byte(`{"data":{"a":"c"}}`)
		d.set(t, approved("1", 1), 20, drift)
		time.Sleep(time.Minute)
		d.expect(t, "drift", "m1 a@2m0s")
		d.approve(first, second)
		d.set(t, approved("1", 1), 20, append(drift, intents("1", "m2 d")...))
		d.expect(t, "the amendment is approved", "m2 d@3m0s")
	})
}

// TestDispatcher_RequirementsLast: a requirement lasts until a generation without
// it is approved, whatever happens to the policy in between.
func TestDispatcher_RequirementsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		leadA(true)
		a.set(t, approved("1", 1), 20, intents("1", "m1 a"))
		time.Sleep(2 * time.Second)
		a.approve(a.waiting(t))
		if got := a.written(); !strings.HasPrefix(got, "m1 a@") {
			t.Fatalf("approved: %q", got)
		}
		free := approved("2", 2)
		free.Approval.Required, free.Approval.Authors = nil, []v1alpha1.UserName{"joe"}
		a.set(t, free, 20, intents("1", "m1 b"))
		time.Sleep(time.Minute)
		a.expect(t, "the requirement is removed", "")
		a.RemovePolicy("b")
		time.Sleep(time.Minute)
		free.Generation, free.Digests.Spec, free.Approval.UID, free.Approval.Version = "3", "3", "another", 1
		b.set(t, free, 20, intents("1", "m1 b"))
		failover(leadA, leadB)
		time.Sleep(time.Minute)
		b.expect(t, "another policy of the name, another leader", "")
		p := b.waiting(t)
		if len(p.Authors) != 1 || p.Authors[0] != "joe" || p.AuthorsProven {
			t.Errorf("authors since the last approved one: %v, proven %v", p.Authors, p.AuthorsProven)
		}
		b.approve(p)
		if got := b.written(); !strings.HasPrefix(got, "m1 b@") {
			t.Errorf("approved: %q", got)
		}
		if s := f.state("b"); s.Approval != nil {
			t.Errorf("still required: %+v", s.Approval)
		}
		free.Generation, free.Digests.Spec, free.Approval.Version = "4", "4", 2
		b.set(t, free, 20, intents("1", "m1 c"))
		if got := b.written(); !strings.HasPrefix(got, "m1 c@") {
			t.Errorf("not required any more: %q", got)
		}
	})
}

// TestDispatcher_ApprovalsOutliveLeaders: what is approved is what was shown; the next leader
// writes nothing before it is told of Approvals again.
func TestDispatcher_ApprovalsOutliveLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		spec := approved("1", 1)
		spec.Suspend = true
		leadA(true)
		a.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		time.Sleep(2 * time.Second)
		p := a.waiting(t)
		a.approve(p)
		time.Sleep(time.Second)
		if got := f.states(); got != "Generation Approved 2" {
			t.Fatalf("plans: %s", got)
		}
		spec.Suspend = false
		b.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		failover(leadA, leadB)
		time.Sleep(time.Minute)
		b.expect(t, "not told of Approvals", "")
		b.approve(p)
		if got := b.written(); strings.Count(got, "@") != 2 || strings.Contains(got, "m1 c") {
			t.Errorf("told of them: %q", got)
		}
		// A part that is gone, or another: the Plan approves nothing.
		f.mu.Lock()
		for key := range f.objects {
			if strings.Contains(key, "/planparts/") {
				delete(f.objects, key)
			}
		}
		f.mu.Unlock()
		a.set(t, spec, 20, intents("2", "m1 a", "m1 c"))
		failover(leadB, leadA)
		a.approve(p)
		a.expect(t, "a Plan without its parts", "")
	})
}

// TestDispatcher_ApprovalsEnd: what is not written by then waits for a Plan of its own.
func TestDispatcher_ApprovalsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		spec := approved("1", 1)
		spec.Limits.PerMinute = 1
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		p := d.waiting(t)
		d.SetApprovals("b", map[types.UID]remediate.Approved{p.UID: {Required: 2, Met: true, Until: time.Now().Add(90 * time.Second)}})
		time.Sleep(10 * time.Minute)
		d.expect(t, "until the Approvals end", "m1 a@0s, m1 b@1m0s")
		if got := f.states(); got != "Generation Expired 3, Generation Waiting 1" {
			t.Errorf("plans: %s", got)
		}
		// Withdrawn ones end at once.
		p = d.waiting(t)
		d.approve(p)
		d.approve()
		d.set(t, spec, 20, intents("2", "m1 a", "m1 c"))
		time.Sleep(10 * time.Minute)
		if got := d.written(); strings.Contains(got, "m1 a") {
			t.Errorf("after they were withdrawn: %q", got)
		}
	})
}

// TestDispatcher_UnknownApprovalsEndNothing: while it is not known which Approvals count,
// nothing is written, and when it is known again the same Plan goes on.
func TestDispatcher_UnknownApprovalsEndNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		spec := approved("1", 1)
		spec.Limits.PerMinute = 1
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		p := d.waiting(t)
		d.approve(p)
		d.expect(t, "approved", "m1 a@0s")
		d.SetApprovals("b", map[types.UID]remediate.Approved{p.UID: {Required: 2, Unknown: true}})
		time.Sleep(10 * time.Minute)
		d.expect(t, "not known", "")
		if got := f.states(); got != "Generation Approved 3" {
			t.Errorf("plans: %s", got)
		}
		d.approve(p)
		time.Sleep(90 * time.Second)
		d.expect(t, "known again", "m1 b@10m0s, m1 c@11m0s")
	})
}

// TestDispatcher_AShareNeedsNoApproval, and more than that does.
func TestDispatcher_AShareNeedsNoApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		above := int32(10)
		spec := approved("1", 1)
		spec.Approval.Required[0].Above = &above
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		d.expect(t, "a tenth", "m1 a@0s, m1 b@0s")
		d.set(t, spec, 20, intents("1", "m1 c"))
		time.Sleep(time.Minute)
		d.expect(t, "more", "")
		if got := d.waiting(t); got.Targets != 1 {
			t.Errorf("%+v", got)
		}
		d.approve(d.waiting(t))
		d.expect(t, "approved", "m1 c@1m0s")
	})
}

// TestDispatcher_WavesWaitForApproval: what waits for approval is open in its wave.
func TestDispatcher_WavesWaitForApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		spec := approved("1", 1)
		spec.Waves = twoWaves("1", time.Minute).Waves
		d.set(t, spec, 20, intents("1", "m1 a", "m2 b"))
		time.Sleep(time.Hour)
		first := d.waiting(t)
		d.set(t, spec, 20, intents("1", "m1 a", "m1 c", "m2 b"))
		d.approve(first)
		time.Sleep(time.Hour)
		d.expect(t, "the canary has an amendment", "m1 a@1h0m0s")
		d.approve(first, d.waiting(t))
		time.Sleep(time.Hour)
		if got := d.written(); got != "m1 c@2h0m0s, m2 b@2h1m0s" && got != "m1 c@2h0m0s, m2 b@2h1m1s" {
			t.Errorf("approved: %q", got)
		}
	})
}

// TestDispatcher_AGenerationReturnedToIsApprovedAgain: Approvals of its earlier Plan, which had
// the same targets and so the same hash, are not of this one.
func TestDispatcher_AGenerationReturnedToIsApprovedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		d.set(t, approved("1", 1), 20, intents("1", "m1 a"))
		first := d.waiting(t)
		d.approve(first)
		d.expect(t, "approved", "m1 a@0s")
		d.set(t, approved("2", 2), 20, nil)
		time.Sleep(time.Minute)
		d.approve(first, d.waiting(t))
		d.set(t, approved("1", 3), 20, intents("2", "m1 a"))
		time.Sleep(time.Minute)
		d.expect(t, "returned to", "")
		again := d.waiting(t)
		if again.Hash != first.Hash || again.UID == first.UID || !again.Since.After(first.Since) {
			t.Errorf("the Plan is %+v, it was %+v", again, first)
		}
		d.approve(again)
		d.expect(t, "approved again", "m1 a@2m0s")
	})
}
