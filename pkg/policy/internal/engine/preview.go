package engine

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// ErrPreviewMemory is returned for a preview whose views take more than PreviewOptions allow.
var ErrPreviewMemory = errors.New("the preview takes too much memory")

// Preview judges a candidate, other policies and bindings, on the snapshot of a state beside
// the state's own. It goes through the snapshot once, on its caller's goroutine, and keeps
// views that differ and nothing else: no reads, no verdicts. It belongs to one goroutine.
type Preview struct {
	s       *state.State
	e       *Engine
	opts    PreviewOptions
	changed map[*view]bool
	same    map[string]bool // bindings of both whose verdicts are the same
	partial *state.State    // the candidate's, without verdicts
}

// PreviewOptions are how a preview goes.
type PreviewOptions struct {
	// Bindings chooses among the candidate's bindings that differ; nil chooses all.
	Bindings func(name string) bool
	// MayRead chooses objects, and members (without a kind): no others are evaluated, whether
	// as subjects or for views. nil chooses all.
	MayRead func(aggregate.Ref) bool
	// Wait is called before each evaluation; its error must be that of the context. May be nil.
	Wait func(context.Context) error
	// MaxBytes is what views that differ may take; 0 means 64 MiB.
	MaxBytes int64
	// Found is called with the verdicts of a subject before and after, where either has
	// violations or is not Known, whether they differ or not. One is nil where there is none. An error ends the preview.
	Found func(before, after *verdict.Verdict) error
}

// PreviewCost is what a preview of a binding took.
type PreviewCost struct {
	Evaluations int64 // those whose result was not that of an equal object
	Shared      int64 // the others
	CPU         time.Duration
	Overruns    int64 // evaluations that exceeded their time
	Errors      int64 // these and all others that failed
}

// NewPreview returns a preview of a candidate that has evaluated nothing yet.
func NewPreview(s *state.State, candidate Options) (*Preview, error) {
	bindings, changed, same, err := differing(s, candidate)
	if err != nil {
		return nil, err
	}
	candidate.Bindings, candidate.Parallelism, candidate.Memory = bindings, 1, nil
	candidate.AsOf, candidate.Exports, candidate.KeyOwner = presentOf(s, candidate.Clock), false, state.PartsOf(s).Owner
	candidate.subscribeAs(s)
	candidate.externalAs(s)
	e, err := New(candidate)
	if err != nil {
		return nil, err
	}
	p := &Preview{s: s, e: e, changed: map[*view]bool{}, same: same}
	e.clock.AsOf = s.AsOf.Unix()
	e.clock.Set(clockOf(candidate.AsOf))
	e.beside = state.PartsOf(s).Projections
	e.fleet = state.PartsOf(s).Fleet.With(e.knowledge())
	e.gaps = completeness.FindGaps(nil, e.fleet, e.kinds)
	e.setMemberInputs()
	p.takeViews(changed)
	for _, b := range e.bindings {
		b.updateMembers(e.fleet)
	}
	p.partial = p.state()
	return p, nil
}

// takeViews takes over the views that are the same. The others get numbers of their own.
func (p *Preview) takeViews(changed map[module.ViewRef]bool) {
	next := uint32(0)
	for _, held := range state.PartsOf(p.s).Views {
		next = max(next, held.ID+1)
	}
	for _, v := range p.e.views {
		ref := module.ViewRef{Package: v.Pkg.Name, View: v.Def.Name}
		if held := state.PartsOf(p.s).View(ref); held != nil && !changed[ref] {
			v.Adopt(held)
			continue
		}
		v.ID = next
		next++
		p.changed[v] = true
	}
}

// Candidate returns what is known of the candidate before anything is evaluated: the bindings
// that differ and what they read, without verdicts.
func (p *Preview) Candidate() *state.State { return p.partial }

// state returns the candidate's bindings and views as they are.
func (p *Preview) state() *state.State {
	parts := p.e.parts()
	for _, v := range p.e.views {
		parts.Views = append(parts.Views, v.Freeze())
	}
	for _, b := range p.e.bindings {
		b.frozen = nil
	}
	parts.Bindings = publish(p.e.bindings)
	s := state.New(p.s.Synced, time.Time{}, parts)
	s.AsOf = time.Unix(p.e.clock.AsOf, 0).UTC()
	return s
}

