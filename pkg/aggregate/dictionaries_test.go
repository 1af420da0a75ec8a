package aggregate_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// trainOut calls Train until nothing is to be done, however long that takes.
func trainOut(t *testing.T, x *aggregate.Index) {
	t.Helper()
	for {
		_, more, err := x.Train(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return
		}
	}
}

// TestTrain_DictionariesGoWithTheirKinds: a member that serves other kinds at each discovery
// leaves nothing behind.
func TestTrain_DictionariesGoWithTheirKinds(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	for round := range 3 {
		var scopes []*aggregate.Scope
		for k := range 10 {
			s := openScope(t, x, "m", aggregate.Kind(fmt.Sprintf("Evil%d-%d.example", round, k)))
			fill(t, s, 64, func(i int) []byte { return shape(k, i) })
			scopes = append(scopes, s)
		}
		churned := openScope(t, x, "m", aggregate.Kind(fmt.Sprintf("Churn%d.example", round)))
		fill(t, churned, 500, func(i int) []byte { return shape(1, i) })
		for i := range 500 {
			churned.Delete("n", fmt.Sprintf("p%05d", i))
		}
		mustCommit(t, churned)
		trainOut(t, x)
		if round == 0 && x.Account().Codecs < 10*(512<<10) {
			t.Fatalf("kinds were not trained: their codecs cost %d bytes", x.Account().Codecs)
		}
		for _, s := range scopes {
			s.Remove()
		}
		churned.Remove()
		trainOut(t, x)
		if n := x.Account().Codecs; n != 0 {
			t.Errorf("after round %d codecs cost %d bytes, and no kind is left", round, n)
		}
	}
	// A kind that comes back is trained as any other.
	s := openScope(t, x, "m", "Pod")
	fill(t, s, 500, func(i int) []byte { return shape(1, i) })
	trainOut(t, x)
	s.Remove()
	trainOut(t, x)
	s = openScope(t, x, "m", "Pod")
	fill(t, s, 500, func(i int) []byte { return shape(1, i) })
	_, plain := s.Size()
	trainOut(t, x)
	if _, packed := s.Size(); packed > plain*3/4 {
		t.Errorf("a kind that came back has %d bytes after its training, %d before", packed, plain)
	}
	wantAccounts(t, x, s, func(i int) []byte { return shape(1, i) })
}

// TestTrain_DictionariesAreBounded by what is held with them: kinds of few objects do not cost
// more than their objects, however many a member invents, and those of many objects keep
// what serves them.
func TestTrain_DictionariesAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine trains, for long where races are looked for")
	}
	const base = 64 << 20
	x := newIndex(t, aggregate.Options{})
	pods := openScope(t, x, "m", "Pod")
	body := func(i int) []byte { return shape(1, i) }
	fill(t, pods, 3000, body)
	_, plain := pods.Size()
	trainOut(t, x)
	_, packed := pods.Size()
	for k := range 150 {
		s := openScope(t, x, "m", aggregate.Kind(fmt.Sprintf("Evil%d.example", k)))
		fill(t, s, 64, func(i int) []byte { return shape(2+k, i) })
		trainOut(t, x)
	}
	a := x.Account()
	if a.Codecs > base+a.Scopes/4+(1<<20) {
		t.Errorf("codecs cost %d bytes where scopes hold %d", a.Codecs, a.Scopes)
	}
	if _, now := pods.Size(); now > packed+packed/8 || packed > plain*3/4 {
		t.Errorf("the largest kind had %d bytes, %d once trained, and has %d", plain, packed, now)
	}
	for i := range 3000 {
		o, ok := x.Snapshot().Get(aggregate.Ref{Member: "m", Kind: "Pod", Namespace: "n", Name: fmt.Sprintf("p%05d", i)})
		if !ok {
			t.Fatal("an object is missing")
		}
		if b, err := o.AppendBody(nil); err != nil || string(b) != string(body(i)) {
			t.Fatalf("body %d is %q (%v)", i, b, err)
		}
	}
	for k := range 150 { // whatever has become of their dictionary
		o, ok := x.Snapshot().Get(aggregate.Ref{Member: "m", Kind: aggregate.Kind(fmt.Sprintf("Evil%d.example", k)), Namespace: "n", Name: "p00007"})
		if !ok {
			t.Fatal("an object is missing")
		}
		if b, err := o.AppendBody(nil); err != nil || string(b) != string(shape(2+k, 7)) {
			t.Fatalf("body of kind %d is %q (%v)", k, b, err)
		}
	}
	// A kind that grows takes the place of one that has not.
	grown := openScope(t, x, "m", "Grown.example")
	fill(t, grown, 3000, body)
	_, plain = grown.Size()
	trainOut(t, x)
	if _, packed := grown.Size(); packed > plain*3/4 {
		t.Errorf("a large kind that came late has %d bytes, and had %d", packed, plain)
	}
}

// TestLoad_GoesOnWithItsDictionaries: what was loaded is neither trained nor encoded again, and what comes is
// encoded as it is.
func TestLoad_GoesOnWithItsDictionaries(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine trains, for long where races are looked for")
	}
	x := newIndex(t, aggregate.Options{})
	s := openScope(t, x, "m", "Pod")
	fill(t, s, 300, func(i int) []byte { return shape(1, i) })
	if len(trainAll(t, x)) == 0 {
		t.Fatal("nothing was trained")
	}
	y := newIndex(t, aggregate.Options{Revisions: aggregate.Block(2)})
	if err := write(x.Newest()).load(y); err != nil {
		t.Fatal(err)
	}
	if done := trainAll(t, y); len(done) > 0 {
		t.Errorf("after it was loaded: %+v", done)
	}
	s = openScope(t, y, "m", "Pod")
	s.Upsert(s.Item(record(1000, 1000, shape(1, 1000))))
	mustCommit(t, s)
	if n := aggregate.EarlySamples(y, "Pod"); n > 0 {
		t.Errorf("%d samples are kept for a training that need not be", n)
	}
	dictionaries := func(x *aggregate.Index, name string) (ids []aggregate.DictionaryID) {
		o, ok := x.Snapshot().Get(aggregate.Ref{Member: "m", Kind: "Pod", Namespace: "n", Name: name})
		if !ok {
			t.Fatalf("%s is not there", name)
		}
		var e aggregate.Encoder
		e.Append(nil, o)
		for d := range e.Dictionaries {
			ids = append(ids, d.ID())
		}
		return ids
	}
	was, is := dictionaries(x, "p00001"), dictionaries(y, "p01000")
	if len(was) != 1 || len(is) != 1 || was[0] != is[0] {
		t.Errorf("what comes is encoded with %x, want %x", is, was)
	}
	// What no longer compresses as it did is trained again.
	fill(t, s, 1000, func(i int) []byte { return shape(2, i) })
	if done := trainAll(t, y); len(done) == 0 {
		t.Error("what is no longer alike is not trained")
	}
}
