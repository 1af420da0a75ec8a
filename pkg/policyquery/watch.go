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
	defaultWatchTimeout     = 30 * time.Minute // and up to twice it, where no timeout is asked for; never longer
	defaultBookmarkInterval = time.Minute
	defaultWriteTimeout     = 30 * time.Second
	flushAt                 = 64 << 10 // bytes
)

var _ queryapi.Watchable = Violations{}

// Event is a line of a watch of violations. Its object is a Finding; of a BOOKMARK, a
// Mark; of an ERROR, a Status, after which the watch has ended.
type Event struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

// Bookmark says how far a watch is: it comes after the events that lead there.
type Bookmark struct {
	ResourceVersion string             `json:"resourceVersion"` // a watch goes on from here
	Revision        aggregate.Revision `json:"revision"`
	Synced          bool               `json:"synced"`
	Withheld        []string           `json:"withheld,omitempty"` // as in Found
	Failed          []string           `json:"failed,omitempty"`
	InitialEnd      bool               `json:"initialEventsEnd,omitempty"` // all that there was has been sent
}

// OpenAPIModelName is the name of the component in OpenAPI.
func (Bookmark) OpenAPIModelName() string { return "Mark" }

// watchStream is one watch under way. One goroutine runs it.
type watchStream struct {
	*params

	q          Violations
	w          http.ResponseWriter
	controller *http.ResponseController
	caller     queryapi.Caller

	point           *enforce.Point  // whose verdicts have been sent
	from            *enforce.Point  // the oldest that is kept alive
	readable        map[string]bool // bindings whose findings may be read, as of the last look
	hidden          string          // as of the last look
	last            readScope       // in which they have been sent
	newest          *callerReader   // newest
	grantsRequested time.Time       // when grants were asked for
	grantsExpire    time.Time       // when they must be asked for again
	headerSent      bool            // the answer has

	out      []byte
	events   int // since the last Mark
	examined int
}

// Watch implements queryapi.Watchable: it sends what there is, unless the client says
// from where it goes on, and then every change of it, until the client leaves, does not
// read, or time is up.
func (q Violations) Watch(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	asked, err := parseParams(r.URL.Query())
	if err != nil {
		return err
	}
	newest := q.Loop.Point()
	if newest == nil {
		return errNotEvaluated
	}
	q.WriteTimeout, q.BookmarkInterval = cmp.Or(q.WriteTimeout, defaultWriteTimeout), cmp.Or(q.BookmarkInterval, defaultBookmarkInterval)
	s := &watchStream{params: asked, q: q, w: w, controller: http.NewResponseController(w), caller: caller, readable: map[string]bool{}}
	if asked.resourceVersion != "" {
		var at string
		at, s.hidden = splitVersion(asked.resourceVersion)
		if s.point, err = q.Loop.At(at); err != nil || memberLeft(s.point.State(), newest.State()) {
			return expiredError(asked.resourceVersion)
		}
		s.from = s.point
	}
	timeout := asked.timeout
	if timeout == 0 {
		timeout = defaultWatchTimeout + rand.N(defaultWatchTimeout)
	}
	timeout = min(timeout, 2*defaultWatchTimeout)
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	err = s.run(ctx, newest)
	if err == nil || !s.headerSent {
		return err
	}
	if told := apierrors.APIStatus(nil); errors.As(err, &told) && s.sendError(told.Status()) == nil {
		return nil
	}
	panic(http.ErrAbortHandler) // the client is gone or does not read
}

// memberLeft reports whether a member has left: what the caller might read of it is not
// known any more, so that its deletions cannot be told.
func memberLeft(before, after *policy.State) bool {
	for m := range before.Snapshot.Members() {
		if _, ok := after.Snapshot.Member(m.Name); !ok {
			return true
		}
	}
	return false
}

func (s *watchStream) run(ctx context.Context, newest *enforce.Point) error {
	initial := s.point == nil
	if err := s.start(ctx, newest); err != nil {
		return err
	}
	if err := s.sendBookmark(initial); err != nil {
		return err
	}
	due := time.Now().Add(s.q.BookmarkInterval)
	for ctx.Err() == nil {
		if err := s.sendChanges(ctx); err != nil {
			return err
		}
		if now := time.Now(); s.events > 0 || !now.Before(due) {
			due = now.Add(s.q.BookmarkInterval)
			if err := s.sendBookmark(false); err != nil {
				return err
			}
		}
		s.wait(ctx, due)
	}
	return s.sendBookmark(false) // good-bye, so that the client comes back to where it is
}

