package policy_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
)

// config is which policies a process has.
type config struct {
	set      int
	bindings []policy.Binding
}

// tolerant reports whether verdicts of a binding may be Known although they read what is not known.
func (c *config) tolerant(binding string) bool {
	return slices.ContainsFunc(c.bindings, func(b policy.Binding) bool { return b.Name == binding && b.Tolerate != nil })
}

// process is one of several that share a fleet.
type process struct {
	id string

	documents *policy.External // that it has read; nil: none yet

	starts  uint64
	own     *world
	roles   map[string]aggregate.Role // of the members in own
	peers   *aggregate.Index
	writes  map[[2]string]*aggregate.Scope // of peers
	from    map[string]int                 // who has told of a member last; without one: nobody
	told    map[string]*aggregate.Snapshot // what that process held of the member then
	engine  *policy.Engine
	at      [2]*aggregate.Cursor
	has     config
	owner   policy.KeyOwner
	links   []*link     // what others have to tell
	subs    *subscriber // nil: others tell everything
	telling int         // who tells

	reported map[string]textVerdict // by the engine's changes
}

// link is what one process has to tell another.
type link struct {
	all     bool
	lost    bool // what it has told is Stale
	members map[string]bool
	scopes  map[policy.ExportedScope]bool
	objects map[aggregate.Ref]bool

	asked subscription  // what the other tells
	had   *interest.Set // that it has told all of, be it lost since
}

func newLink() *link {
	return &link{all: true, members: map[string]bool{}, scopes: map[policy.ExportedScope]bool{}, objects: map[aggregate.Ref]bool{}}
}

func (l *link) add(c policy.ExportedChanges) {
	l.all = l.all || c.All
	for _, m := range c.Members {
		l.members[m] = true
	}
	for _, s := range c.Scopes {
		l.scopes[s] = true
	}
	for _, ref := range c.Objects {
		l.objects[ref] = true
	}
}

func (l *link) empty() bool { return !l.all && len(l.members)+len(l.scopes)+len(l.objects) == 0 }

// start starts a process, or starts it again.
func (p *process) start(sets []policySet, limits policy.Limits, fleet int) (err error) {
	p.starts++
	p.documents = nil
	p.roles, p.from, p.told = map[string]aggregate.Role{}, map[string]int{}, map[string]*aggregate.Snapshot{}
	p.writes, p.reported, p.at = map[[2]string]*aggregate.Scope{}, map[string]textVerdict{}, [2]*aggregate.Cursor{}
	p.links = nil
	for range fleet {
		p.links = append(p.links, newLink())
	}
	if p.own, err = newWorld(); err != nil {
		return err
	}
	if p.peers, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(p.starts)}); err != nil {
		return err
	}
	p.engine, err = policy.NewEngine(policy.EngineOptions{
		Set: sets[p.has.set].set, Bindings: p.has.bindings, Parallelism: 1, Limits: limits, Exports: true, KeyOwner: p.owner, Subscribe: p.subs != nil,
	})
	if p.subs != nil {
		p.subs = &subscriber{r: p.subs.r}
	}
	return err
}

// setRole says what the process is to a member that it reads.
func (p *process) setRole(member string, role aggregate.Role) error {
	p.roles[member] = role
	m, ok := p.own.index.Snapshot().Member(member)
	if !ok {
		return nil
	}
	m.Role = role
	return p.own.index.PutMember(m)
}

// do lets an op happen in what the process reads.
func (p *process) do(o op) error {
	role, reads := p.roles[o.Member]
	if !reads {
		return nil
	}
	if err := p.own.do(o); err != nil {
		return err
	}
	return p.setRole(o.Member, role)
}

// read begins to read a member of a world.
func (p *process) read(w *world, member string, role aggregate.Role) error {
	m, ok := w.index.Snapshot().Member(member)
	if !ok {
		return nil
	}
	m.Role = role
	p.roles[member], p.own.members[member] = role, true
	if err := p.own.index.PutMember(m); err != nil {
		return err
	}
	for ref, object := range w.objects {
		if ref.Member == member {
			p.own.objects[ref] = object
		}
	}
	for info := range w.index.Snapshot().Scopes(member) {
		open := op{Do: "reopen", Member: member, Kind: info.Kind, Version: info.Version, State: info.Status.State}
		if err := p.own.do(open); err != nil {
			return err
		}
	}
	return nil
}

// unread stops reading a member.
func (p *process) unread(member string) error {
	delete(p.roles, member)
	return p.own.do(op{Do: "leave", Member: member})
}

