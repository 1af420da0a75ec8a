// Package ledger counts which targets are written, being written and pending: the sliding
// windows of all limits and rates, and who fights over a target. A change costs what it
// changes, however many targets there are. It reads no clock.
package ledger

import (
	"slices"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/pqueue"
)

// Horizon is how long writes are remembered: the longest window of a limit.
const Horizon = 720 * time.Hour

// Ledger counts by the name of the policy. It is not safe for concurrent use.
type Ledger struct {
	fleetWindow time.Duration
	accounts    map[string]*account
	targets     map[policy.Ref]*target
	views       map[time.Duration]*view
	old         *pqueue.Queue[policy.Ref, time.Time] // when written targets are forgotten
}

// target is what all policies have done to one target.
type target struct {
	history []write // the oldest first, at most maxHistory
	writing int     // requests under way
	pending map[*account]bool
	subject policy.Subject // of the last policy that wrote it, or is about to
}

type write struct {
	policy  string
	at      time.Time
	doubted bool // it may not have been done
}

// maxHistory is how many writes of one target are remembered. Fights take fewer.
const maxHistory = 64

// account is what counts towards the limits of one policy.
type account struct {
	window   time.Duration
	entries  map[policy.Ref]*entry
	used     Counts // written and being written
	affected Counts // these and pending ones
	expiry   *pqueue.Queue[policy.Ref, time.Time]
	views    []*view         // of the fleet's window and of the policy's own
	extra    map[*view]tally // pending targets that the view does not count
	starts   map[string][]time.Time
}

// entry is one target of a policy.
type entry struct {
	subject policy.Subject
	last    time.Time // of the last write, or of what may have been one
	sure    time.Time // of the last write that was done
	within  bool      // which is within the window
	writing bool
	pending bool
}

func (e *entry) used() bool { return e.within || e.writing }

// view counts the targets that any policy has written within a window, or is writing.
type view struct {
	window time.Duration
	users  int
	live   map[policy.Ref]bool
	tally  tally
	expiry *pqueue.Queue[policy.Ref, time.Time]
}

// New returns an empty ledger; the window is that of the fleet's limits.
func New(fleetWindow time.Duration) *Ledger {
	l := &Ledger{
		fleetWindow: fleetWindow, accounts: map[string]*account{}, targets: map[policy.Ref]*target{},
		views: map[time.Duration]*view{}, old: pqueue.New[policy.Ref](time.Time.Compare),
	}
	l.useView(fleetWindow, time.Time{})
	return l
}

func (l *Ledger) account(name string) *account {
	a := l.accounts[name]
	if a == nil {
		a = &account{
			entries: map[policy.Ref]*entry{}, used: newCounts(), affected: newCounts(), expiry: pqueue.New[policy.Ref](time.Time.Compare),
			extra: map[*view]tally{}, starts: map[string][]time.Time{},
		}
		l.accounts[name] = a
	}
	return a
}

func (l *Ledger) target(ref policy.Ref) *target {
	t := l.targets[ref]
	if t == nil {
		t = &target{pending: map[*account]bool{}}
		l.targets[ref] = t
	}
	return t
}

// SetWindow sets the window of a policy's limits. It costs all that is counted where the
// window changes.
func (l *Ledger) SetWindow(name string, window time.Duration, now time.Time) {
	a := l.account(name)
	if a.window == window {
		return
	}
	for _, v := range a.views {
		l.releaseView(v)
	}
	a.window = window
	a.views = []*view{l.useView(l.fleetWindow, now)}
	if window != l.fleetWindow {
		a.views = append(a.views, l.useView(window, now))
	}
	a.used, a.affected, a.expiry, a.extra = newCounts(), newCounts(), pqueue.New[policy.Ref](time.Time.Compare), map[*view]tally{}
	for ref, e := range a.entries {
		if e.within = !e.last.IsZero() && e.last.Add(window).After(now); e.within {
			a.expiry.Set(ref, e.last.Add(window))
		}
		a.count(ref, e, 1)
		for _, v := range a.views {
			if e.pending && !v.live[ref] {
				a.addExtra(v, e.subject, 1)
			}
		}
	}
}

// useView returns the view of a window, made of what has been written.
func (l *Ledger) useView(window time.Duration, now time.Time) *view {
	v := l.views[window]
	if v == nil {
		v = &view{window: window, live: map[policy.Ref]bool{}, tally: newTally(), expiry: pqueue.New[policy.Ref](time.Time.Compare)}
		l.views[window] = v
		for ref, t := range l.targets {
			v.refresh(ref, t, now)
		}
	}
	v.users++
	return v
}

