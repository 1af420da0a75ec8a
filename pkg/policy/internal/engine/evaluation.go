package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// evaluate evaluates a binding for one subject.
func (w *worker) evaluate(ctx context.Context, b *boundBinding, t *task, object value.Value) result {
	if member, why := b.quarantined(t.subject); why != "" {
		return result{outcome: &state.Outcome{Failure: &state.Failure{Err: fmt.Sprintf("member %q: %s", member, why), QuarantinedFor: member}}}
	}
	defer w.meter.LockThread()()
	if w.trace == nil && b.profile != nil && b.pkg.CEL == nil {
		w.sample(ctx, b, t, object)
	}
	w.reset(b, t.subject.Ref.Member)
	var found []value.Value
	var took time.Duration
	var err error
	selected, violations := w.selectsNamespace(b, t)
	if selected && b.pkg.CEL != nil {
		violations, took, err = w.runCEL(ctx, b, t)
	} else if selected {
		var input value.Value
		if input, err = w.input(b, t, object); err == nil {
			found, took, err = w.run(ctx, b.query, input)
		}
	}
	r := &w.evaluation.reads
	if b.pkg.Subject == module.ObjectSubject {
		r.AddOwn(t.subject.Ref.Kind)
	}
	b.evaluations.Add(1)
	b.nanoseconds.Add(int64(took))
	b.wideReads.Add(w.evaluation.wideReads)
	over := errors.Is(err, budget.ErrExceeded)
	if over {
		b.overruns.Add(1)
	}
	out := result{readSet: w.e.readSets.Intern(r), overBudget: over}
	slices.Sort(w.evaluation.keys)
	if keys := slices.Compact(w.evaluation.keys); len(keys) > 0 {
		out.keys = slices.Clone(keys)
		b.reads.Add(int64(len(keys)))
	}
	out.asks = slices.Clone(w.evaluation.asks)
	if err == nil && selected && b.pkg.CEL == nil {
		err = guard(func() (err error) {
			violations, err = b.violations(only(found), t, &w.e.opts.Limits)
			return err
		})
	}
	if c := w.evaluation.budget.Cost(err); !c.None() || b.scores.NonEmpty() {
		b.scores.Count(b.chargedMember(t.subject), c, &w.e.quarantine)
	}
	switch {
	case err != nil:
		b.errors.Add(1)
		out.outcome = state.Failed(err.Error())
	case len(violations) > 0:
		if reason := b.sel.Exempt(b.pkg.Subject, t.subject, t.object, w.e.member(t.subject.Ref.Member)); reason != "" {
			for i := range violations {
				violations[i].Exempt = reason
			}
		}
		out.outcome = w.e.sharing.Found(violations)
	}
	return out
}

// only is the document that a query asked for, undefined if it is.
func only(found []value.Value) value.Value {
	if len(found) == 0 {
		return value.Value{}
	}
	return found[0]
}

// sample evaluates a binding for a subject once more now and then, to learn what its lines take: before the evaluation
// that counts, which would find documents decoded otherwise. Nothing else comes of it.
func (w *worker) sample(ctx context.Context, b *boundBinding, t *task, object value.Value) {
	b.profile.Sample(time.Duration(b.nanoseconds.Load()), func(tracer topdown.QueryTracer) {
		w.reset(b, t.subject.Ref.Member)
		if input, err := w.input(b, t, object); err == nil {
			w.tracer = tracer
			_, _, _ = w.run(ctx, b.query, input) // what it took is known also of one that failed
			w.tracer = w.e.opts.Tracer
		}
	})
}

// input builds the input document of a binding and a subject.
func (w *worker) input(b *boundBinding, t *task, object value.Value) (value.Value, error) {
	a := &w.inputs
	a.Reset()
	if b.pkg.IsTemplate() {
		return w.review(b, t, object)
	}
	pairs := a.Alloc(8)[:0] // their keys are in order
	switch b.pkg.Subject {
	case module.ObjectSubject:
		if err := checkPinned(b.pins, t.object); err != nil {
			return value.Value{}, err
		}
		pairs = append(pairs, value.Text("member"), w.e.memberInputs[t.subject.Ref.Member])
		if object.Defined() {
			pairs = append(pairs, value.Text("object"), object)
		}
		pairs = append(pairs, value.Text("parameters"), b.sel.Params, value.Text("ref"), fleetdoc.Ref(a, &t.subject.Ref))
	case module.MemberSubject:
		pairs = append(pairs, value.Text("member"), w.e.memberInputs[t.subject.Ref.Member], value.Text("parameters"), b.sel.Params)
	case module.ViewSubject:
		w.evaluation.reads.AddView(b.view.ID)
		if w.e.subs != nil && !w.e.subs.Held().HasAll(b.view.space) {
			w.evaluation.reads.AddUnheldView(b.view.ID)
		}
		entries, err := w.entries(b, t.subject.Key)
		if err != nil {
			return value.Value{}, err
		}
		pairs = append(pairs, value.Text("entries"), entries, value.Text("key"), value.Text(t.subject.Key), value.Text("parameters"), b.sel.Params)
	}
	return value.ObjectOf(pairs), nil
}

