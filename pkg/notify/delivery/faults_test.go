package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/delivery"
	"federator.dev/federator/pkg/notify/sinks"
)

// viewKey is what a policy has made a key of: text of objects.
const viewKey = "intranet.example.com"

// ofView is a transition of a violation of a key of a view.
func ofView(subject, transition string, i int) history.Record {
	return history.Record{
		Type: history.Verdict, Transition: transition, Policy: "unique-host", Version: "1", Severity: "high", Subject: subject, Violation: "taken",
		Key: history.Key("unique-host", "1", subject, transition, fmt.Sprint(i)),
	}
}

// TestDelivery_KeysOfViewsAreText: they are not in the key, the ID or the group of a transition either.
func TestDelivery_KeysOfViewsAreText(t *testing.T) {
	byObject := &delivery.Grouping{By: []delivery.Dimension{delivery.ByObject}, Messages: 10}
	for name, grouping := range map[string]*delivery.Grouping{"each": nil, "grouped": byObject} {
		for _, text := range []bool{false, true} {
			t.Run(fmt.Sprint(name, text), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dir := t.TempDir()
					h, end := openHistory(t, dir, nil)
					defer end()
					to := newReceiver()
					defer run(t, newDelivery(t, dir, h, to, func(o *delivery.Options) { o.Grouping, o.IncludeText = grouping, text }), delivery.Reported{Until: time.Now()})()
					record(t, h, ofView(viewKey, history.Opened, 1))
					to.wait(t, func() bool { return len(to.all()) == 1 })
					m := to.all()[0]
					if all := m.ID + m.Subject + string(m.Data); strings.Contains(all, viewKey) != text {
						t.Errorf("includeText is %v: %s", text, all)
					}
				})
			})
		}
	}
}

// TestDelivery_KeysOfViewsAreObjects: two of them are as little one object as two Pods.
func TestDelivery_KeysOfViewsAreObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		to := newReceiver()
		defer run(t, newDelivery(t, dir, h, to, grouped), delivery.Reported{Until: time.Now()})()
		var many []history.Record
		for i := range 200 {
			many = append(many, ofView(key(i), history.Opened, i), ofView(key(i), history.Closed, i))
		}
		record(t, h, many...)
		to.wait(t, func() bool { return len(to.all()) > 0 })
		synctest.Wait()
		if all := to.all(); len(all) != 2 || data[delivery.Group](t, &all[0]).Objects != 200 {
			t.Errorf("%d messages, the first %s", len(all), all[0].Data)
		}
	})
}

// TestDelivery_StatusOfOneThatWaits: what is not selected waits for nothing, and a failure ends with what it was about.
func TestDelivery_StatusOfOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		to := newReceiver()
		to.refuse(func(*sinks.Message) error { return errors.New("away") })
		var selects atomic.Bool
		selects.Store(true)
		d := newDelivery(t, dir, h, to, func(o *delivery.Options) { o.Selects = func(*history.Record) bool { return selects.Load() } })
		defer run(t, d, delivery.Reported{Until: time.Now()})()
		record(t, h, violation("eu", "a", history.Opened, "a"))
		synctest.Wait()
		if s := d.Status(); s.Failures != 1 || s.Waiting != 1 {
			t.Fatalf("%+v", s)
		}
		selects.Store(false)
		time.Sleep(time.Minute)
		if s := d.Status(); s.Failures != 0 || s.Err != nil || s.Waiting != 0 {
			t.Errorf("nothing is left to be sent: %+v", s)
		}
		record(t, h, violation("eu", "a", history.Closed, "b"))
		time.Sleep(time.Second)
		record(t, h, violation("eu", "a", history.Opened, "c"))
		synctest.Wait()
		if s := d.Status(); s.Failures != 0 || s.Err != nil || s.Waiting != 0 || s.Position != 3 {
			t.Errorf("nothing is left to be sent: %+v", s)
		}
	})
}

