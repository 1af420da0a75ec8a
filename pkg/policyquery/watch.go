package policyquery

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

// Times and sizes of watches.
const (
	watchFor = 30 * time.Minute // and up to twice it, where no timeout is asked for; never longer
	bookmark = time.Minute
	stall    = 30 * time.Second
	flushAt  = 64 << 10 // bytes
)

var _ queryapi.Watchable = Violations{}

// Event is a line of a watch of violations. Its object is a Finding; of a BOOKMARK, a
// Mark; of an ERROR, a Status, after which the watch has ended.
type Event struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

// Mark says how far a watch is: it comes after the events that lead there.
type Mark struct {
	ResourceVersion string             `json:"resourceVersion"` // a watch goes on from here
	Revision        aggregate.Revision `json:"revision"`
	Synced          bool               `json:"synced"`
	Withheld        []string           `json:"withheld,omitempty"` // as in Found
	Failed          []string           `json:"failed,omitempty"`
	InitialEnd      bool               `json:"initialEventsEnd,omitempty"` // all that there was has been sent
}

// watching is one watch under way. One goroutine runs it.
type watching struct {
	*asked

	q      Violations
	w      http.ResponseWriter
	wire   *http.ResponseController
	caller queryapi.Caller

	point  *enforce.Point  // whose verdicts have been sent
	from   *enforce.Point  // the oldest that is kept alive
	told   map[string]bool // bindings whose findings may be read, as of the last look
	untold string          // as of the last look
	saw    sight           // in which they have been sent
	asks   *grantedReader  // newest
	made   time.Time       // when grants were asked for
	until  time.Time       // when they must be asked for again
	began  bool            // the answer has

	out    []byte
	events int // since the last Mark
	looked int
}

// Watch implements queryapi.Watchable: it sends what there is, unless the client says
// from where it goes on, and then every change of it, until the client leaves, does not
// read, or time is up.
func (q Violations) Watch(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	asked, err := parseAsked(r.URL.Query())
	if err != nil {
		return err
	}
	newest := q.Loop.Point()
	if newest == nil {
		return errNothingYet
	}
	q.Stall, q.Bookmark = cmp.Or(q.Stall, stall), cmp.Or(q.Bookmark, bookmark)
	s := &watching{asked: asked, q: q, w: w, wire: http.NewResponseController(w), caller: caller, told: map[string]bool{}}
	if asked.version != "" {
		var at string
		at, s.untold = splitVersion(asked.version)
		if s.point, err = q.Loop.At(at); err != nil || membersLeft(s.point.State(), newest.State()) {
			return expired(asked.version)
		}
		s.from = s.point
	}
	timeout := asked.timeout
	if timeout == 0 {
		timeout = watchFor + rand.N(watchFor)
	}
	timeout = min(timeout, 2*watchFor)
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	err = s.run(ctx, newest)
	if err == nil || !s.began {
		return err
	}
	if told := apierrors.APIStatus(nil); errors.As(err, &told) && s.lastWord(told.Status()) == nil {
		return nil
	}
	panic(http.ErrAbortHandler) // the client is gone or does not read
}

// membersLeft reports whether a member has left: what the caller might read of it is not
// known any more, so that its deletions cannot be told.
func membersLeft(before, after *policy.State) bool {
	for m := range before.Snapshot.Members() {
		if _, ok := after.Snapshot.Member(m.Name); !ok {
			return true
		}
	}
	return false
}

func (s *watching) run(ctx context.Context, newest *enforce.Point) error {
	initial := s.point == nil
	if err := s.begin(ctx, newest); err != nil {
		return err
	}
	if err := s.mark(initial); err != nil {
		return err
	}
	due := time.Now().Add(s.q.Bookmark)
	for ctx.Err() == nil {
		if err := s.follow(ctx); err != nil {
			return err
		}
		if now := time.Now(); s.events > 0 || !now.Before(due) {
			due = now.Add(s.q.Bookmark)
			if err := s.mark(false); err != nil {
				return err
			}
		}
		s.wait(ctx, due)
	}
	return s.mark(false) // good-bye, so that the client comes back to where it is
}

