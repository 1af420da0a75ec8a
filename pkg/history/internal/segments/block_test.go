package segments

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"federator.dev/federator/internal/frames"
)

// randomEntry is one that is like others.
func randomEntry(rng *rand.Rand) Entry {
	pick := func(values ...string) string { return values[rng.IntN(len(values))] }
	e := Entry{
		Revision: rng.Int64N(1 << 40), Member: pick("", "prod/eu-1", "prod/eu-2", "test/a"), Kind: pick("Pod", "Deployment.apps", "Node", ""),
		Namespace: pick("", "shop", "kube-system"), Name: pick("", "web", "web-1", fmt.Sprint("web-", rng.IntN(50))), Policy: pick("", "", "p1", "p2"),
	}
	switch rng.IntN(4) {
	case 0:
		e.UID = fmt.Sprint("odd ", rng.IntN(20))
	case 1, 2:
		e.UID = fmt.Sprintf("00000000-0000-4000-8000-%012x", rng.IntN(100))
	}
	e.Payload = make([]byte, rng.IntN(300))
	for i := range e.Payload {
		e.Payload[i] = "{}\"abc:,"[rng.IntN(8)]
	}
	if rng.IntN(200) == 0 {
		e.Payload = bytes.Repeat([]byte{'x'}, rng.IntN(100_000))
	}
	return e
}

func randomBlock(rng *rand.Rand, n int) (entries []Entry, out []byte) {
	var w blockWriter
	for i := range n {
		e := randomEntry(rng)
		e.Position = uint64(1000 + 3*i)
		if rng.IntN(10) == 0 && i > 0 {
			e.Revision = -e.Revision
		}
		entries = append(entries, e)
		s := subjectOf(&e)
		w.add(&s, row{position: e.Position, time: int64(i * 7 % 5), revision: e.Revision, payload: e.Payload})
	}
	return entries, w.append(nil)
}

func TestBlock_IsReadAsItWasWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var b block
	for range 100 {
		entries, in := randomBlock(rng, rng.IntN(200))
		for _, about := range []subject{{}, {facetKind: "Pod"}, {facetMember: "prod/eu-1", facetUID: "00000000-0000-4000-8000-000000000007"}} {
			if err := b.decode(in, &about); err != nil {
				t.Fatal(err)
			}
			q := Query{Member: about[facetMember], Kind: about[facetKind], UID: about[facetUID]}
			rows := b.rows
			for i := range entries {
				e := &entries[i]
				if !q.matches(e) {
					continue
				}
				if len(rows) == 0 {
					t.Fatalf("entry %d is missing", i)
				}
				r := rows[0]
				rows = rows[1:]
				if r.position != e.Position || r.revision != e.Revision || b.subjects[r.subject] != subjectOf(e) || !bytes.Equal(r.payload, e.Payload) {
					t.Fatalf("entry %d: %+v of %q, want %+v", i, r, b.subjects[r.subject], e)
				}
			}
			if len(rows) > 0 {
				t.Fatalf("%d entries too many", len(rows))
			}
		}
	}
}

func TestUUID_OnlyOfOneText(t *testing.T) {
	for _, s := range []string{
		"0190F5EA-0000-4000-8000-000000000001", "0190f5ea-0000-4000-8000-00000000000g", "0190f5ea00000-4000-8000-000000000001", "",
		"0190f5ea-0000-4000-8000-000000000001",
	} {
		in := appendUID(nil, s)
		c := cursor{b: in}
		if got := string(c.facet([]byte("before"), facetUID)); got != s || c.bad || c.rest() > 0 {
			t.Errorf("%q is read as %q", s, got)
		}
	}
}

// FuzzBlock: whatever a block has, it is decoded or refused, and what is decoded is in it.
func FuzzBlock(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 20} {
		_, in := randomBlock(rng, n)
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var b block
		if err := b.decode(in, &subject{}); err != nil {
			if !errors.Is(err, frames.ErrDoubt) {
				t.Fatal(err)
			}
			return
		}
		var w blockWriter
		for _, r := range b.rows {
			w.add(&b.subjects[r.subject], r)
		}
		var again block
		if err := again.decode(w.append(nil), &subject{}); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(b.rows, again.rows, func(x, y row) bool {
			return b.subjects[x.subject] == again.subjects[y.subject] && x.position == y.position && x.time == y.time && x.revision == y.revision && bytes.Equal(x.payload, y.payload)
		}) {
			t.Fatal("it is not read as it was written again")
		}
	})
}

// matches reports whether a query asks for an entry.
func (q *Query) matches(e *Entry) bool {
	return (q.Member == "" || q.Member == e.Member) && (q.Kind == "" || q.Kind == e.Kind) &&
		(q.Namespace == "" || q.Namespace == e.Namespace) && (q.Name == "" || q.Name == e.Name) &&
		(q.UID == "" || q.UID == e.UID) && (q.Policy == "" || q.Policy == e.Policy) &&
		(q.After == 0 || e.Position > q.After) && (q.Before == 0 || e.Position < q.Before) &&
		(q.Since.IsZero() || !e.Time.Before(q.Since)) && (q.Until.IsZero() || e.Time.Before(q.Until))
}
