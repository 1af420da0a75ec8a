package notify

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/test/seed"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func fact(n int, until string) Fact {
	return Fact{UID: fmt.Sprintf("uid-%d", n), Transition: "began", Type: StopBegan, Until: until, Subject: fmt.Sprintf("stop %d", n), At: start}
}

// boxWorld is a box as processes see it that end at any point: only what is stored lasts.
type boxWorld struct {
	*testing.T

	random *rand.Rand
	stored []byte
	now    time.Time
	open   map[int]Fact
	listed map[string]bool   // ids that a process has collected and stored
	ended  map[string]bool   // of these: facts that have ended since
	got    map[string]int    // events that the receiver has taken, by id
	order  []string          // of the first of each
	bodies map[string]string // of each id
}

// pass is one pass of a process that may end at any point.
func (w *boxWorld) pass(complete bool) {
	w.Helper()
	b := &box{}
	if w.stored != nil {
		if err := json.Unmarshal(w.stored, b); err != nil {
			w.Fatal(err)
		}
	}
	next := b.clone()
	var facts []Fact
	for _, f := range w.open {
		if complete || w.random.IntN(2) == 0 {
			facts = append(facts, f)
		}
	}
	did := next.collect("/test", facts, complete, w.now)
	if did.changed {
		if w.random.IntN(8) == 0 {
			return // it ends before it has stored anything
		}
		w.store(next)
	}
	for _, f := range facts {
		w.listed[f.id()] = true
	}
	if complete {
		for id := range w.listed {
			w.ended[id] = w.ended[id] || !w.isOpen(id)
		}
	}
	for _, p := range next.clone().Pending {
		e := p.Event
		if w.random.IntN(6) == 0 {
			return // it ends, or the receiver does not answer
		}
		w.receive(&e)
		if w.random.IntN(6) == 0 {
			return // it ends before it has stored that the event was sent
		}
		next.sent(e.ID)
		w.store(next)
	}
}

func (w *boxWorld) isOpen(id string) bool {
	for _, f := range w.open {
		if f.id() == id {
			return true
		}
	}
	return false
}

func (w *boxWorld) store(b *box) {
	w.Helper()
	var err error
	if w.stored, err = json.Marshal(b); err != nil {
		w.Fatal(err)
	}
}

func (w *boxWorld) receive(e *Event) {
	w.Helper()
	if w.got[e.ID]++; w.got[e.ID] == 1 {
		w.order = append(w.order, e.ID)
		w.bodies[e.ID] = string(e.body())
	}
	if w.bodies[e.ID] != string(e.body()) {
		w.Errorf("event %s was sent with other content:\n%s\n%s", e.ID, w.bodies[e.ID], e.body())
	}
}

// TestBox_LosesNothing lets processes end at any point: every fact that one of them has
// listed is told, its end after its beginning, and what is told twice has one id.
func TestBox_LosesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Of(t), 1)) // A test's.
	duplicates := 0
	for range 60 {
		w := &boxWorld{
			T: t, random: random, now: start, open: map[int]Fact{}, listed: map[string]bool{}, ended: map[string]bool{}, got: map[string]int{}, bodies: map[string]string{},
		}
		for n := range 40 {
			w.now = w.now.Add(time.Duration(random.IntN(100)) * time.Second)
			switch f := fact(n, StopEnded); random.IntN(4) {
			case 0, 1:
				f.At = w.now
				w.open[n] = f
			case 2:
				for k := range w.open {
					delete(w.open, k)
					break
				}
			}
			w.pass(random.IntN(3) > 0)
		}
		for range 100 { // no process ends any more for long
			w.pass(true)
		}
		for id := range w.listed {
			if w.got[id] == 0 {
				t.Fatalf("fact %s was listed and is not told", id)
			}
			if w.ended[id] != (w.got[endedID(id)] > 0) {
				t.Fatalf("fact %s: ended %v, but its end was told %d times", id, w.ended[id], w.got[endedID(id)])
			}
		}
		began := map[string]bool{}
		for _, id := range w.order {
			if of, isEnd := strings.CutSuffix(id, "/ended"); isEnd && !began[of] {
				t.Fatalf("the end of %s was told before it", of)
			}
			began[id] = true
			duplicates += w.got[id] - 1
		}
	}
	if duplicates == 0 {
		t.Error("no event was sent twice: no process has ended after it had sent one")
	}
}

