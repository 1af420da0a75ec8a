package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// at is a time of a test, in seconds.
func at(second int) time.Time { return time.Unix(int64(1_800_000_000+second), 0).UTC() }

// world is a model of some objects of which the history is recorded.
type world struct {
	random  *rand.Rand
	fields  *selection
	now     int
	version int
	uids    int
	objects map[string]thing // by name
	log     []Record
	gaps    []span // in which it is not known what happened
	lost    []span // of which nothing is recorded
}

type span struct{ from, to int }

// thing is a version of an object.
type thing struct {
	uid     string
	version int
	body    string
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	fields, err := newSelection("Node", []string{"metadata.labels", "spec.replicas", "spec.taints", "status.conditions"})
	if err != nil {
		t.Fatal(err)
	}
	return &world{random: rand.New(rand.NewPCG(seed, 1)), fields: fields, objects: map[string]thing{}}
}

// body returns the JSON of an object: taints may have one key, and then several values.
func (w *world) body() string {
	var labels, taints []string
	for _, key := range []string{"a", "b.example.com/c"} {
		if w.random.IntN(2) > 0 {
			labels = append(labels, fmt.Sprintf(`%q:"%d"`, key, w.random.IntN(2)))
		}
	}
	for range w.random.IntN(4) {
		taints = append(taints, fmt.Sprintf(`{"effect":"E%d","key":"k%d"}`, w.random.IntN(3), w.random.IntN(2)))
	}
	return fmt.Sprintf(`{"metadata":{"labels":{%s}},"spec":{"replicas":%d,"taints":[%s]},"status":{"conditions":[{"status":"%t","type":"Ready"}]}}`,
		strings.Join(labels, ","), w.random.IntN(3), strings.Join(taints, ","), w.random.IntN(2) > 0)
}

func (w *world) create(name string) {
	w.uids++
	w.version++
	w.objects[name] = thing{fmt.Sprintf("uid-%d", w.uids), w.version, w.body()}
}

// step has something happen.
func (w *world) step() {
	name := fmt.Sprintf("n%d", w.random.IntN(4))
	was, is := w.objects[name]
	switch {
	case !is:
		w.create(name)
	case w.random.IntN(5) == 0:
		delete(w.objects, name)
	case w.random.IntN(5) == 0: // recreated
		w.create(name)
	default:
		w.version++
		w.objects[name] = thing{was.uid, w.version, w.body()}
	}
}

// differences returns how two states differ, as records.
func (w *world) differences(before, after map[string]thing) (out []Record) {
	var walks [2]walker
	leafs := func(i int, of *thing) []leaf {
		if of == nil {
			return nil
		}
		return walks[i].fields([]byte(of.body), w.fields)
	}
	add := func(name string, was, is *thing) {
		of, transition := is, Changed
		if is == nil {
			of = was
		}
		changes, more := between(leafs(0, was), leafs(1, is))
		switch {
		case was == nil:
			transition = Created
		case is == nil:
			transition = Deleted
		case len(changes) == 0:
			return
		}
		r := Record{
			Time: at(w.now), Type: Object, Transition: transition, Member: "fleet/a", MemberUID: "a", Kind: "Node", Name: name, UID: of.uid, ResourceVersion: fmt.Sprint(of.version),
			Changes: changes, More: more,
		}
		r.Key = r.key()
		out = append(out, r)
	}
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var was, is *thing
		if x, ok := before[name]; ok {
			was = &x
		}
		if x, ok := after[name]; ok {
			is = &x
		}
		if was != nil && is != nil && was.uid != is.uid {
			add(name, was, nil)
			was = nil
		}
		add(name, was, is)
	}
	return out
}

