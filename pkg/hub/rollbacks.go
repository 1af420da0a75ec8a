package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/remediate"
)

// First words of a rollback's outcome: it succeeded, it was not attempted, or it failed.
// A failed one may also have a phase of remediate.
const (
	RollbackSucceeded = "Succeeded"
	rollbackRefused   = "Refused"
	rollbackFailed    = "Failed"
)

const (
	rollbackTimeout = time.Minute // of one rollback, including retries
	maxRollbacks    = 8
)

// RollbacksOptions configure Rollbacks. All but Logger are required.
type RollbacksOptions struct {
	Config     *rest.Config // of the hub
	Dispatcher *remediate.Dispatcher
	Stop       *Stop
	IsLeader   func() bool // whether this process writes to members
	// Required returns what policies require of people now; false while that is not known.
	Required func() (map[string][]v1alpha1.ApprovalRequirement, bool)
	Logger   *slog.Logger
}

// Rollbacks rolls back Actions that have the label federator.dev/rollback.
type Rollbacks struct {
	opts      RollbacksOptions
	client    *client
	informer  cache.SharedIndexInformer
	triggered trigger.Trigger
	slots     *semaphore.Weighted

	mu   sync.Mutex
	busy map[string]bool // Actions that are being handled, by name
}

// NewRollbacks returns Rollbacks; nothing happens before Run.
func NewRollbacks(opts RollbacksOptions) (*Rollbacks, error) {
	if opts.Config == nil || opts.Dispatcher == nil || opts.Stop == nil || opts.IsLeader == nil || opts.Required == nil {
		return nil, errors.New("Rollbacks: Config, Dispatcher, Stop, IsLeader and Required are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newClient(opts.Config)
	if err != nil {
		return nil, err
	}
	r := &Rollbacks{opts: opts, client: c, triggered: trigger.New(), slots: semaphore.NewWeighted(maxRollbacks), busy: map[string]bool{}}
	r.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = api.RollbackKey
			list := &v1alpha1.ActionList{}
			return list, c.rest.Get().Resource(v1alpha1.Actions).VersionedParams(&o, c.codec).Do(ctx).Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.Watch = api.RollbackKey, true
			return c.rest.Get().Resource(v1alpha1.Actions).VersionedParams(&o, c.codec).Watch(ctx)
		},
	}, &v1alpha1.Action{}, 0, cache.Indexers{})
	_, err = r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { r.trigger() }, UpdateFunc: func(_, _ any) { r.trigger() },
	})
	return r, err
}

func (r *Rollbacks) trigger() {
	r.triggered.Fire()
}

// Run handles requests until the context ends, and returns when all goroutines that it
// started have ended.
func (r *Rollbacks) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { r.informer.RunWithContext(ctx) })
	tick := time.NewTicker(statusInterval) // for retries and changes of the leader
	defer tick.Stop()
	for {
		if r.opts.IsLeader() {
			for _, name := range r.informer.GetStore().ListKeys() {
				if r.claim(name) {
					wg.Go(func() { r.handle(ctx, name) })
				}
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.triggered:
		case <-tick.C:
		}
	}
}

func (r *Rollbacks) claim(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[name] {
		return false
	}
	r.busy[name] = true
	return true
}

func (r *Rollbacks) handle(ctx context.Context, name string) {
	defer func() {
		r.mu.Lock()
		delete(r.busy, name)
		r.mu.Unlock()
	}()
	if r.slots.Acquire(ctx, 1) != nil {
		return
	}
	defer r.slots.Release(1)
	ctx, cancel := context.WithTimeout(ctx, rollbackTimeout)
	defer cancel()
	if err := r.rollBack(ctx, name); err != nil && ctx.Err() == nil {
		r.opts.Logger.Error("handling a rollback request failed", "action", name, "error", err) // retried at the next tick
	}
}

