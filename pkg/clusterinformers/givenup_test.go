package clusterinformers_test

import (
	"net/http"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// givenUp reports whether the index says that nobody waits for a member.
func (r *rig) givenUp(m *sim.Member) bool {
	root, _ := r.index.Snapshot().Member(nameOf(m))
	return root.GivenUp
}

// TestMember_IsGivenUpUntilItIsRead: a member that is away, or of which a kind cannot be listed, is not
// waited for once it has had its time, and is again no exception as soon as it is read.
func TestMember_IsGivenUpUntilItIsRead(t *testing.T) {
	fleet := fewKinds()
	fleet.Members = 3
	const patient = 500 * time.Millisecond
	r := newRig(t, fleet, func(r *rig, o *clusterinformers.Options) {
		populate(r)
		o.GiveUpAfter = patient
		r.fleet.Members()[1].Cut()
		r.fleet.Members()[2].Faults().Add(sim.Fault{Kind: pods, Status: http.StatusTooManyRequests, RetryAfter: 1})
	}).start()
	good, away, refuses := r.fleet.Members()[0], r.fleet.Members()[1], r.fleet.Members()[2]
	r.synced(good)
	for _, m := range []*sim.Member{away, refuses} {
		r.until(m.Name()+" is given up", func() bool { return r.givenUp(m) })
	}
	if r.givenUp(good) {
		t.Error("a member that was read is given up")
	}
	ok(t, away.Restore())
	refuses.Faults().Clear()
	for _, m := range []*sim.Member{away, refuses} {
		r.until(m.Name()+" was read", func() bool { return r.state(m, "Pod") == aggregate.Synced && !r.givenUp(m) })
	}
	good.Cut()
	r.until("it is given up when it has been away", func() bool { return r.givenUp(good) })
}

// TestMember_IsGivenUpForWhatItReadOnce: a kind that was read, and is Unknown later, is waited for no longer
// than others.
func TestMember_IsGivenUpForWhatItReadOnce(t *testing.T) {
	fleet := fewKinds()
	fleet.Members = 1
	r := newRig(t, fleet, func(r *rig, o *clusterinformers.Options) {
		populate(r)
		o.GiveUpAfter = 500 * time.Millisecond
	}).start()
	m := r.fleet.Members()[0]
	r.synced(m)
	m.Faults().Add(sim.Fault{Kind: pods, Status: http.StatusNotFound}) // an aggregated API whose server answers 404
	m.Cut()
	r.until("it is away", func() bool { return r.state(m, "Pod") == aggregate.Stale })
	ok(t, m.Restore())
	r.untilState(m, "Pod", aggregate.Unknown)
	r.until("it is given up", func() bool { return r.givenUp(m) && r.state(m, "Pod") == aggregate.Unknown })
}
