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
	judged := map[string]aggregate.Member{}
	if todo.all || len(todo.members) > 0 {
		known = maps.Clone(known)
		for m := range s.now.Members() {
			judged[m.Name] = m
		}
	}
	if todo.all {
		todo.members, todo.scopes = map[string]bool{}, map[ScopeOf]bool{}
		for name := range judged {
			todo.members[name] = true
		}
		for name, m := range known {
			todo.members[name] = true
			for kind := range m.scopes {
				todo.scopes[ScopeOf{name, kind}] = true
			}
		}
	}
	for name := range todo.members {
		m, is := judged[name]
		s.member(name, m, is, known)
	}
	scopes := map[string]map[aggregate.Kind]bool{}
	add := func(of ScopeOf, all bool) {
		if scopes[of.Member] == nil {
			scopes[of.Member] = map[aggregate.Kind]bool{}
		}
		scopes[of.Member][of.Kind] = scopes[of.Member][of.Kind] || all
	}
	for of, all := range todo.scopes {
		add(of, all)
	}
	for ref := range todo.objects { // of a scope that is not known, or could not be exported
		if m := known[ref.Member]; m != nil && (m.scopes[ref.Kind] == nil || m.scopes[ref.Kind].failed) {
			add(ScopeOf{ref.Member, ref.Kind}, true)
		}
	}
	for name, kinds := range scopes {
		if m := known[name]; m != nil {
			s.scopes(name, m, kinds, todo.all)
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

// member compares what is known of a member. It deletes one that is new or gone from what is known: no more is to be
// compared of it.
func (s *step) member(name string, now aggregate.Member, is bool, known map[string]*memberSum) {
	was := known[name]
	switch {
	case !is && was == nil:
	case !is:
		s.updates = append(s.updates, update{key: aggregate.Ref{Member: name}, gone: true})
		delete(known, name)
	case was == nil || was.uid != now.UID:
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

// scopes compares scopes of a member; all says that also scopes are looked for that are not named.
func (s *step) scopes(name string, m *memberSum, kinds map[aggregate.Kind]bool, all bool) {
	for info := range s.now.Scopes(name) {
		records, named := kinds[info.Kind]
		if !named && !all {
			continue
		}
		delete(kinds, info.Kind)
		key := aggregate.Ref{Member: name, Kind: info.Kind}
		was := m.scopes[info.Kind]
		if was == nil || records || was.failed || was.version != info.Version || was.resource != info.Resource {
			now := s.build(info)
			switch {
			case was == nil || was.version != now.version || was.resource != now.resource || was.sum.Total != now.sum.Total || len(was.sum.Records) != len(now.sum.Records):
				s.updates = append(s.updates, update{key: key, scope: now})
			case was.info != now.info || was.failed != now.failed:
				s.updates = append(s.updates, update{key: key, scope: now})
			}
			continue
		}
		if frame := scopeFrame(info, info.Status); wire.ScopeHash(frame) != was.info {
			s.updates = append(s.updates, update{key: key, frame: frame})
		}
	}
	for kind := range kinds {
		if m.scopes[kind] != nil {
			s.updates = append(s.updates, update{key: aggregate.Ref{Member: name, Kind: kind}, gone: true})
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
		out.sum.Put(wire.Key(r.Namespace, r.Name), wire.Hash(s.payload))
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
		if info, ok := scopeOf(s.now, of); ok {
			s.updates = append(s.updates, update{key: aggregate.Ref{Member: ref.Member, Kind: ref.Kind}, scope: s.build(info)})
			done[of] = true
		}
		return
	}
	if hash := wire.Hash(s.payload); hash != was {
		s.updates = append(s.updates, update{key: ref, frame: slices.Clone(s.payload), hash: hash})
	}
}

func scopeOf(now Export, of ScopeOf) (aggregate.ScopeInfo, bool) {
	for info := range now.Scopes(of.Member) {
		if info.Kind == of.Kind {
			return info, true
		}
	}
	return aggregate.ScopeInfo{}, false
}
