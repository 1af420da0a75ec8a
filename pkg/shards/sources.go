package shards

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/shards/internal/coordinator"
)

// letGoEvery is how often it is asked whether a member that another process judges may leave.
const letGoEvery = time.Second

// Fleet is all members that the sources describe.
type Fleet struct {
	Version int64         // of the map by which it is; 0: none is known yet
	Members []FleetMember // by name
	// Known is whether every source has said which members there are, as far as it may know.
	Known bool
}

// FleetMember is one of them, wherever it is held.
type FleetMember struct {
	Name, UID string
	Labels    []aggregate.Label
	Cluster   aggregate.Cluster
	Judge     string // the ID of who judges it, by the map; "": nobody
	Held      bool   // this process reads it
}

// hold is a member that was passed on to the manager.
type hold struct {
	uid  string
	role aggregate.Role
}

// holding is what this process holds, by a version of the map.
type holding struct {
	version int64
	members map[string]hold
}

// sourceSet are the sources of members that are wrapped.
type sourceSet struct {
	mu      sync.Mutex
	views   []*clusterinformers.View // by source, as it says; nil until its first
	passed  []*clusterinformers.View // by source, to the manager
	wrapped []*wrapped
	// For the leader.
	described []coordinator.Described
	complete  bool
}

// wrapped is one source as the manager sees it.
type wrapped struct {
	set    *sourceSet
	shards *Shards
	number int
	inner  clusterinformers.Source
	wake   trigger.Trigger
}

// Sources returns sources of the members that this process holds, each with its role, from sources of all members. It is called
// once, before Run. They say nothing before a map is known.
func (s *Shards) Sources(inner []clusterinformers.Source) []clusterinformers.Source {
	set := &s.sources
	set.views, set.passed = make([]*clusterinformers.View, len(inner)), make([]*clusterinformers.View, len(inner))
	out := make([]clusterinformers.Source, len(inner))
	for i, src := range inner {
		w := &wrapped{set: set, shards: s, number: i, inner: src, wake: trigger.New()}
		set.wrapped = append(set.wrapped, w)
		out[i] = w
	}
	return out
}

// Run implements clusterinformers.Source.
func (w *wrapped) Run(ctx context.Context, set func(clusterinformers.View)) error {
	var passing sync.WaitGroup
	defer passing.Wait()
	done := make(chan struct{})
	defer close(done)
	passing.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-w.wake:
			}
			w.set.mu.Lock()
			view := w.set.passed[w.number]
			w.set.mu.Unlock()
			if view != nil {
				set(*view)
			}
		}
	})
	return w.inner.Run(ctx, func(view clusterinformers.View) {
		view.Members = slices.Clone(view.Members)
		w.set.mu.Lock()
		w.set.views[w.number] = &view
		w.set.mu.Unlock()
		w.shards.distribute.Fire()
	})
}

// passOn passes the members that this process holds on to the manager, and tells the whole fleet, whenever either changes.
func (s *Shards) passOn(ctx context.Context) {
	held := map[string]hold{}
	var told *merged
	var by *Map
	shadowed := map[string]bool{}
	tick := time.NewTimer(letGoEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.distribute:
		case <-tick.C:
		}
		fleet := s.sources.merge(told)
		m, _ := s.Map()
		if fleet != told {
			s.warnShadowed(fleet, shadowed)
		}
		waiting := false
		if m != nil {
			held, waiting = s.pass(fleet, m, held)
			s.holds.Store(&holding{m.Version, held})
		}
		if fleet != told || m != by {
			s.o.Fleet(fleet.fleet(m, held))
			told, by = fleet, m
			s.consider.Fire()
		}
		if waiting {
			tick.Reset(letGoEvery)
		}
	}
}

// merged are the views of all sources as one.
type merged struct {
	views    []*clusterinformers.View
	specs    map[string]describedMember
	spoken   bool // all sources have
	complete bool // and there are no other members
}

type describedMember struct {
	clusterinformers.Spec

	source int
	early  bool // an earlier source has not spoken, and may have the name
}

// merge returns the views as one, as the manager merges them: where two sources name one member, the first has it. Where nothing
// has changed it returns what there was.
func (set *sourceSet) merge(was *merged) *merged {
	set.mu.Lock()
	views := slices.Clone(set.views)
	set.mu.Unlock()
	if was != nil && slices.Equal(was.views, views) {
		return was
	}
	out := &merged{views: views, specs: map[string]describedMember{}, spoken: true, complete: true}
	for i, view := range views {
		if view == nil {
			out.spoken, out.complete = false, false
			continue
		}
		out.complete = out.complete && !view.Partial
		for _, spec := range view.Members {
			if _, taken := out.specs[spec.Name]; !taken {
				out.specs[spec.Name] = describedMember{spec, i, !out.spoken}
			}
		}
	}
	described := make([]coordinator.Described, 0, len(out.specs))
	for name, spec := range out.specs {
		if !spec.unsure() {
			described = append(described, coordinator.Described{Name: name, UID: spec.UID})
		}
	}
	set.mu.Lock()
	set.described, set.complete = described, out.complete
	set.mu.Unlock()
	return out
}

// unsure reports whether an earlier source may have the name.
func (d *describedMember) unsure() bool { return d.early && d.Object != nil }

