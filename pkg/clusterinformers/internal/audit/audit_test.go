package audit_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/audit"
)

// world is what a member has, and an index with what is held of it.
type world struct {
	t     *testing.T
	index *aggregate.Index
	scope *aggregate.Scope
}

func newWorld(t *testing.T) *world {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.PutMember(aggregate.Member{Name: "fleet/a"}); err != nil {
		t.Fatal(err)
	}
	s, err := x.OpenScope("fleet/a", "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, x, s}
}

func body(i audit.Item) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q,"resourceVersion":%q,"uid":%q}}`, i.Name, i.Namespace, i.ResourceVersion, i.UID)
}

// hold makes the index hold items.
func (w *world) hold(items ...audit.Item) *aggregate.Snapshot {
	w.t.Helper()
	for _, i := range items {
		b := i.Body
		if b == nil {
			b = body(i)
		}
		w.scope.Upsert(w.scope.Item(&aggregate.Record{Namespace: i.Namespace, Name: i.Name, UID: i.UID, ResourceVersion: i.ResourceVersion, Body: b}))
	}
	if _, err := w.scope.Commit(); err != nil {
		w.t.Fatal(err)
	}
	return w.index.Newest()
}

func item(namespace, name string, n int) audit.Item {
	i := audit.Item{Namespace: namespace, Name: name, UID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), ResourceVersion: fmt.Sprint(n)}
	return i
}

func compare(t *testing.T, p audit.Part, items []audit.Item) audit.Result {
	t.Helper()
	p.Member, p.Kind = "fleet/a", "Pod"
	c := audit.Compare(p)
	for _, i := range items {
		if err := c.Add(i); err != nil {
			t.Fatal(err)
		}
	}
	return c.Result()
}

func TestComparison_FindsEveryDifference(t *testing.T) {
	w := newWorld(t)
	a, b, c, d, e := item("a", "x", 1), item("a-b", "x", 2), item("b", "x", 3), item("b", "y", 4), item("c", "x", 5)
	snap := w.hold(a, b, c, d)
	whole := func(i audit.Item) audit.Item { i.Body = body(i); return i }
	bad := item("a", "bad", 9)
	leaving := func(i audit.Item) audit.Part {
		return audit.Part{LeftOut: map[audit.Key]audit.Digest{audit.KeyOf(i.Namespace, i.Name): audit.DigestOf(i.UID, i.ResourceVersion)}}
	}
	other := func(i audit.Item, change func(*audit.Item)) audit.Item { change(&i); return i }
	for name, test := range map[string]struct {
		part  audit.Part
		items []audit.Item
		want  []audit.Difference
	}{
		"equal":          {items: []audit.Item{a, b, c, d}},
		"in other order": {items: []audit.Item{d, whole(b), a, c}},
		"missing":        {items: []audit.Item{a, b, c, d, e}, want: []audit.Difference{{"c", "x", audit.Missing, false}}},
		"extra":          {items: []audit.Item{a, c, d}, want: []audit.Difference{{"a-b", "x", audit.Extra, false}}},
		"listed twice":   {items: []audit.Item{a, b, c, c}, want: []audit.Difference{{"b", "y", audit.Extra, false}}},
		"version": {
			items: []audit.Item{a, b, c, other(d, func(i *audit.Item) { i.ResourceVersion = "9" })},
			want:  []audit.Difference{{"b", "y", audit.Version, false}},
		},
		"uid": {
			items: []audit.Item{a, b, c, other(d, func(i *audit.Item) { i.UID = e.UID })},
			want:  []audit.Difference{{"b", "y", audit.UID, false}},
		},
		"content": {
			items: []audit.Item{a, b, c, other(d, func(i *audit.Item) { i.Body = []byte(`{}`) })},
			want:  []audit.Difference{{"b", "y", audit.Content, false}},
		},
		"nothing is listed":  {want: []audit.Difference{{"a", "x", audit.Extra, false}, {"a-b", "x", audit.Extra, false}, {"b", "x", audit.Extra, false}, {"b", "y", audit.Extra, false}}},
		"a namespace":        {part: audit.Part{Namespace: "b"}, items: []audit.Item{c}, want: []audit.Difference{{"b", "y", audit.Extra, false}}},
		"left out":           {part: leaving(bad), items: []audit.Item{a, b, c, d, bad}},
		"left out, and gone": {part: leaving(bad), items: []audit.Item{a, b, c, d}, want: []audit.Difference{{"", "(left out)", audit.Extra, false}}},
		"left out, and another version": {
			part: leaving(bad), items: []audit.Item{a, b, c, d, other(bad, func(i *audit.Item) { i.ResourceVersion = "10" })},
			want: []audit.Difference{{"a", "bad", audit.Version, false}},
		},
		"left out, and another object": {
			part: leaving(bad), items: []audit.Item{a, b, c, d, other(bad, func(i *audit.Item) { i.UID = e.UID })},
			want: []audit.Difference{{"a", "bad", audit.Version, false}},
		},
		"left out, of any version": {part: audit.Part{LeftOut: map[audit.Key]audit.Digest{audit.KeyOf("a", "bad"): audit.AnyVersion}}, items: []audit.Item{a, b, c, d, bad}},
		"left out, and in flight": {
			part: audit.Part{LeftOut: leaving(bad).LeftOut, At: "9"}, items: []audit.Item{a, b, c, d, other(bad, func(i *audit.Item) { i.UID = e.UID })},
			want: []audit.Difference{{"a", "bad", audit.Version, true}},
		},
		"in flight":     {part: audit.Part{At: "5"}, items: []audit.Item{a, b, c, e}, want: []audit.Difference{{"b", "y", audit.Extra, true}, {"c", "x", audit.Missing, true}}},
		"not in flight": {part: audit.Part{At: "6"}, items: []audit.Item{a, b, c, d, e}, want: []audit.Difference{{"c", "x", audit.Missing, false}}},
		"a subset":      {part: audit.Part{Subset: true, NewerThan: 5}, items: []audit.Item{a, b, c, e}, want: []audit.Difference{{"b", "y", audit.Extra, false}}},
		"a subset of what is newer": {
			part: audit.Part{Subset: true, NewerThan: 4}, items: []audit.Item{a, b, c, d, e, other(e, func(i *audit.Item) { i.Name, i.ResourceVersion = "z", "unknown" })},
			want: []audit.Difference{{"c", "x", audit.Missing, false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.part.Snapshot = snap
			got := compare(t, test.part, test.items)
			if !slices.Equal(got.Differences, test.want) || got.Total() != len(test.want) {
				t.Errorf("got %v (%d), want %v", got.Differences, got.Total(), test.want)
			}
			if got.Listed != len(test.items) {
				t.Errorf("%d were listed, want %d", got.Listed, len(test.items))
			}
		})
	}
}

// TestComparison_IsThatOfMaps compares random states with what two maps say.
func TestComparison_IsThatOfMaps(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		w := newWorld(t)
		held, listed := map[string]audit.Item{}, map[string]audit.Item{}
		var holding, listing []audit.Item
		for n := range 200 {
			i := item([]string{"a", "a-b", "a.b", "b"}[rng.IntN(4)], fmt.Sprint("n", n), n+1)
			key := i.Namespace + "/" + i.Name
			if rng.IntN(10) > 0 {
				held[key] = i
				holding = append(holding, i)
			}
			switch rng.IntN(20) {
			case 0:
				continue
			case 1:
				i.ResourceVersion = fmt.Sprint(n + 1000)
			case 2:
				i.UID = item("", "", n+5000).UID
			}
			listed[key] = i
			listing = append(listing, i)
		}
		want := 0
		for key, i := range listed {
			if h, is := held[key]; !is || h.UID != i.UID || h.ResourceVersion != i.ResourceVersion {
				want++
			}
		}
		for key := range held {
			if _, is := listed[key]; !is {
				want++
			}
		}
		rng.Shuffle(len(listing), func(i, j int) { listing[i], listing[j] = listing[j], listing[i] })
		if got := compare(t, audit.Part{Snapshot: w.hold(holding...)}, listing); got.Total() != want || len(got.Differences) != min(want, 64) {
			t.Fatalf("%d differences, want %d", got.Total(), want)
		}
	}
}

func TestConfirm_KeepsWhatBothSay(t *testing.T) {
	w := newWorld(t)
	a, b, c := item("a", "x", 1), item("a", "y", 2), item("a", "z", 3)
	snap := w.hold(a, b)
	first := compare(t, audit.Part{Snapshot: snap}, []audit.Item{a, c})
	if got := audit.Confirm(first, compare(t, audit.Part{Snapshot: snap}, []audit.Item{a, b, c})); !slices.Equal(got.Differences, []audit.Difference{{"a", "z", audit.Missing, false}}) || got.Total() != 1 {
		t.Errorf("confirmed is %+v", got)
	}
	flying := compare(t, audit.Part{Snapshot: snap, At: "3"}, []audit.Item{a, c})
	if got := audit.Confirm(flying, flying); got.Total() != 0 || flying.InFlight != 2 {
		t.Errorf("of what is in flight %+v is confirmed", got)
	}
	some := compare(t, audit.Part{Snapshot: snap, At: "4"}, []audit.Item{a, c})
	if got := audit.Confirm(some, some); got.Total() != 2 || some.InFlight != 1 {
		t.Errorf("of what is not all in flight %+v is confirmed", got)
	}
	if got := audit.Confirm(first, compare(t, audit.Part{Snapshot: snap}, []audit.Item{a, b})); got.Total() != 0 {
		t.Errorf("confirmed is %+v", got)
	}
}

// TestComparison_KeepsLittle: what a member lists is as much as it likes, and named as it likes.
func TestComparison_KeepsLittle(t *testing.T) {
	w := newWorld(t)
	a := item("a", "x", 1)
	pad := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		n, cause int
		item     func(n int) audit.Item
	}{
		"long names":     {64, 64, func(n int) audit.Item { return item("a", fmt.Sprint(n, pad), n) }},
		"names":          {20_000, 20_000, func(n int) audit.Item { return item("a", fmt.Sprint(n), n) }},
		"listed anew":    {200_000, 0, func(int) audit.Item { return a }},
		"left out, anew": {200_000, 0, func(int) audit.Item { return item("a", "bad", 9) }},
	} {
		t.Run(name, func(t *testing.T) {
			part := audit.Part{Snapshot: w.hold(a), Member: "fleet/a", Kind: "Pod"}
			if strings.HasPrefix(name, "left out") {
				part.LeftOut = map[audit.Key]audit.Digest{audit.KeyOf("a", "bad"): audit.AnyVersion}
			}
			comparison := audit.Compare(part)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for n := range c.n {
				if err := comparison.Add(c.item(n)); err != nil {
					t.Fatal(err)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 1<<20 {
				t.Errorf("%d items keep %d KiB", c.n, kept>>10)
			}
			got := comparison.Result()
			if got.Counts[audit.Missing] != c.cause || got.Listed != c.n || len(got.Differences) > 64 {
				t.Errorf("%d are missing of %d, and %d are named", got.Counts[audit.Missing], got.Listed, len(got.Differences))
			}
			for _, d := range got.Differences {
				if len(d.Name) > 1024 {
					t.Errorf("a name of %d bytes is kept", len(d.Name))
				}
			}
			runtime.KeepAlive(comparison)
		})
	}
}

// TestConfirm_NamesWhatBothSay: many differ, and both lists say the same of few, which are not among the
// first of either.
func TestConfirm_NamesWhatBothSay(t *testing.T) {
	w := newWorld(t)
	snap := w.hold(item("a", "x", 1))
	list := func(prefix string) (items []audit.Item) {
		for n := range 100 {
			items = append(items, item("a", fmt.Sprint(prefix, n), n))
		}
		return append(items, item("a", "x", 1), item("a", "lost", 3))
	}
	first, second := list("first"), list("second")
	got := audit.Confirm(compare(t, audit.Part{Snapshot: snap}, first), compare(t, audit.Part{Snapshot: snap}, second))
	if want := []audit.Difference{{"", "(not kept)", audit.Missing, false}}; got.Total() != 1 || !slices.Equal(got.Differences, want) {
		t.Errorf("confirmed is %+v", got)
	}
	slices.Reverse(second)
	got = audit.Confirm(compare(t, audit.Part{Snapshot: snap}, first), compare(t, audit.Part{Snapshot: snap}, second))
	if want := []audit.Difference{{"a", "lost", audit.Missing, false}}; got.Total() != 1 || !slices.Equal(got.Differences, want) {
		t.Errorf("confirmed is %+v", got)
	}
}

// TestPlan_MeetsItsIntervals audits 60 kinds of a member for a day, within a budget that suffices: none is
// later than its interval.
func TestPlan_MeetsItsIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := audit.Plan{Interval: 15 * time.Minute, FirstTier: 2 * time.Minute}
		budget := audit.Budget{Requests: 2, Bytes: 1 << 20}
		scopes := make([]audit.Scope, 60)
		for n := range scopes {
			scopes[n] = audit.Scope{First: n < 20, Proved: time.Now(), Spread: rand.Float64(), Objects: 30}
		}
		worst := map[bool]time.Duration{}
		for end := time.Now().Add(24 * time.Hour); time.Now().Before(end); {
			next, due := plan.Next(scopes, time.Now())
			if wait := time.Until(due); wait > 0 {
				time.Sleep(wait)
				continue
			}
			time.Sleep(budget.Delay(time.Now()))
			budget.Spend(time.Now(), 1, 100<<10)
			s := &scopes[next]
			worst[s.First] = max(worst[s.First], time.Since(s.Proved))
			s.Proved, s.Spread = time.Now(), rand.Float64()
		}
		if worst[true] > plan.FirstTier || worst[false] > plan.Interval {
			t.Errorf("the longest intervals were %v", worst)
		}
		if worst[false] < plan.Interval/2 {
			t.Errorf("the longest intervals were %v: that is more often than asked for", worst)
		}
	})
}

// TestPlan_MeetsItsIntervalsInALargeFleet audits 250 members of 47 kinds and 470,000 objects, of which 20
// kinds are in the first tier, within the default budgets of members and of the fleet.
func TestPlan_MeetsItsIntervalsInALargeFleet(t *testing.T) {
	const members, kinds, first, page, objectBytes = 250, 47, 20, 500, 2000
	plan := audit.Plan{Interval: 15 * time.Minute, FirstTier: 2 * time.Minute}
	fleet := audit.Budget{Requests: 200}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type member struct {
		budget audit.Budget
		scopes []audit.Scope
	}
	all := make([]*member, members)
	for n := range all {
		all[n] = &member{budget: audit.Budget{Requests: 2, Bytes: 1 << 20}}
		for k := range kinds {
			s := audit.Scope{First: k < first, Proved: start, Spread: rand.Float64(), Objects: 10}
			if k == 0 { // Pods, which policies read
				s.Objects, s.Changes = 1420, 1000
			}
			all[n].scopes = append(all[n].scopes, s)
		}
	}
	worst, requests, end := map[bool]time.Duration{}, 0, start.Add(40*time.Minute)
	for now := start; now.Before(end); now = now.Add(250 * time.Millisecond) {
		for _, m := range all {
			for {
				next, due := plan.Next(m.scopes, now)
				if due.After(now) || m.budget.Delay(now) > 0 || fleet.Delay(now) > 0 {
					break
				}
				s := &m.scopes[next]
				pages := 1 + s.Objects/page
				m.budget.Spend(now, pages, int64(s.Objects*objectBytes))
				fleet.Spend(now, pages, 0)
				requests += pages
				worst[s.First] = max(worst[s.First], now.Sub(s.Proved))
				s.Proved, s.Spread = now, rand.Float64()
			}
		}
	}
	t.Logf("%.0f requests a second; the longest intervals were %v", float64(requests)/end.Sub(start).Seconds(), worst)
	if worst[true] > plan.FirstTier || worst[false] > plan.Interval {
		t.Errorf("the longest intervals were %v", worst)
	}
}

// TestPlan_SharesABudgetThatDoesNotSuffice: all are audited less often, in both tiers.
func TestPlan_SharesABudgetThatDoesNotSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := audit.Plan{Interval: 15 * time.Minute, FirstTier: 2 * time.Minute}
		budget := audit.Budget{Requests: 0.05}
		scopes := make([]audit.Scope, 40)
		for n := range scopes {
			scopes[n] = audit.Scope{First: n < 20, Proved: time.Now()}
		}
		audited := map[int]int{}
		for end := time.Now().Add(24 * time.Hour); time.Now().Before(end); {
			next, due := plan.Next(scopes, time.Now())
			time.Sleep(max(time.Until(due), budget.Delay(time.Now())))
			budget.Spend(time.Now(), 1, 0)
			scopes[next].Proved = time.Now()
			audited[next]++
		}
		for n := range scopes {
			if audited[n] < 10 {
				t.Errorf("scope %d was audited %d times", n, audited[n])
			}
		}
		if audited[0] < 2*audited[39] {
			t.Errorf("one of the first tier was audited %d times, another %d", audited[0], audited[39])
		}
	})
}

// TestPlan_BeginsEarlierWhatTakesLong: an audit proves what was held when it began. One that takes most of its
// interval begins at once after the last.
func TestPlan_BeginsEarlierWhatTakesLong(t *testing.T) {
	plan := audit.Plan{Interval: 15 * time.Minute, FirstTier: 2 * time.Minute}
	for _, took := range []time.Duration{0, 20 * time.Second, 75 * time.Second} {
		now := time.Now()
		s := audit.Scope{First: true, Proved: now, Took: took, Spread: 0.999}
		if age := plan.Due(s).Add(took).Sub(now); age > plan.FirstTier {
			t.Errorf("where an audit takes %s a scope is not proved for %s", took, age)
		}
	}
	now := time.Now()
	if at := plan.Due(audit.Scope{First: true, Proved: now, Took: time.Hour}); !at.After(now) {
		t.Error("audits that take longer than their interval leave no time between")
	}
}

func TestPlan_Order(t *testing.T) {
	now := time.Now()
	plan := audit.Plan{Interval: 15 * time.Minute, FirstTier: 2 * time.Minute}
	resumed := audit.Scope{Resumed: true}
	retried := audit.Scope{Resumed: true, NotBefore: now.Add(time.Second)}
	late := audit.Scope{Proved: now.Add(-time.Hour)}
	lateFirst := audit.Scope{First: true, Proved: now.Add(-time.Hour)}
	fresh := audit.Scope{Proved: now}
	changed := audit.Scope{Proved: now, Changes: 1000, Objects: 500}
	for name, c := range map[string]struct {
		scopes []audit.Scope
		next   int
		due    bool
	}{
		"nothing":                        {nil, -1, true},
		"resumed before all":             {[]audit.Scope{lateFirst, resumed, late}, 1, true},
		"first tier before others":       {[]audit.Scope{late, lateFirst}, 1, true},
		"what is due before what is not": {[]audit.Scope{fresh, late, retried}, 1, true},
		"what has changed much sooner":   {[]audit.Scope{fresh, changed}, 1, false},
		"a failure is waited for":        {[]audit.Scope{fresh, retried}, 1, false},
	} {
		next, at := plan.Next(c.scopes, now)
		if next != c.next || !at.After(now) != c.due {
			t.Errorf("%s: %d at %v, want %d, due %v", name, next, at.Sub(now), c.next, c.due)
		}
	}
	if !audit.Security("Secret") || audit.Security("Pod") {
		t.Error("Secrets decide on security, and Pods do not")
	}
}

func TestBudget_IsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := audit.Budget{Requests: 5, Bytes: 1000}
		began, spent := time.Now(), 0
		for range 1000 {
			time.Sleep(b.Delay(time.Now()))
			b.Spend(time.Now(), 1, 700)
			spent += 700
		}
		if took := time.Since(began).Seconds(); float64(spent)/took > 1.05*1000 || float64(spent)/took < 0.95*1000 {
			t.Errorf("%d bytes in %v s", spent, took)
		}
		none := audit.Budget{}
		none.Spend(time.Now(), 1000, 1<<40)
		if d := none.Delay(time.Now()); d != 0 {
			t.Errorf("without bounds the next waits for %v", d)
		}
	})
}

func Example() {
	plan := audit.Plan{Interval: 15 * time.Minute, FirstTier: 2 * time.Minute}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	next, _ := plan.Next([]audit.Scope{
		{Proved: now.Add(-10 * time.Minute)}, // not due for long
		{First: audit.Security("Secret"), Proved: now.Add(-10 * time.Minute)},
	}, now)
	fmt.Println(next)
	// Output: 1
}
