package fieldchanges_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"federator.dev/federator/internal/cputime"
	"federator.dev/federator/internal/fieldchanges"
)

func decode(t testing.TB, text string) any {
	t.Helper()
	v, err := fieldchanges.Decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func text(t testing.TB, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func same(t testing.TB, a string, b []byte) bool {
	return reflect.DeepEqual(decode(t, a), decode(t, string(b)))
}

// value makes a random value.
func value(r *rand.Rand, depth int) any {
	switch n := r.IntN(6); {
	case depth == 0 || n < 2:
		return []any{nil, true, json.Number("1"), json.Number("2.5"), "", "a/b~c"}[r.IntN(6)]
	case n < 3:
		var list []any
		for range r.IntN(4) {
			list = append(list, value(r, depth-1))
		}
		return append([]any{}, list...)
	}
	return object(r, depth)
}

func object(r *rand.Rand, depth int) map[string]any {
	out := map[string]any{}
	for range r.IntN(4) {
		out[[]string{"a", "b", "c/d", "~"}[r.IntN(4)]] = value(r, depth-1)
	}
	return out
}

// TestBetween_ChangesLeadFromOneToTheOther, as a JSON patch.
func TestBetween_ChangesLeadFromOneToTheOther(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		before, after := object(r, 3), object(r, 3)
		was := text(t, before)
		var patch, removals []fieldchanges.Operation
		for _, c := range fieldchanges.Between(before, after) {
			switch {
			case c.After == nil: // items of lists from the last
				removals = append([]fieldchanges.Operation{{Op: "remove", Path: c.Path}}, removals...)
			case c.Before == nil:
				patch = append(patch, fieldchanges.Operation{Op: "add", Path: c.Path, Value: decode(t, string(c.After))})
			default:
				patch = append(patch, fieldchanges.Operation{Op: "test", Path: c.Path, Value: decode(t, string(c.Before))}, fieldchanges.Operation{Op: "replace", Path: c.Path, Value: decode(t, string(c.After))})
			}
		}
		got, err := fieldchanges.Patch(before, append(patch, removals...))
		if err != nil || !reflect.DeepEqual(got, any(after)) {
			t.Fatalf("from %s to %s: %s, %v", was, text(t, after), text(t, got), err)
		}
		if text(t, before) != was {
			t.Fatalf("%s became %s", was, text(t, before))
		}
	}
}

// TestPatches_AreAppliedAsOthersDo compares with another implementation.
func TestPatches_AreAppliedAsOthersDo(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	fit := 0
	for range 20000 {
		before, patch := object(r, 3), object(r, 3)
		want, err := jsonpatch.MergePatch([]byte(text(t, before)), []byte(text(t, patch)))
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, fieldchanges.Merge(before, patch)); !same(t, got, want) && !hasNullInList(patch) {
			t.Fatalf("%s merged with %s: %s, want %s", text(t, before), text(t, patch), got, want)
		}
		var raw []map[string]any
		for range 1 + r.IntN(3) {
			path := func() string {
				s := ""
				for range 1 + r.IntN(3) {
					s += "/" + []string{"a", "b", "c~1d", "~0", "0", "1", "-"}[r.IntN(7)]
				}
				return s
			}
			raw = append(raw, map[string]any{"op": []string{"add", "replace", "remove", "move", "copy"}[r.IntN(5)], "path": path(), "from": path(), "value": value(r, 2)})
		}
		ops, err := fieldchanges.ParsePatch([]byte(text(t, raw)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := fieldchanges.Patch(before, ops)
		other, _ := jsonpatch.DecodePatch([]byte(text(t, raw)))
		want, otherErr := other.Apply([]byte(text(t, before)))
		if err == nil && otherErr == nil {
			if fit++; !same(t, text(t, got), want) {
				t.Fatalf("%s after %s: %s, want %s", text(t, before), text(t, raw), text(t, got), want)
			}
		}
	}
	if fit < 500 {
		t.Errorf("only %d patches fit", fit)
	}
}

// hasNullInList is where the other implementation is known to differ: it drops nulls in lists.
func hasNullInList(v any) bool { return strings.Contains(fmt.Sprint(v), "<nil>") }

func TestApply_MergesNamedItems(t *testing.T) {
	before := `{"spec":{"replicas":1,"containers":[{"name":"a","image":"x","env":["1"]},{"name":"b"}]}}`
	got := fieldchanges.Apply(decode(t, before), decode(t, `{"spec":{"containers":[{"name":"a","env":["2"]},{"name":"c"}]}}`))
	want := `{"spec":{"containers":[{"env":["2"],"image":"x","name":"a"},{"name":"b"},{"name":"c"}],"replicas":1}}`
	if text(t, got) != want {
		t.Errorf("%s", text(t, got))
	}
}

func TestOf_SaysWhatAnActionHasChanged(t *testing.T) {
	for name, c := range map[string]struct {
		record fieldchanges.Record
		want   string
		before bool
	}{
		"a merge patch": {
			fieldchanges.Record{Verb: "patch", Patch: []byte(`{"spec":{"replicas":3,"same":1},"metadata":{"labels":{"tier":"gold"}}}`), Inverse: "patch", Undo: []byte(`{"spec":{"replicas":1},"metadata":{"labels":null}}`)},
			`[{"path":"/metadata/labels","after":{"tier":"gold"}},{"path":"/spec/replicas","before":1,"after":3}]`, true,
		},
		"a JSON patch": {
			fieldchanges.Record{Verb: "patch", Patch: []byte(`[{"op":"test","path":"/x","value":1},{"op":"replace","path":"/spec/list/1","value":"c"}]`), Inverse: "patch", Undo: []byte(`{"spec":{"list":["a","b"]}}`)},
			`[{"path":"/spec/list/1","before":"b","after":"c"}]`, true,
		},
		"a removal": {
			fieldchanges.Record{Verb: "patch", Patch: []byte(`{"spec":{"a":null}}`), Inverse: "patch", Undo: []byte(`{"spec":{"a":"x"}}`)},
			`[{"path":"/spec/a","before":"x"}]`, true,
		},
		"a creation":            {fieldchanges.Record{Verb: "apply", Patch: []byte(`{"a":1}`), Inverse: "delete"}, `[{"path":"","after":{"a":1}}]`, true},
		"a deletion":            {fieldchanges.Record{Verb: "delete", Inverse: "apply", Undo: []byte(`{"a":1}`)}, `[{"path":"","before":{"a":1}}]`, true},
		"an unknown deletion":   {fieldchanges.Record{Verb: "delete"}, `[{"path":""}]`, false},
		"without an inverse":    {fieldchanges.Record{Verb: "patch", Patch: []byte(`{"a":{"b":1}}`)}, `[{"path":"/a/b","after":1}]`, false},
		"values that were kept": {fieldchanges.Record{Verb: "patch"}, `null`, false},
	} {
		got, before, err := fieldchanges.Of(c.record)
		if err != nil || text(t, got) != c.want || before != c.before {
			t.Errorf("%s: %s, %v, %v", name, text(t, got), before, err)
		}
	}
}

func TestParsePatch_IsBounded(t *testing.T) {
	many := "[" + strings.Repeat(`{"op":"remove","path":"/a"},`, 1000) + `{"op":"remove","path":"/a"}]`
	copies := "[" + strings.Repeat(`{"op":"copy","from":"","path":"/a"},`, 60) + `{"op":"copy","from":"","path":"/b"}]`
	if _, err := fieldchanges.ParsePatch([]byte(many)); err == nil {
		t.Error("a patch of any length is read")
	}
	ops, err := fieldchanges.ParsePatch([]byte(copies))
	if err != nil {
		t.Fatal(err)
	}
	double := make([]fieldchanges.Operation, 0, 100)
	for i := range 50 {
		o := ops[0]
		o.Path = fmt.Sprint("/x", i)
		double = append(double, o)
	}
	if _, err := fieldchanges.Patch(decode(t, `{"a":1}`), double); err == nil || !strings.Contains(err.Error(), "values") {
		t.Errorf("copies of copies: %v", err)
	}
}

// FuzzOf neither panics nor takes long, whatever is recorded.
func FuzzOf(f *testing.F) {
	f.Add("patch", []byte(`{"a":1}`), "patch", []byte(`{"a":null}`))
	f.Add("patch", []byte(`[{"op":"move","path":"/a/-","from":"/b/0"}]`), "patch", []byte(`{"b":[1]}`))
	f.Add("apply", []byte(`{"a":[{"name":"x"}]}`), "patch", []byte(`{"a":[{"name":"x"}]}`))
	f.Fuzz(func(t *testing.T, verb string, patch []byte, inverse string, undo []byte) {
		changes, _, err := fieldchanges.Of(fieldchanges.Record{Verb: verb, Patch: patch, Inverse: inverse, Undo: undo})
		if err == nil {
			_ = text(t, changes)
		}
	})
}

// TestOf_TakesTimeInProportion: records are as large as etcd takes objects. Ten times as many changes take ten times the
// processor's time, not a hundred times.
func TestOf_TakesTimeInProportion(t *testing.T) {
	large := func(n, value int) []byte {
		var b strings.Builder
		b.WriteString(`{"data":{"":0`)
		for i := range n {
			fmt.Fprintf(&b, `,"%d":%d`, i, value)
		}
		b.WriteString("}}")
		return []byte(b.String())
	}
	cost := func(n int) time.Duration {
		record := fieldchanges.Record{Verb: "patch", Patch: large(n, 1), Inverse: "patch", Undo: large(n, 2)}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		least := time.Hour
		for range 3 {
			began := cputime.Thread()
			changes, _, err := fieldchanges.Of(record)
			if err != nil || len(changes) != n {
				t.Fatalf("%d changes, %v", len(changes), err)
			}
			least = min(least, cputime.Thread()-began)
		}
		return least
	}
	few, many := cost(6_000), cost(60_000)
	t.Logf("6,000 changes in %v, 60,000 in %v", few, many)
	if many > 50*few {
		t.Errorf("60,000 changes take %v, 6,000 take %v", many, few)
	}
}
