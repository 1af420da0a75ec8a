package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy"
)

func TestLedger_NextStartSpacesOutWrites(t *testing.T) {
	t.Parallel()
	l := New(time.Hour)
	start := time.Unix(1000, 0)
	for i := range 3 {
		at := start.Add(time.Duration(i) * 10 * time.Second)
		if next := l.NextStart("b", "m", 3, at); !next.Equal(at) {
			t.Errorf("write %d must wait until %v", i, next)
		}
		l.RecordStart("b", "m", at)
	}
	if next := l.NextStart("b", "m", 3, start.Add(30*time.Second)); !next.Equal(start.Add(time.Minute)) {
		t.Errorf("the fourth may write at %v, want a minute after the first", next)
	}
	if now := start.Add(30 * time.Second); !l.NextStart("b", "other", 3, now).Equal(now) || !l.NextStart("c", "m", 3, now).Equal(now) {
		t.Error("another member or policy waits as well")
	}
	l.Advance(start.Add(time.Hour))
	if len(l.accounts["b"].starts) > 0 {
		t.Error("old starts are kept")
	}
}

// model counts from all that has happened.
type model struct {
	fleetWindow time.Duration
	windows     map[string]time.Duration
	writes      []modelWrite
	writing     map[key]policy.Subject
	pending     map[key]policy.Subject
	subjects    map[key]policy.Subject // that the policy names for the target
}

type modelWrite struct {
	key
	subject policy.Subject
	at      time.Time
	doubted bool
}

type key struct {
	policy string
	target policy.Ref
}

// used returns the targets that are written within a window or being written, of one policy
// or of all for "".
func (m *model) used(name string, window time.Duration, now time.Time) map[policy.Ref]bool {
	out := map[policy.Ref]bool{}
	for _, w := range m.writes {
		if (name == "" || w.policy == name) && w.at.Add(window).After(now) {
			out[w.target] = true
		}
	}
	for k := range m.writing {
		if name == "" || k.policy == name {
			out[k.target] = true
		}
	}
	return out
}

// known are those of used that were written for sure, or are being written.
func (m *model) known(name string, window time.Duration, now time.Time) map[policy.Ref]bool {
	sure := *m
	sure.writes = slices.DeleteFunc(slices.Clone(m.writes), func(w modelWrite) bool { return w.doubted })
	return sure.used(name, window, now)
}

// TestLedger_Model: counts that are kept as they change equal those of the whole history, over random ones.
func TestLedger_Model(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(1e9, 0)
		m := &model{
			fleetWindow: time.Hour, windows: map[string]time.Duration{}, writing: map[key]policy.Subject{}, pending: map[key]policy.Subject{},
			subjects: map[key]policy.Subject{},
		}
		l := New(m.fleetWindow)
		policies := []string{"a", "b", "c"}
		for _, p := range policies {
			m.windows[p] = []time.Duration{30 * time.Minute, time.Hour, 5 * time.Hour}[r.IntN(3)]
			l.SetWindow(p, m.windows[p], now)
		}
		for step := range 300 {
			k := key{policies[r.IntN(3)], policy.Ref{Member: fmt.Sprint("m", r.IntN(3)), Name: fmt.Sprint(r.IntN(6))}}
			subject := policy.Subject{Key: fmt.Sprint(r.IntN(4))}
			switch r.IntN(10) {
			case 0, 1:
				l.SetPending(k.policy, k.target, subject, now)
				m.pending[k], m.subjects[k] = subject, subject
			case 2:
				l.ClearPending(k.policy, k.target, now)
				delete(m.pending, k)
			case 3, 4:
				l.BeginWrite(k.policy, k.target, subject, now)
				m.writing[k], m.subjects[k] = subject, subject
			case 5:
				l.EndWrite(k.policy, k.target, now)
				delete(m.writing, k)
			case 6:
				at := now.Add(-time.Duration(r.IntN(400)) * time.Minute)
				l.RecordWrite(k.policy, k.target, subject, at, now)
				m.writes = append(m.writes, modelWrite{k, subject, at, false})
			case 7:
				now = now.Add(time.Duration(r.IntN(40)) * time.Minute)
				l.Advance(now)
			case 8:
				m.windows[k.policy] = []time.Duration{30 * time.Minute, time.Hour, 5 * time.Hour}[r.IntN(3)]
				l.SetWindow(k.policy, m.windows[k.policy], now)
			case 9:
				at := now.Add(-time.Duration(r.IntN(400)) * time.Minute)
				l.RecordDoubt(k.policy, k.policy, k.target, subject, at, now)
				m.writes = append(m.writes, modelWrite{k, subject, at, true})
			}
			m.compare(t, l, fmt.Sprintf("seed %d, step %d", seed, step), now)
			if t.Failed() {
				return
			}
		}
	}
}

