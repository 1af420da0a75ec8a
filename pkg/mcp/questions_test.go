package mcp_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// question is one that people ask of a fleet, as the call of a tool, and its answer, in which * is a text that differs between two
// runs, or its end.
type question struct {
	Asked string
	Tool  string
	Args  map[string]any
	Want  map[string]any
}

// differing replaces texts by what is wanted where that is *, or begins as it.
func differing(got, want any) any {
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			for key := range g {
				g[key] = differing(g[key], w[key])
			}
		}
	case []any:
		if g, ok := got.([]any); ok {
			for i := range min(len(g), len(w)) {
				g[i] = differing(g[i], w[i])
			}
		}
	case string:
		if g, ok := got.(string); ok && strings.HasSuffix(w, "*") && strings.HasPrefix(g, strings.TrimSuffix(w, "*")) && g != "" {
			return w
		}
	}
	return got
}

// TestQuestions: 34 questions about a fleet as fixed calls of tools, with exact answers.
func TestQuestions(t *testing.T) {
	text, err := os.ReadFile("testdata/questions.json")
	if err != nil {
		t.Fatal(err)
	}
	var questions []question
	if err := json.Unmarshal(text, &questions); err != nil || len(questions) != 34 {
		t.Fatalf("%d questions, %v", len(questions), err)
	}
	s := start(t, questionsWorld(), nil).session(t, "ann")
	for _, q := range questions {
		got := *into[map[string]any](t, s, q.Tool, q.Args)
		if diff := cmp.Diff(any(q.Want), differing(any(got), any(q.Want))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", q.Asked, diff)
		}
	}
}
