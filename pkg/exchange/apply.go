package exchange

import (
	"errors"
	"fmt"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
)

// take decides whether a section is kept: one of the peer that tells of the member, or all of it from its judge.
func (l *link) take(in *incoming) error {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	if _, ok := l.announced[in.Name]; !ok && len(l.announced) >= l.im.o.MaxMembers {
		return fmt.Errorf("%w: more than %d members", ErrBound, l.im.o.MaxMembers)
	}
	m := l.im.members[in.Name]
	if m == nil {
		return nil
	}
	if in.taken != nil && in.taken.UID != m.uid {
		if m.source == l.peer.ID {
			m.orphan(l, "process "+l.peer.ID+" judges another member of this name")
			l.im.wake.Fire()
		}
		return nil
	}
	if l.tellsOf(m, in) {
		in.member = m
	}
	return nil
}

// tellsOf reports whether a section of a member is taken: that of another peer than before only if it has all that is held.
// Importer.mu must be held.
func (l *link) tellsOf(m *member, in *incoming) bool {
	return m.source == l.peer.ID || m.judge == l.peer.ID && in.Full && l.under != nil
}

// still reports whether a section is still to be taken: the member's mu is held from here on.
func (l *link) still(m *member, in *incoming) bool {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	return !m.removed && l.tellsOf(m, in)
}

// becomesSource says that the content of a member is the peer's, of what was asked for by a number. The member's mu is held.
func (l *link) becomesSource(m *member, number uint64) {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	of, _ := l.askedLocked(number)
	m.has, m.present = of.set, true
	if m.source != l.peer.ID {
		m.source = l.peer.ID
		l.im.wake.Fire()
	}
}

// told notes that a section has ended.
func (l *link) told(in *incoming) {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	if in.taken != nil {
		l.announced[in.Name] = in.taken.UID
	}
	if m := l.im.members[in.Name]; m != nil && m.source != l.peer.ID {
		l.check = true // it may be the judge by now
	}
}

// settled is what a scope will be, once a section was applied.
type settled struct {
	*incomingScope
	keys   []uint64 // of the changes, in their order
	hashes []uint64 // of the records; 0: gone
	total  uint64
	count  int
}

// settle calculates what a scope will be. was is nil where there is none.
func (s *incomingScope) settle(was *scope) settled {
	out := settled{incomingScope: s}
	if s.gone {
		return out
	}
	before := map[uint64]uint64(nil)
	if was != nil && !s.Replace {
		before, out.total, out.count = was.sum.Records, was.sum.Total, len(was.sum.Records)
	}
	seen := make(map[uint64]uint64, len(s.changes))
	for _, c := range s.changes {
		key, hash := c.hashes()
		old, again := seen[key]
		if !again {
			old = before[key]
		}
		seen[key] = hash
		out.keys, out.hashes = append(out.keys, key), append(out.hashes, hash)
		out.total += hash - old
		if old == 0 && hash != 0 {
			out.count++
		} else if old != 0 && hash == 0 {
			out.count--
		}
	}
	return out
}

// hashes returns those of a change's name and of its record, which is 0 where it is gone.
func (c *change) hashes() (key, hash uint64) {
	if c.gone {
		d, _ := wire.ParseDelete(c.payload) //nolint:errcheck // it was one
		return wire.Key(d.Namespace, d.Name), 0
	}
	return wire.Key(wire.RecordName(c.payload)), wire.RecordHash(c.payload)
}

// apply writes a section, if it is what the peer says it is: only then anything of it is in the index.
func (r *receiver) apply(in *incoming, end wire.End) error {
	m := in.member
	m.mu.Lock()
	defer m.mu.Unlock()
	l := r.link
	if !l.still(m, in) {
		return nil
	}
	next, err := m.settle(in, end)
	if err != nil {
		l.suspect(m.name)
		return err
	}
	if end.Records > l.im.o.MaxRecords {
		return fmt.Errorf("%w: %d records of member %s, at most %d", ErrBound, end.Records, m.name, l.im.o.MaxRecords)
	}
	if _, held := l.im.o.Index.Newest().Size(); in.bytes > 0 && held > l.im.o.MaxBytes {
		return fmt.Errorf("%w: the index has %d bytes", ErrBound, held)
	}
	w := writing{r: r, m: m, sequence: r.batch.Sequence, number: r.batch.Interest}
	err = w.section(in, next)
	if err != nil && m.removed || errors.Is(err, aggregate.ErrClosed) {
		return nil // it leaves
	}
	if err != nil {
		return fmt.Errorf("member %s: %w", m.name, err)
	}
	l.becomesSource(m, r.batch.Interest)
	l.count(w.records)
	return nil
}

func (l *link) count(records int) {
	l.metrics.records.Add(float64(records))
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	l.records += int64(records)
}

