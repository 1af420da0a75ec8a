package delivery_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/delivery"
	"federator.dev/federator/pkg/notify/sinks"
	"federator.dev/federator/test/seed"
)

// grouped has transitions grouped by policy and transition.
func grouped(o *delivery.Options) {
	o.Grouping = &delivery.Grouping{By: []delivery.Dimension{delivery.ByPolicy, delivery.ByType, delivery.ByTransition}, Wait: 10 * time.Second, Interval: time.Minute, Messages: 100}
}

func TestDelivery_SendsEachTransitionByItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		start := time.Now()
		record(t, h, violation("eu", "before", history.Opened, "before"))
		time.Sleep(time.Second)
		to := newReceiver()
		d := newDelivery(t, dir, h, to, func(o *delivery.Options) {
			o.Selects = func(r *history.Record) bool { return r.Transition == history.Opened }
		})
		stop := run(t, d, delivery.Reported{Until: start.Add(time.Second)})
		defer stop()
		record(t, h, violation("eu", "a", history.Opened, "a"), violation("eu", "a", history.Closed, "b"), violation("us", "b", history.Opened, "keys of views may be ü"))
		to.wait(t, func() bool { return len(to.all()) == 2 })
		all := to.all()
		if all[0].ID != "a" || all[0].Type != "dev.federator.violation.opened" || all[0].Subject != "eu/Ingress.networking.k8s.io/shop/a" || all[0].Source != "/federator/test" {
			t.Errorf("%+v", all[0])
		}
		if strings.ContainsAny(all[1].ID, " ü") {
			t.Errorf("the ID %q cannot be that of a header", all[1].ID)
		}
		got := data[delivery.Transition](t, &all[0])
		if got.Policy != "unique-host" || got.Severity != "high" || got.Violation != "" || got.Member != "eu" || got.Name != "a" || got.Type != "Violation" {
			t.Errorf("%+v", got)
		}
		synctest.Wait()
		if s := d.Status(); s.Position != 4 || s.Waiting != 0 || s.Err != nil || s.Log != h.ID() || s.LastSent.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

func TestDelivery_TextOfObjectsIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		to := newReceiver()
		defer run(t, newDelivery(t, dir, h, to, func(o *delivery.Options) { o.IncludeText = true }), delivery.Reported{Until: time.Now()})()
		record(t, h, violation("eu", "a", history.Opened, "a"))
		to.wait(t, func() bool { return len(to.all()) == 1 })
		if got := data[delivery.Transition](t, &to.all()[0]); got.Violation != "host of a" {
			t.Errorf("%+v", got)
		}
	})
}

func TestDelivery_TenThousandViolationsAreOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		to := newReceiver()
		defer run(t, newDelivery(t, dir, h, to, grouped), delivery.Reported{Until: time.Now()})()
		began := time.Now()
		for i := range 100 {
			var many []history.Record
			for j := range 100 {
				many = append(many, violation(fmt.Sprintf("m-%d", i%7), fmt.Sprintf("i-%d-%d", i, j), history.Opened, key(i*100+j)))
			}
			record(t, h, many...)
		}
		to.wait(t, func() bool { return len(to.all()) == 1 })
		m := to.all()[0]
		got := data[delivery.Group](t, &m)
		if got.Transitions != 10_000 || got.Objects != 10_000 || got.Members != 7 || got.Severities["high"] != 10_000 || len(got.Examples) != 10 || got.From != 1 || got.To != 10_000 || got.Groups != 0 {
			t.Errorf("%+v", got)
		}
		if m.Type != "dev.federator.violation.opened" || m.Subject != "unique-host" || got.Summary != "10000 × Violation Opened by policy unique-host in 7 member(s)" {
			t.Errorf("%s of %s: %s", m.Type, m.Subject, got.Summary)
		}
		if after := to.times[0].Sub(began); after != 10*time.Second {
			t.Errorf("it was sent after %v", after)
		}
		// The next comes no sooner than a minute after it.
		record(t, h, violation("eu", "x", history.Opened, "x"), violation("eu", "x", history.Closed, "y"))
		to.wait(t, func() bool { return len(to.all()) == 3 })
		if after := to.times[1].Sub(to.times[0]); after != time.Minute {
			t.Errorf("the next was sent %v later", after)
		}
	})
}

