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

// Defaults of watches.
const (
	defaultWatchTimeout     = 30 * time.Minute // and up to twice it without timeoutSeconds; never longer
	defaultBookmarkInterval = time.Minute
	defaultWriteTimeout     = 30 * time.Second
	flushAt                 = 64 << 10 // bytes
)

var _ queryapi.WatchSharer = Violations{}

// Event is a line of a watch of violations. Its object is a Finding; of a BOOKMARK event
// a Bookmark; of an ERROR event a Status, after which the watch ends.
type Event struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

// Bookmark is the position of a watch after the preceding events.
type Bookmark struct {
	ResourceVersion string             `json:"resourceVersion"` // to resume from
	Revision        aggregate.Revision `json:"revision"`
	Synced          bool               `json:"synced"`
	Withheld        []string           `json:"withheld,omitempty"` // as in ViolationList
	Failed          []string           `json:"failed,omitempty"`
	Absent          []string           `json:"absent,omitempty"`           // as in ViolationList
	InitialEnd      bool               `json:"initialEventsEnd,omitempty"` // the initial findings have been sent
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (Bookmark) SchemaName() string { return "Mark" }

// watchStream is one open watch. It belongs to one goroutine.
type watchStream struct {
	*params
	lines

	q      Violations
	caller queryapi.Caller

	point           *enforce.Point  // up to which everything has been sent
	from            *enforce.Point  // the oldest that this watch keeps in memory
	readable        map[string]bool // bindings whose findings may be read, as of last
	hidden          string          // digest, as of last
	last            readScope       // as of point
	newest          *callerReader   // newest
	grantsRequested time.Time       // when grants were last requested
	grantsExpire    time.Time       // when they must be renewed

	events   int // since the last bookmark
	examined int
}

// Watch implements queryapi.Watchable: it sends the present findings, unless the client
// resumes from a resourceVersion, and then every change, until the client disconnects or
// does not read, or the watch times out.
func (q Violations) Watch(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	params, err := parseParams(r.URL.Query())
	if err != nil {
		return err
	}
	newest := q.Loop.Point()
	if newest == nil {
		return errNotEvaluated
	}
	q.WriteTimeout, q.BookmarkInterval = cmp.Or(q.WriteTimeout, defaultWriteTimeout), cmp.Or(q.BookmarkInterval, defaultBookmarkInterval)
	params.part = queryapi.InPart(r.Context(), newest.State().Snapshot)
	s := &watchStream{params: params, lines: newLines(w, q.WriteTimeout), q: q, caller: caller, readable: map[string]bool{}}
	if params.resourceVersion != "" {
		var at string
		at, s.hidden = splitVersion(params.resourceVersion)
		if s.point, err = q.Loop.At(at); err != nil || memberLeft(s.point.State(), newest.State()) || s.moved(r.Context(), s.point.State(), newest.State()) {
			return expiredError(params.resourceVersion)
		}
		s.from = s.point
	}
	timeout := params.timeout
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
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && s.sendError(status.Status()) == nil {
		return nil
	}
	panic(http.ErrAbortHandler) // the client is gone or does not read
}

// memberLeft reports whether a member has left: what the caller was allowed to read of it
// is no longer known, so its deletions cannot be sent.
func memberLeft(before, after *policy.State) bool {
	for m := range before.Snapshot.Members() {
		if _, ok := after.Snapshot.Member(m.Name); !ok {
			return true
		}
	}
	return false
}

// moved reports whether between two states subjects were taken from this process, or given to it, by others of a shared
// fleet: what they send of these cannot be told from what happened to them.
func (s *watchStream) moved(ctx context.Context, before, after *policy.State) bool {
	if !s.part {
		return false
	}
	was, is := before.KeyOwner(), after.KeyOwner()
	return !slices.Equal(was.Now, is.Now) || !slices.Equal(was.Before, is.Before) || queryapi.Moved(ctx, before.Snapshot, after.Snapshot)
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
	return s.sendBookmark(false) // so that the client resumes from here
}

// start sends the present findings, or what has changed since the client's point.
func (s *watchStream) start(ctx context.Context, newest *enforce.Point) error {
	if s.point != nil {
		state := s.point.State()
		reader, err := newStateReader(ctx, s.caller, s.q.Kinds, state)
		if err != nil {
			return err
		}
		s.last = readScope{state, reader}
		for b := range s.last.state.Bindings() {
			s.readable[b.Name] = s.last.mayRead(b.Name)
		}
		hidden := s.last.hiddenDigest(s.params, s.readable)
		if reader.err != nil {
			return reader.err // grants are unknown, not denied
		}
		if hidden != s.hidden {
			return grantsChanged(s.resourceVersion)
		}
	}
	return s.resync(ctx, newest)
}

// regrant fetches the caller's present grants.
func (s *watchStream) regrant(ctx context.Context, state *policy.State) (*callerReader, error) {
	s.grantsRequested = time.Now()
	var err error
	s.newest, err = newStateReader(ctx, s.caller, s.q.Kinds, state)
	return s.newest, err
}

// sendChanges sends what has changed since point.
func (s *watchStream) sendChanges(ctx context.Context) error {
	if !s.q.Loop.Kept(s.point) {
		return expiredError(s.point.Version())
	}
	for !s.last.reader.kindsChanged() {
		if !time.Now().Before(s.grantsExpire) { // however many changes are left to send
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
		if s.moved(ctx, c.Before, c.After) {
			return expiredError(s.point.Version())
		}
		if err := s.sendPoint(ctx, next, c); err != nil {
			return err
		}
	}
	return s.resync(ctx, s.q.Loop.Point())
}

// renew renews the grants, and reports whether they are the same: then all that has been
// sent is still right.
func (s *watchStream) renew(ctx context.Context) (bool, error) {
	old := s.last.reader
	reader, err := s.regrant(ctx, s.last.state)
	if err != nil {
		return false, err // grants are unknown
	}
	if !old.equal(reader, s.last.state.Snapshot) || old.kindsChanged() {
		return false, reader.err
	}
	s.last.reader = reader
	s.grantsExpire = reader.expires(s.grantsRequested)
	return true, nil
}

// sameMembersAndBindings reports whether two states have the same members, and the same
// bindings of the same packages, their versions in effect in the same members.
func sameMembersAndBindings(a, b *policy.State) bool {
	names := func(s *policy.State) (out []string) {
		for m := range s.Snapshot.Members() {
			out = append(out, m.Name)
		}
		out = append(out, "")
		members := out
		for b, severity := range s.Bindings() {
			out = append(out, b.Name, b.Package, b.Version, severity, s.Package(b.Name).Title)
			if b.Next == nil {
				continue
			}
			for _, m := range members { // "" is for keys
				p := s.PackageIn(b.Name, m)
				out = append(out, p.Name, s.BindingIn(b.Name, m).Version, p.Severity, p.Title)
			}
		}
		return out
	}
	return slices.Equal(names(a), names(b))
}

// sendPoint sends the changes of the next point, where members, bindings and grants are
// unchanged.
func (s *watchStream) sendPoint(ctx context.Context, next *enforce.Point, changes *policy.Changes) error {
	current := readScope{next.State(), s.last.reader}
	fresh := map[string]bool{} // whether findings of a binding may be read now
	other := false             // hidden may have changed
	of := map[string]boundBinding{}
	for b := range boundIn(current.state) {
		of[b.Name] = b
	}
	for change := range changes.All() {
		v := change.After
		if v == nil {
			v = change.Before
		}
		b := of[v.Binding]
		may, checked := fresh[b.Name]
		if !checked {
			may = s.matchesBinding(b) && current.mayRead(b.Name)
			fresh[b.Name] = may
			for p := range current.state.Packages(b.Name) {
				other = other || p.IsOpen() // there may be findings on other kinds
			}
		}
		if !may || !s.readable[b.Name] { // if these differ, the whole binding is sent below
			continue
		}
		if err := s.sendChange(ctx, s.finding(s.last, change.Before), s.finding(current, change.After)); err != nil {
			return err
		}
	}
	for name, may := range fresh {
		if may != s.readable[name] {
			other = true
			if err := s.sendBinding(ctx, name, s.last, current, may); err != nil {
				return err
			}
		}
	}
	if other {
		s.hidden = current.hiddenDigest(s.params, s.readable)
	}
	return s.record(next, current)
}

// resync sends what differs at a point with other grants, members or bindings.
func (s *watchStream) resync(ctx context.Context, to *enforce.Point) error {
	if s.last.state != nil && s.moved(ctx, s.last.state, to.State()) {
		return expiredError(s.point.Version())
	}
	reader, err := s.regrant(ctx, to.State())
	if err != nil {
		return err // grants are unknown
	}
	current := readScope{to.State(), reader}
	if s.point == nil {
		s.from = to
	}
	var names []string
	for _, of := range []readScope{s.last, current} {
		if of.state == nil {
			continue
		}
		for b := range boundIn(of.state) {
			if s.matchesBinding(b) {
				names = append(names, b.Name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		may := current.state.Package(name) != nil && current.mayRead(name)
		if err := s.sendBinding(ctx, name, s.last, current, may); err != nil {
			return err
		}
	}
	s.hidden = current.hiddenDigest(s.params, s.readable)
	return s.record(to, current)
}

// record records what has been sent.
func (s *watchStream) record(at *enforce.Point, current readScope) error {
	if err := s.grantsError(); err != nil {
		return err // grants are unknown, not denied
	}
	s.point, s.from, s.last = at, at, current
	s.grantsExpire = current.reader.expires(s.grantsRequested)
	return nil
}

func (*watchStream) binding(of readScope, name string) boundBinding {
	if of.state != nil {
		for b := range boundIn(of.state) {
			if b.Name == name {
				return b
			}
		}
	}
	return boundBinding{}
}

// sendBinding sends everything that differs for a binding.
func (s *watchStream) sendBinding(ctx context.Context, name string, from, to readScope, readable bool) error {
	fromBinding, toBinding := s.binding(from, name), s.binding(to, name)
	sent := s.readable[name] && s.matchesBinding(fromBinding)
	readable = readable && s.matchesBinding(toBinding)
	s.readable[name] = readable
	if sent {
		for _, member := range from.membersOf(name) {
			for v := range from.state.FindingsIn(name, member) {
				before := s.finding(from, &v)
				if before == nil {
					continue
				}
				var after *Finding
				if readable {
					after = s.findingOn(to, name, v.Subject)
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
	if !readable {
		return nil
	}
	for _, member := range to.membersOf(name) {
		for v := range to.state.FindingsIn(name, member) {
			after := s.finding(to, &v)
			var before *Finding
			if after != nil && sent {
				before = s.findingOn(from, name, v.Subject)
			}
			if err := s.sendChange(ctx, before, after); err != nil {
				return err
			}
		}
	}
	return nil
}

// findingOn returns a binding's finding on a subject, nil where it may not be read.
func (s *watchStream) findingOn(of readScope, name string, subject policy.Subject) *Finding {
	v, ok := of.state.Get(name, subject)
	if !ok {
		return nil
	}
	return s.finding(of, &v)
}

// finding returns a verdict as a list shows it, nil where a list would not.
func (s *watchStream) finding(of readScope, v *policy.Verdict) *Finding {
	if v == nil || v.Revision == 0 || !matches(s.members, v.Subject.Ref.Member) || !s.matchesVerdict(v) || !of.mayReadSubject(v.Subject) {
		return nil
	}
	f := of.findingOf(v)
	if !matches(s.severities, f.Severity) {
		return nil
	}
	return &f
}

// sendChange sends the event for a change from one finding to another.
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

// equal reports whether two findings differ at most in their gaps and revision.
func (f *Finding) equal(g *Finding) bool {
	a, b := *f, *g
	a.Gaps, b.Gaps, a.Revision, b.Revision = nil, nil, 0, 0
	return reflect.DeepEqual(a, b)
}
