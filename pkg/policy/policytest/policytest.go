package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"

	"federator.dev/federator/pkg/policy"
)

// ErrNoTests is returned for a tree that has neither Rego tests nor fixtures.
var ErrNoTests = errors.New("no tests")

// Options are what to test, and how. The zero value is valid.
type Options struct {
	Name string // of the tree: files are reported as Name/path, or as path without one
	// Run tests the policies of a tree. Errors in policies or fixtures are
	// policy.LoadErrors, all of them; ErrNoTests is returned together with the Result
	// of a tree that loads but has no tests.
	Run      *regexp.Regexp // of Case.ID; nil runs all
	Coverage bool           // whether Result has it
	Print    bool           // whether Cases have the output of tests, which only Timeout bounds
	Timeout  time.Duration  // of one Rego test, and of one evaluation of a fixture; 0 means 5 s
	Seed     uint64         // of the order in which fixtures are replayed; 0 means 1
	Load     policy.LoadOptions
}

// Outcome is the outcome of a case.
type Outcome string

// The outcomes of a case.
const (
	Passed  Outcome = "pass"
	Failed  Outcome = "fail"
	Errored Outcome = "error" // the test itself could not be evaluated
	Skipped Outcome = "skip"  // its name begins with todo_, or Case.Reason says why
)

// Case is one Rego test, one document of a fixture, or one case of a suite.
type Case struct {
	ID       string        `json:"id"`   // what Options.Run is matched with
	Name     string        `json:"name"` // within its file
	File     string        `json:"file"`
	Line     int           `json:"line"`
	Fleet    bool          `json:"fleet"`           // a fixture
	Suite    bool          `json:"suite,omitempty"` // of a suite of Gatekeeper's
	Outcome  Outcome       `json:"outcome"`
	Reason   string        `json:"reason,omitempty"` // of a Skipped one: why
	Failures []Failure     `json:"failures,omitempty"`
	Output   string        `json:"output,omitempty"` // of print
	Duration time.Duration `json:"nanoseconds"`
}

// Failure is one failure of a case.
type Failure struct {
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Binding  string `json:"binding,omitempty"` // of a fixture
	Subject  string `json:"subject,omitempty"` // of a fixture
	Message  string `json:"message"`
	Expected string `json:"expected,omitempty"`
	Actual   string `json:"found,omitempty"`
}

// String returns the failure in one line, with its position.
func (f Failure) String() string {
	s := fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
	if f.Subject != "" {
		s += fmt.Sprintf(": %s of %s", f.Subject, f.Binding)
	}
	if f.Expected != "" {
		s += fmt.Sprintf(": expected %s, found %s", f.Expected, f.Actual)
	}
	return s
}

// Result is the result of a run. Cases are sorted by file and line.
type Result struct {
	Set      *policy.Set
	Cases    []Case
	Total    int       // cases, those that Options.Run leaves out included
	Seed     uint64    // of the replays
	Coverage *Coverage // nil unless asked for
}

// Count returns how many cases have an outcome.
func (r *Result) Count(o Outcome) int {
	n := 0
	for i := range r.Cases {
		if r.Cases[i].Outcome == o {
			n++
		}
	}
	return n
}

// OK reports whether no case failed.
func (r *Result) OK() bool { return r.Count(Failed) == 0 && r.Count(Errored) == 0 }

// Run tests the policies of a tree. What is wrong with policies or fixtures
// themselves is policy.LoadErrors, all of it; ErrNoTests is returned beside the
// Result of a tree that loads but has no tests.
func Run(ctx context.Context, tree fs.FS, opts Options) (*Result, error) {
	if opts.Timeout < 0 {
		return nil, errors.New("options: Timeout is negative")
	}
	opts.Timeout = cmp.Or(opts.Timeout, 5*time.Second)
	opts.Seed = cmp.Or(opts.Seed, 1)
	source, err := policy.ReadSource(opts.Name, tree)
	if err != nil {
		return nil, err
	}
	suites, err := readSuites(&source, tree)
	if err != nil {
		return nil, err
	}
	set, err := policy.Load([]policy.Source{source}, opts.Load)
	if err != nil {
		return nil, err
	}
	fleets, err := readFixtures(set, source, tree)
	if err != nil {
		return nil, err
	}
	r := &Result{Set: set, Seed: opts.Seed}
	if err := r.rego(ctx, opts); err != nil {
		return nil, err
	}
	for _, f := range fleets {
		r.Total++
		if opts.Run != nil && !opts.Run.MatchString(f.id()) {
			continue
		}
		c, err := f.run(ctx, set, opts)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.id(), err)
		}
		r.Cases = append(r.Cases, c)
	}
	of := suiteRun{tree: tree, opts: opts, into: r, rules: map[string]*ast.Module{}}
	if opts.Coverage {
		of.lines = cover.New()
	}
	for i := range suites {
		if err := of.run(ctx, &suites[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", suites[i].name, err)
		}
	}
	if of.lines != nil && len(of.rules) > 0 {
		r.Coverage.Add(coverage(of.lines, of.rules))
	}
	slices.SortStableFunc(r.Cases, func(a, b Case) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name))
	})
	if r.Total == 0 {
		return r, ErrNoTests
	}
	return r, nil
}
