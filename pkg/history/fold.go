package history

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"federator.dev/federator/pkg/aggregate"
)

// Bounds of a fold.
const (
	MaxFolded   = 100_000   // things that differ
	MaxExamined = 2_000_000 // records that are read for it
	maxFoldSize = 64 << 20  // bytes, about, of what is known of them
	maxFolds    = 2         // that are made at once
)

// FoldError says that what differs is more than can be folded at once.
type FoldError struct {
	Limit int
	What  string // is more than the limit
}

func (e *FoldError) Error() string {
	return fmt.Sprintf("what differs is folded from more than %d %s: narrow the span or the selection", e.Limit, e.What)
}

// foldTurn is for the folds of one caller, of which one is made at a time: two must not wait for all of a third.
type foldTurn struct {
	taken chan struct{}
	users int // that make one, or wait
}

// Folding waits until a fold of a caller may be made. Without an error, done must be called once it is.
func (h *History) Folding(ctx context.Context, caller string) (done func(), err error) {
	h.mu.Lock()
	t := h.turns[caller]
	if t == nil {
		t = &foldTurn{taken: make(chan struct{}, 1)}
		h.turns[caller] = t
	}
	t.users++
	h.mu.Unlock()
	leave := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(h.turns, caller)
		}
	}
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
	select {
	case h.folds <- struct{}{}:
		return func() { <-h.folds; <-t.taken; leave() }, nil
	case <-ctx.Done():
		<-t.taken
		leave()
		return nil, context.Cause(ctx)
	}
}

// Fold folds the transitions of a span into how its two ends differ. It belongs to one goroutine.
type Fold struct {
	since, until time.Time
	part         bool

	examined, live, size int

	items  map[string]*folded
	parts  map[string][]*folded // of other processes
	seen   map[uint64]struct{}  // digests of the keys of changes of objects
	came   map[uint64]bool      // digests of what came within, and was forgotten
	gaps   map[string]Record    // by their keys
	events map[string]Record    // of policies, by their keys
	begins map[string]time.Time
	held   map[string]bool // UIDs of members that a process holds of which nothing is recorded
}

// NewFold returns a fold of what is recorded from since until a time, with which it ends; since may be zero. A part is merged with those
// of other processes.
func NewFold(since, until time.Time, part bool) *Fold {
	return &Fold{
		since: since, until: until, part: part, items: map[string]*folded{}, parts: map[string][]*folded{}, seen: map[uint64]struct{}{}, came: map[uint64]bool{}, gaps: map[string]Record{}, events: map[string]Record{},
		begins: map[string]time.Time{}, held: map[string]bool{},
	}
}

// folded is one thing that has transitions.
type folded struct {
	Record  Record        `json:"r"` // the last one, without what it changed
	First   mark          `json:"a"`
	Last    mark          `json:"z"`
	Count   int           `json:"n"`
	Was     bool          `json:"w,omitempty"` // it was there at the beginning
	Is      bool          `json:"i,omitempty"` // it is there at the end
	Broken  bool          `json:"b,omitempty"` // it was gone meanwhile, of a scope or member, or what is known of it does not fit together
	Changed bool          `json:"c,omitempty"` // of a violation; of a member, that a process began to read it
	State   string        `json:"s,omitempty"` // of a scope at the beginning
	Exempt  bool          `json:"e,omitempty"` // the violation at the beginning
	Fields  []foldedField `json:"f,omitempty"` // by path
	More    int           `json:"m,omitempty"`

	bytes, fieldBytes int
}

// mark is a place among the transitions of one thing: by the version of an object, which is the same for all processes, else by time.
type mark struct {
	Version uint64 `json:"v,omitempty"`
	Time    int64  `json:"t"`
}

func (m mark) compare(o mark) int {
	if m.Version != 0 && o.Version != 0 && m.Version != o.Version {
		return cmp.Compare(m.Version, o.Version)
	}
	return cmp.Compare(m.Time, o.Time)
}

// precedes reports whether a mark is of an earlier transition.
func (m mark) precedes(o mark) bool { return !m.same(o) && m.compare(o) < 0 }

// same reports whether two marks may be of one transition.
func (m mark) same(o mark) bool {
	if m.Version != 0 && o.Version != 0 {
		return m.Version == o.Version
	}
	return m.Time == o.Time
}

func markOf(r *Record) mark {
	m := mark{Time: r.Time.UnixMilli()}
	if r.Type != Object {
		return m
	}
	if version, err := strconv.ParseUint(r.ResourceVersion, 10, 62); err == nil && version > 0 { // else only times are known
		m.Version = 2 * version
		if r.Transition == Deleted { // it has the version before
			m.Version++
		}
	}
	return m
}

// final is the mark of the end that a transition brings about: after the deletion of an object there is nothing of it.
func (m mark) final(r *Record) mark {
	if r.Type == Object && r.Transition == Deleted && r.Key == r.key() && m.Version != 0 {
		m.Version = math.MaxUint64
	}
	return m
}

