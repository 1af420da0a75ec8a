package listwatch

import "time"

// Verb is a kind of request.
type Verb uint8

// Verbs.
const (
	None   Verb = iota
	List        // one page of a list
	Stream      // a watch whose initial events are a list
	Watch       // a watch from a resourceVersion
)

// Request is what is to be sent.
type Request struct {
	// ID is greater than those of earlier requests. What is said of these is ignored.
	ID   uint64
	Verb Verb
	// ResourceVersion is, for List and Stream, the oldest that is accepted ("" for the newest
	// that there is; never "0", which any cache may answer), and for Watch what the watch
	// continues from.
	ResourceVersion string
	Continue        string // of a List after its first page
	Limit           int64  // of a List; 0: no pages
}

// Effect is what an input makes of what is held.
type Effect uint8

// Effects.
const (
	Ignore  Effect = iota // it is of an earlier request, or changes nothing
	Stage                 // it belongs to a list that is not complete
	Discard               // what was staged will not be completed
	Replace               // what is staged, with this, replaces what is held
	Apply                 // it changes what is held
	Advance               // it says how far the watch has come
)

// End is how a request ended.
type End uint8

// Ends.
const (
	Closed      End = iota // by the server, as watches end after their timeout
	Again                  // nothing is wrong with it, and it is to be sent again, otherwise
	Expired                // 410: the resourceVersion, or the token of a page, is too old
	TooNew                 // the server has not reached the resourceVersion
	Unsupported            // 400, 422: the server does not know such requests
	TooLarge               // the page has more bytes than are accepted
	Broken                 // the connection failed
	Busy                   // 429, 5xx, and what makes no sense
	Refused                // 401, 403, 404, 405
)

// Options are limits and delays of a Machine.
type Options struct {
	// NoStreams says that the server cannot stream lists.
	NoStreams bool
	// Jitter returns a random number of [0, n); nil: 0.
	Jitter func(n time.Duration) time.Duration
}

// Delays between requests that fail, doubled with each and spread by half.
const (
	minDelay     = 200 * time.Millisecond
	maxDelay     = 15 * time.Second
	brokenDelay  = 5 * time.Second  // the longest after Broken: there is a connection again
	refusedDelay = 30 * time.Second // the longest after Refused
	resetAfter   = 30 * time.Second // of a watch that lasted
	short        = time.Second      // a watch that lasts less has failed
)

const (
	maxCuts     = 2 // streamed lists that the server closes, after which pages are tried
	maxExpiries = 2 // watches that expire at once, after which the newest is listed
	maxRefusals = 3 // watches that are refused, after which it is listed: that may be allowed
)

// firstLimit is the size of pages once a list without pages was too large.
const firstLimit = 500

// Machine is the protocol of one scope.
type Machine struct {
	opts Options

	id      uint64
	applied string    // what is held is of this resourceVersion; "" for nothing
	more    string    // continue token of the list under way
	opened  time.Time // when the request under way was answered; zero before
	due     time.Time // of the next request
	delay   time.Duration
	limit   int64 // of pages
	events  int   // of the request under way

	verb     Verb // of the request under way; None: there is none
	cuts     uint8
	expiries uint8
	refusals uint8
	staging  bool // what arrives belongs to a list
	listing  bool // a list is due, or under way
	newest   bool // no resourceVersion that is known can be asked for
	pages    bool // the stream of the list was refused: the next request is for a page
	broken   bool // a connection failed since something came
}

// New returns a Machine that lists or, with a resourceVersion that is held, watches from there.
func New(held string, opts Options) Machine {
	return Machine{opts: opts, applied: held, listing: held == ""}
}

// Next returns the request to send now, or when to ask again. Neither: one is under way.
func (m *Machine) Next(now time.Time) (r Request, at time.Time, ok bool) {
	if m.verb != None {
		return Request{}, time.Time{}, false
	}
	if now.Before(m.due) {
		return Request{}, m.due, false
	}
	m.id++
	m.opened, m.events = time.Time{}, 0
	r.ID = m.id
	switch {
	case !m.listing:
		r.Verb = Watch
	case !m.opts.NoStreams && !m.pages && m.limit == 0 && m.more == "":
		r.Verb, m.staging = Stream, true
	default:
		r.Verb, m.staging = List, true
		r.Continue, r.Limit = m.more, m.limit
	}
	// A server has pages of what is newest only.
	if r.Verb == Watch || !m.newest && m.limit == 0 {
		r.ResourceVersion = m.applied
	}
	m.verb = r.Verb
	return r, time.Time{}, true
}

// AppliedResourceVersion returns what a watch resumes from, "" where nothing is held.
func (m *Machine) AppliedResourceVersion() string { return m.applied }

// Listing reports whether a list is due or under way.
func (m *Machine) Listing() bool { return m.listing }

// Awaits reports whether a request is the one that is under way.
func (m *Machine) Awaits(id uint64) bool { return m.current(id) }

// Opened takes the answer to a Stream or Watch.
func (m *Machine) Opened(id uint64, now time.Time) {
	if m.current(id) {
		m.opened = now
	}
}

// Object takes an event on an object. rv may be empty, where an event has none.
func (m *Machine) Object(id uint64, rv string) Effect {
	if !m.current(id) || m.verb == List {
		return Ignore
	}
	m.events++
	if m.staging {
		return Stage // its resourceVersion is in no order
	}
	if rv != "" {
		m.applied = rv
	}
	return Apply
}

