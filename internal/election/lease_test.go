package election

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// slowLock answers after a delay.
type slowLock struct {
	resourcelock.Interface

	delay  time.Duration
	err    error
	holder string
}

func (*slowLock) Identity() string { return "a" }

func (l *slowLock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	time.Sleep(l.delay)
	if l.err == nil {
		l.holder = record.HolderIdentity
	}
	return l.err
}

func (l *slowLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, nil
}

// TestLock_LeaseCountsFromBeforeTheRequest: a slow hub lengthens no lease.
func TestLock_LeaseCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowLock{delay: 4 * time.Second}
		l := Track(slow, 10*time.Second)
		update := func(by string) {
			_ = l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: by})
		}
		remaining := func() time.Duration {
			until, err := l.Lease()
			if err != nil {
				return 0
			}
			return time.Until(until)
		}
		if got := remaining(); got != 0 {
			t.Errorf("before: %v", got)
		}
		update("a")
		if got := remaining(); got != 6*time.Second {
			t.Errorf("after a renewal of four seconds: %v, want 6s", got)
		}
		slow.err = errors.New("the hub is away")
		update("a")
		if got := remaining(); got != 2*time.Second {
			t.Errorf("after one that failed: %v, want 2s", got)
		}
		time.Sleep(2 * time.Second)
		if got := remaining(); got != 0 {
			t.Errorf("after the deadline: %v", got)
		}
		slow.err, slow.delay = nil, 0
		update("a")
		if got := remaining(); got != 10*time.Second {
			t.Errorf("renewed: %v", got)
		}
		slow.delay, slow.err = time.Second, errors.New("the hub is away")
		update("")
		if got := remaining(); got != 0 {
			t.Errorf("a release whose answer was lost: %v", got)
		}
		slow.err = nil
		update("a")
		slow.holder = "b"
		if _, _, err := l.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := remaining(); got != 0 {
			t.Errorf("while another process holds it: %v", got)
		}
	})
}

// TestLock_ReleasesNothingOfOthers: a leader that gives up, and is told only when it is about to release the lock that
// another process has taken it meanwhile, leaves it alone.
func TestLock_ReleasesNothingOfOthers(t *testing.T) {
	t.Parallel()
	of := &slowLock{}
	l := Track(of, 10*time.Second)
	for _, holder := range []string{"a", "b"} {
		if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a"}); err != nil {
			t.Fatal(err)
		}
		of.holder = holder
		if _, _, err := l.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{})
		if released := of.holder == ""; released != (holder == "a") || (err == nil) != released {
			t.Errorf("held by %q: released %t, %v", holder, released, err)
		}
		if _, err := l.Lease(); err == nil {
			t.Errorf("held by %q: it is held on", holder)
		}
	}
}

func TestLock_HolderIsForgottenWhenItIsNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := &slowLock{}
		l := Track(of, 10*time.Second)
		if who := l.Holder(15 * time.Second); who != "" {
			t.Errorf("before anything was read: %q", who)
		}
		if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "b"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(14 * time.Second)
		if who := l.Holder(15 * time.Second); who != "b" {
			t.Errorf("14s after: %q", who)
		}
		time.Sleep(2 * time.Second)
		if who := l.Holder(15 * time.Second); who != "" {
			t.Errorf("16s after: %q", who)
		}
	})
}