// TestDelivery_CollectionOfAnotherSink: one that was begun before transitions were sent one by one is not gone back to.
func TestDelivery_CollectionOfAnotherSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		to := newReceiver()
		to.refuse(func(*sinks.Message) error { return errors.New("away") })
		began := delivery.Reported{Until: time.Now()}
		stop := run(t, newDelivery(t, dir, h, to, grouped), began)
		record(t, h, violation("eu", "a", history.Opened, "a"))
		time.Sleep(20 * time.Second)
		stop()
		to.refuse(nil)
		stop = run(t, newDelivery(t, dir, h, to, nil), began)
		record(t, h, violation("eu", "b", history.Opened, "b"), violation("eu", "c", history.Opened, "c"))
		to.wait(t, func() bool { return len(to.all()) == 3 })
		stop()
		defer run(t, newDelivery(t, dir, h, to, grouped), began)()
		record(t, h, violation("eu", "d", history.Opened, "d"))
		to.wait(t, func() bool { return len(to.all()) == 4 })
		if g := data[delivery.Group](t, &to.all()[3]); g.Transitions != 1 || g.From != 4 {
			t.Errorf("what was sent is sent again: %+v", g)
		}
	})
}

// losing is a log that has lost what is up to a position.
type losing struct {
	delivery.Log

	upTo  atomic.Uint64
	reads atomic.Int64
	hang  <-chan struct{} // of one that is read too often
}

func (l *losing) Read(q history.Query) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		if n := l.reads.Add(1); l.hang != nil && n > 1000 {
			<-l.hang
		}
		upTo := l.upTo.Load()
		if q.After < upTo && !q.Backward {
			r := history.Record{Type: history.Gap, Transition: "Gap", Key: history.Key("gap", fmt.Sprint(q.After), fmt.Sprint(upTo)), Message: "lost"}
			if !yield(r, nil) {
				return
			}
		}
		for r, err := range l.Log.Read(q) {
			if (err != nil || r.Position > upTo) && !yield(r, err) {
				return
			}
		}
	}
}

// TestDelivery_CollectionThatExpires: what is left of it is sent, though other messages of it were before.
func TestDelivery_CollectionThatExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		log, to := &losing{Log: h}, newReceiver()
		to.refuse(func(m *sinks.Message) error {
			if len(to.messages) > 0 {
				return errors.New("away")
			}
			return nil
		})
		began := delivery.Reported{Until: time.Now()}
		stop := run(t, newDelivery(t, dir, log, to, grouped), began)
		record(t, h, violation("eu", "x", history.Opened, "a"), violation("eu", "x", history.Closed, "b"), violation("eu", "x", history.Opened, "c"))
		time.Sleep(30 * time.Second)
		stop()
		log.upTo.Store(1)
		to.refuse(nil)
		defer run(t, newDelivery(t, dir, log, to, grouped), began)()
		time.Sleep(time.Hour)
		got := map[string]bool{}
		for _, m := range to.all() {
			if m.Type == delivery.GapType {
				got["gap"] = true
				continue
			}
			for _, x := range data[delivery.Group](t, &m).Examples {
				got[x.Key] = true
			}
		}
		if !got["a"] || !got["b"] || !got["c"] || !got["gap"] {
			t.Errorf("%v were sent", got)
		}
	})
}

// TestDelivery_LogThatHasLostItsEnd: it is not read again and again until there is more.
func TestDelivery_LogThatHasLostItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		record(t, h, violation("eu", "a", history.Opened, "a"))
		hang := make(chan struct{})
		log, to := &losing{Log: h, hang: hang}, newReceiver()
		log.upTo.Store(1)
		d := newDelivery(t, dir, log, to, nil)
		defer run(t, d, delivery.Reported{Until: time.Now().Add(-time.Hour)})()
		defer sync.OnceFunc(func() { close(hang) })()
		synctest.Wait()
		if n := log.reads.Load(); n > 10 || len(to.all()) != 1 {
			t.Errorf("it was read %d times, %d messages", n, len(to.all()))
		}
		if s := d.Status(); s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// endless is a log of which there is always more; it ends the context once it is read.