func (l *Ledger) releaseView(v *view) {
	if v.users--; v.users == 0 {
		delete(l.views, v.window)
	}
}

// refresh updates whether a view counts a target, and reports a change.
func (v *view) refresh(ref policy.Ref, t *target, now time.Time) (changed bool) {
	was, last := v.live[ref], t.last()
	within := !last.IsZero() && last.Add(v.window).After(now)
	if within {
		v.expiry.Set(ref, last.Add(v.window))
	} else {
		v.expiry.Remove(ref)
	}
	switch is := within || t.writing > 0; {
	case is == was:
		return false
	case is:
		v.live[ref] = true
		v.tally.add(t.subject, 1)
	default:
		delete(v.live, ref)
		v.tally.add(t.subject, -1)
	}
	return true
}

func (t *target) last() time.Time {
	if len(t.history) == 0 {
		return time.Time{}
	}
	return t.history[len(t.history)-1].at
}

// isKnown reports whether a target is being written, or was for sure within a window.
func (t *target) isKnown(window time.Duration, now time.Time) bool {
	return t != nil && (t.writing > 0 || slices.ContainsFunc(t.history, func(w write) bool { return !w.doubted && w.at.Add(window).After(now) }))
}

// change changes what is known of a policy's target, and counts it again.
func (l *Ledger) change(name string, ref policy.Ref, now time.Time, do func(*target, *entry)) {
	a, t := l.account(name), l.target(ref)
	e := a.entries[ref]
	if e == nil {
		e = &entry{}
		a.entries[ref] = e
	}
	a.count(ref, e, -1)
	l.countExtras(ref, t, -1)
	l.countViews(ref, t, -1)
	do(t, e)
	if e.within = !e.last.IsZero() && e.last.Add(a.window).After(now); e.within {
		a.expiry.Set(ref, e.last.Add(a.window))
	} else {
		a.expiry.Remove(ref)
	}
	for _, v := range l.views {
		if v.live[ref] {
			delete(v.live, ref)
		}
		v.refresh(ref, t, now)
	}
	l.countExtras(ref, t, 1)
	a.count(ref, e, 1)
	if !e.pending && !e.used() && e.last.IsZero() {
		delete(a.entries, ref)
	}
	l.forget(ref, t)
}

// countViews takes a target out of the views that count it: its subject may change.
func (l *Ledger) countViews(ref policy.Ref, t *target, by int) {
	for _, v := range l.views {
		if v.live[ref] {
			v.tally.add(t.subject, by)
		}
	}
}

// countExtras counts a target for the policies in which it is pending.
func (l *Ledger) countExtras(ref policy.Ref, t *target, by int) {
	for a := range t.pending {
		for _, v := range a.views {
			if !v.live[ref] {
				a.addExtra(v, a.entries[ref].subject, by)
			}
		}
	}
}

// forget drops a target of which nothing is known any more.
func (l *Ledger) forget(ref policy.Ref, t *target) {
	if len(t.history) == 0 && t.writing == 0 && len(t.pending) == 0 {
		delete(l.targets, ref)
	}
}

func (a *account) addExtra(v *view, subject policy.Subject, by int) {
	t, ok := a.extra[v]
	if !ok {
		t = newTally()
	}
	t.add(subject, by)
	a.extra[v] = t
}

func (a *account) count(ref policy.Ref, e *entry, by int) {
	if e.used() {
		a.used.add(ref.Member, e.subject, by)
	}
	if e.used() || e.pending {
		a.affected.add(ref.Member, e.subject, by)
	}
}

// SetPending counts a target that is about to be written, for a subject, until
// ClearPending.
func (l *Ledger) SetPending(name string, ref policy.Ref, subject policy.Subject, now time.Time) {
	if l.isPending(name, ref, subject) {
		return
	}
	l.change(name, ref, now, func(t *target, e *entry) {
		e.pending, e.subject = true, subject
		t.pending[l.accounts[name]] = true
		if t.writing == 0 && len(t.history) == 0 {
			t.subject = subject
		}
	})
}

