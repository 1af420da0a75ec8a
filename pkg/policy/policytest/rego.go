package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/internal/limits"
)

// rego runs the Rego tests.
func (r *Result) rego(ctx context.Context, opts Options) error {
	r.Total += regoTests(r.Set)
	var lines *cover.Cover
	if opts.Coverage {
		lines = cover.New()
	}
	if len(r.Set.Tests) > 0 {
		filter := ""
		if opts.Run != nil {
			filter = opts.Run.String()
		}
		results, err := runRego(ctx, r.Set, opts, filter, func(t *tester.Runner) {
			if lines != nil {
				t.SetCoverageQueryTracer(lines).SetCoverageRuns(nil)
			}
		})
		if err != nil {
			return err
		}
		for _, t := range results {
			c := regoCase(t, opts.Timeout)
			if c.Outcome == Failed && len(t.SubResults) == 0 {
				if err := pinpoint(ctx, r.Set, opts, &c); err != nil {
					return err
				}
			}
			r.Cases = append(r.Cases, c)
		}
	}
	if lines != nil {
		r.Coverage = coverage(lines, r.Set.Modules)
	}
	return nil
}

// regoTests counts the rules that are tests. Rules of one name are one test each.
func regoTests(set *policy.Set) int {
	n := 0
	for _, m := range set.Tests {
		for _, rule := range m.Rules {
			for _, t := range rule.Head.Ref() {
				s := strings.Trim(t.String(), `"`)
				if strings.HasPrefix(s, tester.TestPrefix) || strings.HasPrefix(s, tester.SkipTestPrefix) {
					n++
					break
				}
			}
		}
	}
	return n
}

// runRego runs the tests whose names match a filter, with OPA's runner.
func runRego(ctx context.Context, set *policy.Set, opts Options, filter string, configure func(*tester.Runner)) ([]*tester.Result, error) {
	modules := maps.Clone(set.Modules)
	maps.Copy(modules, set.Tests)
	runner := tester.NewRunner().
		SetCompiler(ast.NewCompiler().WithCapabilities(limits.Capabilities()).WithEnablePrintStatements(opts.Print)).
		SetModules(modules).
		RaiseBuiltinErrors(true).
		CapturePrintOutput(opts.Print).
		SetTimeout(opts.Timeout).
		Filter(filter)
	configure(runner)
	ch, err := runner.RunTests(ctx, nil)
	if err != nil {
		return nil, err
	}
	var out []*tester.Result
	for t := range ch {
		out = append(out, t)
	}
	return out, ctx.Err()
}

func regoCase(t *tester.Result, timeout time.Duration) Case {
	c := Case{
		ID: t.Package + "." + t.Name, Name: t.Name, File: t.Location.File, Line: t.Location.Row,
		Outcome: Passed, Output: string(t.Output), Duration: t.Duration,
	}
	switch {
	case t.Skip:
		c.Outcome = Skipped
	case t.Error != nil:
		c.Outcome = Errored
		c.Failures = []Failure{regoError(t, timeout)}
	case t.Fail:
		c.Outcome = Failed
		for name, sub := range t.SubResults.Iter {
			if sub.Fail && len(sub.SubResults) == 0 {
				c.Failures = append(c.Failures, Failure{File: c.File, Line: c.Line, Message: fmt.Sprintf("case %q fails", strings.Join(name, "/"))})
			}
		}
		if len(c.Failures) == 0 {
			c.Failures = []Failure{{File: c.File, Line: c.Line, Message: "the test failed"}}
		}
	}
	return c
}

// regoError is why a test could not be evaluated, and where.
func regoError(t *tester.Result, timeout time.Duration) Failure {
	f := Failure{File: t.Location.File, Line: t.Location.Row, Message: t.Error.Error()}
	if topdown.IsCancel(t.Error) || errors.Is(t.Error, context.DeadlineExceeded) {
		f.Message = fmt.Sprintf("the test takes longer than %v", timeout)
		return f
	}
	var e *topdown.Error
	if errors.As(t.Error, &e) && e.Location != nil && e.Location.File != "" {
		f.File, f.Line, f.Message = e.Location.File, e.Location.Row, fmt.Sprintf("%s: %s", e.Code, e.Message)
	}
	return f
}

// pinpoint runs a failed test again and finds the expression that was false or undefined: the
// last one in the file that failed within the test.
func pinpoint(ctx context.Context, set *policy.Set, opts Options, c *Case) error {
	opts.Print = false
	last := &lastFailure{file: c.File, from: c.Line, to: lastRow(set.Tests[c.File], c.Line)}
	_, err := runRego(ctx, set, opts, "^"+regexp.QuoteMeta(c.ID)+"$", func(t *tester.Runner) { t.SetCoverageQueryTracer(last) })
	if err != nil {
		return err
	}
	if last.at != nil {
		c.Failures = []Failure{{File: c.File, Line: last.at.Row, Message: "false or undefined: " + firstLine(string(last.at.Text))}}
	}
	return nil
}

// lastFailure is a tracer that keeps one event, in constant space.
type lastFailure struct {
	file     string
	from, to int // rows

	mu sync.Mutex // tests of one name run at once
	at *ast.Location
}

// Enabled implements topdown.QueryTracer.
func (l *lastFailure) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (l *lastFailure) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent implements topdown.QueryTracer.
func (l *lastFailure) TraceEvent(e topdown.Event) {
	x, ok := e.Node.(*ast.Expr)
	if e.Op != topdown.FailOp || !ok || x.Location == nil || x.Location.File != l.file || x.Location.Row < l.from || x.Location.Row > l.to {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil || cmp.Or(cmp.Compare(x.Location.Row, l.at.Row), cmp.Compare(x.Location.Col, l.at.Col)) > 0 {
		l.at = x.Location
	}
}

// lastRow is the last row of the rule that begins at a row.
func lastRow(m *ast.Module, row int) int {
	for _, rule := range m.Rules {
		if rule.Location.Row == row {
			return row + strings.Count(string(rule.Location.Text), "\n")
		}
	}
	return row
}

func firstLine(s string) string {
	first, _, more := strings.Cut(s, "\n")
	if more {
		return first + " …"
	}
	return first
}
