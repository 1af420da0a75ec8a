package history_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
)

// limitFiles has writes beyond a size fail, as those to a full disk do, until restore.
func limitFiles(t *testing.T, most uint64) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(to uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: to, Max: before.Max}); err != nil {
			t.Error(err)
		}
	}
	set(most)
	restore = func() { set(before.Cur) }
	t.Cleanup(restore)
	return restore
}

func (c *fakeClock) forward(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
	return c.at
}

func gaps(t *testing.T, r *rig) (out []history.Record) {
	t.Helper()
	for _, x := range r.records(t, history.Query{}) {
		if x.Type == history.Gap {
			out = append(out, x)
		}
	}
	return out
}

func timed(dir string, c *fakeClock) (string, func(*history.Options, *aggregate.Options)) {
	return dir, func(o *history.Options, _ *aggregate.Options) { o.Now = c.now }
}

func newClock() *fakeClock {
	return &fakeClock{at: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)}
}

// What could not be written is in one gap, which begins with the first that was lost, also where the process ended meanwhile.
func TestHistory_TellsOnceWhatCouldNotBeWritten(t *testing.T) {
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprintf("the process has ended: %t", ended), func(t *testing.T) {
			c := newClock()
			dir, with := timed(t.TempDir(), c)
			r := newRig(t, dir, 1, with)
			r.begin(t)
			s := r.scope(t, "fleet/a", "Pod")
			put(t, s, pod("first", 1, `{"phase":"Running"}`))
			r.release(t)
			from := c.forward(time.Minute)
			restore := limitFiles(t, 4096)
			for i := 2; r.Failure() == nil; i++ {
				put(t, s, pod("lost", i, fmt.Sprintf(`{"message":%q}`, strings.Repeat("x", 900)+fmt.Sprint(i))))
				r.release(t)
			}
			to := c.forward(time.Minute)
			if ended {
				r.stop()
				restore()
				r = newRig(t, dir, 2, with)
				r.begin(t)
				s = r.scope(t, "fleet/b", "Pod")
			}
			restore()
			put(t, s, pod("last", 9999, `{"phase":"Running"}`))
			r.release(t)
			check := func() {
				t.Helper()
				got := gaps(t, r)
				if len(got) != 1 || got[0].From == nil || !got[0].From.Equal(from) || !got[0].To.Equal(to) || strings.Contains(got[0].Message, "/") {
					t.Errorf("gaps are %+v, want one from %v to %v", got, from, to)
				}
			}
			check()
			if r.Failure() != nil || len(r.read(t, history.Query{Name: "last"})) != 1 {
				t.Errorf("what happens afterwards is not recorded: %v", r.Failure())
			}
			r.stop()
			r = newRig(t, dir, 3, with)
			r.begin(t)
			check()
		})
	}
}

// What happened while no history was kept is in a gap.
func TestSuspend(t *testing.T) {
	c := newClock()
	dir, with := timed(t.TempDir(), c)
	path := filepath.Join(dir, "history")
	if err := history.Suspend(path, c.now()); err != nil { // there is none
		t.Fatal(err)
	}
	r := newRig(t, dir, 1, with)
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod")
	put(t, s, pod("first", 1, `{"phase":"Running"}`))
	r.release(t)
	r.stop()
	from := c.forward(time.Minute)
	for range 2 {
		if err := history.Suspend(path, c.now()); err != nil {
			t.Fatal(err)
		}
		c.forward(time.Minute)
	}
	r = newRig(t, dir, 2, with)
	r.begin(t)
	if got := gaps(t, r); len(got) != 1 || !got[0].From.Equal(from) {
		t.Errorf("gaps are %+v", got)
	}
}

func TestHistory_WaitsForNothingThatDoesNotRun(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	if err := r.Run(t.Context()); err == nil {
		t.Error("Run before Begin has no error")
	}
	r.Wait(t.Context(), 1<<40)
	if t.Context().Err() != nil {
		t.Error("Wait waited")
	}
}

