// Package hubreader holds what the query API shows of federator's objects on the hub: FleetPolicies and
// PolicySources, summaries of the newest Actions, and stops.
package hubreader

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
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
	for _, follow := range []func(context.Context){
		newFollower(r, policyquery.HubFleetPolicies, reading[v1alpha1.FleetPolicy, *v1alpha1.FleetPolicy]{r.client, "", string(policyquery.HubFleetPolicies)}, &r.policies).run,
		newFollower(r, policyquery.HubPolicySources, reading[v1alpha1.PolicySource, *v1alpha1.PolicySource]{r.client, "", string(policyquery.HubPolicySources)}, &r.sources).run,
		newFollower(r, policyquery.HubPolicyStates, reading[v1alpha1.PolicyState, *v1alpha1.PolicyState]{r.client, "", string(policyquery.HubPolicyStates)}, haltSink{&r.halts}).run,
		newFollower(r, policyquery.HubActions, reading[v1alpha1.Action, *v1alpha1.Action]{r.client, "", string(policyquery.HubActions)}, r.actions).run,
		newFollower(r, policyquery.HubStops, reading[corev1.ConfigMap, *corev1.ConfigMap]{r.core.CoreV1().RESTClient(), r.opts.Namespace, "configmaps"}, stopSink{&r.stops}).run,
		r.followVerdicts,
	} {
		wg.Go(func() { follow(ctx) })
	}
	wg.Wait()
	return context.Cause(ctx)
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

// requestTimeout bounds a request that is no watch.
const requestTimeout = 15 * time.Second

// Action implements policyquery.Hub.
func (r *Reader) Action(ctx context.Context, name string) (*v1alpha1.Action, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	a := &v1alpha1.Action{}
	return a, r.client.Get().Resource(string(policyquery.HubActions)).Name(name).Do(ctx).Into(a)
}

// Changes implements policyquery.Hub.
func (r *Reader) Changes(resources ...policyquery.HubResource) <-chan struct{} {
	return r.changes.channel(resources)
}