// start sends what there is, or what has changed since the client's point.
func (s *watchStream) start(ctx context.Context, newest *enforce.Point) error {
	if s.point != nil {
		state := s.point.State()
		reader, err := newCallerReader(ctx, s.caller, s.q.Kinds, state.Snapshot)
		if err != nil {
			return err
		}
		s.last = readScope{state, reader}
		for b := range s.last.state.Bindings() {
			s.readable[b.Name] = s.last.mayRead(b.Name)
		}
		untold := s.last.hiddenDigest(s.params, s.readable)
		if reader.err != nil {
			return reader.err // what was denied for want of an answer is no answer
		}
		if untold != s.hidden {
			return grantsChanged(s.resourceVersion)
		}
	}
	return s.resync(ctx, newest)
}

// regrant asks what may be read now of a state.
func (s *watchStream) regrant(ctx context.Context, state *policy.State) (*callerReader, error) {
	s.grantsRequested = time.Now()
	var err error
	s.newest, err = newCallerReader(ctx, s.caller, s.q.Kinds, state.Snapshot)
	return s.newest, err
}

// sendChanges sends what has changed since the last step.
func (s *watchStream) sendChanges(ctx context.Context) error {
	if !s.q.Loop.Kept(s.point) {
		return expiredError(s.point.Version())
	}
	for !s.last.reader.kindsChanged() {
		if !time.Now().Before(s.grantsExpire) { // however many changes are left to tell
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
			return expiredError(s.point.Version())
		}
		if c.Before == nil || !sameMembersAndBindings(c.Before, c.After) || !s.last.reader.sameResources(c.Before.Snapshot, c.After.Snapshot) {
			break
		}
		if err := s.sendPoint(ctx, next, c); err != nil {
			return err
		}
	}
	return s.resync(ctx, s.q.Loop.Point())
}

// renew asks again what may be read, and reports whether that is what it was: then all
// that has been sent stands.
func (s *watchStream) renew(ctx context.Context) (bool, error) {
	old := s.last.reader
	reader, err := s.regrant(ctx, s.last.state)
	if err != nil {
		return false, err // nobody says any more what may be read
	}
	if !old.equal(reader, s.last.state.Snapshot) || old.kindsChanged() {
		return false, reader.err
	}
	s.last.reader = reader
	s.grantsExpire = reader.expires(s.grantsRequested)
	return true, nil
}

