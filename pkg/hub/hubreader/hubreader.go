// Package hubreader holds what the query API shows of federator's objects on the hub: FleetPolicies and
// PolicySources, summaries of the newest Actions, and stops.
package hubreader

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/internal/follow"
	"federator.dev/federator/pkg/policyquery"
)

// MaxActions is how many Actions are held by default.
const MaxActions = 50_000

// Options configure a Reader. Config and Namespace are required.
type Options struct {
	Config    *rest.Config // of the hub
	Namespace string       // of the stops' ConfigMaps
	// Loop is what has the verdicts that Changes is about; nil: none.
	Loop       *enforce.Loop
	MaxActions int          // that are held; 0 means MaxActions
	Logger     *slog.Logger // nil: none
}

// Reader implements policyquery.Hub.
type Reader struct {
	opts     Options
	client   rest.Interface
	core     kubernetes.Interface
	changes  broadcast
	policies objects[*v1alpha1.FleetPolicy]
	sources  objects[*v1alpha1.PolicySource]
	stops    objects[policyquery.Stop]
	halts    objects[policyquery.PolicyHalts]
	actions  *actions
}

var _ policyquery.Hub = &Reader{}

// New returns a Reader, which reads the hub when it runs.
func New(opts Options) (*Reader, error) {
	if opts.Config == nil || opts.Namespace == "" {
		return nil, errors.New("hubreader: Config and Namespace are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.MaxActions == 0 {
		opts.MaxActions = MaxActions
	}
	config := rest.CopyConfig(opts.Config)
	config.QPS = -1 // it has few requests at once
	client, err := hub.NewRESTClient(config)
	if err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, errors.New("hub: " + err.Error())
	}
	return &Reader{opts: opts, client: client, core: core, actions: newActions(opts.MaxActions)}, nil
}

// Run reads the hub until the context ends, and returns when all that it started has ended.
func (r *Reader) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, run := range []func(context.Context){
		follower(r, policyquery.HubFleetPolicies, follow.Resource[v1alpha1.FleetPolicy, *v1alpha1.FleetPolicy]{Client: r.client}, &r.policies),
		follower(r, policyquery.HubPolicySources, follow.Resource[v1alpha1.PolicySource, *v1alpha1.PolicySource]{Client: r.client}, &r.sources),
		follower(r, policyquery.HubPolicyStates, follow.Resource[v1alpha1.PolicyState, *v1alpha1.PolicyState]{Client: r.client}, haltSink{&r.halts}),
		follower(r, policyquery.HubActions, follow.Resource[v1alpha1.Action, *v1alpha1.Action]{Client: r.client}, r.actions),
		follower(r, policyquery.HubStops, follow.Resource[corev1.ConfigMap, *corev1.ConfigMap]{Client: r.core.CoreV1().RESTClient(), Namespace: r.opts.Namespace, Name: "configmaps"}, stopSink{&r.stops}),
		r.followVerdicts,
	} {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
	return context.Cause(ctx)
}

// follower returns what follows a resource of the hub, which has its name unless from has another.
func follower[T any, P follow.Object[T]](r *Reader, resource policyquery.HubResource, from follow.Resource[T, P], to follow.Sink[P]) func(context.Context) {
	from.Name = cmp.Or(from.Name, string(resource))
	return follow.New(from, to, func() { r.changes.notify(resource) }, r.opts.Logger).Run
}

// followVerdicts tells of each version of the verdicts.
func (r *Reader) followVerdicts(ctx context.Context) {
	if r.opts.Loop == nil {
		return
	}
	for {
		at := r.opts.Loop.Point()
		r.changes.notify(policyquery.Verdicts)
		select {
		case <-ctx.Done():
			return
		case <-r.opts.Loop.Newer(at):
		}
	}
}

// FleetPolicies implements policyquery.Hub.
func (r *Reader) FleetPolicies() (policyquery.HubObjects[*v1alpha1.FleetPolicy], error) {
	return r.policies.list()
}

// PolicySources implements policyquery.Hub.
func (r *Reader) PolicySources() (policyquery.HubObjects[*v1alpha1.PolicySource], error) {
	return r.sources.list()
}

// Stops implements policyquery.Hub.
func (r *Reader) Stops() (policyquery.HubObjects[policyquery.Stop], error) { return r.stops.list() }

// Halts implements policyquery.Hub.
func (r *Reader) Halts() (policyquery.HubObjects[policyquery.PolicyHalts], error) {
	return r.halts.list()
}

// Actions implements policyquery.Hub.
func (r *Reader) Actions() (iter.Seq[*policyquery.ActionSummary], policyquery.HubState, error) {
	return r.actions.all()
}

// Action implements policyquery.Hub.
func (r *Reader) Action(ctx context.Context, name string) (*v1alpha1.Action, error) {
	ctx, cancel := context.WithTimeout(ctx, follow.RequestTimeout)
	defer cancel()
	a := &v1alpha1.Action{}
	return a, r.client.Get().Resource(string(policyquery.HubActions)).Name(name).Do(ctx).Into(a)
}

// Changes implements policyquery.Hub.
func (r *Reader) Changes(resources ...policyquery.HubResource) <-chan struct{} {
	return r.changes.channel(resources)
}
