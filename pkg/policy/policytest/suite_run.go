package policytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/expansion"
)

// The objects of cases are not in the cluster yet: their inventory is that of another member.
const (
	suiteMember    = "suite/member"
	suiteInventory = "suite/inventory"
)

// suiteRun runs the tests of suites.
type suiteRun struct {
	tree fs.FS
	opts Options
	into *Result

	lines *cover.Cover           // nil: coverage is not asked for
	rules map[string]*ast.Module // of the templates that suites name, by file
}

// notJudgedError is why a case is skipped: it asks for what no object of a member has.
type notJudgedError struct{ reason string }

func (e notJudgedError) Error() string { return e.reason }

func notJudged(format string, args ...any) error { return notJudgedError{fmt.Sprintf(format, args...)} }

// run runs a suite.
func (r *suiteRun) run(ctx context.Context, s *suite) error {
	for i := range s.of.Tests {
		t := &s.of.Tests[i]
		if t.Invalid || len(t.Cases) == 0 {
			if err := r.one(s, t, nil, func() ([]Failure, error) { return r.load(s, t, nil) }); err != nil {
				return err
			}
			continue
		}
		var loaded appliedConstraint
		_, err := r.load(s, t, &loaded)
		for j := range t.Cases {
			c := &t.Cases[j]
			if e := r.one(s, t, c, func() ([]Failure, error) {
				if err != nil {
					return nil, err
				}
				return r.judge(ctx, s, &loaded, c)
			}); e != nil {
				return e
			}
		}
	}
	return nil
}

// one runs a case, or a whole test where c is nil.
func (r *suiteRun) one(s *suite, t *suiteTest, c *suiteCase, run func() ([]Failure, error)) error {
	out := Case{Name: t.Name, File: s.name, Line: t.line, Suite: true, Outcome: Passed}
	if c != nil {
		out.Name, out.Line = t.Name+"/"+c.Name, c.line
	}
	out.ID = out.File + ": " + out.Name
	r.into.Total++
	if r.opts.Run != nil && !r.opts.Run.MatchString(out.ID) {
		return nil
	}
	start := time.Now()
	switch {
	case s.of.Skip || t.Skip || c != nil && c.Skip:
		out.Outcome, out.Reason = Skipped, "the suite says skip"
	default:
		failures, err := run()
		var reason notJudgedError
		switch {
		case errors.As(err, &reason):
			out.Outcome, out.Reason = Skipped, reason.Error()
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			return err
		case err != nil:
			out.Outcome, out.Failures = Errored, []Failure{{File: s.name, Line: out.Line, Message: err.Error()}}
		case len(failures) > 0:
			out.Outcome, out.Failures = Failed, failures
		}
	}
	out.Duration = time.Since(start)
	r.into.Cases = append(r.into.Cases, out)
	return nil
}

// appliedConstraint is the constraint of a test, with its template.
type appliedConstraint struct {
	set        *policy.Set
	bindings   []policy.Binding
	active     bool   // at gator's enforcement point
	asksOf     string // what only a request has, "" for nothing
	expansions expansion.Templates
}