func (m *model) compare(t *testing.T, l *Ledger, what string, now time.Time) {
	t.Helper()
	for name, window := range m.windows {
		affected := m.used(name, window, now)
		for k := range m.pending {
			if k.policy == name {
				affected[k.target] = true
			}
		}
		members := map[string]int{}
		for target := range affected {
			members[target.Member]++
		}
		if got := l.Affected(name).Targets; got != len(affected) {
			t.Errorf("%s: policy %s: %d affected, want %d", what, name, got, len(affected))
		}
		for member, n := range l.Members(name) {
			if n.Targets != members[member] {
				t.Errorf("%s: policy %s: %d in %s, want %d", what, name, n.Targets, member, members[member])
			}
			delete(members, member)
		}
		if len(members) > 0 {
			t.Errorf("%s: policy %s: nothing in %v", what, name, members)
		}
		for _, w := range []time.Duration{m.fleetWindow, window} {
			fleet := m.used("", w, now)
			for k := range m.pending {
				if k.policy == name {
					fleet[k.target] = true
				}
			}
			if got := l.Fleet(name, w).Targets; got != len(fleet) {
				t.Errorf("%s: policy %s: %d in the fleet within %v, want %d", what, name, got, w, len(fleet))
			}
		}
		one := policy.Ref{Member: "m1", Name: "1"}
		writing := l.Writing(name, one, policy.Subject{}, now)
		for of, c := range map[string]struct {
			after After
			used  map[policy.Ref]bool
			known map[policy.Ref]bool
		}{
			"policy":                    {writing.Policy, m.used(name, window, now), m.known(name, window, now)},
			"fleet":                     {writing.Fleet, m.used("", m.fleetWindow, now), m.known("", m.fleetWindow, now)},
			"fleet in the policy's own": {writing.PolicyFleet, m.used("", window, now), m.known("", window, now)},
		} {
			if c.known[one] != c.after.Known {
				t.Errorf("%s: policy %s: %s: known %v", what, name, of, c.after.Known)
			}
			if c.used[one] = true; c.after.Targets != len(c.used) {
				t.Errorf("%s: policy %s: %s: %d after a write, want %d", what, name, of, c.after.Targets, len(c.used))
			}
		}
	}
}

// TestLedger_CountsSubjects: a subject that is corrected in two targets counts once.
func TestLedger_CountsSubjects(t *testing.T) {
	t.Parallel()
	l, now := New(time.Hour), time.Unix(1e9, 0)
	l.SetWindow("a", time.Hour, now)
	host := policy.Subject{Key: "host"}
	for n := range 3 {
		l.SetPending("a", policy.Ref{Member: "m1", Name: fmt.Sprint(n)}, host, now)
	}
	l.SetPending("a", policy.Ref{Member: "m1", Name: "other"}, policy.Subject{Key: "other"}, now)
	if got := l.Affected("a"); got != (Count{4, 2}) {
		t.Errorf("%+v", got)
	}
	l.ClearPending("a", policy.Ref{Member: "m1", Name: "other"}, now)
	if got := l.Affected("a"); got != (Count{3, 1}) {
		t.Errorf("%+v", got)
	}
}

// TestLedger_FindsFights: of one policy with others, fast and slow, and of two policies.
func TestLedger_FindsFights(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	one := policy.Ref{Member: "m1", Name: "1"}
	for what, c := range map[string]struct {
		every  time.Duration
		writes string
		want   Fight
	}{
		"four within the window":          {time.Minute, "aaaa", Fight{}},
		"five":                            {time.Minute, "aaaaa", Fight{Writes: 5}},
		"five, an hour apart":             {time.Hour, "aaaaa", Fight{}},
		"five days":                       {24 * time.Hour, "aaaaa", Fight{Writes: 5, Days: 5}},
		"four days":                       {24 * time.Hour, "aaaa", Fight{}},
		"every other day":                 {48 * time.Hour, "aaaaaa", Fight{}},
		"two policies, two turns":         {time.Minute, "abab", Fight{}},
		"two policies, three turns":       {time.Minute, "ababab", Fight{Writes: 3, With: "b", Turns: 3}},
		"two policies, but not in turns":  {time.Minute, "aabb", Fight{}},
		"two policies, apart":             {time.Hour, "ababab", Fight{}},
		"with the third of three":         {time.Minute, "acbacbac", Fight{Writes: 3, With: "c", Turns: 3}},
		"of two others":                   {time.Minute, "bcbcbcbc", Fight{}},
		"rollbacks are no turns":          {time.Minute, "ararararb", Fight{}},
		"rolled back again and again":     {time.Minute, "ararararar", Fight{Writes: 5}},
		"two policies, in pairs of three": {time.Minute, "aabbaabbaabb", Fight{Writes: 6, With: "b", Turns: 3}},
	} {
		l, now := New(time.Hour), start
		for _, p := range c.writes {
			if p == 'r' {
				l.RecordRollback("a", one, policy.Subject{}, now, now)
			} else {
				l.RecordWrite(string(p), one, policy.Subject{}, now, now)
			}
			now = now.Add(c.every)
		}
		now = now.Add(-c.every + time.Second)
		got, ok := l.Fight("a", one, time.Hour, 5, time.Time{}, now)
		if got != c.want || ok != (c.want != Fight{}) {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
		if got, ok := l.Fight("a", one, time.Hour, 5, now, now); ok {
			t.Errorf("%s: acknowledged: %+v", what, got)
		}
	}
}

// TestLedger_ForgetsAfterTheHorizon: what no window reaches takes no memory.
func TestLedger_ForgetsAfterTheHorizon(t *testing.T) {
	t.Parallel()
	l, now := New(time.Hour), time.Unix(1e9, 0)
	l.SetWindow("a", Horizon, now)
	l.RecordWrite("a", policy.Ref{Name: "1"}, policy.Subject{}, now, now)
	l.Advance(now.Add(Horizon - time.Second))
	if got := l.Affected("a").Targets; got != 1 {
		t.Errorf("%d within the longest window", got)
	}
	l.Advance(now.Add(Horizon))
	if got := l.Affected("a").Targets; got != 0 || len(l.targets) > 0 || len(l.accounts["a"].entries) > 0 {
		t.Errorf("%d afterwards; %d targets, %d entries", got, len(l.targets), len(l.accounts["a"].entries))
	}
}
