package aggregate

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSnapshot_ReadsTakeNoLock shows that no reader waits for a writer: all reads are
// answered while every lock of the index and of a scope is held.
func TestSnapshot_ReadsTakeNoLock(t *testing.T) {
	x, err := New(Options{Revisions: Block(1), Fields: map[Kind][]string{"Pod": {"spec.nodeName"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.PutMember(Member{Name: "m", UID: "u"}); err != nil {
		t.Fatal(err)
	}
	s, err := x.OpenScope("m", "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	cursor := x.Cursor(nil)
	s.Upsert(s.Item(&Record{Name: "a", UID: "u", ResourceVersion: "1", Body: []byte(`{"spec":{"nodeName":"n"}}`)}))
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, mu := range []interface{ Lock() }{&s.mu, &x.mu, &x.codecs.mu, &x.codecs.training, &s.interner().mu} {
		mu.Lock()
	}
	snap := x.Snapshot()
	o, ok := snap.Get(Ref{Member: "m", Kind: "Pod", Name: "a"})
	if !ok {
		t.Fatal("the object is not there")
	}
	if _, err := o.AppendBody(nil); err != nil {
		t.Error(err)
	}
	if n, err := snap.Count(Query{Kind: "Pod", Fields: map[string]string{"spec.nodeName": "n"}}); n != 1 || err != nil {
		t.Errorf("count %d, %v", n, err)
	}
	if b, ok := cursor.Poll(); !ok || len(slices.Collect(b.Deltas())) != 1 {
		t.Error("the cursor gave no delta")
	}
	changes, err := x.Changes(x.First())
	if err != nil {
		t.Fatal(err)
	}
	for c := range changes {
		if c.After != o {
			t.Errorf("change %+v", c)
		}
	}
	<-x.Newer(&Snapshot{})
}

// TestChangeLog_ReleasesWhatItDrops shows that a record which left the window is not kept alive by
// its chunk when it holds much, and that bulk changes are cut and no others lost.
func TestChangeLog_ReleasesWhatItDrops(t *testing.T) {
	const bound = 1 << 20
	var l changeLog
	for i := range Revision(10) {
		l = l.add(&record{from: i, to: i + 1, since: i, bytes: 1}, bound)
	}
	before := l
	bulk := func(at Revision, kind Kind, pinned int64) {
		root := &scopeRoot{scopeID: &scopeID{member: "m", kind: kind}}
		l = l.add(bulkRecord(at, at+1, []scopeChange{{before: root}}, pinned), bound)
	}
	bulk(10, "Pod", 900<<10)
	bulk(11, "Job.batch", 900<<10)
	if l.end-l.start != 12 || l.pinned != 900<<10 || !l.at(10).cut || l.at(11).cut {
		t.Fatalf("log of %d records pins %d: %+v, %+v", l.end-l.start, l.pinned, l.at(10), l.at(11))
	}
	if i, ok := l.since(3, 12); !ok || i != 3 {
		t.Errorf("what came before the bulk changes is not answered: %d", i)
	}
	for _, tt := range []struct {
		after Revision
		kind  Kind
		want  bool
	}{{11, "", false}, {10, "", true}, {3, "", true}, {10, "Pod", true}, {11, "Pod", false}, {3, "Job.batch", false}} {
		if got := l.cutSince(tt.after, tt.kind); got != tt.want {
			t.Errorf("cut since %d of %q: %t", tt.after, tt.kind, got)
		}
	}
	bulk(12, "Pod", 3<<20)
	if l.pinned != 3<<20 || !l.at(11).cut || l.at(12).cut {
		t.Errorf("the last bulk change is not there for those who follow: %d are pinned", l.pinned)
	}
	for i := range Revision(lastStays) {
		l = l.add(&record{from: 13 + i, to: 14 + i, since: 13 + i, bytes: 1}, bound)
	}
	if l.pinned != 0 {
		t.Errorf("%d bytes stay pinned", l.pinned)
	}
	bulk(2000, "Pod", 5<<20)
	if l.pinned != 0 || !l.cutSince(1999, "Pod") || l.cutSince(1999, "Job.batch") {
		t.Errorf("what is too large for the log is kept: %d", l.pinned)
	}
	at := Revision(2001)
	for range maxCuts + 10 {
		bulk(at, "Pod", 5<<20)
		at++
	}
	if len(l.cuts) > maxCuts || l.at(l.start).to <= 11 {
		t.Errorf("%d cut records are kept, from %d on", len(l.cuts), l.at(l.start).to)
	}
	heavy := &record{from: at, to: at + 1, since: at, bytes: 900 << 10}
	l = l.add(heavy, bound)
	chunk, place := l.chunks[(l.end-1)/chunkLen], (l.end-1)%chunkLen
	l = l.add(&record{from: at + 1, to: at + 2, since: at + 1, bytes: 900 << 10}, bound)
	if l.end-l.start != 1 || l.at(l.start).from != at+1 || chunk[place] != heavy {
		t.Errorf("log of %d records from %d", l.end-l.start, l.at(l.start).from)
	}
	for _, c := range l.chunks {
		for _, r := range c {
			if r == heavy {
				t.Error("the chunk still has a heavy record that left")
			}
		}
	}
	for i := before.start; i < before.end; i++ {
		if before.at(i) == nil || before.at(i).cut {
			t.Errorf("an older reader's record %d is gone", i)
		}
	}
	if _, ok := l.since(10, at+2); ok {
		t.Error("a revision before the window is answered")
	}
}

// TestAttrIndex_PairsOfOneHash shows that a pair is found by what it says, not by its hash alone.
func TestAttrIndex_PairsOfOneHash(t *testing.T) {
	x := newAttrIndex(func(id *identity) *attrSet { return id.labels })
	var in interner
	var key []byte
	var sets []*attrSet
	for i, name := range []string{"a", "b", "c"} {
		set, fresh := in.set(&key, labelSpace, []Label{{"app", name}})
		if !fresh {
			t.Fatal("the set was there")
		}
		sets = append(sets, set)
		x.postings.Set(&identity{namespace: firstKey.namespace, name: name, labels: set})
		p := placeOf(Label{"app", "a"}, set) // as if all had the hash of the first
		x.pairs.Set(p)
		if p.set() != set.id {
			t.Errorf("the place of set %d leads to %d", set.id, p.set())
		}
		if got := x.having(nil, "app", "a"); len(got) != 1 || got[0] != sets[0] {
			t.Errorf("with %d sets %d are found", i+1, len(got))
		}
	}
	x.pairs.Set(pairPlace{hash: hashPair("app", "a"), low: 1 << 31}) // of no set
	if got := x.having(nil, "app", "a"); len(got) != 1 {
		t.Errorf("%d sets are found", len(got))
	}
	if got := x.sets(); !slices.Equal(got, sets) {
		t.Errorf("%d sets, want %d", len(got), len(sets))
	}
}

func FuzzKeyOrder(f *testing.F) {
	f.Add("", "", "", "a", "n", "a")
	f.Add("n", "a", "n\x00", "a", "n-1", "\xff")
	f.Add("b", "a", "a", "b", "a", "a")
	f.Fuzz(func(t *testing.T, ns1, n1, ns2, n2, ns3, n3 string) {
		ids := []*identity{key(ns1, n1), key(ns2, n2), key(ns3, n3)}
		order := func(a, b *identity) int {
			if c := strings.Compare(a.namespace.Value(), b.namespace.Value()); c != 0 {
				return c
			}
			return strings.Compare(a.name, b.name)
		}
		tree := newTree(lessEntry)
		for _, a := range ids {
			tree.Set(&entry{identity: a})
			if compareKeys(firstKey, a) > 0 {
				t.Errorf("%q comes before the first key", a.name)
			}
			for _, b := range ids {
				if compareKeys(a, b) != order(a, b) || compareKeys(a, b) != -compareKeys(b, a) {
					t.Errorf("%q/%q against %q/%q: %d", a.namespace.Value(), a.name, b.namespace.Value(), b.name, compareKeys(a, b))
				}
			}
		}
		slices.SortFunc(ids, order)
		ids = slices.CompactFunc(ids, func(a, b *identity) bool { return order(a, b) == 0 })
		i := 0
		tree.Scan(func(e *entry) bool {
			if i >= len(ids) || order(e.identity, ids[i]) != 0 {
				t.Errorf("item %d is %q/%q", i, e.namespace.Value(), e.name)
				return false
			}
			i++
			return true
		})
		if i != len(ids) {
			t.Errorf("%d items, want %d", i, len(ids))
		}
	})
}

func FuzzUID(f *testing.F) {
	for _, s := range []string{
		"", "6f1c0e1a-0000-4000-8000-00000000000a", "6F1C0E1A-0000-4000-8000-00000000000A",
		"6f1c0e1a-0000-4000-8000-00000000000g", "6f1c0e1a-0000-4000-8000-0000000000-a", "6f1c0e1a00004000800000000000000a----",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if u, ok := parseUID(s); ok && formatUID(u) != s {
			t.Errorf("%q came out as %q", s, formatUID(u))
		} else if !ok && u != [16]byte{} {
			t.Errorf("%q is refused, but gave %x", s, u)
		}
		var u [16]byte
		copy(u[:], s)
		if back, ok := parseUID(formatUID(u)); !ok || back != u {
			t.Errorf("%x came out as %x, %t", u, back, ok)
		}
	})
}

func FuzzRV(f *testing.F) {
	for _, s := range []string{"", "0", "00", "+1", "-1", "1_0", "18446744073709551614", "18446744073709551615", "18446744073709551616", "0x1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, ok := parseRV(s)
		want, err := strconv.ParseUint(s, 10, 64)
		canonical := err == nil && strconv.FormatUint(want, 10) == s && want != oddRV
		if ok != canonical || ok && v != want || !ok && v != oddRV {
			t.Errorf("%q gave %d, %t", s, v, ok)
		}
	})
}

// FuzzFields compares the values of declared fields with what encoding/json
// finds, on the canonical form of the input; on the input itself it must only
// come to an end.
func FuzzFields(f *testing.F) {
	for _, s := range []string{
		`{"a":{"b":"x"}}`, `{"a":{"b":1e5}}`, `{"a":{"b":null}}`, `{"a":{"b":[{"b":"}"}]}}`, `{"a":{"b":"\""}}`, `{"a":[{"b":1}]}`,
		`{"\u0061":{"b":true}}`, `{"a":{"":"x","b":"\\"}}`, `{"a":`, `{"a"`, `{"`, `{"a":}`, `{"a":{"b":"\`, `[]]`, `{"a":{}]`, `{"\":{"b":1}}`,
	} {
		f.Add([]byte(s))
	}
	fields := splitFields([]string{"a.b", "a", ".", "a.b.c"})
	f.Fuzz(func(t *testing.T, raw []byte) {
		fieldValues(nil, raw, fields)
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		var v any
		if dec.Decode(&v) != nil {
			return
		}
		var canonical bytes.Buffer
		enc := json.NewEncoder(&canonical)
		enc.SetEscapeHTML(false)
		if enc.Encode(v) != nil {
			return
		}
		body := bytes.TrimSuffix(canonical.Bytes(), []byte("\n"))
		var want []Label
		for _, p := range []string{"a.b", "a", "a.b.c"} {
			if s, ok := jsonField(body, strings.Split(p, ".")); ok {
				want = append(want, Label{p, s})
			}
		}
		if got := fieldValues(nil, body, splitFields([]string{"a.b", "a", "a.b.c"})); !slices.Equal(got, want) {
			t.Errorf("%s gave %q, want %q", body, got, want)
		}
	})
}

func jsonField(raw json.RawMessage, steps []string) (string, bool) {
	for i, step := range steps {
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) != nil || m[step] == nil {
			return listed, i > 0 && raw[0] == '[' // the body itself is no list
		}
		raw = m[step]
	}
	switch s := string(raw); s[0] {
	case '[':
		return listed, true
	case '{', 'n':
		return "", false
	case '"':
		return s[1 : len(s)-1], !strings.Contains(s, `\`)
	default:
		return s, true
	}
}