type endless struct {
	delivery.Log

	begun func()
	after atomic.Int64
}

func (l *endless) Span() history.Span { return history.Span{Last: 1 << 40} }

func (l *endless) Read(q history.Query) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		if q.Backward {
			return
		}
		r := violation("eu", "a", history.Opened, "a")
		r.Time = time.Now()
		for i := 1; i <= 10_000_000; i++ {
			if i == 1000 {
				l.begun()
			}
			if i > 1000 {
				l.after.Add(1)
			}
			if r.Position = uint64(i); !yield(r, nil) {
				return
			}
		}
	}
}

// TestDelivery_EndsWhileItReads: who stops it does not wait for the end of the log.
func TestDelivery_EndsWhileItReads(t *testing.T) {
	for name, grouping := range map[string]*delivery.Grouping{"each": nil, "grouped": {Messages: 1}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h, end := openHistory(t, dir, nil)
			defer end()
			ctx, cancel := context.WithCancel(t.Context())
			log := &endless{Log: h, begun: cancel}
			n := 0
			d := newDelivery(t, dir, log, newReceiver(), func(o *delivery.Options) {
				o.Grouping = grouping
				o.Selects = func(*history.Record) bool { n++; return grouping != nil && n == 1 }
			})
			_ = d.Run(ctx, delivery.Reported{})
			if after := log.after.Load(); after > 10_000 {
				t.Errorf("%d more transitions were read", after)
			}
		})
	}
}

// sized is a sink that notes how much it was given at once, and how much is held meanwhile.
type sized struct {
	*receiver

	most, one int
}

func (s *sized) Send(ctx context.Context, messages []sinks.Message) (int, error) {
	sum := 0
	for i := range messages {
		sum += len(messages[i].Data)
		s.one = max(s.one, len(messages[i].Data))
	}
	s.most = max(s.most, sum)
	bare := slices.Clone(messages) // the receiver keeps them
	for i := range bare {
		bare[i].Data = nil
	}
	return s.receiver.Send(ctx, bare)
}

// TestDelivery_MuchTextIsBounded: what is made at once is, and a message of several is none that receivers refuse.
func TestDelivery_MuchTextIsBounded(t *testing.T) {
	const n, text = 4500, 15 << 10
	for name, grouping := range map[string]*delivery.Grouping{"each": nil, "grouped": {By: []delivery.Dimension{delivery.ByObject}, Messages: 1}, "one group": {Wait: time.Second, Messages: 1}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h, end := openHistory(t, dir, nil)
			defer end()
			began := time.Now()
			for i := 0; i < n; i += 500 {
				var some []history.Record
				for j := range 500 {
					r := violation("eu", key(i+j), history.Opened, key(i+j))
					r.Violation = fmt.Sprint(i+j) + strings.Repeat("a", text)
					some = append(some, r)
				}
				record(t, h, some...)
			}
			to := &sized{receiver: newReceiver()}
			d := newDelivery(t, dir, h, to, func(o *delivery.Options) { o.IncludeText, o.Grouping = true, grouping })
			stop := run(t, d, delivery.Reported{Until: began.Add(-time.Second)})
			want := map[string]int{"each": n, "grouped": 2, "one group": 1}[name]
			to.wait(t, func() bool { return len(to.all()) == want })
			stop()
			if to.most > 4<<20+text || to.one > 128<<10 {
				t.Errorf("%d bytes were sent at once, %d in a message", to.most, to.one)
			}
		})
	}
}

