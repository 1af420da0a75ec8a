package evidence

import (
	"reflect"
	"slices"
	"testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

func TestOfVersions_CostIsOfOneEvaluation(t *testing.T) {
	t.Parallel()
	c := policy.Comparison{Subjects: 4, New: 3, Gone: 2, Errors: 1, Unknown: 5, Unsettled: 2, Complete: true}
	c.Former, c.Next = policy.Health{Evaluations: 100, Nanoseconds: 1000}, policy.Health{Evaluations: enough, Nanoseconds: 500}
	p := OfVersions(&c)
	e := p.Status()
	if e.Cost == nil || *e.Cost != 250 || e.Subjects != 4 || e.New != 3 || e.Gone != 2 || e.Errors != 1 || e.Unknown != 7 || e.Complete {
		t.Errorf("%+v", e)
	}
	c.Next.Evaluations--
	p = OfVersions(&c)
	if e := p.Status(); e.Cost != nil {
		t.Errorf("%d evaluations tell a cost", c.Next.Evaluations)
	}
}

// TestPart_AddSumsNumbers: what a part of each process is too little for is enough together, and a cost is that of all
// evaluations, not the mean of percentages.
func TestPart_AddSumsNumbers(t *testing.T) {
	t.Parallel()
	a := Part{Complete: true, Subjects: 10, New: 1, Gone: 2, Errors: 3, Former: Cost{enough - 1, 1900}, Next: Cost{1, 1000}}
	b := Part{Complete: true, Subjects: 5, New: 4, Former: Cost{1, 100}, Next: Cost{enough - 1, 1000}}
	if x, y := a.Status(), b.Status(); x.Cost != nil || y.Cost != nil {
		t.Fatalf("%+v, %+v", x, y)
	}
	a.Add(&b)
	cost := int64(100)
	if got, want := a.Status(), (v1alpha1.RolloutEvidence{Complete: true, Subjects: 15, New: 5, Gone: 2, Errors: 3, Cost: &cost}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	a.Add(&Part{Complete: true, Unknown: 1})
	if got := a.Status(); got.Complete || got.Unknown != 1 {
		t.Errorf("complete, though a process does not know a verdict: %+v", got)
	}
	b.Add(&Part{Subjects: 1})
	if got := b.Status(); got.Complete {
		t.Errorf("complete, though a process has not read all: %+v", got)
	}
}

// TestPart_FirstKnowsWhatAnyProcessKnows: a process all of whose members are away holds up none of which others know.
func TestPart_FirstKnowsWhatAnyProcessKnows(t *testing.T) {
	t.Parallel()
	away, knows, none := Part{First: true, Complete: true, Subjects: 2, Unknown: 2}, Part{First: true, Complete: true, Subjects: 1, Known: 1, New: 1}, Part{First: true, Complete: true}
	for _, c := range []struct {
		parts []Part
		want  v1alpha1.RolloutEvidence
	}{
		{[]Part{away}, v1alpha1.RolloutEvidence{Subjects: 2, Unknown: 2}},
		{[]Part{away, none}, v1alpha1.RolloutEvidence{Subjects: 2, Unknown: 2}},
		{[]Part{away, knows}, v1alpha1.RolloutEvidence{Complete: true, Subjects: 3, New: 1}},
		{[]Part{none, none}, v1alpha1.RolloutEvidence{Complete: true}},
	} {
		sum := Part{First: true, Complete: true}
		for i := range c.parts {
			sum.Add(&c.parts[i])
		}
		if got := sum.Status(); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.parts, got, c.want)
		}
	}
}

func TestDigest_IsOfASet(t *testing.T) {
	t.Parallel()
	of := func(names ...string) string { return Digest(slices.Values(names)) }
	if of("a", "b") != of("b", "a") || of("a", "b") == of("a") || of("ab") == of("a", "b") || of() == "" {
		t.Error("digests are wrong")
	}
}
