package resources_test

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/resources"
)

// grantMemory remembers everything since a revision.
type grantMemory struct {
	mu       sync.Mutex
	complete aggregate.Revision // 0: unknown
	records  map[[sha256.Size]byte]remembered
}

type remembered struct {
	grants [sha256.Size]byte
	from   aggregate.Revision
}

func (m *grantMemory) Recall(key [sha256.Size]byte) ([sha256.Size]byte, aggregate.Revision, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.records[key]; ok {
		return r.grants, r.from, true
	}
	return [sha256.Size]byte{}, m.complete, false
}

func (m *grantMemory) Remember(key, grants [sha256.Size]byte, from aggregate.Revision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[[sha256.Size]byte]remembered{}
	}
	if m.records[key].grants != grants {
		m.records[key] = remembered{grants, from}
	}
}

// restarted is the fleet in another process, which has loaded what this one had.
func (f *fleet) restarted(block uint64, memory resources.GrantMemory) *fleet {
	f.t.Helper()
	next := newFleet(f.t, settings{block: block, grants: memory})
	was := f.index.Snapshot()
	l := next.index.Load()
	for m := range was.Members() {
		to := l.Member(m)
		for info := range was.Scopes(m.Name) {
			s := to.Scope(info.Kind, info.Version, info.Resource)
			s.SetStatus(info.Status)
			var e aggregate.Encoder
			var text []byte
			for o := range was.Objects(m.Name, info.Kind) {
				text = e.Append(text, o)
			}
			for len(text) > 0 {
				var err error
				text, err = s.Put(text)
				ok(f.t, err)
			}
		}
		ok(f.t, to.Settle())
	}
	for _, b := range f.bridges {
		l.Bridge(b[0], b[1])
	}
	at, err := l.Finish(was.Revision())
	ok(f.t, err)
	if at != was.Revision() {
		f.t.Fatalf("readers go on from %d, want %d", at, was.Revision())
	}
	next.bridges = append(f.bridges, [2]aggregate.Revision{at, next.index.Snapshot().Revision()})
	return next
}

// granting is a caller whose grants are those of the verb.
func granting(list, watch *authz.Grants) caller {
	return caller{"alice", func(verb string) (*authz.Grants, error) {
		if verb == "list" {
			return list, nil
		}
		return watch, nil
	}}
}

// TestWatch_IsResumedOverARestartWithinItsGrants: a client that was sent something by the process before,
// under grants that its caller may not have any more, lists again.
func TestWatch_IsResumedOverARestartWithinItsGrants(t *testing.T) {
	blue := authz.NewGrants(map[string]authz.MemberGrant{"a/east": {Namespaces: []string{"blue"}}}, time.Time{})
	both := authz.NewGrants(map[string]authz.MemberGrant{"a/east": {Namespaces: []string{"blue", "green"}}}, time.Time{})
	everything := authz.Everything(time.Time{})
	for name, c := range map[string]struct {
		before, after          caller
		watched, lost, goingOn bool
	}{
		"the same":                    {granting(blue, blue), granting(blue, blue), true, false, true},
		"everything":                  {granting(everything, everything), granting(everything, everything), true, false, true},
		"before its first watch":      {granting(blue, blue), granting(blue, blue), false, false, true},
		"lists more than it watches":  {granting(both, blue), granting(both, blue), true, false, true},
		"more is granted":             {granting(blue, blue), granting(both, both), true, false, false},
		"something is taken away":     {granting(both, both), granting(blue, blue), true, false, false},
		"only lists change":           {granting(both, blue), granting(blue, blue), true, false, false},
		"only watches change":         {granting(both, blue), granting(both, both), true, false, false},
		"changed before its watch":    {granting(blue, blue), granting(both, both), false, false, false},
		"nobody knows what they were": {granting(blue, blue), granting(blue, blue), true, true, false},
	} {
		for _, processes := range []uint64{1, 2} { // since the client was sent something
			t.Run(fmt.Sprint(name, processes), func(t *testing.T) {
				memory := &grantMemory{}
				f := newFleet(t, settings{grants: memory})
				memory.complete = f.index.First()
				f.join("a/east")
				f.put(pod("a/east", "blue", "p0"), pod("a/east", "green", "p0"))
				f.commit()
				from := f.mustAsk(c.before, fleetPods, nil, "").list.Metadata.ResourceVersion
				if c.watched {
					f.watch(c.before, fleetPods, values("resourceVersion", from), "").end()
				}
				if c.lost {
					memory.complete, memory.records = 0, nil
				}
				for n := range processes {
					f = f.restarted(8+n, memory)
				}
				s := f.watch(c.after, fleetPods, values("resourceVersion", from), "")
				if c.goingOn {
					s.end()
				} else {
					s.wantExpired(name)
				}
			})
		}
	}
}

// TestWatch_WithoutAMemoryNoneIsResumedOverARestart, whatever has been loaded.
func TestWatch_WithoutAMemoryNoneIsResumedOverARestart(t *testing.T) {
	f, start := pair(t)
	f.restarted(8, nil).watch(all, fleetPods, values("resourceVersion", text(start)), "").wantExpired("all")
}

// TestWatch_IsNotResumedFromWhereItsGrantsChanged, by another process than the one whose they were.
func TestWatch_IsNotResumedFromWhereItsGrantsChanged(t *testing.T) {
	memory := &grantMemory{}
	f := newFleet(t, settings{grants: memory})
	memory.complete = f.index.First()
	f.join("a/east")
	f.put(pod("a/east", "blue", "p0"))
	f.commit()
	c := newCallerWithChangingGrants("bob", map[string]authz.MemberGrant{"a/east": {All: true}})
	before := f.clientState(c.caller, fleetPods)
	f.watch(c.caller, fleetPods, values("resourceVersion", before.revision), "").end()
	c.may.Store(&map[string]authz.MemberGrant{"a/east": {Namespaces: []string{"blue"}}})
	f.clientState(c.caller, fleetPods)
	f.watch(c.caller, fleetPods, nil, "").end()
	f.put(pod("a/east", "blue", "p1"))
	f.commit()
	after := f.clientState(c.caller, fleetPods)
	f = f.restarted(8, memory)
	f.watch(c.caller, fleetPods, values("resourceVersion", before.revision), "").wantExpired("before the change")
	f.watch(c.caller, fleetPods, values("resourceVersion", after.revision), "").end()
}