// load loads the template and the constraint of a test. Of a test that says that the
// constraint is invalid, it returns a failure if it is not.
func (r *suiteRun) load(s *suite, t *suiteTest, into *appliedConstraint) ([]Failure, error) {
	if t.Template == "" || t.Constraint == "" {
		return nil, errors.New("a test has a template and a constraint")
	}
	template, err := r.file(s, t.Template)
	if err != nil {
		return nil, err
	}
	constraint, err := r.file(s, t.Constraint)
	if err != nil {
		return nil, err
	}
	files := []policy.File{template}
	if constraint.Path != template.Path {
		files = append(files, constraint)
	}
	set, err := policy.Load([]policy.Source{{Name: r.opts.Name, Files: files}}, r.opts.Load)
	if err == nil {
		err = unknownParameters(set)
	}
	if err == nil && t.Invalid {
		return []Failure{{File: s.name, Line: t.line, Message: "the constraint is valid for the template, and the test says that it is not"}}, nil
	}
	if err != nil && t.Invalid {
		return nil, wantConstraintError(err, constraint.Path)
	}
	if err != nil {
		return nil, asksRequest(err)
	}
	if into == nil {
		return nil, nil
	}
	into.set = set
	if r.lines != nil {
		maps.Copy(r.rules, set.TemplateRules())
	}
	bindings, warnings := policy.DefaultBindings(set, nil)
	if len(bindings) != 1 {
		return nil, fmt.Errorf("%s has %d constraints of the template: %w", t.Constraint, len(bindings), policy.LoadErrors(warnings))
	}
	into.bindings = bindings
	into.active = len(set.Constraints[0].ActionsAt(policy.GatorPoint)) > 0
	if fields := set.Package(bindings[0].Package).ReadsOfRequest(); len(fields) > 0 {
		into.asksOf = fields[0]
	}
	if t.Expansion != "" {
		into.expansions, err = r.expansions(s, t.Expansion)
	}
	return nil, err
}

