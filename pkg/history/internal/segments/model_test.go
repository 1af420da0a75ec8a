package segments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is a log and what it should have.
type model struct {
	t    *testing.T
	rng  *rand.Rand
	opts Options
	now  time.Time
	log  *Log
	all  []Entry // ever appended
	seal *sealer
}

func newModel(t *testing.T, seed uint64, opts Options) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 1)), opts: opts, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	m.opts.Directory, m.opts.Log = t.TempDir()+"/d", slog.New(slog.NewTextHandler(t.Output(), nil))
	m.opts.Now = func() time.Time { return m.now }
	m.open()
	t.Cleanup(func() { m.log.Close() })
	return m
}

func (m *model) open() {
	m.t.Helper()
	l, err := Open(m.opts)
	if err != nil {
		m.t.Fatal(err)
	}
	if m.seal, err = newSealer(l); err != nil {
		m.t.Fatal(err)
	}
	m.log = l
}

func (m *model) append(n int) {
	m.t.Helper()
	batch := make([]Entry, n)
	for i := range batch {
		batch[i] = randomEntry(m.rng)
	}
	last, err := m.log.Append(batch)
	if err != nil {
		m.t.Fatal(err)
	}
	before := uint64(0)
	if len(m.all) > 0 {
		before = m.all[len(m.all)-1].Position
	}
	for i := range batch {
		if batch[i].Position <= before || !batch[i].Time.Equal(m.now.Truncate(time.Millisecond)) {
			m.t.Fatalf("position %d at %s after %d", batch[i].Position, batch[i].Time, before)
		}
		before = batch[i].Position
	}
	if n > 0 && last != before {
		m.t.Fatalf("the last is %d, not %d", last, before)
	}
	m.all = append(m.all, batch...)
}

func (m *model) sealAll() { m.log.sealAll(m.t.Context(), m.seal) }

// query is a random one, about something that there is.
func (m *model) query() (q Query) {
	rng := m.rng
	var e Entry
	if len(m.all) > 0 {
		e = m.all[rng.IntN(len(m.all))]
	}
	for f, set := range []*string{&q.Member, &q.Kind, &q.Namespace, &q.Name, &q.UID, &q.Policy} {
		if about := subjectOf(&e); rng.IntN(4) == 0 {
			*set = about[f]
		}
	}
	if rng.IntN(4) == 0 {
		q.Since = e.Time.Add(time.Duration(rng.IntN(3)-1) * time.Millisecond)
	}
	if rng.IntN(4) == 0 {
		q.Until = e.Time.Add(time.Duration(rng.IntN(20_000)-1) * time.Millisecond)
	}
	if rng.IntN(4) == 0 {
		q.After = e.Position
	}
	if rng.IntN(4) == 0 {
		q.Before = e.Position + rng.Uint64N(500)
	}
	q.Backward = rng.IntN(2) == 0
	return q
}

// read reads what a query asks for, without gaps.
func read(t testing.TB, l *Log, q Query) (out []Entry, gaps []GapError) {
	t.Helper()
	for e, err := range l.Read(q) {
		var g *GapError
		switch {
		case errors.As(err, &g):
			gaps = append(gaps, *g)
		case err != nil:
			t.Fatal(err)
		default:
			out = append(out, e)
		}
	}
	return out, gaps
}

func equal(a, b Entry) bool {
	return a.Position == b.Position && a.Time.Equal(b.Time) && a.Revision == b.Revision && subjectOf(&a) == subjectOf(&b) && bytes.Equal(a.Payload, b.Payload)
}

// check compares what random queries are answered with what there is.
func (m *model) check(what string) {
	m.t.Helper()
	oldest := m.log.Status().Oldest.Position
	for i := range 12 {
		q := m.query()
		if i == 0 {
			q = Query{}
		}
		var want []Entry
		for _, e := range m.all {
			if q.matches(&e) && e.Position >= oldest {
				want = append(want, e)
			}
		}
		if q.Backward {
			slices.Reverse(want)
		}
		got, gaps := read(m.t, m.log, q)
		if !slices.EqualFunc(got, want, equal) {
			m.t.Fatalf("%s: %+v has %d entries, want %d (of %d)", what, q, len(got), len(want), len(m.all))
		}
		for _, g := range gaps {
			if !errors.Is(g.Err, ErrExpired) || q.After == 0 || g.From != q.After+1 || g.To >= oldest {
				m.t.Fatalf("%s: %+v has the gap %+v", what, q, g)
			}
		}
		if expired := q.After > 0 && q.After+1 < oldest && (q.Before == 0 || q.Before > q.After+1); expired != (len(gaps) == 1) {
			m.t.Fatalf("%s: %+v has gaps %+v, and the oldest is %d", what, q, gaps, oldest)
		}
	}
}

