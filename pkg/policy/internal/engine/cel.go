package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"federator.dev/federator/internal/builtin"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/admissioncel"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/linetrace"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// celParams is what the CEL of a template sees as params: the constraint, with whole
// numbers as the API server has them.
func celParams(b *binding.Binding) (map[string]any, error) {
	c := b.Applied()
	raw, err := json.Marshal(map[string]any{
		"apiVersion": c.Body["apiVersion"], "kind": c.Kind, "metadata": c.Body["metadata"],
		"spec": map[string]any{"match": c.Match, "parameters": b.Parameters},
	})
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := kjson.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	spec, _ := out["spec"].(map[string]any)
	for _, field := range []string{"match", "parameters"} {
		if spec[field] == nil {
			delete(spec, field)
		}
	}
	return out, nil
}

// runCEL evaluates the CEL of a package on an object within the budget. What a failing
// expression would deny is an error here: the verdict is not known.
func (w *worker) runCEL(ctx context.Context, b *boundBinding, t *task) (out []verdict.Violation, took time.Duration, err error) {
	defer w.meter.LockThread()()
	ev := &w.evaluation
	ev.budget = w.meter.Start(w.e.opts.Limits.Evaluation, ctx.Done())
	err = guard(func() error {
		if err := b.sel.CheckMatch(t.object); err != nil {
			return err
		}
		in, err := w.celInput(b, t)
		if err != nil {
			return err
		}
		if b.pkg.Admission != nil {
			out, err = w.runAdmission(ctx, b, t, in)
			return err
		}
		decisions, err := b.pkg.CEL.Evaluate(ctx, in)
		if err != nil {
			return err
		}
		out, err = celViolations(decisions, &w.e.opts.Limits)
		return err
	})
	took, err = ev.budget.Elapsed(), ev.budget.Err(err)
	if err != nil {
		out = nil
	}
	return out, took, err
}

func (w *worker) celInput(b *boundBinding, t *task) (*admissioncel.Input, error) {
	in := &admissioncel.Input{Params: b.celParams, Stopped: w.evaluation.budget.Spent}
	if b.pkg.Admission != nil {
		in.Resource = binding.ResourceOf(t.object)
		if in.Resource == "" && b.pkg.CEL.ReadsResource() {
			return nil, fmt.Errorf("the policy reads request.resource, and it is not known which resource %s is in member %q", t.subject.Ref.Kind, t.subject.Ref.Member)
		}
	}
	if err := decodeWhole(t.object, w.body, &in.Object); err != nil {
		return nil, err
	}
	if ref := &t.subject.Ref; b.pkg.CEL.ReadsNamespace() && ref.Namespace != "" {
		if o, ok := w.readNamespace(ref); ok {
			body, err := o.AppendBody(w.otherBody[:0])
			w.otherBody = body
			if err != nil {
				return nil, err
			}
			if err := w.evaluation.charge(int64(len(body))); err != nil {
				return nil, err
			}
			return in, decodeWhole(o, body, &in.Namespace)
		}
	}
	return in, nil
}

func decodeWhole(o aggregate.Object, body []byte, to *map[string]any) error {
	if err := kjson.Unmarshal(body, to); err != nil {
		return fmt.Errorf("%s: %w", o.Ref(), err)
	}
	return nil
}

func celViolations(decisions []admissioncel.Decision, l *Limits) ([]verdict.Violation, error) {
	if len(decisions) > l.Violations {
		return nil, budget.ResultError(fmt.Sprintf("it finds %d violations, more than %d", len(decisions), l.Violations))
	}
	var out []verdict.Violation
	size := 0
	for _, d := range decisions {
		if d.Error {
			return nil, errors.New(d.Message)
		}
		size += len(d.Message)
		out = append(out, verdict.Violation{Msg: d.Message})
	}
	if size > l.Result {
		return nil, budget.ResultError(fmt.Sprintf("its violations are larger than %d bytes", l.Result))
	}
	return out, nil
}

// runAdmission evaluates a ValidatingAdmissionPolicy with each of its parameters. Denials
// that are the same are one violation.
func (w *worker) runAdmission(ctx context.Context, b *boundBinding, t *task, in *admissioncel.Input) ([]verdict.Violation, error) {
	var out []verdict.Violation
	params, err := w.selectParams(b, &t.subject.Ref)
	if err != nil {
		return celViolations(b.pkg.CEL.Misconfigured(err), &w.e.opts.Limits)
	}
	for _, p := range params {
		if w.evaluation.budget.Spent() {
			return nil, budget.ErrExceeded
		}
		if in.Params = nil; p.Name != "" {
			if in.Params, err = w.readParam(b, p); err != nil {
				return nil, err
			}
		}
		decisions, err := b.pkg.CEL.Evaluate(ctx, in)
		if err != nil {
			return nil, err
		}
		if w.trace != nil {
			w.trace.admission(ctx, b, in, decisions)
		}
		found, err := celViolations(decisions, &w.e.opts.Limits)
		if err != nil {
			return nil, err
		}
		for i := range found {
			if found[i].Details, err = admissionDetails(decisions[i].Validation, p); err != nil {
				return nil, err
			}
			same := func(v verdict.Violation) bool {
				return v.Msg == found[i].Msg && string(v.Details) == string(found[i].Details)
			}
			if !slices.ContainsFunc(out, same) {
				out = append(out, found[i])
			}
		}
		if len(out) > w.e.opts.Limits.Violations {
			return nil, budget.ResultError(fmt.Sprintf("it finds more than %d violations", w.e.opts.Limits.Violations))
		}
	}
	return out, nil
}