// run has a history of n seconds, and returns the states at their beginnings.
func (w *world) run(n int, withGaps bool) (states []map[string]thing) {
	for ; w.now < n; w.now++ {
		states = append(states, maps.Clone(w.objects))
		if withGaps && w.random.IntN(8) == 0 {
			from, before, lost := w.now, maps.Clone(w.objects), w.random.IntN(3) == 0
			for range 1 + w.random.IntN(4) {
				w.step()
				w.now++
				states = append(states, maps.Clone(w.objects))
			}
			gap := Record{Time: at(w.now), Type: Gap, Transition: "Gap", Member: "fleet/a", MemberUID: "a", Kind: "Node", From: new(at(from)), To: new(at(w.now)), Key: fmt.Sprint("gap ", w.now)}
			w.gaps = append(w.gaps, span{from, w.now})
			if lost {
				w.lost = append(w.lost, span{from, w.now})
			} else {
				w.log = append(w.log, w.differences(before, w.objects)...)
			}
			w.log = append(w.log, gap)
			continue
		}
		before := maps.Clone(w.objects)
		for range w.random.IntN(3) {
			w.step()
			w.log = append(w.log, w.differences(before, w.objects)...)
			before = maps.Clone(w.objects)
		}
	}
	return append(states, maps.Clone(w.objects))
}