// isPending reports whether SetPending was called like this, and nothing since.
func (l *Ledger) isPending(name string, ref policy.Ref, subject policy.Subject) bool {
	a, t := l.accounts[name], l.targets[ref]
	if a == nil || t == nil || !t.pending[a] || a.entries[ref].subject != subject {
		return false
	}
	return t.subject == subject || t.writing > 0 || len(t.history) > 0
}

// ClearPending ends SetPending.
func (l *Ledger) ClearPending(name string, ref policy.Ref, now time.Time) {
	if a := l.accounts[name]; a == nil || a.entries[ref] == nil || !a.entries[ref].pending {
		return
	}
	l.change(name, ref, now, func(t *target, e *entry) {
		e.pending = false
		delete(t.pending, l.accounts[name])
	})
}

// BeginWrite counts a target until EndWrite: the violation, and with it the intent, may
// be gone before the member has answered.
func (l *Ledger) BeginWrite(name string, ref policy.Ref, subject policy.Subject, now time.Time) {
	l.change(name, ref, now, func(t *target, e *entry) {
		if !e.writing {
			t.writing++
		}
		e.writing, e.subject, t.subject = true, subject, subject
	})
}

// EndWrite ends BeginWrite.
func (l *Ledger) EndWrite(name string, ref policy.Ref, now time.Time) {
	if a := l.accounts[name]; a == nil || a.entries[ref] == nil || !a.entries[ref].writing {
		return
	}
	l.change(name, ref, now, func(t *target, e *entry) {
		e.writing = false
		t.writing--
	})
}

// RecordWrite counts a write that was done. It may be older than others.
func (l *Ledger) RecordWrite(name string, ref policy.Ref, subject policy.Subject, at, now time.Time) {
	l.record(name, write{policy: name, at: at}, ref, subject, now)
}

// RecordDoubt counts what may have been a write, or ("" for by) a rollback of one, like one that was
// done. But one more write of the target is not free, as of one that is known to have been written.
func (l *Ledger) RecordDoubt(name, by string, ref policy.Ref, subject policy.Subject, at, now time.Time) {
	l.record(name, write{by, at, true}, ref, subject, now)
}

// RecordRollback counts the rollback of a policy's write: towards limits, but not as a turn of
// a fight, since a person has requested it.
func (l *Ledger) RecordRollback(name string, ref policy.Ref, subject policy.Subject, at, now time.Time) {
	l.record(name, write{policy: nobody, at: at}, ref, subject, now)
}

// nobody is the policy of writes that are turns of no fight.
const nobody = ""

func (l *Ledger) record(name string, w write, ref policy.Ref, subject policy.Subject, now time.Time) {
	at := w.at
	l.change(name, ref, now, func(t *target, e *entry) {
		if !w.doubted && at.After(e.sure) {
			e.sure = at
		}
		if at.After(e.last) {
			e.last = at
			if !e.pending {
				e.subject = subject
			}
		}
		n, _ := slices.BinarySearchFunc(t.history, at, func(w write, at time.Time) int { return w.at.Compare(at) })
		t.history = slices.Insert(t.history, n, w)
		if n == len(t.history)-1 {
			t.subject = subject
		}
		if len(t.history) > maxHistory {
			t.history = slices.Delete(t.history, 0, 1)
		}
		l.old.Set(ref, t.last().Add(Horizon))
	})
}

// Advance stops counting what is outside its window now.
func (l *Ledger) Advance(now time.Time) {
	for _, a := range l.accounts {
		for ref, at, ok := a.expiry.Min(); ok && !at.After(now); ref, at, ok = a.expiry.Min() {
			a.expiry.Remove(ref)
			e := a.entries[ref]
			a.count(ref, e, -1)
			e.within = false
			a.count(ref, e, 1)
		}
	}
	for _, v := range l.views {
		for ref, at, ok := v.expiry.Min(); ok && !at.After(now); ref, at, ok = v.expiry.Min() {
			t := l.targets[ref]
			l.countExtras(ref, t, -1)
			v.refresh(ref, t, now)
			l.countExtras(ref, t, 1)
		}
	}
	for ref, at, ok := l.old.Min(); ok && !at.After(now); ref, at, ok = l.old.Min() {
		l.old.Remove(ref)
		t := l.targets[ref]
		t.history = nil
		for _, a := range l.accounts {
			if e := a.entries[ref]; e != nil {
				if e.last, e.sure = (time.Time{}), (time.Time{}); !e.pending && !e.used() {
					delete(a.entries, ref)
				}
			}
		}
		l.forget(ref, t)
	}
	l.advanceStarts(now)
}