// TestLog_EqualsModel: random appends, restarts, kills, sealing and expiry; what is read is what was
// appended.
func TestLog_EqualsModel(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			opts := Options{SegmentBytes: minSegmentBytes}
			if seed%2 == 0 {
				opts.Key = bytes.Repeat([]byte{7}, 32)
			}
			if seed%3 == 0 {
				opts.MaxBytes = 5 * minSegmentBytes
			}
			if seed%4 == 0 {
				opts.MaxAge = 10 * time.Second
			}
			m := newModel(t, seed, opts)
			id := m.log.ID()
			for step := range 60 {
				m.now = m.now.Add(time.Duration(m.rng.IntN(500)) * time.Millisecond)
				if m.rng.IntN(20) == 0 {
					m.now = m.now.Add(-time.Second)
				}
				switch m.rng.IntN(12) {
				case 0:
					m.sealAll()
				case 1:
					m.log.rotateOld()
					m.log.expireOld()
				case 2:
					m.log.die()
					m.open()
				case 3:
					if err := m.log.Close(); err != nil {
						t.Fatal(err)
					}
					m.open()
				case 4:
					if err := m.log.Sync(); err != nil {
						t.Fatal(err)
					}
				default:
					m.append(m.rng.IntN(1 + 1<<m.rng.IntN(11)))
				}
				if g := m.log.Gaps(); len(g) > 0 {
					t.Fatalf("gaps: %+v", g)
				}
				if b := m.log.Status().Bytes; opts.MaxBytes > 0 && b > opts.MaxBytes {
					t.Fatalf("%d bytes, of at most %d", b, opts.MaxBytes)
				}
				if step%6 == 0 {
					m.check(fmt.Sprint("step ", step))
				}
			}
			m.sealAll()
			m.check("at the end")
			if m.log.ID() != id {
				t.Error("it has another name")
			}
		})
	}
}

// TestLog_ReadsPartsOfLargeSegments: what may match is more than a reader holds at a time.
func TestLog_ReadsPartsOfLargeSegments(t *testing.T) {
	m := newModel(t, 1, Options{SegmentBytes: 3 * windowBytes})
	for m.log.Status().Unsealed == 0 {
		for i := range 200 { // long ones, of which there are fewer
			batch := make([]Entry, 100)
			for j := range batch {
				batch[j] = randomEntry(m.rng)
				batch[j].Payload = bytes.Repeat([]byte(fmt.Sprint(i*j, " ")), 250)
			}
			if _, err := m.log.Append(batch); err != nil {
				t.Fatal(err)
			}
			m.all = append(m.all, batch...)
		}
		m.now = m.now.Add(time.Second)
	}
	m.sealAll()
	if st := m.log.Status(); st.Unsealed > 0 || st.Problem != nil {
		t.Fatalf("%+v", st)
	}
	for _, q := range []Query{{}, {Backward: true}, {After: 5000, Before: 19_000, Backward: true}, {Kind: "Pod"}} {
		want := slices.DeleteFunc(slices.Clone(m.all), func(e Entry) bool { return !q.matches(&e) })
		if q.Backward {
			slices.Reverse(want)
		}
		if got, gaps := read(t, m.log, q); !slices.EqualFunc(got, want, equal) || len(gaps) > 0 {
			t.Errorf("%+v: %d entries, want %d, gaps %+v", q, len(got), len(want), gaps)
		}
		n := 0
		for range m.log.Read(q) {
			if n++; n == 10 {
				break
			}
		}
	}
}

func TestMore_IsClosedByAppend(t *testing.T) {
	m := newModel(t, 1, Options{})
	c := m.log.More(0)
	select {
	case <-c:
		t.Fatal("there is nothing")
	default:
	}
	m.append(3)
	<-c
	<-m.log.More(2)
	c = m.log.More(3)
	select {
	case <-c:
		t.Fatal("there is no more")
	default:
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.log.Run(ctx) }()
	m.append(1)
	<-c
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
