// Package linetrace counts by line what an evaluation evaluated and what held.
package linetrace

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Line is one line of a policy and how an evaluation went through it.
type Line struct {
	File      string `json:"file"`
	Row       int    `json:"row"` // from 1
	Text      string `json:"text"`
	Evaluated int    `json:"evaluated"` // times that an expression of the line was evaluated
	Held      int    `json:"held"`      // times that one was true or defined
	Rule      bool   `json:"rule"`      // the line starts a rule; Held is how often its body held
}

// Tracer traces an evaluation by lines: it is a topdown.QueryTracer, for one
// evaluation at a time. It keeps counts, not events, so that an evaluation of any
// length can be traced. OPA does not evaluate rules that its index excludes;
// rego.EvalRuleIndexing(false) shows them too.
type Tracer struct {
	mu    sync.Mutex
	lines map[position]*line
}

type position struct {
	file string
	row  int
}

// line counts by node: OPA splits an expression into several of one line, and the line
// fails if one of them does.
type line struct {
	text    string
	rule    bool
	fired   int // of a rule
	entered map[ast.Node]int
	failed  map[ast.Node]int
	negated ast.Node // the negated expression fails when this one holds: it does not count
}

var _ topdown.QueryTracer = (*Tracer)(nil)

// Enabled implements topdown.QueryTracer.
func (l *Tracer) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (l *Tracer) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent implements topdown.QueryTracer.
func (l *Tracer) TraceEvent(e topdown.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch node := e.Node.(type) {
	case *ast.Rule:
		at := l.atLocked(node.Location, true)
		switch {
		case at == nil:
		case e.Op == topdown.EnterOp:
			at.entered[node]++
		case e.Op == topdown.ExitOp:
			at.fired++
		}
	case *ast.Expr:
		at := l.atLocked(node.Location, false)
		switch {
		case at == nil:
		case e.Op == topdown.EvalOp:
			at.entered[node]++
			if node.Negated {
				at.negated = node
			}
		case e.Op == topdown.FailOp:
			at.failed[node]++
		}
	}
}

// atLocked returns the line of a location; nil for one of the query, or for an
// expression on the line where a rule starts.
func (l *Tracer) atLocked(loc *ast.Location, rule bool) *line {
	if loc == nil || loc.File == "" {
		return nil
	}
	p := position{loc.File, loc.Row}
	at := l.lines[p]
	if at == nil || rule && !at.rule {
		if l.lines == nil {
			l.lines = map[position]*line{}
		}
		at = &line{rule: rule, entered: map[ast.Node]int{}, failed: map[ast.Node]int{}}
		l.lines[p] = at
	}
	if at.rule != rule {
		return nil
	}
	if text, _, _ := strings.Cut(string(loc.Text), "\n"); len(text) > len(at.text) {
		at.text = text
	}
	return at
}

// Lines returns the lines that were evaluated, by file and row.
func (l *Tracer) Lines() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Line, 0, len(l.lines))
	for p, at := range l.lines {
		evaluated, held := at.counts()
		out = append(out, Line{File: p.file, Row: p.row, Text: strings.TrimSpace(at.text), Rule: at.rule, Evaluated: evaluated, Held: held})
	}
	slices.SortFunc(out, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Row, b.Row))
	})
	return out
}

// counts returns how often the line was evaluated, and how often it held.
func (l *line) counts() (evaluated, held int) {
	failed := 0
	for node, n := range l.entered {
		evaluated = max(evaluated, n)
		failed += l.failed[node]
	}
	switch {
	case l.rule:
		return evaluated, l.fired
	case l.negated != nil:
		return evaluated, l.entered[l.negated] - l.failed[l.negated]
	}
	return evaluated, max(evaluated-failed, 0)
}
