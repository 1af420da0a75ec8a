package compiled_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/test/cases/testdata"
	"github.com/open-policy-agent/opa/v1/util"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/limits"
)

// refusedConstructs are what policies may not have: the loader refuses them.
func refusedConstruct(c *ast.Compiler, query ast.Body, why string) bool {
	if strings.HasPrefix(why, "builtin ") && !slices.ContainsFunc(limits.Capabilities().Builtins, func(b *ast.Builtin) bool { return "builtin "+b.Name == why }) {
		return true
	}
	with := false
	visit := func(e *ast.Expr) bool {
		with = with || len(e.With) > 0
		return with
	}
	ast.WalkExprs(query, visit)
	for _, m := range c.Modules {
		ast.WalkExprs(m, visit)
	}
	return with || why == "all of data as a value"
}

// TestConformance: OPA's own cases give with the compiled program what they give with
// topdown, and nearly all are compiled.
func TestConformance(t *testing.T) {
	var m compiled.Machine
	counts := map[outcome]int{}
	reasons := map[string]int{}
	refused := 0
	for _, tc := range conformanceCases(t) {
		q, ok := questionOf(tc)
		if !ok {
			continue
		}
		o, why := q.ask(t.Context(), &m)
		if o == same { // the reads are compared without the index, which reads by itself
			q.indexing = false
			o, why = q.ask(t.Context(), &m)
		}
		switch o {
		case different:
			t.Errorf("%s\n%s\n%s\n%s", tc.Note, strings.Join(tc.Modules, "\n---\n"), tc.Query, why)
		case interpreted, deferred:
			if refusedConstruct(q.compiler, q.query, why) {
				refused++
				continue
			}
			reasons[why]++
			if testing.Verbose() {
				t.Logf("%s: %s", tc.Note, why)
			}
		}
		counts[o]++
	}
	total := counts[same] + counts[bothFail] + counts[interpreted] + counts[deferred]
	share := 100 * float64(counts[same]+counts[bothFail]) / float64(total)
	t.Logf("%d cases the same, %d fail with both, %d interpreted, %d decided by topdown, %d beyond our limits, %d with what policies may not have: %.1f %% compiled",
		counts[same], counts[bothFail], counts[interpreted], counts[deferred], counts[limited], refused, share)
	for _, why := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int { return cmp.Compare(reasons[b], reasons[a]) }) {
		t.Logf("%4d %s", reasons[why], why)
	}
	if counts[same] < 500 || share < 95 {
		t.Errorf("%.1f %% of the cases are compiled", share)
	}
}

func conformanceCases(t *testing.T) (list []cases.TestCase) {
	t.Helper()
	err := fs.WalkDir(testdata.V1, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(testdata.V1, path)
		if err != nil {
			return err
		}
		var set cases.Set
		if err := util.Unmarshal(text, &set); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, set.Cases...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// questionOf is a case as a question; ok is false for one that needs the network or an environment.
func questionOf(tc cases.TestCase) (q *question, ok bool) {
	if len(tc.Env) > 0 || tc.Query == "" {
		return nil, false
	}
	opts := ast.ParserOptions{RegoVersion: ast.RegoV1}
	if tc.ExperimentalKeywords {
		opts.Capabilities = ast.CapabilitiesForThisVersion(ast.CapabilitiesExperimentalKeywords(true))
	}
	modules := map[string]string{}
	for i, m := range tc.Modules {
		modules[fmt.Sprintf("test-%d.rego", i)] = m
		if strings.Contains(m, "http.send") || strings.Contains(m, "io.jwt") || strings.Contains(m, "net.lookup") || strings.Contains(m, "rand.") || strings.Contains(m, "now_ns") || strings.Contains(m, "uuid.rfc4122") {
			return nil, false
		}
	}
	c, err := ast.CompileModulesWithOpt(modules, ast.CompileOpts{ParserOptions: opts})
	if err != nil {
		return nil, false
	}
	body, err := ast.ParseBody(tc.Query)
	if err != nil {
		return nil, false
	}
	query, err := c.QueryCompiler().Compile(body)
	if err != nil {
		return nil, false
	}
	q = &question{compiler: c, query: query, outs: outsOf(body), strict: tc.StrictError, indexing: true, data: map[string]any{}}
	if tc.Data != nil {
		q.data = *tc.Data
	}
	switch {
	case tc.InputTerm != nil:
		q.input, err = ast.ParseTerm(*tc.InputTerm)
	case tc.Input != nil:
		var v ast.Value
		v, err = ast.InterfaceToValue(*tc.Input)
		q.input = ast.NewTerm(v)
	}
	return q, err == nil
}