func TestDelivery_TooManyGroupsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		to := newReceiver()
		defer run(t, newDelivery(t, dir, h, to, func(o *delivery.Options) {
			o.Grouping = &delivery.Grouping{By: []delivery.Dimension{delivery.ByObject}, Wait: time.Second, Messages: 3}
		}), delivery.Reported{Until: time.Now()})()
		var many []history.Record
		for i := range 10 {
			many = append(many, violation("eu", key(i), history.Opened, key(i)))
		}
		record(t, h, many...)
		to.wait(t, func() bool { return len(to.all()) == 4 })
		got := data[delivery.Group](t, &to.all()[3])
		if got.Groups != 7 || got.Transitions != 7 || got.Objects != 7 || len(got.Examples) != 0 || !strings.Contains(got.Summary, "7 groups") {
			t.Errorf("%+v", got)
		}
	})
}

func TestDelivery_ManyGapsAreOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		to := newReceiver()
		defer run(t, newDelivery(t, dir, h, to, grouped), delivery.Reported{Until: time.Now()})()
		var many []history.Record
		for i := range 500 {
			many = append(many, history.Record{Type: history.Gap, Transition: "Gap", Key: key(i), Member: fmt.Sprint("m-", i%3), Message: "lost"})
		}
		record(t, h, append(many, violation("eu", "a", history.Opened, "a"))...)
		to.wait(t, func() bool { return len(to.all()) == 2 })
		got := data[delivery.Group](t, &to.all()[0])
		if m := to.all()[0]; m.Type != delivery.GapType || got.Transitions != 500 || got.Members != 3 || len(got.Examples) != 10 || to.all()[1].Type == delivery.GapType {
			t.Errorf("%s: %+v", m.Type, got)
		}
	})
}

// TestDelivery_SinkThatIsAwayLosesNothing: what comes meanwhile is sent once it is back, in order, and its failure is shown.
func TestDelivery_SinkThatIsAwayLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		to, away := newReceiver(), errors.New("connection refused")
		to.refuse(func(*sinks.Message) error { return away })
		d := newDelivery(t, dir, h, to, nil)
		defer run(t, d, delivery.Reported{Until: time.Now()})()
		for i := range 50 {
			record(t, h, violation("eu", key(i), history.Opened, key(i)))
			time.Sleep(time.Minute)
		}
		if s := d.Status(); !errors.Is(s.Err, away) || s.Failures < 10 || s.Waiting != 50 {
			t.Errorf("%+v", s)
		}
		to.refuse(nil)
		to.wait(t, func() bool { return len(to.all()) == 50 })
		for i, m := range to.all() {
			if m.ID != key(i) {
				t.Fatalf("%d is %s", i, m.ID)
			}
		}
		synctest.Wait()
		if s := d.Status(); s.Err != nil || s.Failures != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestDelivery_MalformedMessageHarmsNoOther: one that is refused as such for an hour makes room for the next, and is told of.
func TestDelivery_MalformedMessageHarmsNoOther(t *testing.T) {
	for name, refusesNotice := range map[string]bool{"told of": false, "not even that is taken": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				h, end := openHistory(t, dir, nil)
				defer end()
				to := newReceiver()
				to.refuse(func(m *sinks.Message) error {
					if m.ID == "bad" || refusesNotice && m.Type == delivery.DroppedType {
						return &sinks.RefusedError{Status: 400, Body: "no"}
					}
					return nil
				})
				defer run(t, newDelivery(t, dir, h, to, nil), delivery.Reported{Until: time.Now()})()
				began := time.Now()
				record(t, h, violation("eu", "a", history.Opened, "good"), violation("eu", "b", history.Opened, "bad"), violation("eu", "c", history.Opened, "later"))
				want := []string{"good", "bad/dropped", "later"}
				if refusesNotice {
					want = []string{"good", "later"}
				}
				to.wait(t, func() bool { return len(to.all()) == len(want) })
				for i, m := range to.all() {
					if m.ID != want[i] {
						t.Errorf("%d is %s, want %s", i, m.ID, want[i])
					}
				}
				if waited := time.Since(began); waited < time.Hour || waited > time.Hour+10*time.Minute {
					t.Errorf("it was given up after %v", waited)
				}
			})
		})
	}
}