// hear puts a member into the peers' index of which nothing is known but that it is there.
func (p *process) hear(m aggregate.Member) error {
	if now, ok := p.peers.Snapshot().Member(m.Name); ok && now.UID == m.UID {
		return nil
	}
	p.forget(m.Name)
	return p.peers.PutMember(aggregate.Member{Name: m.Name, UID: m.UID, Labels: m.Labels})
}

// forget removes a member from the peers' index.
func (p *process) forget(member string) {
	p.peers.RemoveMember(member)
	maps.DeleteFunc(p.writes, func(at [2]string, _ *aggregate.Scope) bool { return at[0] == member })
	delete(p.from, member)
	delete(p.told, member)
}

// deliver tells p what process i exports. accepts says whose word counts.
func (p *process) deliver(i int, from *process, accepts func(member string) bool) error {
	s, l := from.engine.State(), p.links[i]
	x := s.Export()
	p.telling = i
	retell := p.ask(i)
	for member, of := range maps.Clone(p.from) {
		if _, is := x.Member(member); of != i || is {
			continue
		}
		m, _ := p.peers.Snapshot().Member(member)
		p.forget(member)
		if err := p.peers.PutMember(aggregate.Member{Name: m.Name, UID: m.UID, Labels: m.Labels}); err != nil {
			return err
		}
	}
	for m := range x.Members() {
		now, known := p.peers.Snapshot().Member(m.Name)
		if !known || now.UID != m.UID {
			continue // sources have told of another, or of none
		}
		if before, some := p.from[m.Name]; some && before == i {
			if l.all || l.members[m.Name] {
				if err := p.peers.PutMember(m); err != nil {
					return err
				}
			}
			if l.all || retell {
				if err := p.takeMember(x, m.Name); err != nil {
					return err
				}
			}
			p.told[m.Name] = s.Snapshot
			continue
		}
		if !accepts(m.Name) {
			continue
		}
		p.forget(m.Name)
		if err := errors.Join(p.peers.PutMember(m), p.takeMember(x, m.Name)); err != nil {
			return err
		}
		p.from[m.Name], p.told[m.Name] = i, s.Snapshot
	}
	if !l.all && !retell {
		if err := p.takeChanges(x, l, i); err != nil {
			return err
		}
	}
	p.links[i] = newLink()
	p.links[i].all, p.links[i].lost = false, false
	p.answered(i, l.asked)
	return nil
}

func (p *process) takeMember(x *policy.Export, member string) error {
	for s := range x.Scopes(member) {
		if err := p.takeScope(x, s); err != nil {
			return err
		}
	}
	for at, w := range p.writes {
		if _, is := x.Scope(at[0], aggregate.Kind(at[1])); at[0] == member && !is {
			w.Remove()
			delete(p.writes, at)
		}
	}
	return nil
}

func (p *process) takeScope(x *policy.Export, s aggregate.ScopeInfo) error {
	at := [2]string{s.Member, string(s.Kind)}
	if w := p.writes[at]; w != nil {
		w.Close()
	}
	w, err := p.peers.OpenScope(s.Member, s.Kind, s.Version)
	if err != nil {
		return err
	}
	p.writes[at] = w
	if err := checkKeys(x, s); err != nil {
		return err
	}
	var items []aggregate.Item
	if err := x.Records(s.Member, s.Kind, func(rec *aggregate.Record) error {
		if p.isTold(s.Kind, rec) {
			items = append(items, w.Item(rec))
		}
		return nil
	}); err != nil {
		return err
	}
	_, err = w.Replace(items, s.Status)
	return err
}

