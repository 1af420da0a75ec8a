package bulkrollback

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/internal/people"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/pkg/remediate/rollbackplan"
)

// Times and limits.
const (
	interval       = time.Second      // between two looks at what holds a Rollback
	countersEvery  = 10 * time.Second // of a status, where nothing else has changed
	requestTimeout = 10 * time.Second
	freezeTimeout  = 5 * time.Minute // reading and recording 100,000 targets
	writeTimeout   = time.Minute     // of one Action, including retries
	maxAge         = 24 * time.Hour  // of a Rollback
	settleTime     = 30 * time.Second
	memberGrace    = 2 * time.Minute // until a member that is not known is gone
	maxWrites      = 16              // at once
	maxPerMember   = 2
	maxGathers     = 2 // Rollbacks that read all Actions of their policies at once
)

// Dispatcher is what a Controller needs of a remediate.Dispatcher.
type Dispatcher interface {
	RollBack(ctx context.Context, action string, r remediate.RollbackRequest) (*remediate.Action, error)
	CorrectionState(policy string) remediate.CorrectionState
}

// Approvals are what a Controller needs of a hub.Approvals.
type Approvals interface {
	Rollback(policy string, hash v1alpha1.Digest) remediate.Approved
	RollbacksSince() (since, asked time.Time, why string)
	Request()
	Trigger()
}

// Options configure a Controller. All but Logger are required.
type Options struct {
	Config     *rest.Config // of the hub
	Actions    *rest.Config // of the hub, for Actions and Plans
	Dispatcher Dispatcher
	Approvals  func() Approvals // called by Run
	// Lease returns until when this process leads, or an error.
	Lease func() (time.Time, error)
	// StopsKnown reports whether it is known what is stopped.
	StopsKnown func() bool
	// MemberUID returns the UID of a member's Cluster, "" for one that there is not.
	MemberUID func(member string) string
	Logger    *slog.Logger
}

// Controller carries out Rollbacks.
type Controller struct {
	opts      Options
	client    rest.Interface // of federator's kinds
	store     rollbackplan.Store
	informer  cache.SharedIndexInformer
	reviews   *people.Reviews
	triggered trigger.Trigger
	writes    *semaphore.Weighted
	gathers   *semaphore.Weighted
	ended     atomic.Bool // a Rollback has ended, or was deleted: its Plan is to end, too

	mu    sync.Mutex
	seen  map[types.UID]time.Time        // when Rollbacks were seen first
	plans map[types.UID]hub.RollbackPlan // by UID of the Rollback
	jobs  map[types.UID]trigger.Trigger  // by UID of the Rollback
}

// New returns a Controller; nothing happens before Run.
func New(opts Options) (*Controller, error) {
	if opts.Config == nil || opts.Actions == nil || opts.Dispatcher == nil || opts.Approvals == nil || opts.Lease == nil || opts.StopsKnown == nil || opts.MemberUID == nil {
		return nil, errors.New("bulkrollback: all options but Logger are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := hub.NewRESTClient(opts.Config)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	actions, err := kubernetes.NewForConfig(opts.Actions)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	c := &Controller{
		opts: opts, client: client, store: rollbackplan.NewStore(actions.CoreV1().RESTClient()), triggered: trigger.New(), writes: semaphore.NewWeighted(maxWrites),
		gathers: semaphore.NewWeighted(maxGathers),
		seen:    map[types.UID]time.Time{}, plans: map[types.UID]hub.RollbackPlan{}, jobs: map[types.UID]trigger.Trigger{},
	}
	c.reviews = people.NewReviews(typed.AuthorizationV1().SubjectAccessReviews(), c.Trigger, opts.Logger)
	c.informer = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, v1alpha1.Rollbacks, metav1.NamespaceAll, fields.Everything()), &v1alpha1.Rollback{}, 0, cache.Indexers{})
	_, err = c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: c.added, DeleteFunc: c.deleted})
	return c, err
}

// added has the hub asked what it proves: nothing is known of what was created since.
func (c *Controller) added(o any) {
	if r, ok := o.(*v1alpha1.Rollback); ok && !r.Status.State.IsFinal() {
		c.mu.Lock()
		c.seen[r.UID] = time.Now()
		c.mu.Unlock()
		c.opts.Approvals().Request()
	}
	c.triggered.Fire()
}

func (c *Controller) deleted(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if r, ok := o.(*v1alpha1.Rollback); ok {
		c.mu.Lock()
		delete(c.seen, r.UID)
		c.mu.Unlock()
		c.ended.Store(true)
	}
	c.triggered.Fire()
}

// Trigger has Run look soon whether Rollbacks may go on. It does not block.
func (c *Controller) Trigger() {
	c.triggered.Fire()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.jobs {
		t.Fire()
	}
}