// Run evaluates the candidate. It runs once.
func (p *Preview) Run(ctx context.Context, opts PreviewOptions) error {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = 64 << 20
	}
	p.opts, p.e.wait = opts, opts.Wait
	r := p.e.startPass(ctx, p.e.fleet)
	defer p.e.rest()
	r.preview = p
	var bound []*boundBinding
	for _, b := range p.e.bindings {
		if opts.Bindings == nil || opts.Bindings(b.Name) {
			bound = append(bound, b)
		}
	}
	var views []*view
	for _, v := range slices.SortedFunc(maps.Keys(p.changed), func(a, b *view) int { return int(a.ID) - int(b.ID) }) {
		if slices.ContainsFunc(bound, func(b *boundBinding) bool { return state.ReadsView(b.pkg, &v.View) }) {
			views = append(views, v)
		}
	}
	if err := r.fillViews(views); err != nil {
		return err
	}
	p.partial = p.state()
	if err := r.evaluateBindings(bound); err != nil {
		return err
	}
	return p.findGone(ctx, bound)
}

// mayRead reports whether an object, or a member, is one of the preview.
func (p *Preview) mayRead(ref aggregate.Ref) bool {
	return p == nil || p.opts.MayRead == nil || p.opts.MayRead(ref)
}

// checkViews returns an error when the views that differ take too much.
func (p *Preview) checkViews(e *Engine) error {
	if p == nil {
		return nil
	}
	bytes := int64(0)
	for v := range p.changed {
		bytes += v.Held
	}
	e.readSets.Sweep()
	if bytes > p.opts.MaxBytes {
		return ErrPreviewMemory
	}
	return nil
}

// compare tells of the results of tasks, and keeps nothing of them.
func (p *Preview) compare(r *pass, tasks []task) error {
	for i := range tasks {
		t := &tasks[i]
		for j := range t.bindings {
			one := &t.bindings[j]
			if !one.evaluate || !one.b.inEffect(t.subject.Ref.Member) {
				continue
			}
			after := state.PartsOf(p.partial).Binding(one.b.Name).On(t.subject).Verdict(p.partial, t.subject, one.result.readSet, one.result.outcome)
			var before *verdict.Verdict
			if v, ok := p.s.Get(one.b.Name, t.subject); ok {
				before = &v
			}
			if !says(&after) && !says(before) {
				continue
			}
			if err := p.opts.Found(before, &after); err != nil {
				return err
			}
		}
	}
	return p.checkViews(r.e)
}

// says reports whether a verdict is one that people are told of: one that is not known is no absence of
// violations.
func says(v *verdict.Verdict) bool {
	return v != nil && (len(v.Violations) > 0 || v.State != verdict.Known)
}