// foldOf folds the records of a log within a span, and the gaps that were recorded later.
func foldOf(t *testing.T, log []Record, since, until time.Time, part bool) *Fold {
	t.Helper()
	f := NewFold(since, until, part)
	for i := range log {
		r := &log[i]
		if r.Time.Before(since) || !r.Time.Before(until) && r.Type != Gap {
			continue
		}
		if err := f.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// netLines are records as lines: what of a field went and came, in order.
func netLines(records []Record) (lines []string) {
	for i := range records {
		r := &records[i]
		if r.Type == Gap {
			continue
		}
		line := []string{string(r.Type), r.Transition, r.Name, r.UID}
		values := map[string][2][]string{}
		for _, c := range r.Changes {
			of := values[c.Path]
			if c.Before != nil {
				of[0] = append(of[0], string(c.Before))
			}
			if c.After != nil {
				of[1] = append(of[1], string(c.After))
			}
			values[c.Path] = of
		}
		for _, path := range slices.Sorted(maps.Keys(values)) {
			of := values[path]
			slices.Sort(of[0])
			slices.Sort(of[1])
			line = append(line, fmt.Sprintf("%s:%s>%s", path, strings.Join(of[0], "+"), strings.Join(of[1], "+")))
		}
		lines = append(lines, strings.Join(line, " "))
	}
	slices.Sort(lines)
	return lines
}

// TestFold_EqualsTheComparisonOfBothEnds of a span: what is folded of a random history of objects is how the states at its ends differ, unless an end is
// within a gap or something was lost, which then is said.
func TestFold_EqualsTheComparisonOfBothEnds(t *testing.T) {
	compared, doubted := 0, 0
	for seed := range uint64(600) {
		w := newWorld(t, seed)
		states := w.run(5+w.random.IntN(60), seed%2 == 0)
		for range 4 {
			since := w.random.IntN(len(states))
			until := since + w.random.IntN(len(states)-since)
			f := foldOf(t, w.log, at(since), at(until), false)
			got := f.Records()
			touched, exact := false, true
			for _, g := range w.gaps {
				if g.to >= since && g.from < until {
					touched = true
					exact = exact && g.from >= since && g.to < until
				}
			}
			for _, g := range w.lost {
				exact = exact && (g.to < since || g.from >= until)
			}
			for i := range got {
				if r := &got[i]; r.Type == Object && r.Net.Incomplete != touched {
					t.Fatalf("seed %d, %d to %d: %s is incomplete: %t, want %t", seed, since, until, netLines(got[i:i+1]), r.Net.Incomplete, touched)
				}
			}
			if isGap := slices.ContainsFunc(got, func(r Record) bool { return r.Type == Gap }); isGap != touched {
				t.Fatalf("seed %d, %d to %d: there is a gap: %t, want %t", seed, since, until, isGap, touched)
			}
			if !exact {
				doubted++
				continue
			}
			compared++
			if got, want := netLines(got), netLines(w.differences(states[since], states[until])); !slices.Equal(got, want) {
				t.Fatalf("seed %d, %d to %d: folded is\n%s\nwant\n%s", seed, since, until, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
	t.Logf("%d spans compared, %d in doubt", compared, doubted)
	if compared < 1500 || doubted < 300 {
		t.Error("too few")
	}
}

// TestFold_OfPartsIsThatOfAll: processes record the same objects one after another, or at once, each with its delay, some of what another one
// has not seen. What is merged of their folds is how the ends differ.
func TestFold_OfPartsIsThatOfAll(t *testing.T) {
	compared := 0
	for seed := range uint64(500) {
		w := newWorld(t, seed)
		states := w.run(10+w.random.IntN(40), false)
		since := w.random.IntN(len(states))
		until := since + w.random.IntN(len(states)-since)
		logs := make([][]Record, 3)
		holder, second := 0, -1 // who reads the objects, and stands by
		for _, r := range w.log {
			switch w.random.IntN(6) {
			case 0: // taken over by who stands by, or by somebody else
				holder, second = max(second, w.random.IntN(3)), -1
			case 1:
				second = w.random.IntN(3)
			}
			logs[holder] = append(logs[holder], r)
			if second >= 0 && second != holder {
				late := r
				if late.Time = r.Time.Add(time.Duration(w.random.IntN(2500)) * time.Millisecond); r.Time.Before(at(since)) && !late.Time.Before(at(since)) {
					late.Time = r.Time
				}
				logs[second] = append(logs[second], late)
			}
		}
		merged := NewFold(at(since), at(until), false)
		for _, i := range w.random.Perm(3) {
			part, err := json.Marshal(foldOf(t, logs[i], at(since), at(until), true))
			if err != nil {
				t.Fatal(err)
			}
			if err := merged.Merge(part); err != nil {
				t.Fatal(err)
			}
		}
		want := netLines(w.differences(states[since], states[until]))
		records := merged.Records()
		if slices.ContainsFunc(records, func(r Record) bool { return r.Net.Incomplete }) { // of several values each process lacks some
			continue
		}
		compared++
		if got := netLines(records); !slices.Equal(got, want) {
			t.Fatalf("seed %d, %d to %d: merged is\n%s\nwant\n%s", seed, since, until, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if t.Logf("%d compared", compared); compared < 300 {
		t.Error("too few")
	}
}

// TestFolding_IsOfSeveralCallers: who asks for many folds at once waits for their own.
func TestFolding_IsOfSeveralCallers(t *testing.T) {
	h := &History{folds: make(chan struct{}, maxFolds), turns: map[string]*foldTurn{}}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		first, err := h.Folding(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Folding(over, "ann"); !errors.Is(err, context.Canceled) {
			t.Errorf("a second one of ann: %v", err)
		}
		second, err := h.Folding(t.Context(), "bob")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Folding(over, "eve"); !errors.Is(err, context.Canceled) {
			t.Errorf("a third one: %v", err)
		}
		first()
		second()
	}
	if len(h.turns) > 0 || len(h.folds) > 0 {
		t.Errorf("%d callers are held", len(h.turns))
	}
}

// TestFold_TakesWhatIsRecordedAgainOnce: a process that was killed is followed by one that takes again what was recorded.
func TestFold_TakesWhatIsRecordedAgainOnce(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(t, seed)
		states := w.run(40, false)
		again := w.random.IntN(len(w.log))
		log := slices.Concat(w.log, w.log[again:])
		for i := range w.log[again:] {
			log[len(w.log)+i].Time = at(41)
		}
		got := netLines(foldOf(t, log, at(0), at(50), false).Records())
		if want := netLines(w.differences(states[0], states[len(states)-1])); !slices.Equal(got, want) {
			t.Fatalf("seed %d: folded is\n%s\nwant\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
