package listwatch_test

import (
	"testing"
	"time"

	"federator.dev/federator/pkg/clusterinformers/internal/listwatch"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// machine returns a new Machine.
func machine(held string, opts listwatch.Options) *listwatch.Machine {
	m := listwatch.New(held, opts)
	return &m
}

// next returns the request that is due now, and fails if there is none.
func next(t *testing.T, m *listwatch.Machine, now time.Time) listwatch.Request {
	t.Helper()
	r, at, ok := m.Next(now)
	if !ok {
		t.Fatalf("nothing to send at %s: wait until %s", now.Sub(epoch), at.Sub(epoch))
	}
	return r
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func TestMachine_StreamsTheInitialListAndGoesOnWatching(t *testing.T) {
	m := machine("", listwatch.Options{})
	r := next(t, m, epoch)
	want(t, "request", r, listwatch.Request{ID: 1, Verb: listwatch.Stream})
	m.Opened(r.ID, epoch)
	want(t, "an initial event", m.Object(r.ID, "7"), listwatch.Stage)
	want(t, "applied meanwhile", m.AppliedResourceVersion(), "")
	want(t, "the end", m.Bookmark(r.ID, "9", true), listwatch.Replace)
	want(t, "applied", m.AppliedResourceVersion(), "9")
	want(t, "an event", m.Object(r.ID, "10"), listwatch.Apply)
	want(t, "closed", m.Ended(r.ID, epoch.Add(5*time.Minute), listwatch.Closed, 0), listwatch.Ignore)
	want(t, "resumed", next(t, m, epoch.Add(5*time.Minute)), listwatch.Request{ID: 2, Verb: listwatch.Watch, ResourceVersion: "10"})
}

func TestMachine_BreakBeforeTheInitialEventsEndStartsAnew(t *testing.T) {
	m := machine("", listwatch.Options{})
	r := next(t, m, epoch)
	m.Object(r.ID, "7")
	want(t, "broken", m.Ended(r.ID, epoch, listwatch.Broken, 0), listwatch.Discard)
	_, at, ok := m.Next(epoch)
	if ok || !at.After(epoch) {
		t.Fatalf("no delay: %s %v", at, ok)
	}
	want(t, "again", next(t, m, at), listwatch.Request{ID: 2, Verb: listwatch.Stream})
	want(t, "late frame", m.Bookmark(r.ID, "9", true), listwatch.Ignore)
	want(t, "late end", m.Ended(r.ID, at, listwatch.Expired, 0), listwatch.Ignore)
}

func TestMachine_ExpiredListsNotOlderThanThenTheNewest(t *testing.T) {
	m := machine("100", listwatch.Options{})
	r := next(t, m, epoch)
	want(t, "watch", r, listwatch.Request{ID: 1, Verb: listwatch.Watch, ResourceVersion: "100"})
	want(t, "expired", m.Ended(r.ID, epoch, listwatch.Expired, 0), listwatch.Ignore)
	r = next(t, m, epoch)
	want(t, "not older", r, listwatch.Request{ID: 2, Verb: listwatch.Stream, ResourceVersion: "100"})
	want(t, "too new", m.Ended(r.ID, epoch, listwatch.TooNew, time.Second), listwatch.Discard)
	_, at, _ := m.Next(epoch)
	r = next(t, m, at)
	want(t, "newest", r, listwatch.Request{ID: 3, Verb: listwatch.Stream})
	m.Bookmark(r.ID, "50", true)
	want(t, "applied", m.AppliedResourceVersion(), "50")
}

func TestMachine_ShortWatchesBackOffAndDoNotList(t *testing.T) {
	m := machine("5", listwatch.Options{})
	now, last := epoch, time.Duration(0)
	for range 12 {
		r := next(t, m, now)
		want(t, "verb", r.Verb, listwatch.Watch)
		m.Opened(r.ID, now)
		m.Ended(r.ID, now.Add(10*time.Millisecond), listwatch.Closed, 0)
		_, at, _ := m.Next(now)
		if d := at.Sub(now); d < last || d > 16*time.Second {
			t.Fatalf("delay %s after %s", d, last)
		} else {
			last = d
		}
		now = at
	}
	if last < 15*time.Second {
		t.Errorf("the last delay is %s", last)
	}
}

func TestMachine_PagesContinueAfterABreakAndRestartWhenTheTokenExpires(t *testing.T) {
	m := machine("", listwatch.Options{NoStreams: true})
	r := next(t, m, epoch)
	want(t, "list", r, listwatch.Request{ID: 1, Verb: listwatch.List})
	want(t, "too large", m.Ended(r.ID, epoch, listwatch.TooLarge, 0), listwatch.Discard)
	r = next(t, m, epoch)
	want(t, "pages", r, listwatch.Request{ID: 2, Verb: listwatch.List, Limit: 500})
	want(t, "page", m.Page(r.ID, "9", "token"), listwatch.Stage)
	r = next(t, m, epoch)
	want(t, "next page", r, listwatch.Request{ID: 3, Verb: listwatch.List, Limit: 500, Continue: "token"})
	want(t, "broken", m.Ended(r.ID, epoch, listwatch.Broken, 0), listwatch.Ignore)
	_, at, _ := m.Next(epoch)
	r = next(t, m, at)
	want(t, "the same page", r, listwatch.Request{ID: 4, Verb: listwatch.List, Limit: 500, Continue: "token"})
	want(t, "expired", m.Ended(r.ID, at, listwatch.Expired, 0), listwatch.Discard)
	_, at, _ = m.Next(at)
	r = next(t, m, at)
	want(t, "from the start", r, listwatch.Request{ID: 5, Verb: listwatch.List, Limit: 500})
	want(t, "whole", m.Page(r.ID, "12", ""), listwatch.Replace)
	want(t, "watch", next(t, m, at), listwatch.Request{ID: 6, Verb: listwatch.Watch, ResourceVersion: "12"})
}

func TestMachine_WaitsAsLongAsTheServerAsks(t *testing.T) {
	m := machine("5", listwatch.Options{})
	r := next(t, m, epoch)
	m.Ended(r.ID, epoch, listwatch.Busy, 20*time.Second)
	if _, at, ok := m.Next(epoch); ok || at != epoch.Add(20*time.Second) {
		t.Errorf("asks again at %s, %v", at, ok)
	}
}

func TestMachine_AServerThatAlwaysExpiresIsListedLessAndLess(t *testing.T) {
	m := machine("", listwatch.Options{})
	now, last := epoch, time.Duration(0)
	for n, wanted := range []string{"", "7", "7", "", "", "", "", "", "", "", "", ""} {
		r := next(t, m, now)
		want(t, "list", r, listwatch.Request{ID: uint64(n + 1), Verb: listwatch.Stream, ResourceVersion: wanted})
		m.Opened(r.ID, now)
		want(t, "an object", m.Object(r.ID, "3"), listwatch.Stage)
		want(t, "listed", m.Bookmark(r.ID, "7", true), listwatch.Replace)
		want(t, "expired", m.Ended(r.ID, now, listwatch.Expired, 0), listwatch.Ignore)
		var delay time.Duration
		if _, at, ok := peek(m, now); !ok {
			delay = at.Sub(now)
		}
		if delay < last || n > 0 && delay == 0 {
			t.Errorf("list %d comes after %s, the one before after %s", n+2, delay, last)
		}
		last, now = delay, now.Add(delay)
	}
	want(t, "the last delay", last, 15*time.Second)
}

// peek is Next of a copy.
func peek(m *listwatch.Machine, now time.Time) (listwatch.Request, time.Time, bool) {
	c := *m
	return c.Next(now)
}

func TestMachine_ABrokenWatchResumesAtOnceAndThenBacksOff(t *testing.T) {
	m := machine("5", listwatch.Options{})
	r := next(t, m, epoch)
	m.Opened(r.ID, epoch)
	m.Object(r.ID, "6")
	m.Ended(r.ID, epoch, listwatch.Broken, 0)
	r = next(t, m, epoch) // at once
	m.Ended(r.ID, epoch, listwatch.Broken, 0)
	_, at, ok := m.Next(epoch)
	if ok || !at.After(epoch.Add(50*time.Millisecond)) {
		t.Fatalf("no delay: %s, %v", at, ok)
	}
	want(t, "resumed", next(t, m, at), listwatch.Request{ID: 3, Verb: listwatch.Watch, ResourceVersion: "6"})
}

func TestMachine_ListsInPagesWhereStreamsEndEarly(t *testing.T) {
	m := machine("", listwatch.Options{})
	now := epoch
	for range 2 {
		r := next(t, m, now)
		want(t, "verb", r.Verb, listwatch.Stream)
		m.Opened(r.ID, now)
		want(t, "cut", m.Ended(r.ID, now.Add(time.Minute), listwatch.Closed, 0), listwatch.Discard)
		_, now, _ = m.Next(now)
	}
	want(t, "verb", next(t, m, now).Verb, listwatch.List)
}

func TestMachine_ServersWithoutStreamsAreListedAtOnce(t *testing.T) {
	m := machine("", listwatch.Options{})
	r := next(t, m, epoch)
	m.Ended(r.ID, epoch, listwatch.Unsupported, 0)
	want(t, "request", next(t, m, epoch), listwatch.Request{ID: 2, Verb: listwatch.List})
	want(t, "listed", m.Page(2, "9", ""), listwatch.Replace)
	r = next(t, m, epoch)
	m.Ended(r.ID, epoch, listwatch.Expired, 0)
	want(t, "relist", next(t, m, epoch), listwatch.Request{ID: 4, Verb: listwatch.List, ResourceVersion: "9"})
}

func TestMachine_RestartForgetsWhatWasHeld(t *testing.T) {
	m := machine("5", listwatch.Options{})
	r := next(t, m, epoch)
	m.Restart(epoch, time.Minute)
	want(t, "late event", m.Object(r.ID, "6"), listwatch.Ignore)
	_, at, _ := m.Next(epoch)
	want(t, "after", at, epoch.Add(time.Minute))
	want(t, "list", next(t, m, at), listwatch.Request{ID: 2, Verb: listwatch.Stream})
}

func TestMachine_RefusedIsAskedAgainLessAndLess(t *testing.T) {
	m := machine("", listwatch.Options{})
	now, last := epoch, time.Duration(0)
	for range 12 {
		r := next(t, m, now)
		want(t, "verb", r.Verb, listwatch.Stream)
		want(t, "refused", m.Ended(r.ID, now, listwatch.Refused, 0), listwatch.Discard)
		r = next(t, m, now) // a list may be allowed where a watch is not
		want(t, "verb", r.Verb, listwatch.List)
		want(t, "refused", m.Ended(r.ID, now, listwatch.Refused, 0), listwatch.Discard)
		_, at, _ := m.Next(now)
		if at.Sub(now) < last {
			t.Errorf("%s after %s", at.Sub(now), last)
		}
		last, now = at.Sub(now), at
	}
	want(t, "the longest", last, 30*time.Second)
}

func TestMachine_ListsNowAndThenWhatCannotBeWatched(t *testing.T) {
	m := machine("5", listwatch.Options{})
	now := epoch
	var verbs []listwatch.Verb
	for range 8 {
		r := next(t, m, now)
		verbs = append(verbs, r.Verb)
		if r.Verb == listwatch.List {
			m.Page(r.ID, "9", "")
			continue
		}
		m.Ended(r.ID, now, listwatch.Refused, 0)
		if _, at, ok := peek(m, now); !ok {
			now = at
		}
	}
	w, s, l := listwatch.Watch, listwatch.Stream, listwatch.List
	for i, v := range []listwatch.Verb{w, w, w, s, l, w, w, w} {
		want(t, "verb", verbs[i], v)
	}
	want(t, "held", m.AppliedResourceVersion(), "9")
}

func TestMachine_ListsAgainWhatHasNoResourceVersions(t *testing.T) {
	m := machine("", listwatch.Options{NoStreams: true})
	m.Page(next(t, m, epoch).ID, "", "")
	r := next(t, m, epoch)
	want(t, "watch", r, listwatch.Request{ID: 2, Verb: listwatch.Watch})
	m.Opened(r.ID, epoch)
	want(t, "an event", m.Object(r.ID, ""), listwatch.Apply)
	m.Ended(r.ID, epoch.Add(time.Minute), listwatch.Closed, 0)
	r = next(t, m, epoch.Add(time.Minute)) // what was deleted meanwhile no watch says
	want(t, "list", r, listwatch.Request{ID: 3, Verb: listwatch.List})
	m.Page(r.ID, "7", "")
	r = next(t, m, epoch.Add(time.Minute))
	m.Opened(r.ID, epoch.Add(time.Minute))
	m.Ended(r.ID, epoch.Add(2*time.Minute), listwatch.Closed, 0)
	want(t, "resumed", next(t, m, epoch.Add(2*time.Minute)), listwatch.Request{ID: 5, Verb: listwatch.Watch, ResourceVersion: "7"})
}

// server answers a request at now, and returns when it has.
type server func(m *listwatch.Machine, r listwatch.Request, now time.Time) time.Time

// TestMachine_NoServerIsAskedAllTheTime: whatever a server does at once, it is asked about once a
// second or, where it is more of a failure, less and less.
func TestMachine_NoServerIsAskedAllTheTime(t *testing.T) {
	opened := func(m *listwatch.Machine, r listwatch.Request, now time.Time) {
		if r.Verb != listwatch.List {
			m.Opened(r.ID, now)
		}
	}
	// listed answers lists. Where they are streamed, the watch goes on for a second.
	listed := func(m *listwatch.Machine, r listwatch.Request, now *time.Time) bool {
		switch r.Verb {
		case listwatch.List:
			m.Page(r.ID, "7", "")
		case listwatch.Stream:
			m.Opened(r.ID, *now)
			m.Object(r.ID, "3")
			m.Bookmark(r.ID, "7", true)
			*now = now.Add(time.Second)
			m.Ended(r.ID, *now, listwatch.Closed, 0)
		default:
			return false
		}
		return true
	}
	ends := map[string]listwatch.End{
		"closed": listwatch.Closed, "expired": listwatch.Expired, "too new": listwatch.TooNew, "unsupported": listwatch.Unsupported,
		"broken": listwatch.Broken, "busy": listwatch.Busy, "refused": listwatch.Refused,
	}
	servers := map[string]server{}
	for name, end := range ends {
		servers["all is "+name] = func(m *listwatch.Machine, r listwatch.Request, now time.Time) time.Time {
			m.Ended(r.ID, now, end, 0)
			return now
		}
		servers["what is open is "+name] = func(m *listwatch.Machine, r listwatch.Request, now time.Time) time.Time {
			opened(m, r, now)
			m.Ended(r.ID, now, end, 0)
			return now
		}
		servers["after an event it is "+name] = func(m *listwatch.Machine, r listwatch.Request, now time.Time) time.Time {
			opened(m, r, now)
			m.Object(r.ID, "8")
			m.Ended(r.ID, now, end, 0)
			return now
		}
		servers["a watch is "+name] = func(m *listwatch.Machine, r listwatch.Request, now time.Time) time.Time {
			if listed(m, r, &now) {
				return now
			}
			m.Ended(r.ID, now, end, 0)
			return now
		}
		servers["a watch with an event is "+name] = func(m *listwatch.Machine, r listwatch.Request, now time.Time) time.Time {
			if !listed(m, r, &now) {
				opened(m, r, now)
				m.Bookmark(r.ID, "8", false)
				m.Ended(r.ID, now, end, 0)
			}
			return now
		}
		servers["a watch of half a second is "+name] = func(m *listwatch.Machine, r listwatch.Request, now time.Time) time.Time {
			if !listed(m, r, &now) {
				opened(m, r, now)
				m.Bookmark(r.ID, "8", false)
				now = now.Add(500 * time.Millisecond)
				m.Ended(r.ID, now, end, 0)
			}
			return now
		}
	}
	for name, answer := range servers {
		for _, held := range []string{"", "5"} {
			m, now, requests, lists := machine(held, listwatch.Options{}), epoch, 0, 0
			for now.Sub(epoch) < time.Minute && requests < 10_000 {
				r, at, ok := m.Next(now)
				if !ok {
					if !at.After(now) {
						t.Fatalf("%s, held %q: nothing is due", name, held)
					}
					now = at
					continue
				}
				if requests++; r.Verb != listwatch.Watch {
					lists++
				}
				now = answer(m, r, now)
			}
			if requests > 75 || lists > 25 {
				t.Errorf("%s, held %q: %d requests in a minute, %d of them lists", name, held, requests, lists)
			}
		}
	}
}
