package aggregate

import (
	"math/rand/v2"
	"testing"
)

// TestShrinking_IsAMap compares it with a map while it grows, shrinks and grows again.
func TestShrinking_IsAMap(t *testing.T) {
	var m shrinking[int, int]
	model := map[int]int{}
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range 20_000 {
		most := []int{3, 8, 12, 300}[step/500%4]
		k := rng.IntN(most)
		if rng.IntN(3) > 0 {
			m.set(k, step)
			model[k] = step
		} else {
			m.delete(k)
			delete(model, k)
		}
		if step%500 == 499 {
			for k := range 300 {
				if k >= 4 {
					m.delete(k)
					delete(model, k)
				}
			}
			if m.of != nil || len(m.few) != len(model) {
				t.Fatalf("step %d: a map of %d and %d slots for %d entries", step, len(m.of), len(m.few), len(model))
			}
		}
		if len(m.few)+len(m.of) != len(model) || m.of != nil && len(m.few) > 0 {
			t.Fatalf("step %d: %d and %d entries, want %d", step, len(m.few), len(m.of), len(model))
		}
		for k := range most {
			got, ok := m.get(k)
			if want, wanted := model[k]; got != want || ok != wanted {
				t.Fatalf("step %d: %d is %d (%t), want %d (%t)", step, k, got, ok, want, wanted)
			}
		}
	}
}

// TestScope_ClosedWriterLeavesTheNextAlone shows that a writer whose scope is closed changes
// nothing that the next writer continues with.
func TestScope_ClosedWriterLeavesTheNextAlone(t *testing.T) {
	x, err := New(Options{Revisions: Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.PutMember(Member{Name: "m", UID: "u"}); err != nil {
		t.Fatal(err)
	}
	open := func() *Scope {
		s, err := x.OpenScope("m", "Pod", "v1")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	item := func(s *Scope, name, rv string) Item {
		return s.Item(&Record{
			Name: name, UID: "uid of " + name, ResourceVersion: rv, Body: []byte(`{}`),
			Labels: []Label{{"app", "web"}}, Owners: []Owner{{Kind: "Job", Name: "j", UID: "uid of j"}},
		})
	}
	first := open()
	first.Upsert(item(first, "a", "1"))
	first.Upsert(item(first, "b", "1"))
	if _, err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	first.Upsert(item(first, "never committed", "1"))
	late := item(first, "c", "1")
	first.Close()
	second := open()
	_, before := second.Size()
	first.Upsert(late)
	first.Delete("", "a")
	if _, err := first.Commit(); err == nil {
		t.Error("a closed writer has committed")
	}
	second.Upsert(item(second, "a", "2"))
	if _, bytes := second.Size(); bytes != before {
		t.Errorf("the same objects cost %d bytes, then %d", before, bytes)
	}
	second.Delete("", "a")
	if _, err := second.Commit(); err != nil {
		t.Fatal(err)
	}
	set := second.root.labels.sets()
	if objects, _ := second.Size(); objects != 1 || len(set) != 1 || set[0].users != 1 {
		t.Errorf("%d objects, sets %+v", objects, set)
	}
	second.Delete("", "b")
	if _, err := second.Commit(); err != nil {
		t.Fatal(err)
	}
	if objects, bytes := second.Size(); objects != 0 || bytes != 0 || second.root.objects != noObjects || second.root.indexes != noIndexes {
		t.Errorf("an empty scope holds %d objects in %d bytes", objects, bytes)
	}
	if noObjects.Len() != 0 || noIndexes.owners.Len() != 0 || noIndexes.labels.postings.Len() != 0 || noIndexes.labels.pairs.Len() != 0 {
		t.Error("the trees of empty scopes hold something")
	}
}