// Plans returns the Plans that may need approval.
func (c *Controller) Plans() []hub.RollbackPlan {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]hub.RollbackPlan, 0, len(c.plans))
	for _, p := range c.plans {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b hub.RollbackPlan) int { return strings.Compare(string(a.Hash), string(b.Hash)) })
	return out
}

// Run carries out Rollbacks while this process leads, until the context ends, and returns
// when all goroutines that it started have ended.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer running.Wait()
	defer cancel()
	running.Go(func() { c.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.informer.HasSynced) {
		return context.Cause(ctx)
	}
	running.Go(func() { c.reviews.Run(ctx) })
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if _, err := c.opts.Lease(); err == nil {
			c.lead(ctx)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// lead carries out Rollbacks until this process leads no more.
func (c *Controller) lead(ctx context.Context) {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer running.Wait()
	defer cancel()
	began := time.Now()
	c.ended.Store(true) // while another process led
	jobs := map[types.UID]context.CancelFunc{}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if _, err := c.opts.Lease(); err != nil {
			return // another process leads
		}
		if c.ended.Swap(false) {
			if err := c.closePlans(ctx); err != nil && ctx.Err() == nil {
				c.ended.Store(true)
				c.opts.Logger.Error("ending the Plans of Rollbacks failed, trying again", "error", err)
			}
		}
		here := map[types.UID]bool{}
		for _, o := range c.informer.GetStore().List() {
			r, ok := o.(*v1alpha1.Rollback)
			if !ok || r.DeletionTimestamp != nil || r.Status.State.IsFinal() && jobs[r.UID] == nil {
				continue
			}
			if here[r.UID] = true; jobs[r.UID] == nil {
				working, stop := context.WithCancel(ctx)
				jobs[r.UID] = stop
				j := c.newJob(r.DeepCopy(), began)
				running.Go(func() { j.run(working) })
			}
		}
		for uid, stop := range jobs {
			if !here[uid] { // it was deleted
				stop()
				delete(jobs, uid)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-c.triggered:
		case <-tick.C:
		}
	}
}

// closePlans ends the Plans of Rollbacks that were deleted, or have ended.
func (c *Controller) closePlans(ctx context.Context) error {
	plans, err := c.store.Plans(ctx)
	if err != nil {
		return err
	}
	for uid, list := range plans {
		for n, p := range list {
			if isOver(p) {
				continue
			}
			r := &v1alpha1.Rollback{}
			err := c.client.Get().Resource(v1alpha1.Rollbacks).Name(p.Spec.Rollback.Name).Do(ctx).Into(r)
			state, message := v1alpha1.PlanSuperseded, "the Rollback was deleted"
			switch {
			case err != nil && !apierrors.IsNotFound(err):
				return err
			case err != nil || string(r.UID) != uid || r.DeletionTimestamp != nil:
			case r.Status.State.IsFinal():
				state, message = endOf(r.Status.State), r.Status.Message
			case n == 0:
				continue // it is the one
			default:
				message = "the Rollback has another Plan"
			}
			if err := c.closePlan(ctx, p, state, message, r.Status.Done); err != nil {
				return err
			}
		}
	}
	return nil
}

// isOver reports that nothing will be written with a Plan any more.
func isOver(p *v1alpha1.Plan) bool {
	return p.Status.State == v1alpha1.PlanDone || p.Status.State == v1alpha1.PlanSuperseded || p.Status.State == v1alpha1.PlanExpired
}

// endOf is the state of a Plan whose Rollback has ended.
func endOf(s v1alpha1.RollbackState) v1alpha1.PlanState {
	switch s {
	case v1alpha1.RollbackDone:
		return v1alpha1.PlanDone
	case v1alpha1.RollbackExpired:
		return v1alpha1.PlanExpired
	}
	return v1alpha1.PlanSuperseded
}

func (c *Controller) closePlan(ctx context.Context, p *v1alpha1.Plan, state v1alpha1.PlanState, message string, written int32) error {
	ctx, cancel, err := c.leased(ctx, requestTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	status := *p.Status.DeepCopy()
	now := metav1.Now()
	status.State, status.Message, status.Since, status.Written = state, message, &now, max(status.Written, written)
	return c.store.PutStatus(ctx, p, status)
}

// leased returns a context that ends with the lease at the latest: what is written under it is
// the leader's.
func (c *Controller) leased(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc, error) {
	until, err := c.opts.Lease()
	if err != nil {
		return nil, nil, err
	}
	if at := time.Now().Add(timeout); until.IsZero() || at.Before(until) {
		until = at
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	return ctx, cancel, nil
}
