package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// First words of a rollback's outcome: that it is done, that nothing was tried, and
// that it was tried in vain. A phase of remediate says the latter, too.
const (
	RollbackDone    = "Succeeded"
	RollbackRefused = "Refused"
	RollbackFailed  = "Failed"
)

const (
	rollbackTimeout = time.Minute // of one rollback, with its retries
	rollbacksAtOnce = 8
)

// RollbacksOptions configure Rollbacks. All but Logger are required.
type RollbacksOptions struct {
	Config     *rest.Config // of the hub
	Dispatcher *remediate.Dispatcher
	Stop       *Stop
	Lead       func() bool // whether this process acts
	Logger     *slog.Logger
}

// Rollbacks takes Actions back whose label asks for it.
type Rollbacks struct {
	opts     RollbacksOptions
	client   *client
	informer cache.SharedIndexInformer
	wake     chan struct{} // has room for one
	slots    chan struct{}

	mu   sync.Mutex
	busy map[string]bool // by name: requests that are being answered
}

// NewRollbacks returns Rollbacks that do nothing before Run.
func NewRollbacks(opts RollbacksOptions) (*Rollbacks, error) {
	if opts.Config == nil || opts.Dispatcher == nil || opts.Stop == nil || opts.Lead == nil {
		return nil, errors.New("Rollbacks: Config, Dispatcher, Stop and Lead are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newClient(opts.Config)
	if err != nil {
		return nil, err
	}
	r := &Rollbacks{opts: opts, client: c, wake: make(chan struct{}, 1), slots: make(chan struct{}, rollbacksAtOnce), busy: map[string]bool{}}
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
		AddFunc: func(any) { r.poke() }, UpdateFunc: func(_, _ any) { r.poke() },
	})
	return r, err
}

func (r *Rollbacks) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run answers requests until the context ends, and returns when all that it started has
// ended.
func (r *Rollbacks) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { r.informer.RunWithContext(ctx) })
	tick := time.NewTicker(statusEvery) // what could not be answered, and a new leader
	defer tick.Stop()
	for {
		if r.opts.Lead() {
			for _, name := range r.informer.GetStore().ListKeys() {
				if r.begin(name) {
					parts.Go(func() { r.one(ctx, name) })
				}
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.wake:
		case <-tick.C:
		}
	}
}

func (r *Rollbacks) begin(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[name] {
		return false
	}
	r.busy[name] = true
	return true
}

func (r *Rollbacks) one(ctx context.Context, name string) {
	defer func() {
		r.mu.Lock()
		delete(r.busy, name)
		r.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		return
	case r.slots <- struct{}{}:
	}
	defer func() { <-r.slots }()
	ctx, cancel := context.WithTimeout(ctx, rollbackTimeout)
	defer cancel()
	if err := r.answer(ctx, name); err != nil && ctx.Err() == nil {
		r.opts.Logger.Error("a rollback is not answered", "action", name, "err", err) // the next tick tries again
	}
}

// answer carries one request out, and says on the Action what came of it. Should the
// process end in between, its successor finds the Action RolledBack, or the request as
// it was.
func (r *Rollbacks) answer(ctx context.Context, name string) error {
	// What is cached may be a request that has been answered.
	a := &v1alpha1.Action{}
	err := r.client.rest.Get().Resource(v1alpha1.Actions).Name(name).Do(ctx).Into(a)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	how, asked := a.Labels[api.RollbackKey]
	if !asked {
		return nil
	}
	stop, known := r.opts.Stop.State()
	switch {
	case a.Status.Phase == v1alpha1.PhaseRolledBack:
		return r.reply(ctx, a, RollbackDone, a.Status.Message)
	case how != api.RollbackValue && how != api.RollbackForce:
		return r.refuse(ctx, a, RollbackRefused, fmt.Sprintf("label %s is %q, not %q or %q", api.RollbackKey, how, api.RollbackValue, api.RollbackForce))
	case !known:
		return nil // until it is
	case stop != "":
		return r.refuse(ctx, a, RollbackRefused, "all actions are stopped "+stop)
	}
	made, err := r.opts.Dispatcher.RollBack(ctx, name, how == api.RollbackForce, why(a))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, remediate.ErrNotNow):
		return nil
	case errors.Is(err, remediate.ErrIrreversible), errors.Is(err, remediate.ErrChanged):
		return r.refuse(ctx, a, RollbackRefused, err.Error())
	case err != nil:
		return r.refuse(ctx, a, RollbackFailed, err.Error())
	case made.Phase != v1alpha1.PhaseSucceeded:
		return r.refuse(ctx, a, string(made.Phase), made.Message)
	}
	r.opts.Logger.Info("an action is taken back", "action", name, "by", made.Name, "reason", made.Reason)
	return r.reply(ctx, a, RollbackDone, "by "+made.Name)
}

// why says who asks for a rollback, as far as managedFields tell, and why.
func why(a *v1alpha1.Action) string {
	text := "rolled back"
	if by := managerOf(a.ManagedFields, `"f:`+api.RollbackKey+`"`); by != "" {
		text += " by " + by
	}
	if reason := oneLine(a.Annotations[api.RollbackReasonKey]); reason != "" {
		text += ": " + reason
	}
	return text
}

// refuse tells it on the status, too, where kubectl get shows it.
func (r *Rollbacks) refuse(ctx context.Context, a *v1alpha1.Action, outcome, message string) error {
	r.opts.Logger.Warn("an action is not taken back", "action", a.Name, "outcome", outcome, "message", message)
	status := map[string]any{"status": map[string]any{"message": clip("rollback: "+outcome+": "+message, maxText)}}
	if err := r.patch(ctx, a, status, "status"); err != nil {
		return err
	}
	return r.reply(ctx, a, outcome, message)
}

// reply ends a request.
func (r *Rollbacks) reply(ctx context.Context, a *v1alpha1.Action, outcome, message string) error {
	return r.patch(ctx, a, map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{api.RollbackKey: nil},
		"annotations": map[string]any{api.RollbackReasonKey: nil, api.RollbackOutcomeKey: clip(outcome+" "+message, maxText)},
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
		return nil // there is nobody to tell
	}
	return err
}
