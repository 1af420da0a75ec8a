package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Origin says where a package came from, and what its source allows.
type Origin struct {
	Source, Commit, Path string // "" for a package that comes with federator
	// Hold says why nothing may come of its violations now, such as a newer commit
	// that is broken; "" when something may.
	Hold    string
	Ceiling *enforce.Ceiling // nil: none
}

// Library gives the policies that are active. Its methods are safe for concurrent use.
type Library interface {
	// Policies returns the policies, and a channel that is closed when others are active.
	Policies() (*policy.Set, <-chan struct{})
	// Origin says where a package came from.
	Origin(pkg string) Origin
}

// FleetPoliciesOptions configure FleetPolicies. All but Events and Logger are required.
type FleetPoliciesOptions struct {
	Config     *rest.Config // of the hub
	Library    Library
	Loop       *enforce.Loop
	Corrector  *enforce.Corrector
	Dispatcher *remediate.Dispatcher
	Lead       func() bool // whether this process writes status
	Events     *Events     // nil: none
	Logger     *slog.Logger
}

// FleetPolicies binds the FleetPolicies of the hub to policies, and reports what has
// come of them. Packages without one are observed everywhere.
type FleetPolicies struct {
	opts     FleetPoliciesOptions
	client   *client
	informer cache.SharedIndexInformer
	wake     chan struct{} // has room for one

	// What follows belongs to Run.
	applied string            // what was configured last
	unfit   map[string]unfit  // FleetPolicies that are not in effect, by name
	acked   map[string]string // halts whose acknowledgements have been taken in
	seen    map[string]bool   // FleetPolicies whose halts have been restored
	tell    teller
}

// unfit says why a FleetPolicy is not in effect.
type unfit struct{ reason, message string }

// NewFleetPolicies returns FleetPolicies that do nothing before Run.
func NewFleetPolicies(opts FleetPoliciesOptions) (*FleetPolicies, error) {
	if opts.Config == nil || opts.Library == nil || opts.Loop == nil || opts.Corrector == nil || opts.Dispatcher == nil || opts.Lead == nil {
		return nil, errors.New("FleetPolicies: Config, Library, Loop, Corrector, Dispatcher and Lead are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newClient(opts.Config)
	if err != nil {
		return nil, err
	}
	f := &FleetPolicies{
		opts: opts, client: c, wake: make(chan struct{}, 1), unfit: map[string]unfit{}, acked: map[string]string{}, seen: map[string]bool{},
		tell: teller{opts.Events, map[types.UID]*v1alpha1.FleetPolicyStatus{}},
	}
	f.informer = c.informer(v1alpha1.FleetPolicies, &v1alpha1.FleetPolicyList{}, &v1alpha1.FleetPolicy{})
	poke := func(any) { f.Poke() }
	_, err = f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: poke, UpdateFunc: func(_, now any) { poke(now) }, DeleteFunc: poke,
	})
	return f, err
}

// Poke says that something may have changed that statuses tell.
func (f *FleetPolicies) Poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// statusEvery is how often statuses are looked at beside changes.
const statusEvery = time.Second

// Run follows the hub until the context ends, and returns when all that it started has
// ended.
func (f *FleetPolicies) Run(ctx context.Context) error {
	var informing sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	informing.Go(func() { f.informer.RunWithContext(ctx) })
	defer informing.Wait()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), f.informer.HasSynced) {
		return context.Cause(ctx)
	}
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		set, replaced := f.opts.Library.Policies()
		policies := f.list() // once: a status tells of what has been bound
		f.bind(ctx, set, policies)
		f.acknowledge(policies)
		if f.opts.Lead() {
			f.report(ctx, policies)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.wake:
		case <-replaced:
		case <-tick.C:
		}
	}
}

