package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// SourcesOptions configure Sources. Config, Manager and Lead are required.
type SourcesOptions struct {
	Config *rest.Config // of the hub
	// Manager follows the repositories. It is its caller's to run.
	Manager *policysource.Manager
	// SecretNamespaces are where Secrets may be that PolicySources name. None: they name none.
	SecretNamespaces []string
	// Reserved are names that no PolicySource can have: those of the Manager's Base.
	Reserved []string
	Lead     func() bool // whether this process writes to the hub
	// Changed is called when Current or Origin may say something else, beside when the
	// Manager's state is replaced. It must not block. nil: nobody is told.
	Changed func()
	Events  *Events      // nil: none
	Logger  *slog.Logger // nil is none
}

// Sources follows the PolicySources of the hub. It is a Library.
type Sources struct {
	opts     SourcesOptions
	client   *client
	secrets  *secrets
	sources  cache.SharedIndexInformer
	policies cache.SharedIndexInformer
	wake     chan struct{} // has room for one

	// What follows belongs to Run.
	given   []policysource.Source    // to the Manager, last
	asked   map[string]asked         // by UID
	written map[string]writtenStatus // by name
	plans   map[string]*plan         // of active commits, by source
	ours    map[string]string        // resourceVersions of FleetPolicies as applied, by name
	results map[string]*applied      // by source
	faults  map[string]fault         // by source

	mu      sync.Mutex
	pushed  map[string]bool    // sources of which a webhook has told, by name
	moved   map[string]bool    // FleetPolicies that somebody has changed, by name and by the source in the label
	settled map[string]settled // what came of the FleetPolicies of active commits, by source
}

// settled says for which commit the FleetPolicies were applied, and why nothing may come
// of its policies anyway.
type settled struct{ commit, hold string }

var _ Library = (*Sources)(nil)

// NewSources returns Sources that do nothing before Run.
func NewSources(opts SourcesOptions) (*Sources, error) {
	if opts.Config == nil || opts.Manager == nil || opts.Lead == nil {
		return nil, errors.New("Sources: Config, Manager and Lead are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Changed == nil {
		opts.Changed = func() {}
	}
	c, err := newClient(opts.Config)
	if err != nil {
		return nil, err
	}
	core, err := corev1.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	s := &Sources{
		opts: opts, client: c, wake: make(chan struct{}, 1),
		asked: map[string]asked{}, written: map[string]writtenStatus{}, plans: map[string]*plan{}, ours: map[string]string{},
		results: map[string]*applied{}, faults: map[string]fault{}, pushed: map[string]bool{}, moved: map[string]bool{}, settled: map[string]settled{},
	}
	s.secrets = newSecrets(core, opts.SecretNamespaces, s.poke)
	s.sources = c.informer(v1alpha1.PolicySources, &v1alpha1.PolicySourceList{}, &v1alpha1.PolicySource{})
	s.policies = c.informer(v1alpha1.FleetPolicies, &v1alpha1.FleetPolicyList{}, &v1alpha1.FleetPolicy{})
	poke := func(any) { s.poke() }
	if _, err = s.sources.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: poke, UpdateFunc: func(_, now any) { poke(now) }, DeleteFunc: poke,
	}); err != nil {
		return nil, err
	}
	_, err = s.policies.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: s.move, UpdateFunc: s.update, DeleteFunc: s.move})
	return s, err
}

func (s *Sources) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// update is told of a changed FleetPolicy. That of its status is nobody's matter.
func (s *Sources) update(was, now any) {
	a, _ := was.(*v1alpha1.FleetPolicy)
	b, _ := now.(*v1alpha1.FleetPolicy)
	if a == nil || b == nil || a.UID == b.UID && a.Generation == b.Generation &&
		reflect.DeepEqual(a.Labels, b.Labels) && reflect.DeepEqual(a.Annotations, b.Annotations) {
		return
	}
	s.move(was)
	s.move(now)
}

func (s *Sources) move(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	fp, ok := o.(*v1alpha1.FleetPolicy)
	if !ok {
		return
	}
	s.mu.Lock()
	s.moved[fp.Name] = true
	s.mu.Unlock()
	s.poke()
}