// TestDelivery_OtherProcessTakesOver: it begins a minute before the time until which the other has reported; what is
// recorded later of before is left out.
func TestDelivery_OtherProcessTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		for i := range 10 {
			record(t, h, violation("eu", key(i), history.Opened, key(i)))
			time.Sleep(30 * time.Second)
		}
		reported := time.Now().Add(-45 * time.Second) // after key-8
		to := newReceiver()
		d := newDelivery(t, dir, h, to, nil)
		stop := run(t, d, delivery.Reported{Log: "another", Until: reported})
		to.wait(t, func() bool { return len(to.all()) >= 3 })
		if all := to.all(); len(all) != 3 || all[0].ID != key(7) {
			t.Errorf("%d messages: %v", len(all), all)
		}
		old := violation("eu", "old", history.Opened, "old")
		at := reported.Add(-time.Hour)
		old.FirstSeen = &at
		record(t, h, old, violation("eu", "new", history.Opened, "new"))
		to.wait(t, func() bool { return len(to.all()) == 4 })
		if last := to.all()[3]; last.ID != "new" {
			t.Errorf("%s was sent", last.ID)
		}
		stop()
		// The other goes on for a while, and this takes over again: from then, not from where it was.
		for i := range 10 {
			record(t, h, violation("eu", key(i), history.Closed, "more-"+key(i)))
			time.Sleep(time.Minute)
		}
		defer run(t, d, delivery.Reported{Log: "another", Until: time.Now()})()
		record(t, h, violation("eu", "new", history.Closed, "last"))
		to.wait(t, func() bool { all := to.all(); return all[len(all)-1].ID == "last" })
		if all := to.all(); len(all) != 6 || all[4].ID != "more-"+key(9) {
			t.Errorf("%d messages: %v", len(all), all)
		}
	})
}

// TestDelivery_WhatIsLostIsSentAsAGap: what expires while a sink is away is told once.
func TestDelivery_WhatIsLostIsSentAsAGap(t *testing.T) {
	dir := t.TempDir()
	h, end := openHistory(t, dir, func(o *history.Options) { o.MaxBytes = 8 << 20 })
	defer end()
	many := func(from, n int) {
		records := make([]history.Record, 0, n)
		random := rand.NewChaCha8([32]byte{1})
		for i := range n {
			r := violation("eu", key(from+i), history.Opened, key(from+i))
			text := make([]byte, 4000)
			for j := range text {
				text[j] = byte('a' + random.Uint64()%26)
			}
			r.Violation = string(text)
			records = append(records, r)
		}
		record(t, h, records...)
	}
	began := time.Now()
	record(t, h, violation("eu", "first", history.Opened, "first"))
	to := newReceiver()
	d := newDelivery(t, dir, h, to, nil)
	stop := run(t, d, delivery.Reported{Until: began})
	to.wait(t, func() bool { return len(to.all()) == 1 })
	stop()
	n := 0
	for ; h.Span().Oldest <= 2; n += 500 {
		many(n, 500)
		if n > 100_000 {
			t.Fatal("nothing expires")
		}
	}
	defer run(t, newDelivery(t, dir, h, to, nil), delivery.Reported{})()
	to.wait(t, func() bool { all := to.all(); return all[len(all)-1].ID == key(n-1) })
	// Each transition was sent or is in a gap, also what expired while it was read.
	known, ids := 0, map[string]bool{}
	for i, m := range to.all() {
		if ids[m.ID] {
			t.Errorf("%s was sent twice", m.ID)
		}
		if ids[m.ID] = true; m.Type != delivery.GapType {
			known++
			continue
		}
		var from, until int
		parts := strings.Split(m.ID, "/")
		if _, err := fmt.Sscan(strings.Join(parts[len(parts)-2:], " "), &from, &until); err != nil || i == 0 {
			t.Fatalf("%d is %s: %v", i, m.ID, err)
		}
		known += until - from + 1
	}
	if second := to.all()[1]; second.Type != delivery.GapType || known != n+1 {
		t.Errorf("%d of %d are known, the second message is %s", known, n+1, second.Type)
	}
}