// Bookmark takes a bookmark; end says that it ends the initial events.
func (m *Machine) Bookmark(id uint64, rv string, end bool) Effect {
	if !m.current(id) || m.verb == List {
		return Ignore
	}
	m.events++
	switch {
	case m.staging && !end:
		return Ignore
	case m.staging:
		m.verb = Watch // it goes on as one
		m.complete(rv)
		return Replace
	case rv == "":
		return Ignore
	}
	m.applied = rv
	return Advance
}

// Page takes a page of a list with its resourceVersion and continue token. What came
// with it is staged before.
func (m *Machine) Page(id uint64, rv, more string) Effect {
	if !m.current(id) || m.verb != List {
		return Ignore
	}
	m.verb, m.due = None, time.Time{}
	if m.more = more; more != "" {
		return Stage
	}
	m.complete(rv)
	return Replace
}

func (m *Machine) complete(rv string) {
	m.applied, m.listing, m.staging, m.newest, m.more = rv, false, false, false, ""
	m.cuts, m.events, m.pages = 0, 0, false // delay stays: what is listed may not be watched
}

// Ended takes the end of a request. retry is what the server asked to wait, 0 for nothing.
func (m *Machine) Ended(id uint64, now time.Time, end End, retry time.Duration) Effect {
	if !m.current(id) {
		return Ignore
	}
	verb := m.verb
	m.verb, m.staging, m.due = None, false, time.Time{}
	lasted := time.Duration(0)
	if !m.opened.IsZero() {
		lasted = now.Sub(m.opened)
	}
	if lasted >= resetAfter || m.events > 0 && lasted >= short { // it has worked
		m.broken = false
		if verb == Watch {
			m.delay, m.refusals = 0, 0
		}
	}
	if verb == Watch && lasted >= resetAfter {
		m.expiries = 0
	}
	if verb == Watch && m.applied == "" && end != Refused {
		m.listing = true // there is nothing to resume from
	}
	switch {
	case end == Again:
		return m.discard()
	case end == Expired, end == TooNew:
		return m.expired(now, verb, retry)
	case verb == Watch && end == Closed && lasted >= short:
		return Ignore
	case verb == Watch && end == Broken && !m.broken:
		m.broken = true // whether there is a connection is found out by others
		return Ignore
	case verb == List && (end == Broken || end == Busy):
		m.back(now, maxDelay, retry) // the same page again: what was staged before it stays
		return Ignore
	case verb == List && end == TooLarge && m.limit != 1:
		m.shrink()
		return m.discard()
	case verb == Stream && end == Unsupported:
		m.opts.NoStreams = true
		return m.discard()
	case verb == Stream && end == Closed:
		m.cuts++
		m.opts.NoStreams = m.cuts >= maxCuts
	case end == Unsupported:
		// It may be the resourceVersion that is refused.
		m.newest, m.listing = true, true
	case end == Refused:
		return m.refused(now, verb, retry)
	}
	most := maxDelay
	if end == Broken {
		most = brokenDelay
	}
	m.back(now, most, retry)
	return m.discard()
}

// expired lists what is no older than what is held or, where that is refused, the newest.
func (m *Machine) expired(now time.Time, verb Verb, retry time.Duration) Effect {
	if verb == Watch {
		m.listing, m.newest = true, m.expiries >= maxExpiries
		if m.expiries++; m.expiries > 1 {
			m.back(now, maxDelay, retry)
		}
		return Ignore
	}
	if m.more == "" {
		m.newest = true
	}
	m.back(now, maxDelay, retry)
	return m.discard()
}

// refused tries what may be allowed where the other is not: lists in pages and in streams, lists
// and watches.
func (m *Machine) refused(now time.Time, verb Verb, retry time.Duration) Effect {
	if verb == Stream {
		m.pages = true
		return m.discard()
	}
	m.pages = false
	if verb == Watch {
		m.refusals++
		m.listing = m.refusals%maxRefusals == 0
	}
	m.back(now, refusedDelay, retry)
	return m.discard()
}

// Restart has everything listed again after a while, whatever is under way.
func (m *Machine) Restart(now time.Time, after time.Duration) {
	m.verb, m.staging, m.pages = None, false, false
	m.listing, m.newest, m.applied, m.more = true, false, "", ""
	m.due = now.Add(after)
}

// discard ends a list under way: it has no order to resume in.
func (m *Machine) discard() Effect {
	m.more = ""
	if m.listing {
		return Discard
	}
	return Ignore
}

// shrink makes pages smaller.
func (m *Machine) shrink() {
	if m.limit == 0 {
		m.limit = 2 * firstLimit
	}
	m.limit /= 2
}

// Limit returns the number of objects of a page; 0: there are no pages.
func (m *Machine) Limit() int64 { return m.limit }

// back delays the next request.
func (m *Machine) back(now time.Time, most, retry time.Duration) {
	m.delay = min(max(2*m.delay, minDelay), most)
	d := m.delay
	if m.opts.Jitter != nil {
		d += m.opts.Jitter(m.delay / 2)
	}
	m.due = now.Add(max(d, retry))
}

func (m *Machine) current(id uint64) bool { return m.verb != None && id == m.id }