// settle calculates what a member will be, and compares that with the digest.
func (m *member) settle(in *incoming, end wire.End) ([]settled, error) {
	next := make([]settled, len(in.scopes))
	touched := make(map[aggregate.Kind]bool, len(in.scopes))
	got := wire.End{Digest: in.hash}
	if in.taken == nil {
		got.Digest = m.hash
	}
	for i, s := range in.scopes {
		was := m.scopes[s.Kind]
		touched[s.Kind] = true
		next[i] = s.settle(was)
		if s.gone {
			continue
		}
		if other := was == nil || was.told.Version != s.Version || was.told.Resource != s.Resource; other && !s.Replace {
			return nil, fmt.Errorf("%w: changes of scope %s of member %s, which is another one", ErrDisagree, s.Kind, m.name)
		}
		got.Records += next[i].count
		got.Digest += wire.Digest(s.hash, next[i].total)
	}
	for kind, s := range m.scopes {
		if !touched[kind] && !in.Full {
			got.Records += len(s.sum.Records)
			got.Digest += wire.Digest(s.info, s.sum.Total)
		}
	}
	if got != end {
		return nil, fmt.Errorf("%w: member %s has %d records, not %d, or others", ErrDisagree, m.name, got.Records, end.Records)
	}
	return next, nil
}

// writing writes a section. The member's mu is held.
type writing struct {
	r        *receiver
	m        *member
	sequence uint64
	number   uint64 // of what was asked for
	record   aggregate.Record
	records  int
}

func (w *writing) section(in *incoming, next []settled) error {
	m, index := w.m, w.r.link.im.o.Index
	m.changed, m.number = w.sequence, w.number
	if in.taken != nil {
		m.told, m.hash = in.taken, in.hash
		if err := m.put(index); err != nil {
			return err
		}
	}
	kept := make(map[aggregate.Kind]bool, len(next))
	for i := range next {
		kept[next[i].Kind] = true
		if err := w.scope(&next[i]); err != nil {
			return fmt.Errorf("scope %s: %w", next[i].Kind, err)
		}
	}
	if !in.Full {
		return nil
	}
	for kind, s := range m.scopes {
		if !kept[kind] {
			s.writer.Remove()
			delete(m.scopes, kind)
		}
	}
	return nil
}

func (w *writing) scope(s *settled) error {
	m := w.m
	was := m.scopes[s.Kind]
	if s.gone {
		if was != nil {
			was.writer.Remove()
			delete(m.scopes, s.Kind)
		}
		return nil
	}
	if was != nil && (was.told.Version != s.Version || was.told.Resource != s.Resource) {
		was.writer.Close()
		was.writer = nil
	}
	if was == nil {
		was = &scope{}
	}
	if was.writer == nil {
		writer, err := w.r.link.im.o.Index.OpenScopeAs(m.name, s.Kind, s.Version, s.Resource)
		if err != nil {
			return err
		}
		was.writer = writer
		m.scopes[s.Kind] = was
	}
	was.told, was.info, was.changed, was.number = s.Scope, s.hash, w.sequence, w.number
	before := was.sum.Records
	if s.Replace {
		was.sum = wire.Sum{}
	}
	for i, key := range s.keys {
		was.sum.Put(key, s.hashes[i])
	}
	if s.Replace {
		return w.replace(was, s, before)
	}
	return w.change(was, s)
}

// replace keeps what is the same, whatever its resourceVersion is by now: it has its revision, too.
func (w *writing) replace(in *scope, s *settled, before map[uint64]uint64) error {
	now := w.r.link.im.o.Index.Newest()
	items := make([]aggregate.Item, 0, len(s.changes))
	rec := &w.record
	for i, c := range s.changes {
		if err := wire.ParseRecord(c.payload, rec); err != nil {
			return err // it was one
		}
		if before[s.keys[i]] == s.hashes[i] {
			if old, ok := now.Get(w.ref(s.Kind)); ok {
				rec.ResourceVersion = old.ResourceVersion()
			}
		}
		item, ok := in.writer.Held(rec)
		if !ok {
			item = in.writer.Item(rec)
		}
		items = append(items, item)
	}
	w.records += len(items)
	_, err := in.writer.Replace(items, w.m.shown(s.Status))
	return err
}

// ref is that of the record.
func (w *writing) ref(kind aggregate.Kind) aggregate.Ref {
	return aggregate.Ref{Member: w.m.name, Kind: kind, Namespace: w.record.Namespace, Name: w.record.Name}
}

func (w *writing) change(in *scope, s *settled) error {
	now := w.r.link.im.o.Index.Newest()
	for _, c := range s.changes {
		if c.gone {
			d, err := wire.ParseDelete(c.payload)
			if err != nil {
				return err // it was one
			}
			in.writer.Delete(d.Namespace, d.Name)
			continue
		}
		if err := wire.ParseRecord(c.payload, &w.record); err != nil {
			return err // it was one
		}
		rec := &w.record
		rec.Update = true
		old, ok := now.Get(w.ref(s.Kind))
		if ok && old.SameVersion(rec.UID, rec.ResourceVersion) {
			in.writer.Delete(rec.Namespace, rec.Name) // else an item of the same version is none
		}
		in.writer.Upsert(in.writer.Item(rec))
		w.records++
	}
	in.writer.SetStatus(w.m.shown(s.Status))
	_, err := in.writer.Commit()
	return err
}
