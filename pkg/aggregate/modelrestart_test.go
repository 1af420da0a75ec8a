package aggregate_test

import (
	"fmt"
	"slices"

	"federator.dev/federator/pkg/aggregate"
)

// written is what a process has written of an index: all that there was at one time, and each
// commit since.
type written struct {
	base    *aggregate.Snapshot
	whole   []func(l *aggregate.Loader, members map[string]*aggregate.MemberLoader) error
	commits []func(l *aggregate.Loader, members map[string]*aggregate.MemberLoader) error
	hole    aggregate.Revision // that readers cannot go back beyond
	to      *aggregate.Snapshot
	seen    aggregate.Revision // that the writer is known to have come to

	dictionaries map[aggregate.DictionaryID][]byte
}

// needs notes the dictionaries that an encoder has used.
func (w *written) needs(e *aggregate.Encoder) {
	for d := range e.Dictionaries {
		w.dictionaries[d.ID()] = slices.Clone(d.Bytes())
	}
}

// write writes all that a snapshot has.
func write(snap *aggregate.Snapshot) *written {
	w := &written{base: snap, to: snap, seen: snap.Revision(), hole: snap.Revision(), dictionaries: map[aggregate.DictionaryID][]byte{}}
	for m := range snap.Members() {
		w.whole = append(w.whole, func(l *aggregate.Loader, members map[string]*aggregate.MemberLoader) error {
			members[m.Name] = l.Member(m)
			return nil
		})
	}
	for info := range snap.Scopes("") {
		var e aggregate.Encoder
		var objects [][]byte
		for o := range snap.Objects(info.Member, info.Kind) {
			objects = append(objects, e.Append(nil, o))
		}
		w.needs(&e)
		parts := slices.Clone(snap.Reached(info.Member, info.Kind))
		w.whole = append(w.whole, func(_ *aggregate.Loader, members map[string]*aggregate.MemberLoader) error {
			s := members[info.Member].Scope(info.Kind, info.Version, info.Resource)
			s.SetStatus(info.Status)
			s.SetReached(parts)
			return put(s, objects)
		})
	}
	return w
}

func put(s *aggregate.ScopeLoader, objects [][]byte) error {
	s.Reset()
	for _, o := range objects {
		rest, err := s.Put(o)
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return aggregate.ErrCorrupt
		}
	}
	return nil
}

// more writes the commits that have come since.
func (w *written) more(x *aggregate.Index) (ok bool) {
	pending, _ := x.Pending(w.to)
	commits, ok := pending.Commits()
	if !ok {
		return false
	}
	for c := range commits {
		if c.Lost() && !c.Left {
			return false
		}
	}
	for c := range commits {
		w.commits = append(w.commits, w.commit(c, pending.Snapshot()))
		if c.Left {
			w.hole, w.seen = c.To, c.To
		}
	}
	w.to = pending.Snapshot()
	pending.Release()
	return true
}

