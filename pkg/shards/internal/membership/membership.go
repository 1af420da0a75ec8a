// Package membership tells from Leases which processes live.
//
// A process lives while its Lease is seen to be renewed, by the clock of who looks: how two clocks differ does not matter. Only
// a Lease that is seen for the first time counts by the time that it says itself, within a minute, so that what ended long ago does
// not seem to live for a while after each start.
//
// A process whose address refuses connections is gone sooner: it takes both, that nobody listens there and that the Lease was not
// renewed for a while, so that neither a slow hub nor a busy process looks like an end.
package membership

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"federator.dev/federator/pkg/shards/internal/shardmap"
)

// skew is how much two clocks may differ.
const skew = time.Minute

// Lease is a process's Lease as it was seen.
type Lease struct {
	Process  shardmap.Process
	Renewed  time.Time
	Version  string // its resourceVersion
	Released bool   // its process has ended
}

type seen struct {
	Lease
	at      time.Time // when it was last seen to have changed; zero: it had expired when it was first seen
	refused bool      // since then, its address has refused a connection
}

// Leases are those that were seen. They are not safe for concurrent use.
type Leases struct {
	expire, refused time.Duration
	byID            map[string]seen
}

// New returns no Leases, which expire after some time, or sooner where connections are refused.
func New(expire, refused time.Duration) *Leases {
	return &Leases{expire: expire, refused: min(expire, refused), byID: map[string]seen{}}
}

// See takes a Lease as it was found at a time. It reports whether other processes live than before, or otherwise.
func (l *Leases) See(is Lease, now time.Time) (changed bool) {
	was, had := l.byID[is.Process.ID]
	if had && (was.Version == is.Version || is.before(was.Lease)) {
		return false
	}
	next := seen{Lease: is, at: now}
	if !had && now.Sub(is.Renewed) > l.expire+skew {
		next.at = time.Time{}
	}
	l.byID[is.Process.ID] = next
	return !had || was.Process != is.Process || was.Released != is.Released || l.lives(was, now) != l.lives(next, now)
}

// before reports whether a Lease is as it was before another: a watch may tell later what a request has told. Where an etcd was put
// back to what it was its resourceVersions are lower, and its Leases are renewed.
func (l Lease) before(o Lease) bool {
	a, err := strconv.ParseUint(l.Version, 10, 64)
	b, err2 := strconv.ParseUint(o.Version, 10, 64)
	return err == nil && err2 == nil && a < b && !l.Renewed.After(o.Renewed)
}

// Forget takes note that the Lease of a process is deleted.
func (l *Leases) Forget(id string) { delete(l.byID, id) }

// Refused takes note that an address of a process has refused a connection that was begun at a time.
func (l *Leases) Refused(id, address string, began time.Time) {
	if s, is := l.byID[id]; is && s.Process.Address == address && began.After(s.at) {
		s.refused = true
		l.byID[id] = s
	}
}

func (l *Leases) lives(s seen, now time.Time) bool {
	return !s.Released && !s.at.IsZero() && elapsed(now, s.at) < l.life(s)
}

// life is how long a Lease lives without a renewal.
func (l *Leases) life(s seen) time.Duration {
	if s.refused {
		return l.refused
	}
	return l.expire
}

// Next is after which time the next of those that live does not, unless it is renewed; 0: none lives.
func (l *Leases) Next(now time.Time) (next time.Duration) {
	for _, s := range l.byID {
		if left := l.life(s) - elapsed(now, s.at); l.lives(s, now) && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

// elapsed is by the clock that has gone on further: the monotonic one stands still while a machine is suspended.
func elapsed(now, since time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// Live returns the processes that live, by ID.
func (l *Leases) Live(now time.Time) []shardmap.Process {
	var out []shardmap.Process
	for _, s := range l.byID {
		if l.lives(s, now) {
			out = append(out, s.Process)
		}
	}
	slices.SortFunc(out, func(a, b shardmap.Process) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Process returns a process as its Lease says, also where that has expired.
func (l *Leases) Process(id string) (shardmap.Process, bool) {
	s, is := l.byID[id]
	return s.Process, is && !s.Released
}

// Released reports whether the process with an ID has ended in order.
func (l *Leases) Released(id string) bool { return l.byID[id].Released }

// Age is how long ago a Lease was last seen to be renewed.
func (l *Leases) Age(id string, now time.Time) (time.Duration, bool) {
	s, is := l.byID[id]
	return now.Sub(s.at), is && !s.at.IsZero()
}