// foldID identifies what a record is about.
func foldID(r *Record) string {
	parts := []string{string(r.Type)}
	switch r.Type {
	case Object:
		parts = append(parts, r.MemberUID, r.Member, string(r.Kind), r.Namespace, r.Name, r.UID)
	case Scope:
		parts = append(parts, r.MemberUID, r.Member, string(r.Kind))
	case Member:
		parts = append(parts, r.MemberUID, r.Member)
	case Verdict:
		parts = append(parts, identify(r))
	default:
		parts = append(parts, r.MemberUID, r.Policy, r.Action)
	}
	return strings.Join(parts, "\x00")
}

// Add adds the next record of a log, within the span. Those of gaps may be of later. The error is a *FoldError.
func (f *Fold) Add(r *Record) error {
	switch r.Type {
	case Gap:
		if _, known := f.gaps[r.Key]; !known && f.overlaps(r) {
			f.gaps[r.Key] = *r
			f.size += recordSize
		}
	case Policy:
		if _, known := f.events[r.Key]; !known {
			f.events[r.Key] = *r
			f.size += recordSize + len(r.Message) + len(r.By) + len(r.Subject)
		}
	default:
		f.add(r)
	}
	return f.bounds()
}

// Examined counts a record that is read. The error is a *FoldError.
func (f *Fold) Examined() error {
	if f.examined++; f.examined > MaxExamined {
		return &FoldError{MaxExamined, "transitions"}
	}
	return nil
}

// Begins says when what is kept of a log begins.
func (f *Fold) Begins(log string, at time.Time) { f.begins[log] = at }

// Holds says that a process holds a member now. Where nothing is recorded of it, it has held it throughout.
func (f *Fold) Holds(member, uid string) {
	if f.items[foldID(&Record{Type: Member, Member: member, MemberUID: uid})] == nil {
		f.held[uid] = true
	}
}

const recordSize = 400 // bytes, about, without changes and messages

func (f *Fold) bounds() error {
	switch {
	case f.live+len(f.gaps)+len(f.events) > MaxFolded:
		return &FoldError{MaxFolded, "things that differ"}
	case f.size > maxFoldSize:
		return &FoldError{maxFoldSize, "bytes"}
	}
	return nil
}

// overlaps reports whether a gap is about some of the span.
func (f *Fold) overlaps(r *Record) bool {
	return (r.To == nil || !r.To.Before(f.since)) && (r.From == nil || r.From.Before(f.until))
}

func (f *Fold) add(r *Record) {
	if r.Type == Object && r.Transition == Changed && !f.first(r.Key) {
		return // after a restart, changes may be recorded again
	}
	id := foldID(r)
	x := f.items[id]
	at := markOf(r)
	if x == nil {
		x = &folded{First: at, Was: f.was(r) && !f.came[xxhash.Sum64String(id)], State: r.Was, Exempt: wasExempt(r)}
		x.Is = x.Was
		f.items[id] = x
		f.live++
	} else if !x.Was && !x.Is && r.Type != Member {
		f.live++ // again
	}
	f.size -= x.bytes
	x.take(r, at)
	x.bytes = x.weigh(id)
	f.size += x.bytes
	if !x.Was && !x.Is && r.Type != Member { // of which objects may still be folded
		f.forget(id, x)
	}
}

// weigh returns about how many bytes a thing has.
func (x *folded) weigh(id string) int {
	r := &x.Record
	n := recordSize + len(id) + len(r.Violation) + len(r.Message) + len(r.Exempt) + len(r.By) + len(r.Subject) + x.fieldBytes
	if reads := r.Reads; reads != nil {
		n += 50 * (len(reads.Kinds) + 2*len(reads.Members))
	}
	return n + 50*len(x.Record.External)
}

// forget forgets what was not there at the beginning, and is not any more. Other processes may know only that it came.
func (f *Fold) forget(id string, x *folded) {
	f.live--
	f.size -= x.bytes
	if !f.part {
		f.came[xxhash.Sum64String(id)] = true
		delete(f.items, id)
		return
	}
	x.Fields, x.fieldBytes, x.More, x.Record.Violation, x.Record.Message, x.Record.Exempt = nil, 0, 0, "", "", ""
	x.bytes = x.weigh(id)
	f.size += x.bytes
}

// was reports whether what a first transition is about was there before.
func (f *Fold) was(r *Record) bool {
	switch r.Type {
	case Object:
		return r.Transition != Created
	case Member:
		return r.Transition != Joined
	case Verdict: // that it is found may be recorded once more: by the next process that judges the member
		return r.Transition != Opened && r.Transition != Failed || r.FirstSeen != nil && !r.FirstSeen.Add(time.Second).After(f.since)
	}
	return true
}

// wasExempt reports whether a violation was exempt before its transition.
func wasExempt(r *Record) bool {
	switch r.Exemption {
	case ExemptionBegan:
		return false
	case ExemptionEnded:
		return true
	}
	return r.Exempt != ""
}