func (w *written) commit(c aggregate.Commit, after *aggregate.Snapshot) func(*aggregate.Loader, map[string]*aggregate.MemberLoader) error {
	if c.Left {
		return func(l *aggregate.Loader, members map[string]*aggregate.MemberLoader) error {
			l.Remove(c.Member)
			delete(members, c.Member)
			return nil
		}
	}
	if c.Kind == "" {
		m, _ := after.Member(c.Member) // the last that is known, and perhaps nothing
		return func(l *aggregate.Loader, members map[string]*aggregate.MemberLoader) error {
			m.Name = c.Member
			if members[c.Member] == nil {
				members[c.Member] = l.Member(m)
			}
			members[c.Member].Set(m)
			return members[c.Member].Commit(c.Since, c.From, c.To)
		}
	}
	type change struct {
		deleted bool
		at      objKey
		object  []byte
	}
	var changes []change
	var e aggregate.Encoder
	for ch := range c.Changes() {
		if ch.After.IsZero() {
			changes = append(changes, change{deleted: true, at: objKey{ch.Before.Namespace(), ch.Before.Name()}})
		} else {
			changes = append(changes, change{object: e.Append(nil, ch.After)})
		}
	}
	w.needs(&e)
	version, resource, is := c.Scope()
	info, _ := after.Scope(c.Member, c.Kind)
	parts := slices.Clone(after.Reached(c.Member, c.Kind))
	return func(_ *aggregate.Loader, members map[string]*aggregate.MemberLoader) error {
		m := members[c.Member]
		if !is {
			m.Remove(c.Kind)
			return m.Commit(c.Since, c.From, c.To)
		}
		s := m.Scope(c.Kind, version, resource)
		s.Reset()
		s.SetStatus(info.Status)
		s.SetReached(parts)
		for _, ch := range changes {
			if ch.deleted {
				s.Delete(ch.at.namespace, ch.at.name)
			} else if _, err := s.Put(ch.object); err != nil {
				return err
			}
		}
		return m.Commit(c.Since, c.From, c.To)
	}
}

// load has an index loaded with what was written.
func (w *written) load(x *aggregate.Index) error {
	l, members := x.Load(), map[string]*aggregate.MemberLoader{}
	for _, d := range w.dictionaries {
		if _, err := l.Dictionary(d); err != nil {
			return err
		}
	}
	for _, f := range w.whole {
		if err := f(l, members); err != nil {
			return err
		}
	}
	for _, m := range members {
		if err := m.Settle(); err != nil {
			return err
		}
	}
	for _, f := range w.commits {
		if err := f(l, members); err != nil {
			return err
		}
	}
	// What was written last may have been seen by nobody.
	last, err := l.Finish(w.seen)
	if err == nil && last != w.to.Revision() {
		return fmt.Errorf("readers may go on up to %d, want %d", last, w.to.Revision())
	}
	return err
}

// restart ends the process, and begins another with what was written.
func (h *history) restart() {
	if h.written == nil || !h.written.more(h.index) || h.rng.IntN(4) == 0 {
		h.written = write(h.index.Newest())
	}
	last := h.ranges[len(h.ranges)-1]
	next := aggregate.Range{First: last.End + 5, End: last.End + 60}
	opts := h.options
	opts.Revisions = next
	x, err := aggregate.New(opts)
	if err != nil {
		h.t.Fatal(err)
	}
	w := h.written
	if err := w.load(x); err != nil {
		h.t.Fatal(err)
	}
	if _, err := x.Load().Finish(w.to.Revision()); err == nil {
		h.t.Fatal("an index is loaded twice")
	}
	loaded := aggregate.Range{First: w.hole, End: w.to.Revision() + 1}
	if !x.Owns(loaded.First) && !h.exact { // the change log is short
		for loaded.First < loaded.End && !x.Owns(loaded.First) {
			loaded.First++
		}
	}
	h.ranges = append(h.issued(loaded), next)
	h.index, h.writers, h.written = x, map[scopeKey]*writer{}, nil
	s := h.state.next()
	h.record(s, next.First+1)
	h.cursors = nil
	for range 3 {
		h.cursors = append(h.cursors, &follower{x.Cursor(x.Snapshot()), h.state})
	}
}

// issued returns the revisions of a range that were issued: those that were left over when another range was begun, and
// those between ranges, are nobody's.
func (h *history) issued(of aggregate.Range) (ranges []aggregate.Range) {
	for _, gap := range h.gaps {
		if gap.End <= of.First || gap.First >= of.End {
			continue
		}
		if of.First < gap.First {
			ranges = append(ranges, aggregate.Range{First: of.First, End: gap.First})
		}
		of.First = gap.End
	}
	if of.First < of.End {
		ranges = append(ranges, of)
	}
	return ranges
}

// write begins to write, or goes on with it.
func (h *history) write() {
	if h.written == nil || !h.written.more(h.index) {
		h.written = write(h.index.Newest())
	}
}