// Run follows the hub until the context ends, and returns when all that it started has
// ended.
func (s *Sources) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var informing sync.WaitGroup
	informing.Go(func() { s.sources.RunWithContext(ctx) })
	informing.Go(func() { s.policies.RunWithContext(ctx) })
	defer informing.Wait()
	defer s.secrets.stop()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), s.sources.HasSynced, s.policies.HasSynced) {
		return context.Cause(ctx)
	}
	tick := time.NewTicker(statusEvery / 5) // what a bound on writes holds back is written soon after
	defer tick.Stop()
	for {
		state := s.opts.Manager.State()
		list := s.list()
		s.configure(ctx, list)
		s.announce(ctx)
		s.sync(list)
		if s.opts.Lead() {
			s.applyAll(ctx, list, state)
			s.report(ctx, list, state)
		} else {
			s.yield()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.wake:
		case <-state.Replaced():
		case <-tick.C:
		}
	}
}

// list returns the PolicySources, by name.
func (s *Sources) list() []*v1alpha1.PolicySource {
	var out []*v1alpha1.PolicySource
	for _, o := range s.sources.GetStore().List() {
		if ps, ok := o.(*v1alpha1.PolicySource); ok {
			out = append(out, ps)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.PolicySource) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// configure gives the Manager what is on the hub, if it differs from what it has.
func (s *Sources) configure(ctx context.Context, list []*v1alpha1.PolicySource) {
	named := map[secretName]bool{}
	for _, ps := range list {
		for _, ref := range secretsOf(ps) {
			named[ref] = true
		}
	}
	s.secrets.follow(ctx, named)
	var sources []policysource.Source
	s.faults = map[string]fault{}
	for _, ps := range list {
		if slices.Contains(s.opts.Reserved, ps.Name) {
			s.faults[ps.Name] = fault{"NameReserved", fmt.Sprintf("policies named %q come with federator: name the PolicySource otherwise", ps.Name)}
			continue
		}
		src, bad := sourceOf(ps, s.secrets.get)
		if bad.reason != "" {
			s.faults[ps.Name] = bad
			src.Fault = bad.message
		}
		sources = append(sources, src)
	}
	if s.given != nil && reflect.DeepEqual(s.given, sources) {
		return
	}
	if err := s.opts.Manager.SetSources(sources); err != nil {
		s.opts.Logger.Error("PolicySources are not in effect", "err", err)
		return
	}
	s.given = append([]policysource.Source{}, sources...)
}

// Policies returns the active policies of all sources, and a channel that is closed when
// something about them has changed.
func (s *Sources) Policies() (*policy.Set, <-chan struct{}) {
	st := s.opts.Manager.State()
	return st.Set, st.Replaced()
}

// Current says whether something may come of a source's policies: the newest commit that
// was seen is active, and, where this process leads, its FleetPolicies are on the hub. If
// not, the text says why.
func (s *Sources) Current(source string) (bool, string) {
	return s.current(s.opts.Manager.State(), source)
}

func (s *Sources) current(st *policysource.State, source string) (bool, string) {
	p, ok := st.Policies[source]
	if !ok {
		return false, fmt.Sprintf("no commit of source %q is active", source)
	}
	if !p.Current {
		return false, fmt.Sprintf("the newest commit of source %q is not active: %s", source, st.Status[source].Reason)
	}
	if !s.opts.Lead() {
		return true, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch done := s.settled[source]; {
	case done.commit != p.Commit.Hash:
		return false, fmt.Sprintf("the FleetPolicies of source %q are not applied yet", source)
	case done.hold != "":
		return false, done.hold
	}
	return true, ""
}

// Ceilings returns what each source may do at most.
func (s *Sources) Ceilings() map[string]enforce.Ceiling {
	out := map[string]enforce.Ceiling{}
	for _, ps := range s.list() {
		out[ps.Name] = ceilingOf(ps)
	}
	return out
}

// Origin says where an active package came from. One that comes with federator, or is
// not active, has no source.
func (s *Sources) Origin(pkg string) Origin {
	st := s.opts.Manager.State()
	p := st.Set.Package(pkg)
	if p == nil {
		return Origin{}
	}
	from, ok := st.Policies[p.Source]
	if !ok {
		return Origin{}
	}
	out := Origin{
		Source: p.Source, Commit: from.Commit.Hash, Path: path.Join(from.Commit.Path, strings.TrimPrefix(p.File, p.Source+"/")),
		Ceiling: &enforce.Ceiling{Mode: policy.Observe},
	}
	_, out.Hold = s.current(st, p.Source)
	o, exists, err := s.sources.GetStore().GetByKey(p.Source)
	ps, _ := o.(*v1alpha1.PolicySource)
	if err != nil || !exists || ps == nil {
		out.Hold = fmt.Sprintf("there is no PolicySource %q", p.Source)
		return out
	}
	ceiling := ceilingOf(ps)
	out.Ceiling = &ceiling
	return out
}