// begin sends what there is, or what has changed since the client's point.
func (s *watching) begin(ctx context.Context, newest *enforce.Point) error {
	if s.point != nil {
		state := s.point.State()
		reader, err := newReader(ctx, s.caller, s.q.Kinds, state.Snapshot)
		if err != nil {
			return err
		}
		s.saw = sight{state, reader}
		for b := range s.saw.state.Bindings() {
			s.told[b.Name] = s.saw.mayRead(b.Name)
		}
		untold := s.saw.untold(s.asked, s.told)
		if reader.err != nil {
			return reader.err // what was denied for want of an answer is no answer
		}
		if untold != s.untold {
			return otherGrants(s.version)
		}
	}
	return s.exchange(ctx, newest)
}

// regrant asks what may be read now of a state.
func (s *watching) regrant(ctx context.Context, state *policy.State) (*grantedReader, error) {
	s.made = time.Now()
	var err error
	s.asks, err = newReader(ctx, s.caller, s.q.Kinds, state.Snapshot)
	return s.asks, err
}

// follow sends what has changed since the last step.
func (s *watching) follow(ctx context.Context) error {
	if !s.q.Loop.Kept(s.point) {
		return expired(s.point.Version())
	}
	for !s.saw.reader.otherKinds() {
		if !time.Now().Before(s.until) { // however many changes are left to tell
			same, err := s.renew(ctx)
			if err != nil {
				return err
			}
			if !same {
				break
			}
		}
		next := s.point.Next()
		if next == nil {
			return nil
		}
		c := next.Changes()
		if c == nil {
			return expired(s.point.Version())
		}
		if c.Before == nil || !sameFrame(c.Before, c.After) || !s.saw.reader.sameResources(c.Before.Snapshot, c.After.Snapshot) {
			break
		}
		if err := s.step(ctx, next, c); err != nil {
			return err
		}
	}
	return s.exchange(ctx, s.q.Loop.Point())
}

// renew asks again what may be read, and reports whether that is what it was: then all
// that has been sent stands.
func (s *watching) renew(ctx context.Context) (bool, error) {
	old := s.saw.reader
	reader, err := s.regrant(ctx, s.saw.state)
	if err != nil {
		return false, err // nobody says any more what may be read
	}
	if !old.same(reader, s.saw.state.Snapshot) || old.otherKinds() {
		return false, reader.err
	}
	s.saw.reader = reader
	s.until = reader.until(s.made)
	return true, nil
}

// sameFrame reports whether two states have the same members, and the same bindings of
// the same packages.
func sameFrame(a, b *policy.State) bool {
	frame := func(s *policy.State) (out []string) {
		for m := range s.Snapshot.Members() {
			out = append(out, m.Name)
		}
		out = append(out, "")
		for b, severity := range s.Bindings() {
			out = append(out, b.Name, b.Package, severity)
		}
		return out
	}
	return slices.Equal(frame(a), frame(b))
}

// step sends what differs at the next point. What is judged, and what may be read, is as
// it was.
func (s *watching) step(ctx context.Context, next *enforce.Point, changes *policy.Changes) error {
	sees := sight{next.State(), s.saw.reader}
	fresh := map[string]bool{} // whether findings of a binding may be read now
	other := false             // what is untold may be
	of := map[string]bound{}
	for b, severity := range sees.state.Bindings() {
		of[b.Name] = bound{b, severity}
	}
	for change := range changes.All() {
		v := change.After
		if v == nil {
			v = change.Before
		}
		b := of[v.Binding]
		may, looked := fresh[b.Name]
		if !looked {
			may = s.asksFor(b) && sees.mayRead(b.Name)
			fresh[b.Name] = may
			p := sees.state.Package(b.Name)
			other = other || p != nil && p.AnyKind // there may be findings on others
		}
		if !may || !s.told[b.Name] { // if these differ, all of the binding is told below
			continue
		}
		if err := s.tell(ctx, s.finding(s.saw, b, change.Before), s.finding(sees, b, change.After)); err != nil {
			return err
		}
	}
	for name, may := range fresh {
		if may != s.told[name] {
			other = true
			if err := s.whole(ctx, name, s.saw, sees, may); err != nil {
				return err
			}
		}
	}
	if other {
		s.untold = sees.untold(s.asked, s.told)
	}
	return s.arrived(next, sees)
}