// sameMembersAndBindings reports whether two states have the same members, and the same bindings of
// the same packages.
func sameMembersAndBindings(a, b *policy.State) bool {
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

// sendPoint sends what differs at the next point. What is judged, and what may be read, is as
// it was.
func (s *watchStream) sendPoint(ctx context.Context, next *enforce.Point, changes *policy.Changes) error {
	sees := readScope{next.State(), s.last.reader}
	fresh := map[string]bool{} // whether findings of a binding may be read now
	other := false             // what is untold may be
	of := map[string]boundBinding{}
	for b, severity := range sees.state.Bindings() {
		of[b.Name] = boundBinding{b, severity}
	}
	for change := range changes.All() {
		v := change.After
		if v == nil {
			v = change.Before
		}
		b := of[v.Binding]
		may, looked := fresh[b.Name]
		if !looked {
			may = s.matchesBinding(b) && sees.mayRead(b.Name)
			fresh[b.Name] = may
			p := sees.state.Package(b.Name)
			other = other || p != nil && p.AnyKind // there may be findings on others
		}
		if !may || !s.readable[b.Name] { // if these differ, all of the binding is told below
			continue
		}
		if err := s.sendChange(ctx, s.finding(s.last, b, change.Before), s.finding(sees, b, change.After)); err != nil {
			return err
		}
	}
	for name, may := range fresh {
		if may != s.readable[name] {
			other = true
			if err := s.sendBinding(ctx, name, s.last, sees, may); err != nil {
				return err
			}
		}
	}
	if other {
		s.hidden = sees.hiddenDigest(s.params, s.readable)
	}
	return s.record(next, sees)
}

// resync sends what differs at a point, with other grants, members or bindings.
func (s *watchStream) resync(ctx context.Context, to *enforce.Point) error {
	reader, err := s.regrant(ctx, to.State())
	if err != nil {
		return err // nobody says any more what may be read
	}
	sees := readScope{to.State(), reader}
	if s.point == nil {
		s.from = to
	}
	var names []string
	for _, of := range []readScope{s.last, sees} {
		if of.state == nil {
			continue
		}
		for b, severity := range of.state.Bindings() {
			if s.matchesBinding(boundBinding{b, severity}) {
				names = append(names, b.Name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		may := sees.state.Package(name) != nil && sees.mayRead(name)
		if err := s.sendBinding(ctx, name, s.last, sees, may); err != nil {
			return err
		}
	}
	s.hidden = sees.hiddenDigest(s.params, s.readable)
	return s.record(to, sees)
}

// record takes note of what has been sent.
func (s *watchStream) record(at *enforce.Point, sees readScope) error {
	if err := s.grantsError(); err != nil {
		return err // what was denied for want of an answer is no answer
	}
	s.point, s.from, s.last = at, at, sees
	s.grantsExpire = sees.reader.expires(s.grantsRequested)
	return nil
}

// boundBinding is a binding with the severity of its package.
type boundBinding struct {
	policy.Binding
	severity string
}

func (s *watchStream) binding(of readScope, name string) boundBinding {
	if of.state != nil {
		for b, severity := range of.state.Bindings() {
			if b.Name == name {
				return boundBinding{b, severity}
			}
		}
	}
	return boundBinding{}
}

// sendBinding sends all that differs of a binding.
func (s *watchStream) sendBinding(ctx context.Context, name string, saw, sees readScope, may bool) error {
	was, is := s.binding(saw, name), s.binding(sees, name)
	told := s.readable[name] && s.matchesBinding(was)
	may = may && s.matchesBinding(is)
	s.readable[name] = may
	if told {
		for _, member := range saw.membersOf(name) {
			for v := range saw.state.Findings(name, member) {
				before := s.finding(saw, was, &v)
				if before == nil {
					continue
				}
				var after *Finding
				if may {
					after = s.findingOn(sees, is, v.Subject)
				}
				if after != nil {
					continue
				}
				if err := s.sendChange(ctx, before, nil); err != nil {
					return err
				}
			}
		}
	}
	if !may {
		return nil
	}
	for _, member := range sees.membersOf(name) {
		for v := range sees.state.Findings(name, member) {
			after := s.finding(sees, is, &v)
			var before *Finding
			if after != nil && told {
				before = s.findingOn(saw, was, v.Subject)
			}
			if err := s.sendChange(ctx, before, after); err != nil {
				return err
			}
		}
	}
	return nil
}

// findingOn returns what may be read of a binding's verdict on a subject.
func (s *watchStream) findingOn(of readScope, b boundBinding, subject policy.Subject) *Finding {
	v, ok := of.state.Get(b.Name, subject)
	if !ok {
		return nil
	}
	return s.finding(of, b, &v)
}

// finding returns a verdict as a list has it, nil where a list would not.
func (s *watchStream) finding(of readScope, b boundBinding, v *policy.Verdict) *Finding {
	if v == nil || v.Revision == 0 || !matches(s.members, v.Subject.Ref.Member) || !s.matchesVerdict(v) || !of.mayReadSubject(v.Subject) {
		return nil
	}
	f := findingOf(b.Binding, b.severity, v)
	return &f
}

// sendChange sends the event that leads from one finding to another.
func (s *watchStream) sendChange(ctx context.Context, before, after *Finding) error {
	if s.examined++; s.examined%1024 == 0 && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case before == nil && after == nil, before != nil && after != nil && before.equal(after):
		return nil
	case after == nil:
		return s.send(watch.Deleted, before)
	case before == nil:
		return s.send(watch.Added, after)
	}
	return s.send(watch.Modified, after)
}

// equal reports whether nothing differs but which scopes are incomplete, and when it was
// found.
func (f *Finding) equal(g *Finding) bool {
	a, b := *f, *g
	a.Gaps, b.Gaps, a.Revision, b.Revision = nil, nil, 0, 0
	return reflect.DeepEqual(a, b)
}