// takeChanges takes what has changed of members of which process i told before.
func (p *process) takeChanges(x *policy.Export, l *link, i int) error {
	taken := map[policy.ExportedScope]bool{}
	for member := range l.members {
		of, some := p.from[member]
		if _, is := x.Member(member); !is || !some || of != i {
			continue
		}
		for s := range x.Scopes(member) { // all is new of one that came again
			taken[policy.ExportedScope{Member: member, Kind: s.Kind}] = true
		}
		if err := p.takeMember(x, member); err != nil {
			return err
		}
	}
	for at := range l.scopes {
		of, some := p.from[at.Member]
		if !some || of != i || taken[at] {
			continue
		}
		s, is := x.Scope(at.Member, at.Kind)
		held, had := p.peers.Snapshot().Scope(at.Member, at.Kind)
		w := p.writes[[2]string{at.Member, string(at.Kind)}]
		switch {
		case !is && had:
			w.Remove()
			delete(p.writes, [2]string{at.Member, string(at.Kind)})
		case is && (!had || held.Version != s.Version):
			taken[at] = true
			if err := p.takeScope(x, s); err != nil {
				return err
			}
		case is:
			w.SetStatus(s.Status)
			if _, err := w.Commit(); err != nil {
				return err
			}
		}
	}
	var rec aggregate.Record
	for ref := range l.objects {
		of, some := p.from[ref.Member]
		w := p.writes[[2]string{ref.Member, string(ref.Kind)}]
		if !some || of != i || w == nil || taken[policy.ExportedScope{Member: ref.Member, Kind: ref.Kind}] {
			continue
		}
		w.Delete(ref.Namespace, ref.Name) // a record with the same resourceVersion may have another body
		is, err := x.Record(ref, &rec)
		if err != nil {
			return err
		}
		if is && p.isTold(ref.Kind, &rec) {
			w.Upsert(w.Item(&rec))
		}
		if _, err := w.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// lose marks what a process has told as Stale: it cannot be heard.
func (p *process) lose(i int) error {
	for at, w := range p.writes {
		if of, some := p.from[at[0]]; some && of == i && w.Status().State.Complete() {
			w.SetStatus(aggregate.Status{State: aggregate.Stale})
			if _, err := w.Commit(); err != nil {
				return err
			}
		}
	}
	p.links[i].all, p.links[i].lost, p.links[i].asked = true, true, subscription{}
	return nil
}

// pass takes the engine to what the process knows, and tells the others.
func (p *process) pass(self int, all []*process, do func() (*policy.Changes, error)) error {
	changes, err := do()
	if err != nil || changes == nil {
		return err
	}
	applyChanges(p.reported, changes)
	for _, other := range all {
		if other != p {
			other.links[self].add(changes.Exported())
		}
	}
	return nil
}

// away reports whether a member is seen as peers have told.
func (p *process) away(s *aggregate.Snapshot, peers *aggregate.Snapshot, member string) bool {
	held, reads := s.Member(member)
	_, told := peers.Member(member)
	return told && (!reads || held.Role == aggregate.Joining)
}

// reference is an index of all that a process can know: what it reads itself, and what members had that it was told of.
// knows says what has what its policies need. whole says that it was told all that they need.
func (p *process) reference(own, peers *aggregate.Snapshot, told map[string]*aggregate.Snapshot, knows func(aggregate.ScopeInfo) bool) (x *aggregate.Snapshot, whole bool, err error) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		return nil, false, err
	}
	whole = true
	put := func(m aggregate.Member, scopes *aggregate.Snapshot, objects *aggregate.Snapshot) error {
		if err := index.PutMember(m); err != nil {
			return err
		}
		for info := range scopes.Scopes(m.Name) {
			status := info.Status
			version := info.Version
			if objects != nil {
				real, _ := objects.Scope(m.Name, info.Kind)
				version = real.Version
			}
			empty := info.Status.State == aggregate.NotServed && info.Objects == 0 // whatever policies read
			if scopes == peers && !knows(info) && !empty {
				status, whole = aggregate.Status{}, false
			}
			w, err := index.OpenScope(m.Name, info.Kind, version)
			if err != nil {
				return err
			}
			var items []aggregate.Item
			if objects != nil {
				list, err := objects.List(aggregate.Query{Kind: info.Kind, Members: []string{m.Name}})
				if err != nil {
					return err
				}
				for o := range list {
					body, err := o.AppendBody(nil)
					if err != nil {
						return err
					}
					items = append(items, w.Item(&aggregate.Record{
						Namespace: o.Namespace(), Name: o.Name(), UID: o.UID(), ResourceVersion: o.ResourceVersion(), Labels: o.Labels(), Body: body,
					}))
				}
			}
			if _, err := w.Replace(items, status); err != nil {
				return err
			}
		}
		return nil
	}
	names := map[string]bool{}
	for _, s := range []*aggregate.Snapshot{own, peers} {
		for m := range s.Members() {
			names[m.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if p.away(own, peers, name) {
			m, _ := peers.Member(name)
			err = put(m, peers, told[name])
		} else {
			m, _ := own.Member(name)
			err = put(m, own, own)
		}
		if err != nil {
			return nil, false, fmt.Errorf("reference: %s: %w", name, err)
		}
	}
	return index.Snapshot(), whole, nil
}