// rollBack handles one request and records the outcome on the Action. If the process ends
// in between, its successor finds the Action RolledBack, or the request unchanged.
func (r *Rollbacks) rollBack(ctx context.Context, name string) error {
	// The cached Action may be of a request that has been handled already.
	a := &v1alpha1.Action{}
	err := r.client.rest.Get().Resource(v1alpha1.Actions).Name(name).Do(ctx).Into(a)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	how, requested := a.Labels[api.RollbackKey]
	if !requested {
		return nil
	}
	_, known := r.opts.Stop.state()
	stop := r.opts.Dispatcher.StoppedFor(a.Spec.Binding, a.Spec.Origin.Source, a.Spec.Target.Member)
	switch {
	case a.Status.Phase == v1alpha1.PhaseRolledBack:
		return r.complete(ctx, a, RollbackSucceeded, a.Status.Message)
	case how != api.RollbackValue && how != api.RollbackForce:
		return r.reject(ctx, a, rollbackRefused, fmt.Sprintf("label %s is %q, not %q or %q", api.RollbackKey, how, api.RollbackValue, api.RollbackForce))
	case !known:
		return nil // retried when it is known
	case stop != "":
		return r.reject(ctx, a, rollbackRefused, stop)
	}
	switch required, known := r.requiresApproval(a.Spec.Binding); {
	case !known:
		return nil // as above
	case required:
		return r.reject(ctx, a, rollbackRefused, fmt.Sprintf(needsApproval, a.Spec.Binding, a.Spec.Binding))
	}
	made, err := r.opts.Dispatcher.RollBack(ctx, name, remediate.RollbackRequest{Force: how == api.RollbackForce, Reason: rollbackReason(a)})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, remediate.ErrNotNow):
		return nil
	case errors.Is(err, remediate.ErrIrreversible), errors.Is(err, remediate.ErrChanged):
		return r.reject(ctx, a, rollbackRefused, err.Error())
	case err != nil:
		return r.reject(ctx, a, rollbackFailed, err.Error())
	case made.Phase != v1alpha1.PhaseSucceeded:
		return r.reject(ctx, a, string(made.Phase), made.Message)
	}
	r.opts.Logger.Info("action rolled back", "action", name, "by", made.Name, "reason", made.Reason)
	return r.complete(ctx, a, RollbackSucceeded, "by "+made.Name)
}

// needsApproval says how an Action is rolled back whose policy requires approval: who labels it is
// not proven, and nobody could approve it.
const needsApproval = "FleetPolicy %s requires approval, and so does what rolls it back: create a Rollback, which people can approve, with federator actions rollback --policy %s"

// requiresApproval reports whether a policy requires approval, or has since it was approved last,
// and whether that is known.
func (r *Rollbacks) requiresApproval(policy string) (required, known bool) {
	now, known := r.opts.Required()
	st, _ := r.opts.Dispatcher.Status(policy)
	if !known || !st.Restored {
		return false, false
	}
	return len(now[policy]) > 0 || st.Approval != nil && len(st.Approval.Requirements) > 0, true
}

// rollbackReason returns who requested a rollback, according to managedFields, and why.
func rollbackReason(a *v1alpha1.Action) string {
	text := "rolled back"
	if by := fieldManagerOf(a.ManagedFields, `"f:`+api.RollbackKey+`"`); by != "" {
		text += " by " + by
	}
	if reason := oneLine(a.Annotations[api.RollbackReasonKey]); reason != "" {
		text += ": " + reason
	}
	return text
}

// reject ends a request that failed, with a message in the status for kubectl get.
func (r *Rollbacks) reject(ctx context.Context, a *v1alpha1.Action, outcome, message string) error {
	r.opts.Logger.Warn("rollback not performed", "action", a.Name, "outcome", outcome, "message", message)
	status := map[string]any{"status": map[string]any{"message": clip.Text("rollback: "+outcome+": "+message, maxText)}}
	if err := r.patch(ctx, a, status, "status"); err != nil {
		return err
	}
	return r.complete(ctx, a, outcome, message)
}

// complete ends a request with its outcome.
func (r *Rollbacks) complete(ctx context.Context, a *v1alpha1.Action, outcome, message string) error {
	return r.patch(ctx, a, map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{api.RollbackKey: nil},
		"annotations": map[string]any{api.RollbackReasonKey: nil, api.RollbackOutcomeKey: clip.Text(outcome+" "+message, maxText)},
	}})
}

func (r *Rollbacks) patch(ctx context.Context, a *v1alpha1.Action, patch any, sub ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	err = r.client.rest.Patch(types.MergePatchType).Resource(v1alpha1.Actions).Name(a.Name).SubResource(sub...).
		VersionedParams(&metav1.PatchOptions{FieldManager: "federator"}, r.client.codec).Body(body).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil // it was deleted
	}
	return err
}