// warnShadowed says once of each member that two sources describe it: the manager does not see the second.
func (s *Shards) warnShadowed(fleet *merged, shadowed map[string]bool) {
	for i, view := range fleet.views {
		if view == nil {
			continue
		}
		for j := range view.Members {
			spec := &view.Members[j]
			used := fleet.specs[spec.Name]
			if used.source == i || shadowed[spec.Name] || reflect.DeepEqual(used.Object, spec.Object) {
				continue
			}
			shadowed[spec.Name] = true
			s.log.Warn("two sources describe the member: the first one counts", "member", spec.Name)
		}
	}
	maps.DeleteFunc(shadowed, func(name string, _ bool) bool { _, is := fleet.specs[name]; return !is })
}

// sameUID reports whether two UIDs may be of one member.
func sameUID(a, b string) bool { return a == b || a == "" || b == "" }

// roleOf returns what a process is to a member by the map.
func roleOf(self, judge, standby, next string) (role aggregate.Role, holds bool) {
	switch self {
	case judge:
		return aggregate.Judge, true
	case standby:
		return aggregate.Standby, true
	case next:
		return aggregate.Joining, true
	}
	return 0, false
}

// role returns what this process is to a member from now on, after what it was.
func (s *Shards) role(m *Map, name, uid string, was hold, held bool) (role aggregate.Role, holds, waiting bool) {
	held = held && sameUID(was.uid, uid)
	e, is := m.Member(name)
	if !is || !sameUID(e.UID, uid) || e.Judge == "" {
		return was.role, held, false // nobody else is said to have it
	}
	if role, holds := roleOf(s.o.ID, e.Judge, e.Standby, e.Next); holds {
		return role, true, false
	}
	if held && (e.Unready || !s.o.LetGo(name)) {
		return aggregate.Standby, true, true
	}
	return 0, false, false
}

// pass gives each source the members of it that this process holds. It returns them, and whether some are to leave and may not yet.
func (s *Shards) pass(fleet *merged, m *Map, was map[string]hold) (held map[string]hold, waiting bool) {
	held = make(map[string]hold, len(was))
	views := make([]*clusterinformers.View, len(fleet.views))
	for i, view := range fleet.views {
		if view == nil {
			continue
		}
		views[i] = &clusterinformers.View{Partial: view.Partial, Members: make([]clusterinformers.Spec, 0, len(view.Members)/2)}
		for _, spec := range view.Members {
			if fleet.specs[spec.Name].source != i {
				continue
			}
			before, had := was[spec.Name]
			role, holds, waits := s.role(m, spec.Name, spec.UID, before, had)
			waiting = waiting || waits
			if !holds {
				continue
			}
			spec.Role = role
			views[i].Members = append(views[i].Members, spec)
			held[spec.Name] = hold{spec.UID, role}
		}
	}
	if !fleet.complete {
		waiting = s.keep(fleet, m, was, held, views) || waiting
	}
	s.sources.mu.Lock()
	defer s.sources.mu.Unlock()
	for i, view := range views {
		if view == nil || same(s.sources.passed[i], view) {
			continue
		}
		s.sources.passed[i] = view
		s.sources.wrapped[i].wake.Fire()
	}
	return held, waiting
}

// keep takes note of members that no source names, while there may be others, and says which of all members are to leave although no
// source says that they have gone.
func (s *Shards) keep(fleet *merged, m *Map, was, held map[string]hold, views []*clusterinformers.View) (waiting bool) {
	for name, before := range was {
		if _, named := fleet.specs[name]; named {
			continue
		}
		role, holds, waits := s.role(m, name, before.uid, before, true)
		waiting = waiting || waits
		if holds {
			held[name] = hold{before.uid, role} // as long as the manager has it
		}
	}
	var left []string
	for i := range m.Members {
		e := &m.Members[i]
		if _, holds := roleOf(s.o.ID, e.Judge, e.Standby, e.Next); !holds {
			if _, kept := held[e.Name]; !kept && e.Judge != "" {
				left = append(left, e.Name)
			}
		}
	}
	for _, view := range views {
		if view != nil && view.Partial {
			view.Left = left
		}
	}
	return waiting
}

// same reports whether two views say the same.
func same(a, b *clusterinformers.View) bool {
	return a != nil && a.Partial == b.Partial && slices.Equal(a.Left, b.Left) && reflect.DeepEqual(a.Members, b.Members)
}

// fleet returns all members.
func (f *merged) fleet(m *Map, held map[string]hold) Fleet {
	out := Fleet{Known: f.spoken, Members: make([]FleetMember, 0, len(f.specs))}
	for name, spec := range f.specs {
		if spec.unsure() || spec.Uninitialized || spec.Refused != nil && spec.Refused.Reason == connection.NotInitialized {
			continue
		}
		member := FleetMember{Name: name, UID: spec.UID, Labels: spec.Labels, Cluster: spec.Cluster}
		if e, is := m.Member(name); is && sameUID(e.UID, spec.UID) {
			member.Judge = e.Judge
		}
		_, member.Held = held[name]
		out.Members = append(out.Members, member)
	}
	if m != nil {
		out.Version = m.Version
	}
	if m != nil && !f.complete {
		for _, e := range m.Members {
			if _, is := f.specs[e.Name]; !is {
				_, is := held[e.Name]
				out.Members = append(out.Members, FleetMember{Name: e.Name, UID: e.UID, Judge: e.Judge, Held: is})
			}
		}
	}
	slices.SortFunc(out.Members, func(a, b FleetMember) int { return strings.Compare(a.Name, b.Name) })
	return out
}
