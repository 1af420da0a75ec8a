package segments

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestLog_ReadersSealingAndExpiry: readers see each entry of a snapshot once, in order, while others
// are appended, sealed and expire; what expires while it is read is read to its end.
func TestLog_ReadersSealingAndExpiry(t *testing.T) {
	l, err := Open(Options{Directory: t.TempDir() + "/d", SegmentBytes: minSegmentBytes, MaxBytes: 8 * minSegmentBytes, Key: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var run, readers sync.WaitGroup
	run.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	const total = 20_000
	readers.Go(func() {
		rng := rand.New(rand.NewPCG(1, 1))
		payload := func() (out []byte) { // it does not compress
			for len(out) < 200 {
				out = binary.LittleEndian.AppendUint64(out, rng.Uint64())
			}
			return out
		}
		for n := 0; n < total; n += 50 {
			batch := make([]Entry, 50)
			for i := range batch {
				batch[i] = Entry{Revision: int64(n + i + 1), Kind: "Pod", Name: fmt.Sprint("web-", i%7), Payload: payload()}
			}
			if _, err := l.Append(batch); err != nil {
				t.Error(err)
				return
			}
			if n%1000 == 0 {
				if err := l.Sync(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range 3 {
		readers.Go(func() { readSnapshots(t, l, total, i) })
	}
	readers.Go(func() { follow(t, l, total) })
	readers.Wait()
	if st := l.Status(); st.Oldest.Position < 1000 || st.Bytes > 8*minSegmentBytes {
		t.Errorf("%+v", st)
	}
	cancel()
	run.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// readSnapshots reads all that there is, forward or backward, until all was appended.
func readSnapshots(t *testing.T, l *Log, total uint64, i int) {
	q := Query{Backward: i == 1}
	if i == 2 {
		q.Name = "web-3"
	}
	for last := uint64(0); last < total; {
		last = l.Status().Last.Position
		first, n, before := uint64(0), uint64(0), uint64(0)
		for e, err := range l.Read(q) {
			if err != nil {
				t.Error(err)
				return
			}
			step := e.Position - before
			if q.Backward {
				step = before - e.Position
			}
			if before > 0 && (q.Name == "" && step != 1 || step == 0 || step > 50) || uint64(e.Revision) != e.Position {
				t.Errorf("%+v: position %d after %d, of revision %d", q, e.Position, before, e.Revision)
				return
			}
			if before = e.Position; n == 0 {
				first = e.Position
			}
			n++
		}
		if newest := max(first, before); newest+50 < last {
			t.Errorf("%+v ends at %d, and %d was appended before", q, newest, last)
			return
		}
	}
}

// follow reads on from the last position, as sinks do, until all was appended: what it does not get
// it is told of.
func follow(t *testing.T, l *Log, total uint64) {
	for at := uint64(0); at < total; {
		<-l.More(at)
		for e, err := range l.Read(Query{After: at}) {
			var g *GapError
			if errors.As(err, &g) && errors.Is(err, ErrExpired) && g.From == at+1 {
				at = g.To
				continue
			}
			if err != nil {
				t.Error(err)
				return
			}
			if at > 0 && e.Position != at+1 { // at first, all that was there may have expired
				t.Errorf("position %d after %d", e.Position, at)
				return
			}
			at = e.Position
		}
	}
}

// TestRead_GoesOnInWhatHasExpired: a file that is unlinked is read to its end.
func TestRead_GoesOnInWhatHasExpired(t *testing.T) {
	m := newModel(t, 1, Options{SegmentBytes: minSegmentBytes})
	for m.log.Status().Segments < 5 {
		m.append(100)
		m.now = m.now.Add(time.Second)
	}
	n := 0
	for e, err := range m.log.Read(Query{}) {
		if err != nil || !equal(e, m.all[n]) {
			t.Fatalf("entry %d: %+v, %v", n, e, err)
		}
		switch n++; n {
		case 10:
			m.sealAll()
		case 700:
			m.log.expire(func(int64, *segment) bool { return true })
		}
	}
	if n != len(m.all) || m.log.Status().Segments != 1 {
		t.Errorf("%d entries of %d are read", n, len(m.all))
	}
}