// Records are in order of time though the clock is set back.
func TestHistory_TimesDoNotGoBack(t *testing.T) {
	c := newClock()
	dir, with := timed(t.TempDir(), c)
	var last time.Time
	for block := range uint64(2) {
		r := newRig(t, dir, block+1, with)
		r.begin(t)
		s := r.scope(t, fmt.Sprintf("fleet/a%d", block), "Pod")
		for i := range 3 {
			put(t, s, pod("web", i+1, fmt.Sprintf(`{"phase":"P%d"}`, i)))
			r.release(t)
			c.forward(-time.Minute)
		}
		for _, x := range r.records(t, history.Query{}) {
			if x.Time.Before(last) {
				t.Errorf("position %d is of %v, the one before of %v", x.Position, x.Time, last)
			}
			last = x.Time
		}
		last = time.Time{}
		r.stop()
	}
}

// A scope whose objects were lost with what was kept of the index, or dropped for want of room, has a gap, and no transitions that
// did not happen.
func TestHistory_TellsWhatWasNotHeld(t *testing.T) {
	c := newClock()
	dir, with := timed(t.TempDir(), c)
	r := newRig(t, dir, 1, with)
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod", pod("web", 1, `{"phase":"Running"}`))
	put(t, s, pod("web", 2, `{"phase":"Failed"}`))
	r.release(t)
	last := c.now()
	c.forward(time.Minute)
	if _, err := s.Replace(nil, aggregate.Status{State: aggregate.OverBudget}); err != nil {
		t.Fatal(err)
	}
	replace(t, s, pod("web", 3, `{"phase":"Running"}`)(s), pod("new", 4, `{"phase":"Running"}`)(s))
	put(t, s, pod("new", 5, `{"phase":"Failed"}`))
	r.release(t)
	same(t, r.read(t, history.Query{Kind: "Pod"}),
		"Scope Synced fleet/a Pod",
		`Object Changed fleet/a Pod shop web 2 status.phase:"Running">"Failed"`,
		"Scope OverBudget fleet/a Pod",
		"Gap Gap fleet/a Pod",
		"Scope Synced fleet/a Pod",
		`Object Changed fleet/a Pod shop new 5 status.phase:"Running">"Failed"`,
	)
	if got := gaps(t, r); !got[0].From.Equal(last) {
		t.Errorf("the gap is from %v, want %v", got[0].From, last)
	}
	r.stop()

	ended := c.now()
	c.forward(time.Hour)
	r = newRig(t, dir, 2, with)
	r.begin(t)
	r.scope(t, "fleet/a", "Pod", pod("web", 9, `{"phase":"Running"}`))
	r.scope(t, "fleet/b", "Pod", pod("web", 9, `{"phase":"Running"}`))
	r.release(t)
	if got := gaps(t, r); len(got) != 2 || got[1].Member != "fleet/a" || !got[1].From.Equal(ended) {
		t.Errorf("gaps are %+v, want a second one from %v", got, ended)
	}
}

// A gap begins no later than what was last seen of its scope: when it turned Stale is later, and so is a restart.
func TestHistory_GapsBeginWithWhatWasSeenLast(t *testing.T) {
	c := newClock()
	dir, with := timed(t.TempDir(), c)
	r := newRig(t, dir, 1, with)
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod")
	r.release(t)
	c.forward(time.Minute)
	put(t, s, pod("web", 1, `{"phase":"Running"}`))
	r.release(t)
	seen := c.now()
	c.forward(time.Minute)
	s.SetStatus(aggregate.Status{State: aggregate.Stale})
	put(t, s)
	r.release(t)
	c.forward(time.Minute)
	replace(t, s, pod("web", 9, `{"phase":"Failed"}`)(s))
	r.release(t)
	if got := gaps(t, r); len(got) != 1 || !got[0].From.Equal(seen) {
		t.Errorf("gaps are %+v, want from %v", got, seen)
	}
	r.stop()

	seen = c.now()
	c.forward(time.Hour)
	r = newRig(t, dir, 2, with)
	s = r.scope(t, "fleet/a", "Pod", pod("web", 9, `{"phase":"Failed"}`)) // as it was kept
	p, _ := r.index.Pending(r.index.Snapshot())
	p.Release()
	r.begin(t)
	c.forward(time.Minute)
	replace(t, s, pod("web", 12, `{"phase":"Running"}`)(s))
	r.release(t)
	if got := gaps(t, r); len(got) != 2 || !got[1].From.Equal(seen) {
		t.Errorf("gaps are %+v, want the second from %v", got, seen)
	}
}