// unknownParameters returns the parameters that no schema has as an error: a cluster leaves
// them out, gator and kubectl refuse them.
func unknownParameters(set *policy.Set) error {
	var out policy.LoadErrors
	for _, c := range set.Constraints {
		for _, u := range c.Unknown {
			out = append(out, policy.Finding{Code: "parameters", Severity: policy.SeverityError, File: u.File, Line: u.Line, Message: u.Message})
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// asksRequest returns an error as one of a case that is not judged, if all that is wrong
// is that the template asks for what only a request has.
func asksRequest(err error) error {
	var list policy.LoadErrors
	if !errors.As(err, &list) {
		return err
	}
	for _, f := range list {
		if f.Code != "request" {
			return err
		}
	}
	return notJudged("the template %s", list[0].Message)
}

// wantConstraintError returns what is wrong if it is not the constraint.
func wantConstraintError(err error, constraint string) error {
	var list policy.LoadErrors
	if errors.As(err, &list) {
		for _, f := range list {
			if strings.HasSuffix(f.File, constraint) {
				return nil
			}
		}
	}
	return err
}

func (r *suiteRun) file(s *suite, name string) (policy.File, error) {
	at := path.Join(s.dir, name)
	if !fs.ValidPath(at) {
		return policy.File{}, fmt.Errorf("%s is outside of the tree that is tested", name)
	}
	data, err := readFile(r.tree, at)
	if err == nil && len(data) > maxFixture {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFixture)
	}
	return policy.File{Path: at, Data: data}, err
}

// objects reads the objects of a file.
func (r *suiteRun) objects(s *suite, name string) ([]map[string]any, error) {
	f, err := r.file(s, name)
	if err != nil {
		return nil, err
	}
	var out []map[string]any
	for _, d := range split(f.Data) {
		raw, err := yaml.YAMLToJSON(d.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		var o map[string]any
		if err := dec.Decode(&o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if o != nil {
			out = append(out, o)
		}
	}
	return out, nil
}

// judge evaluates the constraint on the object of a case.
func (r *suiteRun) judge(ctx context.Context, s *suite, with *appliedConstraint, c *suiteCase) ([]Failure, error) {
	if c.Object == "" || len(c.Assertions) == 0 {
		return nil, errors.New("a case has an object and assertions")
	}
	list, err := r.objects(s, c.Object)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("%s has %d objects; it has one", c.Object, len(list))
	}
	object, err := reviewed(list[0], with.asksOf)
	if err != nil {
		return nil, err
	}
	var inventory []map[string]any
	for _, file := range c.Inventory {
		more, err := r.objects(s, file)
		if err != nil {
			return nil, err
		}
		inventory = append(inventory, more...)
	}
	messages, err := r.violations(ctx, with, object, inventory, false)
	if err != nil {
		return nil, err
	}
	generated, err := with.expansions.Expand(object)
	if err != nil {
		return nil, err
	}
	for _, g := range generated {
		more, err := r.violations(ctx, with, g.Object, inventory, true)
		if err != nil {
			return nil, err
		}
		for _, m := range more {
			messages = append(messages, g.Message(m))
		}
	}
	var out []Failure
	for i := range c.Assertions {
		a := &c.Assertions[i]
		expected, err := a.check(messages)
		if err != nil {
			return nil, err
		}
		if expected != "" {
			out = append(out, Failure{
				File: s.name, Line: a.line, Message: "an assertion does not hold", Expected: expected, Actual: found(messages),
			})
		}
	}
	return out, nil
}

func found(messages []string) string {
	if len(messages) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d: %q", len(messages), messages)
}

// reviewed returns the object of a case, which may be that of an AdmissionReview.
func reviewed(o map[string]any, asksOf string) (map[string]any, error) {
	version, _ := o["apiVersion"].(string)
	if o["kind"] != "AdmissionReview" || !strings.HasPrefix(version, "admission.k8s.io/") {
		return o, nil
	}
	request, ok := o["request"].(map[string]any)
	if !ok {
		return nil, errors.New("the AdmissionReview has no request")
	}
	object, _ := request["object"].(map[string]any)
	old, _ := request["oldObject"].(map[string]any)
	switch {
	case object == nil && old == nil:
		return nil, errors.New("the AdmissionReview has neither an object nor an oldObject")
	case object == nil, request["operation"] == "DELETE":
		return nil, notJudged("the AdmissionReview is of a deletion: an object of a member is judged while it is there")
	case old != nil && asksOf != "":
		return nil, notJudged("the template reads %s of the AdmissionReview: an object of a member is judged as it is, not as a change", asksOf)
	case asksOf != "":
		return nil, notJudged("the template reads %s of the AdmissionReview, which only a request has", asksOf)
	}
	return object, nil
}

// violations returns the messages of the violations that the constraint finds in an
// object, which expansion may have generated, given the inventory.
func (r *suiteRun) violations(ctx context.Context, with *appliedConstraint, object map[string]any, inventory []map[string]any, generated bool) ([]string, error) {
	if !with.active {
		return nil, nil
	}
	f := fleet{members: []aggregate.Member{{Name: suiteInventory, UID: suiteInventory}, {Name: suiteMember, UID: suiteMember}}}
	scopes, others := newSuiteScopes(with.set, suiteMember), newSuiteScopes(with.set, suiteInventory)
	ref, err := scopes.add(object)
	if err != nil {
		return nil, err
	}
	for _, o := range inventory {
		if _, err := others.add(o); err != nil {
			return nil, fmt.Errorf("inventory: %w", err)
		}
	}
	f.scopes = append(others.list(), scopes.list()...)
	w, err := newWriter()
	if err != nil {
		return nil, err
	}
	for _, step := range f.steps(w) {
		if err := step.do(); err != nil {
			return nil, err
		}
	}
	engine := policy.EngineOptions{
		Set: with.set, Bindings: with.bindings, Generated: generated, Limits: policy.Limits{Evaluation: r.opts.Timeout, Slow: math.MaxInt64},
		InventoryMember: suiteInventory,
	}
	if r.lines != nil {
		engine.Tracer = r.lines
	}
	state, err := policy.Evaluate(ctx, engine, w.index.Snapshot())
	if err != nil {
		return nil, err
	}
	for v := range state.Verdicts(with.bindings[0].Name, "") {
		if v.Subject.Ref != ref {
			continue
		}
		if v.State == policy.Error && with.set.Package(with.bindings[0].Package).CEL != nil {
			return []string{v.Message}, nil // it denies, if failurePolicy is Fail
		}
		if v.State != policy.Known {
			return nil, fmt.Errorf("the verdict is %s", describe(&v))
		}
		var out []string
		for _, x := range v.Violations {
			out = append(out, x.Msg)
		}
		return out, nil
	}
	return nil, nil // the constraint does not match the object
}