func TestBox_IsBounded(t *testing.T) {
	b := &box{}
	var facts []Fact
	for n := range 4000 {
		f := fact(n, StopEnded)
		f.Data = map[string]string{"why": strings.Repeat("x", 2*maxValue)}
		facts = append(facts, f)
	}
	did := b.collect("/test", facts, true, start)
	if n := b.size(); n > maxBytes {
		t.Errorf("a box has %d bytes, the maximum is %d", n, maxBytes)
	}
	if did.overflow == 0 || did.overflow+len(b.Pending) != len(facts) {
		t.Errorf("%d of %d facts are pending, %d overflow", len(b.Pending), len(facts), did.overflow)
	}
	first := b.Pending[0].Event.ID
	for range len(b.Pending) {
		b.sent(b.Pending[0].Event.ID)
	}
	b.collect("/test", facts, true, start.Add(time.Minute))
	if len(b.Pending) == 0 || b.Pending[0].Event.ID == first {
		t.Error("what had no room does not follow")
	}
}

// TestBox_BulkLeavesRoom: of very many rollbacks, those that have no room yet delay no halt;
// and tens of thousands that were told leave room for more.
func TestBox_BulkLeavesRoom(t *testing.T) {
	b := &box{}
	var facts []Fact
	for n := range 15_000 {
		f := fact(n, "")
		f.Type, f.At = RolledBack, start.Add(-time.Duration(n)*time.Millisecond)
		facts = append(facts, f)
	}
	halted := fact(-1, "")
	halted.Type, halted.Ongoing = HaltBegan, true
	did := b.collect("/test", append(slices.Clone(facts), halted), true, start)
	if last := b.Pending[len(b.Pending)-1]; did.overflow == 0 || last.Event.Type != HaltBegan {
		t.Errorf("%d facts overflow, the last event is %s", did.overflow, last.Event.ID)
	}
	told := 0
	for len(b.Pending) > 0 {
		told += len(b.Pending)
		b.Pending = nil // they are sent
		if b.collect("/test", facts, true, start); b.size() > maxBytes {
			t.Fatalf("the box has %d bytes", b.size())
		}
	}
	if told != len(facts)+1 {
		t.Errorf("%d facts are told, want %d", told, len(facts)+1)
	}
}

func TestBox_NewReceiverIsNotToldThePast(t *testing.T) {
	b, now := &box{}, start.Add(48*time.Hour)
	if did := b.collect("/test", nil, false, now); !did.changed {
		t.Error("it is not stored since when the receiver is known")
	}
	past, open, lasting, recent := fact(1, ""), fact(2, StopEnded), fact(3, ""), fact(4, "")
	lasting.Ongoing = true
	recent.At = now.Add(-time.Minute)
	b.collect("/test", []Fact{past, open, lasting, recent}, true, now.Add(24*time.Hour))
	var got []string
	for _, p := range b.Pending {
		got = append(got, p.Event.ID)
	}
	if want := []string{open.id(), lasting.id(), recent.id()}; !slices.Equal(got, want) {
		t.Errorf("pending are %q, want what goes on and what is recent: %q", got, want)
	}
}

func TestBox_DropsWhatIsTooOld(t *testing.T) {
	b := &box{}
	b.collect("/test", []Fact{fact(1, StopEnded)}, true, start)
	old := fact(2, "")
	old.Ongoing, old.At = true, start.Add(-2*maxAge)
	b.collect("/test", []Fact{fact(1, StopEnded), old}, true, start.Add(maxAge))
	if len(b.Pending) != 2 {
		t.Fatalf("pending are %+v, want a fact that is old and was told now, too", b.Pending)
	}
	did := b.collect("/test", nil, false, start.Add(maxAge+time.Second))
	if b.sent(old.id()); did.dropped != 1 || len(b.Pending) != 0 || !did.changed {
		t.Errorf("dropped %d, %d pending, want one dropped", did.dropped, len(b.Pending))
	}
}

func TestBox_ForgetsWhatIsLongGone(t *testing.T) {
	b := &box{}
	b.collect("/test", []Fact{fact(1, "")}, true, start)
	b.sent("uid-1/began")
	for _, c := range []struct {
		after    time.Duration
		complete bool
		known    int
	}{{time.Hour, true, 1}, {keepTold + time.Hour, false, 1}, {keepTold + time.Hour, true, 0}} {
		if b.collect("/test", nil, c.complete, start.Add(c.after)); len(b.Told) != c.known {
			t.Errorf("after %v, complete %v: %d facts are known to be told, want %d", c.after, c.complete, len(b.Told), c.known)
		}
	}
}

func TestShortID_StaysDistinct(t *testing.T) {
	long := strings.Repeat("a", 2*maxID)
	a, b := shortID(long+"1"), shortID(long+"2")
	if len(a) > maxID || a == b {
		t.Errorf("ids %q and %q, want distinct ones of at most %d bytes", a, b, maxID)
	}
}