// Members have the UID that they had at each transition, however many commits are taken at once.
func TestHistory_TellsMembersOfOneNameApart(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	if err := r.Begin(r.index); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"one", "two", "three"} {
		if err := r.index.PutMember(aggregate.Member{Name: "fleet/a", UID: uid}); err != nil {
			t.Fatal(err)
		}
		s, err := r.index.OpenScopeAs("fleet/a", "Pod", "v1", "pods")
		if err != nil {
			t.Fatal(err)
		}
		replace(t, s)
		put(t, s, pod("web", 1, `{"phase":"Running"}`))
		if err := r.index.PutMember(aggregate.Member{Name: "fleet/a", UID: uid, Version: "v1.37.0"}); err != nil {
			t.Fatal(err)
		}
		if uid != "three" {
			r.index.RemoveMember("fleet/a")
		}
	}
	r.run(t)
	r.release(t)
	var got []string
	for _, x := range r.records(t, history.Query{}) {
		got = append(got, fmt.Sprintf("%s %s %s", x.Type, x.Transition, x.MemberUID))
	}
	var want []string
	for _, uid := range []string{"one", "two", "three"} {
		want = append(want, "Member Joined "+uid, "Scope Synced "+uid, "Object Created "+uid, "Member Changed "+uid)
		if uid != "three" {
			want = append(want, "Member Left "+uid)
		}
	}
	same(t, got, want...)
}

// An object that leaves a selection and comes back has a key for each time. One that is read in another way has not changed.
func TestHistory_KeysAreOfOneTransition(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod")
	s.SetStatus(aggregate.Status{State: aggregate.Partial, Reason: "a selector"})
	put(t, s)
	for i := range 3 {
		put(t, s, pod("web", 2*i+1, `{"phase":"Running"}`))
		s.Delete("shop", "web")
		put(t, s)
	}
	put(t, s, pod("other", 1, `{"phase":"Running"}`))
	replace(t, s, pod("other", 1, `{"phase":"Failed"}`)(s))
	r.release(t)
	keys := map[string]bool{}
	for _, x := range r.records(t, history.Query{Kind: "Pod"}) {
		if keys[x.Key] {
			t.Errorf("two records have the key %s", x.Key)
		}
		keys[x.Key] = true
	}
	same(t, r.read(t, history.Query{Name: "other"}), `Object Created fleet/a Pod shop other 1 status.phase:>"Running"`)
}

// Who goes on from a gap in the log, in either direction, gets what comes after it, and not the gap again.
func TestHistory_ReadsOnFromAGap(t *testing.T) {
	dir := t.TempDir()
	small := func(o *history.Options, _ *aggregate.Options) { o.MaxBytes = 1 << 20 }
	r := newRig(t, dir, 1, small)
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod")
	for i := range 400 {
		put(t, s, pod(fmt.Sprint("p", i), i+1, fmt.Sprintf(`{"message":%q}`, strings.Repeat("x", 900)+fmt.Sprint(i))))
	}
	r.release(t)
	r.stop()
	files, err := filepath.Glob(filepath.Join(dir, "history", "*[0-9]*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("there are files %q, %v", files, err)
	}
	if err := os.Remove(files[1]); err != nil {
		t.Fatal(err)
	}
	r = newRig(t, dir, 2, small)
	for _, backward := range []bool{false, true} {
		all, gaps, next := 0, 0, uint64(0)
		for {
			q := history.Query{Backward: backward, After: next}
			if backward {
				q.After, q.Before = 0, next
			}
			n := 0
			for x, err := range r.Read(q) { // pages of one, and gaps
				if err != nil {
					t.Fatal(err)
				}
				if x.Type == history.Gap {
					gaps++
					continue
				}
				all, n, next = all+1, 1, x.Position
				break
			}
			if n == 0 || all > 1000 {
				break
			}
		}
		if gaps != 1 || all < 200 || all > 403 {
			t.Errorf("backward %t: pages have %d gaps, %d records", backward, gaps, all)
		}
		told := r.records(t, history.Query{Name: "p1", Beside: true, Backward: backward})
		if gaps := len(slices.DeleteFunc(told, func(x history.Record) bool { return x.Type != history.Gap })); gaps != 1 {
			t.Errorf("backward %t: of one object %d gaps are told", backward, gaps)
		}
	}
}