// admissionDetails say which validation denies an object, and with which parameters.
func admissionDetails(validation int, p admissioncel.Param) ([]byte, error) {
	details := map[string]string{"validation": fmt.Sprintf("spec.validations[%d]", validation)}
	if p.Name != "" {
		details["params"] = p.Name
		if p.Namespace != "" {
			details["params"] = p.Namespace + "/" + p.Name
		}
	}
	return json.Marshal(details)
}

// selectParams finds the parameters for an object among those of its member, and records
// what was read to find them.
func (w *worker) selectParams(b *boundBinding, of *aggregate.Ref) ([]admissioncel.Param, error) {
	kind, ref := b.pkg.Admission.ParamKind, b.Applied().ParamRef()
	if kind == "" || ref == nil {
		return admissioncel.SelectParams(false, nil, false, "", nil)
	}
	namespace := of.Namespace
	if of.Kind == namespaceKind { // requests for a Namespace name itself
		namespace = of.Name
	}
	q := aggregate.Query{Kind: kind, Members: []string{w.evaluation.inventoryOf}}
	key := []string{string(kind), w.evaluation.inventoryOf}
	_, known := builtin.Resource(kind)
	namespaced := builtin.Namespaced(kind) || !known && ref.Namespace != ""
	if known {
		if namespaced {
			q.Namespace = cmp.Or(ref.Namespace, namespace)
		}
		if key = append(key, q.Namespace); ref.Name != "" {
			q.Name = ref.Name
			key = append(key, ref.Name)
		}
	}
	w.evaluation.record(readKey(readObject, key...))
	w.evaluation.readsInventoryOf(kind)
	list, err := w.e.fleet.List(q)
	if err != nil {
		return nil, err
	}
	var found []admissioncel.Param
	for o := range list {
		// Of a kind that is not one of Kubernetes itself, its objects say whether it has namespaces.
		namespaced = namespaced || !known && o.Namespace() != ""
		set := labels.Set{}
		for _, l := range o.Labels() {
			set[l.Key] = l.Value
		}
		found = append(found, admissioncel.Param{Namespace: o.Namespace(), Name: o.Name(), Labels: set})
	}
	selected, err := admissioncel.SelectParams(true, ref, namespaced, namespace, found)
	if w.trace != nil {
		w.trace.params(kind, w.evaluation.inventoryOf, selected)
	}
	return selected, err
}

// readParam returns an object of parameters.
func (w *worker) readParam(b *boundBinding, p admissioncel.Param) (map[string]any, error) {
	ref := aggregate.Ref{Member: w.evaluation.inventoryOf, Kind: b.pkg.Admission.ParamKind, Namespace: p.Namespace, Name: p.Name}
	o, ok := w.e.fleet.Get(ref)
	if !ok {
		return nil, fmt.Errorf("%s is not there", ref)
	}
	if named := b.pkg.Admission.Policy.Spec.ParamKind.APIVersion; o.APIVersion() != named {
		return nil, fmt.Errorf("%s is held at %s, and paramKind is of %s: it is not evaluated with parameters of another version", ref.Kind, o.APIVersion(), named)
	}
	body, err := o.AppendBody(w.otherBody[:0])
	w.otherBody = body
	if err != nil {
		return nil, err
	}
	if err := w.evaluation.charge(int64(len(body))); err != nil {
		return nil, err
	}
	var out map[string]any
	if err := decodeWhole(o, body, &out); err != nil {
		return nil, err
	}
	metadata, _ := out["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations[aggregate.RedactedAnnotation] == "true" {
		return nil, fmt.Errorf("the values of %s are redacted, and may be parameters only where keepSecretValues is configured", ref)
	}
	return out, nil
}

// params records which objects are parameters.
func (t *trace) params(kind aggregate.Kind, member string, list []admissioncel.Param) {
	r := t.begin("params")
	r.Found = len(list) > 0
	for _, p := range list {
		t.ref(&r, aggregate.Ref{Member: member, Kind: kind, Namespace: p.Namespace, Name: p.Name})
	}
	r.Scopes = append(r.Scopes, t.scope(kind, member))
	t.reads = append(t.reads, r)
}

// admission records what became of each expression of a ValidatingAdmissionPolicy.
func (t *trace) admission(ctx context.Context, b *boundBinding, in *admissioncel.Input, decisions []admissioncel.Decision) {
	of, all := b.pkg.Admission, true
	count := func(path, expression string, held bool) {
		at := of.Place(path)
		i := slices.IndexFunc(t.expressions, func(l linetrace.Line) bool { return l.File == at.File && l.Row == at.Line && l.Text == expression })
		if i < 0 {
			i = len(t.expressions)
			t.expressions = append(t.expressions, linetrace.Line{File: at.File, Row: at.Line, Text: expression})
		}
		if t.expressions[i].Evaluated++; held {
			t.expressions[i].Held++
		}
	}
	for i, held := range b.pkg.CEL.Conditions(ctx, in) {
		count(fmt.Sprintf("spec.matchConditions[%d].expression", i), of.Policy.Spec.MatchConditions[i].Expression, held)
		all = all && held
	}
	for i, v := range of.Policy.Spec.Validations {
		denies := slices.ContainsFunc(decisions, func(d admissioncel.Decision) bool { return d.Validation == i || d.Validation < 0 })
		if all {
			count(fmt.Sprintf("spec.validations[%d].expression", i), v.Expression, !denies)
		}
	}
}
