package exchange

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
)

// update is one difference between the table and an export.
type update struct {
	key    aggregate.Ref // without a name: a scope; without a kind, too: a member
	gone   bool
	frame  []byte     // of the member, scope or record
	member *memberSum // a member that is new: all of it
	scope  *scopeSum  // a scope whose records are other ones
	hash   uint64     // of the record; 0 where it is gone
}

// step finds what differs between the table and an export. It runs on Run's goroutine, which alone writes the table, and
// holds no lock.
type step struct {
	x       *Exporter
	ctx     context.Context
	now     Export
	updates []update
	record  aggregate.Record
	payload []byte
}

// look compares what may have changed.
func (s *step) look(todo pending) {
	known := s.x.table.members
	if todo.all || len(todo.members) > 0 {
		known = maps.Clone(known)
	}
	if todo.all {
		todo = s.everything(known)
	}
	for name := range todo.members {
		s.member(name, todo.members[name], known)
	}
	scopes := map[string]map[aggregate.Kind]bool{}
	add := func(of ScopeOf, all bool) {
		if scopes[of.Member] == nil {
			scopes[of.Member] = map[aggregate.Kind]bool{}
		}
		scopes[of.Member][of.Kind] = scopes[of.Member][of.Kind] || all
	}
	for of, r := range todo.scopes {
		add(of, r.all)
	}
	for ref := range todo.objects { // of a scope that is not known, or could not be exported
		if m := known[ref.Member]; m != nil && (m.scopes[ref.Kind] == nil || m.scopes[ref.Kind].failed) {
			add(ScopeOf{ref.Member, ref.Kind}, true)
		}
	}
	for name, kinds := range scopes {
		if m := known[name]; m != nil {
			s.scopes(name, m, kinds)
		}
	}
	done := map[ScopeOf]bool{}
	for _, u := range s.updates {
		if u.scope != nil || u.gone && u.key.Name == "" && u.key.Kind != "" {
			done[ScopeOf{u.key.Member, u.key.Kind}] = true
		}
	}
	for ref := range todo.objects {
		if m := known[ref.Member]; m != nil && m.scopes[ref.Kind] != nil && !done[ScopeOf{ref.Member, ref.Kind}] {
			s.object(ref, m.scopes[ref.Kind], done)
		}
	}
}

// everything is all that there is, and was.
func (s *step) everything(known map[string]*memberSum) pending {
	todo := pending{members: map[string]bool{}, scopes: map[ScopeOf]renewal{}}
	for m := range s.now.Members() {
		todo.members[m.Name] = false
		if known[m.Name] == nil {
			continue
		}
		for info := range s.now.Scopes(m.Name) {
			todo.renew(ScopeOf{m.Name, info.Kind})
		}
	}
	for name, m := range known {
		if !todo.members[name] {
			todo.members[name] = false
		}
		for kind := range m.scopes {
			todo.renew(ScopeOf{name, kind})
		}
	}
	return todo
}

// member compares what is known of a member; renewed says that all of it may be other. It deletes one that is new or gone from what is known: no more is to be
// compared of it.
func (s *step) member(name string, renewed bool, known map[string]*memberSum) {
	now, is := s.now.Member(name)
	was := known[name]
	switch {
	case !is && was == nil:
	case !is:
		s.updates = append(s.updates, update{key: aggregate.Ref{Member: name}, gone: true})
		delete(known, name)
	case was == nil || was.uid != now.UID || renewed:
		m := &memberSum{uid: now.UID, frame: wire.MemberJSON(now), scopes: map[aggregate.Kind]*scopeSum{}}
		m.hash = wire.Hash(m.frame)
		for info := range s.now.Scopes(name) {
			m.scopes[info.Kind] = s.build(info)
		}
		s.updates = append(s.updates, update{key: aggregate.Ref{Member: name}, member: m})
		delete(known, name)
	default:
		if frame := wire.MemberJSON(now); wire.Hash(frame) != was.hash {
			s.updates = append(s.updates, update{key: aggregate.Ref{Member: name}, frame: frame})
		}
	}
}

// scopes compares scopes of a member; true says that all records are looked at.
func (s *step) scopes(name string, m *memberSum, kinds map[aggregate.Kind]bool) {
	for kind, records := range kinds {
		key := aggregate.Ref{Member: name, Kind: kind}
		info, ok := s.now.Scope(name, kind)
		was := m.scopes[kind]
		switch {
		case !ok && was == nil:
		case !ok:
			s.updates = append(s.updates, update{key: key, gone: true})
		case was == nil || records || was.failed || was.version != info.Version || was.resource != info.Resource:
			if now := s.build(info); was == nil || !was.same(now) {
				s.updates = append(s.updates, update{key: key, scope: now})
			}
		default:
			if frame := scopeFrame(info, info.Status); wire.ScopeHash(frame) != was.info {
				s.updates = append(s.updates, update{key: key, frame: frame})
			}
		}
	}
}

func scopeFrame(info aggregate.ScopeInfo, status aggregate.Status) []byte {
	status.Reason = clip.Line(status.Reason, maxReason)
	return wire.Scope{Kind: info.Kind, Version: info.Version, Resource: info.Resource, Status: status}.Append(nil)
}

// build looks at all records of a scope.
func (s *step) build(info aggregate.ScopeInfo) *scopeSum {
	out := &scopeSum{version: info.Version, resource: info.Resource}
	err := s.now.Records(info.Member, info.Kind, func(r *aggregate.Record) error {
		if s.payload = wire.AppendRecord(s.payload[:0], r); len(s.payload) > s.x.o.MaxRecord {
			return fmt.Errorf("%s/%s has %d bytes of what policies read, at most %d are told", r.Namespace, r.Name, len(s.payload), s.x.o.MaxRecord)
		}
		out.sum.Put(wire.Key(r.Namespace, r.Name), wire.RecordHash(s.payload))
		return s.ctx.Err()
	})
	status := info.Status
	if err != nil && s.ctx.Err() == nil {
		s.x.o.Logger.Warn("a scope is not told to other processes", "member", info.Member, "kind", string(info.Kind), "error", err)
		status = aggregate.Status{State: aggregate.OverBudget, Reason: "not told by " + s.x.o.Process + ": " + err.Error()}
		out.failed, out.sum = true, wire.Sum{}
	}
	out.frame = scopeFrame(info, status)
	out.info = wire.ScopeHash(out.frame)
	return out
}

// object compares an object of a scope.
func (s *step) object(ref aggregate.Ref, in *scopeSum, done map[ScopeOf]bool) {
	key := wire.Key(ref.Namespace, ref.Name)
	was := in.sum.Records[key]
	ok, err := s.now.Record(ref, &s.record)
	if err == nil && !ok {
		if was != 0 {
			s.updates = append(s.updates, update{key: ref, gone: true})
		}
		return
	}
	if err == nil {
		s.payload = wire.AppendRecord(s.payload[:0], &s.record)
	}
	if err != nil || len(s.payload) > s.x.o.MaxRecord { // building the scope finds it again, and says so
		of := ScopeOf{ref.Member, ref.Kind}
		if info, ok := s.now.Scope(of.Member, of.Kind); ok {
			s.updates = append(s.updates, update{key: aggregate.Ref{Member: ref.Member, Kind: ref.Kind}, scope: s.build(info)})
			done[of] = true
		}
		return
	}
	if hash := wire.RecordHash(s.payload); hash != was {
		s.updates = append(s.updates, update{key: ref, frame: slices.Clone(s.payload), hash: hash})
	}
}