// entries returns those of a key whose objects the binding selects.
func (w *worker) entries(b *boundBinding, key string) (value.Value, error) {
	if b.view.OverLimit != "" {
		return value.Value{}, errors.New(b.view.LimitMessage())
	}
	var list []value.Value
	size := 0
	for e := range b.view.Entries(key) {
		if !b.entryCounts(e, w.e.fleet) {
			continue
		}
		if size += len(e.Values); int64(size) > w.e.opts.Limits.Read {
			return value.Value{}, fmt.Errorf("key %q has entries of more than %d bytes", verdict.Clip(key), w.e.opts.Limits.Read)
		}
		var err error
		if list, err = appendEntry(&w.inputs, list, e); err != nil {
			return value.Value{}, err
		}
	}
	return value.ArrayOf(list), nil
}

// appendEntry appends the values of an entry, each with its object's ref.
func appendEntry(a *value.Arena, list []value.Value, e matview.Entry) ([]value.Value, error) {
	values, err := e.Parse(a)
	if err != nil {
		return nil, err
	}
	ref := fleetdoc.Ref(a, &e.Object.Ref)
	for _, v := range values {
		list = append(list, fleetdoc.Entry(a, ref, v))
	}
	return list, nil
}

// checkPinned returns an error when an object is held at another version than the
// policy pins.
func checkPinned(pins map[aggregate.Kind]string, o aggregate.Object) error {
	if len(pins) == 0 {
		return nil
	}
	if pin := pins[o.Ref().Kind]; pin != "" && pin != version(o.APIVersion()) {
		return fmt.Errorf("%s is stored at version %s, but the policy requires %s", o.Ref().Kind, o.APIVersion(), pin)
	}
	return nil
}

// contribute evaluates a view for one object. object is what the view reads of it, or more;
// undefined if that is not decoded yet.
func (w *worker) contribute(ctx context.Context, v *view, o aggregate.Object, object value.Value) matview.Contribution {
	ref := o.Ref()
	if w.e.fleet.Away(ref.Member) {
		return w.contributeAway(v, o)
	}
	var err error
	if v.Def.Mask == nil {
		object = value.Value{}
	} else if !object.Defined() {
		object, err = w.decodeObject(o, v.Def.Mask)
	}
	if v.index != nil {
		return w.contributeIndex(ctx, v, ref, object, err)
	}
	fail := func(err error) matview.Contribution {
		return matview.FailedContribution(ref, err.Error())
	}
	if why := v.scores.Reason(ref.Member); why != "" {
		return matview.WithheldContribution(ref, why)
	}
	if err := checkPinned(v.pins, o); err != nil {
		return fail(err)
	}
	if err != nil {
		return fail(err)
	}
	a := &w.inputs
	a.Reset()
	input := a.Alloc(4)[:0]
	if object.Defined() {
		input = append(input, value.Text("object"), object)
	}
	input = append(input, value.Text("ref"), fleetdoc.Ref(a, &ref))
	defer w.meter.LockThread()()
	w.reset(nil, ref.Member)
	found, took, err := w.run(ctx, v.query, value.ObjectOf(input))
	w.e.viewEvaluations.Add(1)
	w.e.viewNanoseconds.Add(int64(took))
	entries := only(found)
	if err == nil {
		if _, ok := entries.Size(w.e.opts.Limits.Contribution); !ok {
			err = budget.ResultError(fmt.Sprintf("it contributes more than %d bytes", w.e.opts.Limits.Contribution))
		}
	}
	v.scores.Count(ref.Member, w.evaluation.budget.Cost(err), &w.e.quarantine)
	if err != nil {
		c := fail(err)
		c.OverBudget = errors.Is(err, budget.ErrExceeded)
		return c
	}
	return matview.NewContribution(ref, entries, w.e.opts.Limits.Contribution)
}

// decodeObject decodes what a mask reads of an object.
func (w *worker) decodeObject(o aggregate.Object, m *mask.Mask) (value.Value, error) {
	if err := w.loadBody(o, m); err != nil {
		return value.Value{}, err
	}
	return w.decode(o, m)
}

// loadBody reads an object's body, if a mask reads anything of it.
func (w *worker) loadBody(o aggregate.Object, m *mask.Mask) (err error) {
	w.body = w.body[:0]
	if m != nil && !o.IsZero() {
		w.body, err = o.AppendBody(w.body)
	}
	return err
}

// decode decodes what a mask reads of the object whose body was loaded: it lives until the
// next is.
func (w *worker) decode(o aggregate.Object, m *mask.Mask) (value.Value, error) {
	w.objects.Reset()
	w.lastRequest = requestOf{}
	if m == nil || o.IsZero() {
		return value.Value{}, nil // A mask that reads nothing has no value.
	}
	return value.Decode(&w.objects, w.body, m)
}