// exchange sends what differs at a point, with other grants, members or bindings.
func (s *watching) exchange(ctx context.Context, to *enforce.Point) error {
	reader, err := s.regrant(ctx, to.State())
	if err != nil {
		return err // nobody says any more what may be read
	}
	sees := sight{to.State(), reader}
	if s.point == nil {
		s.from = to
	}
	var names []string
	for _, of := range []sight{s.saw, sees} {
		if of.state == nil {
			continue
		}
		for b, severity := range of.state.Bindings() {
			if s.asksFor(bound{b, severity}) {
				names = append(names, b.Name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		may := sees.state.Package(name) != nil && sees.mayRead(name)
		if err := s.whole(ctx, name, s.saw, sees, may); err != nil {
			return err
		}
	}
	s.untold = sees.untold(s.asked, s.told)
	return s.arrived(to, sees)
}

// arrived takes note of what has been sent.
func (s *watching) arrived(at *enforce.Point, sees sight) error {
	if err := s.unanswered(); err != nil {
		return err // what was denied for want of an answer is no answer
	}
	s.point, s.from, s.saw = at, at, sees
	s.until = sees.reader.until(s.made)
	return nil
}

// bound is a binding with the severity of its package.
type bound struct {
	policy.Binding
	severity string
}

func (s *watching) bound(of sight, name string) bound {
	if of.state != nil {
		for b, severity := range of.state.Bindings() {
			if b.Name == name {
				return bound{b, severity}
			}
		}
	}
	return bound{}
}

// whole sends all that differs of a binding.
func (s *watching) whole(ctx context.Context, name string, saw, sees sight, may bool) error {
	was, is := s.bound(saw, name), s.bound(sees, name)
	told := s.told[name] && s.asksFor(was)
	may = may && s.asksFor(is)
	s.told[name] = may
	if told {
		for _, member := range saw.of(name) {
			for v := range saw.state.Findings(name, member) {
				before := s.finding(saw, was, &v)
				if before == nil {
					continue
				}
				var after *Finding
				if may {
					after = s.at(sees, is, v.Subject)
				}
				if after != nil {
					continue
				}
				if err := s.tell(ctx, before, nil); err != nil {
					return err
				}
			}
		}
	}
	if !may {
		return nil
	}
	for _, member := range sees.of(name) {
		for v := range sees.state.Findings(name, member) {
			after := s.finding(sees, is, &v)
			var before *Finding
			if after != nil && told {
				before = s.at(saw, was, v.Subject)
			}
			if err := s.tell(ctx, before, after); err != nil {
				return err
			}
		}
	}
	return nil
}

// at returns what may be read of a binding's verdict on a subject.
func (s *watching) at(of sight, b bound, subject policy.Subject) *Finding {
	v, ok := of.state.Get(b.Name, subject)
	if !ok {
		return nil
	}
	return s.finding(of, b, &v)
}

// finding returns a verdict as a list has it, nil where a list would not.
func (s *watching) finding(of sight, b bound, v *policy.Verdict) *Finding {
	if v == nil || v.Revision == 0 || !in(s.members, v.Subject.Ref.Member) || !s.wants(v) || !of.subject(v.Subject) {
		return nil
	}
	f := findingOf(b.Binding, b.severity, v)
	return &f
}

// tell sends the event that leads from one finding to another.
func (s *watching) tell(ctx context.Context, before, after *Finding) error {
	if s.looked++; s.looked%1024 == 0 && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case before == nil && after == nil, before != nil && after != nil && before.same(after):
		return nil
	case after == nil:
		return s.event(watch.Deleted, before)
	case before == nil:
		return s.event(watch.Added, after)
	}
	return s.event(watch.Modified, after)
}

// same reports whether nothing differs but which scopes are incomplete, and when it was
// found.
func (f *Finding) same(g *Finding) bool {
	a, b := *f, *g
	a.Gaps, b.Gaps, a.Revision, b.Revision = nil, nil, 0, 0
	return reflect.DeepEqual(a, b)
}