// TestDelivery_KeepsWhatIsSelected: whatever ends it whenever, each transition that is selected is sent, and those of an object
// in their order.
func TestDelivery_KeepsWhatIsSelected(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed.Of(t), uint64(round)))
			synctest.Test(t, func(t *testing.T) { keepsWhatIsSelected(t, random, round%2 == 0) })
		})
	}
}

func keepsWhatIsSelected(t *testing.T, random *rand.Rand, group bool) {
	dir := t.TempDir()
	h, end := openHistory(t, dir, nil)
	defer func() { end() }()
	to, fails := newReceiver(), rand.New(rand.NewPCG(random.Uint64(), 0)) // the receiver's own: it is of another goroutine
	to.refuse(func(*sinks.Message) error {
		if fails.IntN(4) == 0 {
			return errors.New("not now")
		}
		return nil
	})
	opts := func(o *delivery.Options) {
		o.Selects = func(r *history.Record) bool { return r.Severity == "high" }
		if group {
			o.Grouping = &delivery.Grouping{By: []delivery.Dimension{delivery.ByTransition}, Wait: 5 * time.Second, Interval: 20 * time.Second, Messages: 100}
		}
	}
	stop := run(t, newDelivery(t, dir, h, to, opts), delivery.Reported{Until: time.Now()})
	want, n := 0, 0
	open := map[int]bool{}
	for range 60 {
		var some []history.Record
		for range random.IntN(6) + 1 {
			object := random.IntN(5)
			r := violation("eu", fmt.Sprint("o", object), history.Opened, key(n))
			if open[object] {
				r.Transition = history.Closed
			}
			open[object] = !open[object]
			n++
			if want++; random.IntN(5) == 0 {
				r.Severity = "low"
				want--
			}
			some = append(some, r)
		}
		record(t, h, some...)
		time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
		if random.IntN(8) == 0 { // it ends, and another goes on
			stop()
			if random.IntN(2) == 0 {
				end()
				h, end = openHistory(t, dir, nil)
			}
			stop = run(t, newDelivery(t, dir, h, to, opts), delivery.Reported{Log: h.ID(), Until: time.Now()})
		}
	}
	sum := func() (total int) {
		for _, m := range to.once() {
			if !group {
				total++
				continue
			}
			total += data[delivery.Group](t, &m).Transitions
		}
		return total
	}
	to.wait(t, func() bool { return sum() >= want })
	stop()
	if got := sum(); got != want {
		t.Errorf("%d transitions were sent, %d were selected", got, want)
	}
	last := map[string]int{}
	for _, m := range to.once() {
		list := []delivery.Transition{}
		if group {
			list = data[delivery.Group](t, &m).Examples
		} else {
			list = append(list, data[delivery.Transition](t, &m))
		}
		for _, x := range list {
			var i int
			if _, err := fmt.Sscanf(x.Key, "key-%d", &i); err != nil {
				t.Fatal(err)
			}
			if at, seen := last[x.Name]; seen && at > i {
				t.Errorf("%s comes after key-%d of the same object", x.Key, at)
			}
			last[x.Name] = i
		}
	}
}

func TestNew_Options(t *testing.T) {
	dir := t.TempDir()
	h, end := openHistory(t, dir, nil)
	defer end()
	good := delivery.Options{UID: "u", Version: "1", Origin: "/o", Log: h, Sink: newReceiver(), Selects: func(*history.Record) bool { return true }, File: "f"}
	for want, change := range map[string]func(*delivery.Options){
		"":         func(*delivery.Options) {},
		"required": func(o *delivery.Options) { o.File = "" },
		"not known": func(o *delivery.Options) {
			o.Grouping = &delivery.Grouping{By: []delivery.Dimension{"Color"}, Messages: 1}
		},
		"not negative": func(o *delivery.Options) { o.Grouping = &delivery.Grouping{Wait: -1, Messages: 1} },
		"messages (0)": func(o *delivery.Options) { o.Grouping = &delivery.Grouping{} },
	} {
		opts := good
		change(&opts)
		if _, err := delivery.New(opts); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