// TestDelivery_WhatMembersSayOfWhen: the clock of a member, or an object that was long on its way, does not have something left out.
func TestDelivery_WhatMembersSayOfWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h, end := openHistory(t, dir, nil)
		defer end()
		to := newReceiver()
		defer run(t, newDelivery(t, dir, h, to, nil), delivery.Reported{Until: time.Now()})()
		asked := time.Now().Add(-time.Hour) // and a finalizer has kept it
		record(t, h,
			history.Record{Type: history.Object, Transition: history.Deleted, Key: "gone", Member: "eu", Kind: "Namespace", Name: "shop", UID: "u", MemberTime: &asked},
			history.Record{Type: history.Action, Transition: "Succeeded", Key: "told", Member: "eu", MemberTime: &asked},
			violation("eu", "a", history.Opened, "last"))
		to.wait(t, func() bool { all := to.all(); return len(all) > 0 && all[len(all)-1].ID == "last" })
		var keys []string
		for _, m := range to.all() {
			keys = append(keys, data[delivery.Transition](t, &m).Key)
		}
		if text, _ := json.Marshal(keys); string(text) != `["gone","last"]` {
			t.Errorf("%s were sent", text)
		}
	})
}

// TestDelivery_TakesOverWithoutAHistory: what happened between the last report and the first record is a gap.
func TestDelivery_TakesOverWithoutAHistory(t *testing.T) {
	for name, change := range map[string]func(*delivery.Options){"each": nil, "grouped": grouped} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				h, end := openHistory(t, dir, nil)
				defer end()
				reported := time.Now()
				time.Sleep(time.Hour)
				record(t, h, violation("eu", "a", history.Opened, "a"))
				to := newReceiver()
				before := delivery.Reported{Log: "lost", Until: reported}
				stop := run(t, newDelivery(t, dir, h, to, change), before)
				to.wait(t, func() bool { return len(to.all()) == 2 })
				m := to.all()[0]
				got := data[delivery.Transition](t, &m)
				if m.Type != delivery.GapType || got.From == nil || !got.From.Equal(reported.Truncate(time.Second).Add(-time.Minute)) || got.To == nil || time.Since(*got.To) > time.Minute {
					t.Errorf("%s: %s", m.Type, m.Data)
				}
				time.Sleep(time.Minute)
				stop()
				defer run(t, newDelivery(t, dir, h, to, change), before)()
				record(t, h, violation("eu", "a", history.Closed, "b"))
				to.wait(t, func() bool { return len(to.all()) >= 3 })
				if m := to.all()[2]; m.Type == delivery.GapType {
					t.Errorf("again: %s", m.Data)
				}
			})
		})
	}
}

// TestDelivery_ClockWasAhead: what was sent, or reported, by a clock that was wrong by a day silences nothing until then.
func TestDelivery_ClockWasAhead(t *testing.T) {
	for name, change := range map[string]func(*delivery.Options){"each": nil, "grouped": grouped} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				h, end := openHistory(t, dir, nil)
				defer end()
				ahead, to := time.Now().Add(24*time.Hour), newReceiver()
				stop := run(t, newDelivery(t, dir, h, to, change), delivery.Reported{Log: "another", Until: ahead})
				record(t, h, violation("eu", "a", history.Opened, "a"))
				time.Sleep(10 * time.Minute)
				stop()
				if n := len(to.all()); n == 0 || to.all()[n-1].Type == delivery.GapType {
					t.Fatalf("%d messages were sent", n)
				}
				// It was this process whose clock was ahead.
				file := filepath.Join(dir, "position.json")
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				var at map[string]any
				if err := json.Unmarshal(text, &at); err != nil {
					t.Fatal(err)
				}
				at["floor"], at["lastSent"] = ahead, ahead
				if text, err = json.Marshal(at); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, text, 0o600); err != nil {
					t.Fatal(err)
				}
				n := len(to.all())
				defer run(t, newDelivery(t, dir, h, to, change), delivery.Reported{Log: h.ID(), Until: time.Now()})()
				record(t, h, violation("eu", "a", history.Closed, "b"))
				time.Sleep(10 * time.Minute)
				if len(to.all()) == n {
					t.Error("nothing is sent until the clock has come as far")
				}
			})
		})
	}
}