// list returns the FleetPolicies, by name.
func (f *FleetPolicies) list() []*v1alpha1.FleetPolicy {
	var out []*v1alpha1.FleetPolicy
	for _, o := range f.informer.GetStore().List() {
		if fp, ok := o.(*v1alpha1.FleetPolicy); ok {
			out = append(out, fp)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.FleetPolicy) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// bind configures the loop and the corrector by what is on the hub, if it differs from
// what they have. What is wrong with one FleetPolicy concerns no other.
func (f *FleetPolicies) bind(ctx context.Context, set *policy.Set, policies []*v1alpha1.FleetPolicy) {
	origins := map[string]Origin{}
	for _, p := range set.Packages {
		origins[p.Name] = f.opts.Library.Origin(p.Name)
	}
	mark := markOf(set, policies, origins)
	if mark == f.applied {
		return
	}
	unfit, terms := map[string]unfit{}, map[string]enforce.EnforcementSpec{}
	var bindings []policy.Binding
	for _, fp := range policies {
		b, t, why := f.fit(set, fp, origins)
		if why.reason != "" {
			unfit[fp.Name] = why
			continue
		}
		bindings, terms[fp.Name] = append(bindings, b), t
		f.restore(fp)
	}
	own, _ := policy.DefaultBindings(set, bindings)
	// Nothing is written from before the policies change until all is counted after.
	before := map[string]enforce.EnforcementSpec{}
	for name, t := range terms {
		t.Pause = true
		before[name] = t
	}
	err := f.opts.Corrector.SetSpecs(before)
	if err == nil {
		err = f.opts.Loop.Configure(ctx, set, append(bindings, own...))
	}
	if err == nil {
		err = f.opts.Corrector.SetSpecs(terms)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		f.opts.Logger.Error("FleetPolicies are not in effect", "err", err)
		return
	}
	f.applied, f.unfit = mark, unfit
}

// markOf is the same for what binds the same.
func markOf(set *policy.Set, policies []*v1alpha1.FleetPolicy, origins map[string]Origin) string {
	mark := fmt.Sprintf("%p", set)
	for _, fp := range policies {
		origin, err := json.Marshal(origins[fp.Spec.Package]) // what pointers lead to, not where they are
		if err != nil {
			panic(err) // strings only
		}
		mark += fmt.Sprintf(" %s/%d/%s", fp.UID, fp.Generation, origin)
	}
	return mark
}

// fit makes the binding and the terms of a FleetPolicy, or says why it has none.
func (f *FleetPolicies) fit(set *policy.Set, fp *v1alpha1.FleetPolicy, origins map[string]Origin) (policy.Binding, enforce.EnforcementSpec, unfit) {
	from, ok := origins[fp.Spec.Package]
	switch {
	case !ok:
		return policy.Binding{}, enforce.EnforcementSpec{}, unfit{"NoPackage", fmt.Sprintf("no active policy is named %q", fp.Spec.Package)}
	case fp.Spec.Source != "" && fp.Spec.Source != from.Source:
		return policy.Binding{}, enforce.EnforcementSpec{}, unfit{"OtherSource", fmt.Sprintf("package %q comes from source %q", fp.Spec.Package, from.Source)}
	}
	b, err := bindingOf(fp)
	if err == nil {
		var resolved []policy.Binding
		if resolved, err = policy.ValidateBindings(set, []policy.Binding{b}); err == nil {
			b = resolved[0]
		}
	}
	var t enforce.EnforcementSpec
	if err == nil {
		t, err = termsOf(fp, from)
	}
	if err != nil {
		return b, t, unfit{"Invalid", err.Error()}
	}
	return b, t, unfit{}
}

// restore brings a halt back that an earlier process has reported.
func (f *FleetPolicies) restore(fp *v1alpha1.FleetPolicy) {
	key := string(fp.UID)
	if f.seen[key] {
		return
	}
	f.seen[key] = true
	h := fp.Status.Halted
	if h == nil {
		return
	}
	halt := &remediate.Halt{ID: h.ID, Reason: h.Reason, Message: h.Message, Since: h.Since.Time}
	if h.Over != nil {
		halt.Over = &remediate.BudgetUsage{Scope: overOf(h.Over), Targets: int(h.Over.Targets), Max: int(h.Over.Allowed), Denominator: int(h.Over.Denominator)}
	}
	f.opts.Dispatcher.RestoreHalt(fp.Name, halt)
}

// acknowledge takes in what people have said of halts.
func (f *FleetPolicies) acknowledge(policies []*v1alpha1.FleetPolicy) {
	for _, fp := range policies {
		id := fp.Annotations[api.AcknowledgeKey]
		if id == "" || f.acked[fp.Name] == id {
			continue
		}
		st, ok := f.opts.Dispatcher.Status(fp.Name)
		if !ok || st.Halted == nil || st.Halted.ID != id {
			continue
		}
		if err := f.opts.Dispatcher.Acknowledge(fp.Name, id, clip(acknowledger(fp), 253)); err == nil {
			f.acked[fp.Name] = id
			f.opts.Logger.Info("a halt is acknowledged", "policy", fp.Name, "halt", id, "by", acknowledger(fp))
		}
	}
}

// acknowledger is who wrote the annotation, as far as managedFields tell.
func acknowledger(fp *v1alpha1.FleetPolicy) string {
	return managerOf(fp.ManagedFields, api.AcknowledgeKey)
}

// report writes the statuses that differ from those on the hub.
func (f *FleetPolicies) report(ctx context.Context, policies []*v1alpha1.FleetPolicy) {
	state := f.opts.Loop.State()
	if state == nil {
		return
	}
	for _, fp := range policies {
		next := f.statusOf(fp, state)
		if sameStatus(&fp.Status, next) {
			continue
		}
		update := fp.DeepCopy()
		update.ManagedFields = nil
		update.Status = *next
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := f.client.rest.Put().Resource(v1alpha1.FleetPolicies).Name(fp.Name).SubResource("status").
			VersionedParams(&metav1.UpdateOptions{FieldManager: "federator"}, f.client.codec).Body(update).Do(ctx).Error()
		cancel()
		switch {
		case err == nil:
			f.tell.fleetPolicy(fp, next)
		case ctx.Err() == nil:
			f.opts.Logger.Debug("a status is not written", "policy", fp.Name, "err", err) // the next tick tries again
		}
	}
	f.tell.keep(policies)
}

// Corrected takes note of a correction that has ended, for Events. It does not block.
func (f *FleetPolicies) Corrected(a *remediate.Action) {
	o, ok, err := f.informer.GetStore().GetByKey(a.Binding)
	if fp, is := o.(*v1alpha1.FleetPolicy); ok && is && err == nil {
		f.opts.Events.corrected(fp, a)
	}
}
