package exchange

import (
	"context"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
	"federator.dev/federator/pkg/interest"
)

// toldMember has the hashes of what an importer that does not ask for everything was told of a member.
type toldMember map[aggregate.Kind]*wire.Sum

func (t toldMember) put(kind aggregate.Kind, key, hash uint64) {
	s := t[kind]
	if s == nil {
		s = &wire.Sum{}
		t[kind] = s
	}
	s.Put(key, hash)
}

func (t toldMember) has(kind aggregate.Kind, namespace, name string) bool {
	s := t[kind]
	return s != nil && s.Records[wire.Key(namespace, name)] != 0
}

// end returns the number of records that were told, and the digest.
func (t toldMember) end(m *section) wire.End {
	end := wire.End{Digest: m.hash}
	for i := range m.all {
		sum := wire.Sum{}
		if s := t[m.all[i].kind]; s != nil {
			sum = *s
		}
		end.Records += len(sum.Records)
		end.Digest += wire.Digest(m.all[i].info, sum.Total)
	}
	return end
}

// name is that of an object of a scope.
type name struct{ namespace, name string }

// move is what is told and deleted since an importer asks for other keys.
type move struct {
	more, drop map[ScopeOf][]name
}

func (m *move) of(member string, of *section) (any bool) {
	for i := range of.all {
		at := ScopeOf{member, of.all[i].kind}
		any = any || len(m.more[at]) > 0 || len(m.drop[at]) > 0
	}
	return any
}

// filter tells of a batch what an importer asks for.
type filter struct {
	ctx      context.Context
	s        *stream
	b        *batch
	from, to *interest.Set
	scan     bool // all keys are looked at, one member at a time: the set shrinks, or grows by whole spaces
	found    map[ScopeOf][]name
	keys     interest.Keys
	record   aggregate.Record
	looked   int           // keys
	looking  time.Duration // how long keys of members were looked at
}

// newFilter returns nil where all of the batch is told as it is.
func (s *stream) newFilter(ctx context.Context, b *batch) (*filter, error) {
	f := &filter{ctx: ctx, s: s, b: b, from: s.wants.set, to: b.asked.set}
	switch {
	case f.to.IsEverything() && (b.state || f.from.IsEverything()):
		s.told = nil
		return nil, nil
	case b.state:
		s.told = map[string]toldMember{}
	case s.told == nil: // it had everything, or resumes
		s.told = map[string]toldMember{}
	}
	if b.state || f.to == f.from {
		return f, nil
	}
	more := f.to.Without(f.from)
	if f.scan = !f.to.Covers(f.from) || wholeSpaces(more); f.scan || more.Empty() {
		return f, nil
	}
	f.found = map[ScopeOf][]name{}
	return f, b.export.Find(more, f.alive, func(ref aggregate.Ref) error {
		at := ScopeOf{ref.Member, ref.Kind}
		f.found[at] = append(f.found[at], name{ref.Namespace, ref.Name})
		return f.alive()
	})
}

func wholeSpaces(s *interest.Set) bool {
	for space := range s.Spaces() {
		if s.HasAll(space) {
			return true
		}
	}
	return s.IsEverything()
}

// alive says now and then that it goes on, and ends with the stream.
func (f *filter) alive() error {
	if f.looked++; f.looked%1024 != 0 {
		return nil
	}
	if err := f.ctx.Err(); err != nil {
		return err
	}
	if time.Since(f.s.to.flushed) < f.s.x.o.Heartbeat {
		return nil
	}
	if err := f.s.frames.Frame(wire.TypePing, nil); err != nil {
		return err
	}
	return f.s.flush()
}

