package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease timing: a leader that cannot renew its lease stops acting before another one
// starts. How long that may take is leaseRenew; what is beyond in leaseDuration is for what was under way. Candidates look
// every leaseRetry, and a little more: what they notice late is added twice to the time without a leader, once for its last
// renewal and once for the end of the lease.
const (
	leaseDuration = 12500 * time.Millisecond
	leaseRenew    = 11 * time.Second
	leaseRetry    = 500 * time.Millisecond
	// leaseEvery is how often a leader writes the lease: less often than client-go would, which looks and writes at one interval.
	leaseEvery = 3500 * time.Millisecond
)

// LeaseName is the Lease that the leader holds.
const LeaseName = "federator"

// Elector is this process's candidate in the election.
type Elector struct {
	Host string
	lock *Lock
	log  *slog.Logger
}

// New returns a candidate. Nothing runs yet. An empty identity is made for this process.
func New(hub *rest.Config, namespace, identity string, log *slog.Logger) (*Elector, error) {
	client, err := coordination.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	if identity == "" {
		identity = fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano())
	}
	e := Of(client, namespace, identity, log)
	e.Host = host
	return e, nil
}

// Of is New for a client of the hub.
func Of(client coordination.LeasesGetter, namespace, identity string, log *slog.Logger) *Elector {
	lock := Track(&resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName},
		Client:    client, LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}, leaseRenew)
	lock.every = leaseEvery
	return &Elector{log: log, lock: lock}
}

var errNotLeader = errors.New("another process is the leader")

// Lease returns until when this process leads at least, or an error if it is not the leader.
func (e *Elector) Lease() (until time.Time, err error) { return e.lock.Lease() }

// Holder returns the identity of the process that leads, as far as this one knows: "" if it has not been seen for as long
// as a lease lasts.
func (e *Elector) Holder() string { return e.lock.Holder(leaseDuration) }

// Lead returns an error unless this process is the leader.
func (e *Elector) Lead() error {
	_, err := e.Lease()
	return err
}

// Run takes part in the election until the context ends.
func (e *Elector) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: e.lock, LeaseDuration: leaseDuration, RenewDeadline: leaseRenew, RetryPeriod: leaseRetry, ReleaseOnCancel: true, Name: LeaseName,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { e.log.Info("leader election won", "lease", LeaseName) },
				OnStoppedLeading: func() { e.log.Info("leader election lost", "lease", LeaseName) },
			},
		})
		if err != nil {
			return fmt.Errorf("leader election: %w", err)
		}
		le.Run(ctx) // until the lease is lost, or ctx ends
	}
	return context.Cause(ctx)
}