// findGone tells of the verdicts whose subjects or bindings the candidate does not have.
func (p *Preview) findGone(ctx context.Context, bound []*boundBinding) error {
	for b := range p.s.Bindings() {
		if p.same[b.Name] {
			continue
		}
		differs := p.e.binding(b.Name) != nil
		if differs && !slices.ContainsFunc(bound, func(x *boundBinding) bool { return x.Name == b.Name }) {
			continue // not chosen
		}
		n := 0
		for v := range p.s.Findings(b.Name, "") {
			if n++; n%1024 == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if v.Subject.Ref.Member != "" && !p.mayRead(v.Subject.Ref) {
				continue
			}
			if _, is := p.partial.Get(b.Name, v.Subject); is {
				continue
			}
			if err := p.opts.Found(&v, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// Costs returns what evaluating took so far, by binding, and the CPU time of views.
func (p *Preview) Costs() (costs map[string]PreviewCost, views time.Duration) {
	costs = map[string]PreviewCost{}
	for _, b := range p.e.bindings {
		shared, c := b.memoized.Load(), costs[b.Name]
		costs[b.Name] = PreviewCost{
			Evaluations: c.Evaluations + b.evaluations.Load() - shared, Shared: c.Shared + shared, CPU: c.CPU + time.Duration(b.nanoseconds.Load()),
			Overruns: c.Overruns + b.overruns.Load(), Errors: c.Errors + b.errors.Load(),
		}
	}
	return costs, time.Duration(p.e.viewNanoseconds.Load())
}

// Compare returns how other policies and bindings would change the verdicts of a state,
// on its snapshot, as of its time, or of the present by opts.Clock if that is set. It evaluates the bindings that differ, at the cost of Configure.
// Changes.After has only these; Changes.Before has these and those that opts.Bindings
// no longer has.
func Compare(ctx context.Context, s *state.State, opts Options) (*Changes, error) {
	bindings, _, same, err := differing(s, opts)
	if err != nil {
		return nil, err
	}
	before := state.Without(s, same)
	opts.Bindings = bindings
	opts.AsOf, opts.Exports, opts.KeyOwner = presentOf(s, opts.Clock), false, state.PartsOf(s).Owner
	opts.subscribeAs(s)
	opts.externalAs(s)
	after, err := evaluateAt(ctx, opts, state.PartsOf(s).Fleet, state.PartsOf(s).Projections, s.AsOf.Unix())
	if err != nil {
		return nil, err
	}
	return &Changes{Before: before, After: after, compareAll: true}, nil
}

// externalAs has an engine beside that of a state read the documents of that one, unless it has others.
func (o *Options) externalAs(s *state.State) {
	if o.External == nil {
		o.External = state.PartsOf(s).External
	}
}

// presentOf returns the time as of which others are compared with a state. A state is published when something
// changes, which may be long ago: its verdicts are those of the present as well, unless one of their instants has
// passed since.
func presentOf(s *state.State, clock func() time.Time) time.Time {
	at := time.Unix(state.PartsOf(s).Clock, 0)
	if clock == nil {
		return at
	}
	now := clock().Truncate(time.Second)
	if !s.Wake.IsZero() && !now.Before(s.Wake) {
		now = s.Wake.Add(-time.Second)
	}
	if now.After(at) {
		return now
	}
	return at
}

// differing returns the bindings whose verdicts may differ from those of a state, the views that
// do, and the names of the bindings that stay the same.
func differing(s *state.State, opts Options) (bindings []binding.Binding, changed map[module.ViewRef]bool, same map[string]bool, err error) {
	if bindings, err = binding.Validate(opts.Set, opts.Bindings); err != nil {
		return nil, nil, nil, err
	}
	prints := opts.Set.Fingerprints()
	changed = map[module.ViewRef]bool{}
	for _, pkg := range opts.Set.Packages {
		for _, def := range pkg.Views {
			ref := module.ViewRef{Package: pkg.Name, View: def.Name}
			old := state.PartsOf(s).View(ref)
			changed[ref] = old == nil || state.PartsOf(s).Fingerprints[pkg.Name] != prints[pkg.Name] || !sameSubjects(old.Pkg, pkg)
		}
	}
	same = map[string]bool{}
	others := func(pkg *module.Package) bool { // they read other documents from outside
		return pkg != nil && opts.External != nil && opts.External.Digest(pkg.Reads.External) != state.PartsOf(s).External.Digest(pkg.Reads.External)
	}
	bindings = slices.DeleteFunc(bindings, func(b binding.Binding) bool {
		old := state.PartsOf(s).Binding(b.Name)
		is := sameVersion(s, old, opts.Set, &b, changed) && (b.Next != nil || old.Next == nil || !old.Routing.Some()) && (b.Next == nil || old.Next != nil)
		if is && b.Next != nil {
			is = sameVersion(s, old.Next, opts.Set, &b.Next.Binding, changed) && old.Binding.Next.Whole == b.Next.Whole &&
				reflect.DeepEqual(old.Binding.Next.Members, b.Next.Members)
		}
		is = is && !others(opts.Set.Package(b.Package)) && (b.Next == nil || !others(opts.Set.Package(b.Next.Binding.Package)))
		same[b.Name] = is
		return is
	})
	return bindings, changed, same, nil
}

// sameVersion reports whether a binding of a state gives the same verdicts as one of a set, next versions aside.
func sameVersion(s *state.State, old *state.Binding, set *module.Set, b *binding.Binding, changed map[module.ViewRef]bool) bool {
	pkg := set.Package(b.Package)
	return old != nil && old.Pkg.Name == pkg.Name && slices.Equal(old.Pkg.Reads.Views, pkg.Reads.Views) &&
		state.PartsOf(s).Fingerprints[b.Package] == set.Fingerprints()[b.Package] && samePackage(old.Pkg, pkg) && old.Pkg.Severity == pkg.Severity &&
		sameBinding(old.Binding, *b) && !readsAny(pkg, changed)
}
