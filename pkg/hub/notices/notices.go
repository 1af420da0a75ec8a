package notices

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/notify"
)

// Options configure a Source. All but Changed are required.
type Options struct {
	Config *rest.Config // of the hub
	// Stops returns the stops that there are, and whether that is known.
	Stops func() (stops []hub.ActiveStop, known bool)
	// Changed is called when there may be other facts, but for those of stops; it must not
	// block.
	Changed func()
}

// Source lists the facts of a hub. It implements notify.Source.
type Source struct {
	opts                              Options
	states, plans, approvals, actions cache.SharedIndexInformer
}

var _ notify.Source = (*Source)(nil)

// New returns a Source; it lists nothing before Run.
func New(opts Options) (*Source, error) {
	if opts.Config == nil || opts.Stops == nil {
		return nil, errors.New("notices: Config and Stops are required")
	}
	if opts.Changed == nil {
		opts.Changed = func() {}
	}
	client, err := hub.NewRESTClient(opts.Config)
	if err != nil {
		return nil, err
	}
	s := &Source{opts: opts}
	for _, i := range []struct {
		into      *cache.SharedIndexInformer
		resource  string
		example   runtime.Object
		selector  fields.Selector
		transform cache.TransformFunc
	}{
		{&s.states, v1alpha1.PolicyStates, &v1alpha1.PolicyState{}, fields.Everything(), stripState},
		{&s.plans, v1alpha1.Plans, &v1alpha1.Plan{}, fields.Everything(), stripPlan},
		{&s.approvals, v1alpha1.Approvals, &v1alpha1.Approval{}, fields.Everything(), stripApproval},
		{&s.actions, v1alpha1.Actions, &v1alpha1.Action{}, fields.OneTermEqualSelector("status.phase", string(v1alpha1.PhaseRolledBack)), stripAction},
	} {
		watch := cache.NewListWatchFromClient(client, i.resource, metav1.NamespaceAll, i.selector)
		*i.into = cache.NewSharedIndexInformer(watch, i.example, 0, cache.Indexers{})
		if err := (*i.into).SetTransform(i.transform); err != nil {
			return nil, fmt.Errorf("notices: %s: %w", i.resource, err)
		}
		if _, err := (*i.into).AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { opts.Changed() }, UpdateFunc: func(_, _ any) { opts.Changed() },
		}); err != nil {
			return nil, fmt.Errorf("notices: %s: %w", i.resource, err)
		}
	}
	return s, nil
}

func (s *Source) informers() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{s.states, s.plans, s.approvals, s.actions}
}

// Run watches the hub until the context ends.
func (s *Source) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, i := range s.informers() {
		wg.Go(func() { i.RunWithContext(ctx) })
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Facts implements notify.Source.
func (s *Source) Facts() (facts []notify.Fact, complete bool) {
	now := time.Now()
	stops, complete := s.opts.Stops()
	for n := range stops {
		facts = append(facts, ofStop(&stops[n]))
	}
	for _, i := range s.informers() {
		complete = complete && i.HasSynced()
		for _, object := range i.GetStore().List() {
			switch o := object.(type) {
			case *v1alpha1.PolicyState:
				facts = append(facts, ofState(o, now)...)
			case *v1alpha1.Plan:
				facts = append(facts, ofPlan(o, now)...)
			case *v1alpha1.Approval:
				facts = append(facts, ofApproval(o, now)...)
			case *v1alpha1.Action:
				facts = append(facts, ofAction(o, now)...)
			}
		}
	}
	return facts, complete
}

// The transforms keep what facts need.

func stripState(object any) (any, error) {
	if o, ok := object.(*v1alpha1.PolicyState); ok {
		o.ManagedFields, o.Status.Allowances, o.Status.Rollout = nil, nil, nil
		for n := range o.Status.Halts {
			o.Status.Halts[n].Over, o.Status.Halts[n].Targets = nil, nil
		}
	}
	return object, nil
}

func stripPlan(object any) (any, error) {
	if o, ok := object.(*v1alpha1.Plan); ok {
		o.ManagedFields, o.Spec.Counts, o.Spec.Authors = nil, nil, nil
	}
	return object, nil
}

func stripApproval(object any) (any, error) {
	if o, ok := object.(*v1alpha1.Approval); ok {
		o.ManagedFields, o.Spec.Groups = nil, nil
	}
	return object, nil
}

func stripAction(object any) (any, error) {
	o, ok := object.(*v1alpha1.Action)
	if !ok {
		return object, nil
	}
	return &v1alpha1.Action{
		TypeMeta:   o.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion},
		Spec:       v1alpha1.ActionSpec{Binding: o.Spec.Binding, Target: o.Spec.Target},
		Status:     v1alpha1.ActionStatus{Phase: o.Status.Phase, Message: o.Status.Message, EndedAt: o.Status.EndedAt},
	}, nil
}