// take takes a transition of one thing.
func (x *folded) take(r *Record, at mark) {
	fields := true
	switch r.Transition {
	case Created, Joined:
		fields = !x.Is || r.Type == Member
		if !fields && at.Version > x.Last.Version && x.Last.Version > 0 { // a list found it again: what was recorded before was not kept of the index
			x.found(r, at)
		}
		x.Broken = x.Broken || r.Type == Member && x.Count > 0
		x.Changed = x.Changed || r.Type == Member
		x.Is = true
	case Deleted, Left:
		fields, x.Is = x.Is, false
	case Removed:
		x.Broken, x.Is = true, true
	case Opened, Failed:
		x.Changed = x.Changed || x.Count > 0 && (!x.Is || r.Transition == Failed)
		x.Is = true
	case Closed, Known:
		x.Is = false
	case Changed:
		x.Changed, x.Is = x.Changed || r.Type == Verdict, true
	default:
		x.Broken = x.Broken || r.Type == Scope && x.Count > 0 && r.Was == aggregate.Unknown.String() // it was read again from its beginning
		x.Is = true
	}
	if fields {
		for i := range r.Changes {
			x.change(r, i, at)
		}
		x.More += r.More
	}
	x.Record, x.Last = *r, at.final(r)
	x.Record.Changes, x.Record.More = nil, 0
	x.Count++
}

// first notes the key of a change, and reports whether it was not taken before.
func (f *Fold) first(key string) bool {
	sum := xxhash.Sum64String(key)
	if _, known := f.seen[sum]; known {
		return false
	}
	f.seen[sum] = struct{}{}
	return true
}

// Records returns how the ends of the span differ, by member, kind, namespace and name; with gaps and what happened to policies.
func (f *Fold) Records() []Record {
	f.combine()
	doubts := f.doubts()
	out := make([]Record, 0, len(f.items)+len(f.gaps)+len(f.events))
	for id, x := range f.items {
		if doubts.isGone(&x.Record) {
			continue
		}
		r := x.Record
		r.Net = &Net{First: time.UnixMilli(x.First.Time).UTC(), Transitions: x.Count, Incomplete: x.Broken && r.Type == Object || doubts.about(&r)}
		if !x.differs(&r, doubts) {
			continue
		}
		r.Key, r.Position = join(append([]string{"net"}, strings.Split(id, "\x00")...)...), 0
		out = append(out, r)
	}
	for _, r := range f.gaps {
		out = append(out, r)
	}
	for log, at := range f.begins {
		if at.After(f.since) && !f.since.IsZero() {
			out = append(out, Record{
				Type: Gap, Transition: "Gap", Time: at, Key: join("gap", "begins", log), Message: "what is kept of the history of a process begins", From: &f.since, To: &at,
			})
		}
	}
	for _, r := range f.events {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Record) int {
		return cmp.Or(strings.Compare(a.Member, b.Member), strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			a.at().Compare(b.at()), strings.Compare(a.Policy, b.Policy), strings.Compare(a.Key, b.Key))
	})
	return out
}

// isNew reports whether a scope is one that a process began to read within the span.
func (x *folded) isNew() bool {
	return x.State == aggregate.Unknown.String() || x.State == aggregate.Syncing.String()
}

// at is when the first of its transitions was recorded.
func (r *Record) at() time.Time {
	if r.Net != nil {
		return r.Net.First
	}
	return r.Time
}

// differs says in a record how one thing differs, and reports whether it does.
func (x *folded) differs(r *Record, d *foldDoubts) bool {
	switch r.Type {
	case Object, Member:
		r.Changes, r.More = x.changes(), x.More
		if x.Was { // how a member was that another process has read is not known to who takes it over
			r.Changes = slices.DeleteFunc(r.Changes, func(c Change) bool { return x.came(c.Path) })
		}
		switch {
		case !x.Was && !x.Is:
			return false
		case !x.Was:
			r.Transition = pick(r.Type == Object, Created, Joined)
		case !x.Is:
			r.Transition = pick(r.Type == Object, Deleted, Left)
		default:
			r.Transition = Changed
			return len(r.Changes) > 0 || r.More > 0
		}
	case Scope:
		r.Was = x.State
		read := r.Transition == aggregate.Synced.String() || r.Transition == aggregate.Partial.String()
		switch {
		case r.Was == r.Transition, r.Was == aggregate.Unknown.String() && r.Transition == Removed:
			return false
		case r.Was == "", x.isNew() && d.joined[r.MemberUID]: // it was read before, or the member says it
			return !read && (r.Was == "" || r.Transition != aggregate.NotServed.String())
		}
	case Verdict:
		return x.verdict(r)
	}
	return true
}

func (x *folded) verdict(r *Record) bool {
	failure := r.Transition == Failed || r.Transition == Known
	r.Exemption = ""
	switch {
	case x.Was && x.Is:
		r.Transition = Changed
		if now := r.Exempt != ""; now != x.Exempt && !failure {
			r.Exemption = pick(now, ExemptionBegan, ExemptionEnded)
		}
		return x.Changed || r.Exemption != ""
	case x.Is:
		r.Transition = pick(failure, Failed, Opened)
	case x.Was:
		r.Transition = pick(failure, Known, Closed)
	default:
		return false
	}
	return true
}

func pick(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