// moved finds what is told or deleted of a member since other keys are asked for.
func (f *filter) moved(m *section) (move, error) {
	out := move{more: f.found, drop: map[ScopeOf][]name{}}
	if !f.scan || m.full {
		return out, nil
	}
	begun := time.Now()
	defer func() { f.looking += time.Since(begun) }()
	out.more = map[ScopeOf][]name{}
	told := f.s.told[m.member]
	for i := range m.all {
		at := ScopeOf{m.member, m.all[i].kind}
		if m.all[i].failed {
			continue
		}
		err := f.b.export.Keys(at.Member, at.Kind, func(namespace, n string, k *interest.Keys) error {
			is, was := f.to.Wants(k), f.from.Wants(k)
			if told != nil {
				was = told.has(at.Kind, namespace, n)
			}
			switch {
			case is && !was:
				out.more[at] = append(out.more[at], name{namespace, n})
			case was && !is:
				out.drop[at] = append(out.drop[at], name{namespace, n})
			}
			return f.alive()
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// section tells what a batch has of a member.
func (f *filter) section(_ *batch, m *section) error {
	changes, err := f.moved(m)
	if err != nil {
		return err
	}
	if m.quiet && !changes.of(m.member, m) {
		return nil
	}
	s := f.s
	s.buf = wire.Member{Name: m.member, Full: m.full, JSON: m.frame}.Append(s.buf[:0])
	if err := s.frames.Frame(wire.TypeMember, s.buf); err != nil {
		return err
	}
	told, known := s.told[m.member]
	if m.full {
		told, known = toldMember{}, true
	}
	if !known {
		told = toldMember{} // of what is told now; all of it is found below
	}
	w := &telling{f: f, m: m, told: told, known: known, changes: changes}
	if err := w.scopes(); err != nil {
		return err
	}
	end := m.end
	if !f.to.IsEverything() {
		if !known {
			if told, err = f.recall(m); err != nil {
				return err
			}
		}
		s.told[m.member] = told
		end = told.end(m)
	}
	s.buf = end.Append(s.buf[:0])
	return s.frames.Frame(wire.TypeEnd, s.buf)
}

// recall calculates what an importer that has resumed was told of a member.
func (f *filter) recall(m *section) (toldMember, error) {
	told := toldMember{}
	for i := range m.all {
		kind := m.all[i].kind
		if m.all[i].failed {
			continue
		}
		err := f.b.export.Keys(m.member, kind, func(namespace, n string, k *interest.Keys) error {
			if !f.to.Wants(k) {
				return f.alive()
			}
			_, hash, ok, err := f.read(aggregate.Ref{Member: m.member, Kind: kind, Namespace: namespace, Name: n})
			if err == nil && ok {
				told.put(kind, wire.Key(namespace, n), hash)
			}
			if err != nil {
				return err
			}
			return f.alive()
		})
		if err != nil {
			return nil, err
		}
	}
	return told, nil
}

// read returns the payload of a record and its hash.
func (f *filter) read(ref aggregate.Ref) (payload []byte, hash uint64, ok bool, err error) {
	if ok, err = f.b.export.Record(ref, &f.record); err != nil || !ok {
		return nil, 0, ok, err
	}
	f.s.buf = wire.AppendRecord(f.s.buf[:0], &f.record)
	return f.s.buf, wire.RecordHash(f.s.buf), true, nil
}

// telling tells the scopes of one member.
type telling struct {
	f       *filter
	m       *section
	told    toldMember
	known   bool // else told has only what was told in this batch
	changes move
}

// scopes tells those that have changed, and those of which other keys are asked for.
func (w *telling) scopes() error {
	changed := map[aggregate.Kind]bool{}
	for i := range w.m.scopes {
		changed[w.m.scopes[i].kind] = true
		if err := w.scope(&w.m.scopes[i]); err != nil {
			return err
		}
	}
	for i := range w.m.all {
		all := &w.m.all[i]
		at := ScopeOf{w.m.member, all.kind}
		if changed[all.kind] || all.failed || len(w.changes.more[at]) == 0 && len(w.changes.drop[at]) == 0 {
			continue
		}
		if err := w.scope(&scopeSection{kind: all.kind, frame: all.frame}); err != nil {
			return err
		}
	}
	return nil
}

func (w *telling) scope(c *scopeSection) error {
	s := w.f.s
	if c.frame == nil || c.replace || c.failed {
		delete(w.told, c.kind)
	}
	if c.frame == nil {
		s.buf = wire.AppendName(s.buf[:0], c.kind)
		return s.frames.Frame(wire.TypeNoScope, s.buf)
	}
	if err := s.scopeFrame(c); err != nil {
		return err
	}
	switch {
	case c.failed:
		return nil
	case c.replace:
		return w.f.b.export.Keys(w.m.member, c.kind, func(namespace, n string, k *interest.Keys) error {
			if !w.f.to.Wants(k) {
				return w.f.alive()
			}
			return w.put(c.kind, name{namespace, n})
		})
	}
	return w.changed(c)
}

// changed tells what has changed of a scope, and for what else is asked.
func (w *telling) changed(c *scopeSection) error {
	at := ScopeOf{w.m.member, c.kind}
	for i := range c.records {
		if err := w.change(&c.records[i]); err != nil {
			return err
		}
	}
	for _, n := range w.changes.drop[at] {
		if err := w.drop(c.kind, n); err != nil {
			return err
		}
	}
	for _, n := range w.changes.more[at] {
		if w.told.has(c.kind, n.namespace, n.name) {
			continue
		}
		if err := w.put(c.kind, n); err != nil {
			return err
		}
	}
	return nil
}

// change tells a record that has changed, if it is asked for by now; one that is not is deleted.
func (w *telling) change(e *entry) error {
	if !e.gone {
		w.f.b.export.KeysOf(e.key, &w.f.keys)
		if w.f.to.Wants(&w.f.keys) {
			w.told.put(e.key.Kind, wire.Key(e.key.Namespace, e.key.Name), wire.RecordHash(e.frame))
			return w.f.s.put(e.frame)
		}
	}
	if w.known && !w.told.has(e.key.Kind, e.key.Namespace, e.key.Name) {
		return nil
	}
	return w.drop(e.key.Kind, name{e.key.Namespace, e.key.Name})
}

func (w *telling) drop(kind aggregate.Kind, n name) error {
	w.told.put(kind, wire.Key(n.namespace, n.name), 0)
	s := w.f.s
	s.buf = wire.Delete{Namespace: n.namespace, Name: n.name}.Append(s.buf[:0])
	return s.frames.Frame(wire.TypeDelete, s.buf)
}

func (w *telling) put(kind aggregate.Kind, n name) error {
	payload, hash, ok, err := w.f.read(aggregate.Ref{Member: w.m.member, Kind: kind, Namespace: n.namespace, Name: n.name})
	if err != nil || !ok {
		return err
	}
	w.told.put(kind, wire.Key(n.namespace, n.name), hash)
	return w.f.s.put(payload)
}
