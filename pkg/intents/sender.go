package intents

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"sync"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// SenderOptions configure a Sender.
type SenderOptions struct {
	Self  string // this process's ID; required
	Epoch string // another one after each start; required
	// Protected returns why a target is never written, as remediate.Dispatcher.Protected does; required.
	Protected func(target policy.Ref, annotations map[string]string) string
}

// Sender is the enforce.Actor of a process whose fleet others share. It holds what its Corrector says, once, and
// serves it to Receivers.
type Sender struct {
	opts SenderOptions

	mu        sync.Mutex
	seq       uint64 // of the last change
	policies  map[string]*said
	intents   int               // of all policies
	judged    map[string]string // UIDs of the members that the intents are about; nil: nothing was evaluated yet
	unsettled string
	owners    uint64 // how often they have changed
	readers   map[*reader]struct{}
}

// said is what was said of a policy. Its parts are replaced, not changed.
type said struct {
	spec    *remediate.RolloutSpec // nil: the policy is only observed
	version string
	totals  remediate.Totals
	ready   bool
	intents map[policy.Ref]*remediate.Intent
}

// NewSender returns a Sender that has nothing to say.
func NewSender(opts SenderOptions) (*Sender, error) {
	if opts.Self == "" || opts.Epoch == "" || opts.Protected == nil {
		return nil, errors.New("intents: Self, Epoch and Protected are required")
	}
	return &Sender{opts: opts, policies: map[string]*said{}, readers: map[*reader]struct{}{}}, nil
}

// SetIntents implements enforce.Actor.
func (s *Sender) SetIntents(binding string, spec remediate.RolloutSpec, totals remediate.Totals, list []remediate.Intent, ready bool) error {
	return s.update(binding, spec, totals, ready, list, nil, true)
}

// UpdateIntents implements enforce.Actor.
func (s *Sender) UpdateIntents(binding string, spec remediate.RolloutSpec, totals remediate.Totals, list []remediate.Intent, gone []policy.Ref, ready bool) error {
	return s.update(binding, spec, totals, ready, list, gone, false)
}

func (s *Sender) update(binding string, spec remediate.RolloutSpec, totals remediate.Totals, ready bool, list []remediate.Intent, gone []policy.Ref, all bool) error {
	for n := range list {
		if err := checkText(reflect.ValueOf(&list[n]).Elem(), 0); err != nil {
			s.ClearIntents(binding) // what it has said before is not so any more
			return fmt.Errorf("policy %q: intent for %s: %w", binding, list[n].Remedy.Target, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.policies[binding]
	if now == nil || now.spec == nil {
		now = &said{intents: map[policy.Ref]*remediate.Intent{}}
	}
	version, same := now.version, now.spec != nil && reflect.DeepEqual(*now.spec, spec)
	if !same {
		var err error
		if version, err = versionOf(&spec); err != nil {
			return fmt.Errorf("policy %q: %w", binding, err)
		}
	}
	s.policies[binding] = now
	s.seq++
	d := s.mark(binding)
	if !same {
		now.spec, now.version = &spec, version
		d.spec()
	}
	d.totals(changedTotals(&now.totals, &totals))
	now.totals, now.ready = totals, ready
	if all {
		s.intents -= len(now.intents)
		now.intents = make(map[policy.Ref]*remediate.Intent, len(list))
		d.all()
	}
	for _, target := range gone {
		if now.intents[target] != nil {
			s.intents--
			delete(now.intents, target)
		}
		d.target(target)
	}
	for n := range list {
		i := list[n]
		target := i.Remedy.Target
		if now.intents[target] == nil {
			s.intents++
		} else if all {
			continue // the first counts
		}
		now.intents[target] = &i
		d.target(target)
	}
	return nil
}

// ClearIntents implements enforce.Actor.
func (s *Sender) ClearIntents(binding string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.policies[binding]; was != nil {
		s.intents -= len(was.intents)
	}
	s.policies[binding] = &said{}
	s.seq++
	s.mark(binding).all()
}

// RemovePolicy implements enforce.Actor.
func (s *Sender) RemovePolicy(binding string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.policies[binding]; was != nil {
		s.intents -= len(was.intents)
		delete(s.policies, binding)
	}
	s.seq++
	s.mark(binding).all()
}

// Protected implements enforce.Actor.
func (s *Sender) Protected(target policy.Ref, annotations map[string]string) string {
	return s.opts.Protected(target, annotations)
}

// Evaluated says what the present intents follow from: the members of a snapshot that this process judges. It is called
// after the Corrector has seen the changes to each State. unsettled is why another process may say the same, "" if
// none does: keys of views change their owner.
func (s *Sender) Evaluated(members iter.Seq[aggregate.Member], unsettled string) {
	judged := map[string]string{}
	for m := range members {
		if m.Role == aggregate.Judge {
			judged[m.Name] = m.UID
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.judged != nil && maps.Equal(s.judged, judged) && s.unsettled == unsettled {
		return
	}
	s.judged, s.unsettled = judged, unsettled
	s.seq++
	for r := range s.readers {
		r.judged = true
		r.wake.Fire()
	}
}

// OwnersChanged says that who manages targets may have changed.
func (s *Sender) OwnersChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners++
	for r := range s.readers {
		r.wake.Fire()
	}
}

// changedTotals returns the members whose totals differ.
func changedTotals(a, b *remediate.Totals) (members []string) {
	for _, m := range [][2]map[string]int{{a.Members, b.Members}, {a.Violations, b.Violations}, {a.Unknown, b.Unknown}} {
		members = appendChanged(members, m[0], m[1])
	}
	members = appendChanged(members, a.Unread, b.Unread)
	slices.Sort(members)
	return slices.Compact(members)
}

func appendChanged[V comparable](list []string, a, b map[string]V) []string {
	for member, v := range a {
		if now, has := b[member]; !has || now != v {
			list = append(list, member)
		}
	}
	for member := range b {
		if _, had := a[member]; !had {
			list = append(list, member)
		}
	}
	return list
}

// reader is what one reader has not got yet. The Sender's lock guards it.
type reader struct {
	wake     trigger.Trigger
	restart  bool // it has nothing
	judged   bool
	owners   uint64
	policies map[string]*dirt
}

// dirt is what a reader has not got of a policy.
type dirt struct {
	all, spec bool
	totals    map[string]bool // members
	targets   map[policy.Ref]bool
}

// dirts are those of all readers.
type dirts []*dirt

// mark returns what readers have not got of a policy, and wakes them.
func (s *Sender) mark(binding string) dirts {
	all := make(dirts, 0, len(s.readers))
	for r := range s.readers {
		d := r.policies[binding]
		if d == nil {
			d = &dirt{totals: map[string]bool{}, targets: map[policy.Ref]bool{}}
			r.policies[binding] = d
		}
		all = append(all, d)
		r.wake.Fire()
	}
	return all
}

func (l dirts) all() {
	for _, d := range l {
		d.all = true
		clear(d.totals)
		clear(d.targets)
	}
}

func (l dirts) spec() {
	for _, d := range l {
		d.spec = true
	}
}

func (l dirts) totals(members []string) {
	for _, d := range l {
		for _, m := range members {
			d.totals[m] = true
		}
	}
}

func (l dirts) target(target policy.Ref) {
	for _, d := range l {
		if !d.all {
			d.targets[target] = true
		}
	}
}

// maxReaders bounds the readers of a Sender: processes are few.
const maxReaders = 256

var errReaders = errors.New("too many processes read the intents")

// open returns a reader that has nothing yet.
func (s *Sender) open() (*reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.readers) >= maxReaders {
		return nil, errReaders
	}
	r := &reader{wake: trigger.New(), restart: true, policies: map[string]*dirt{}}
	s.readers[r] = struct{}{}
	r.wake.Fire()
	return r, nil
}

func (s *Sender) close(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
}

// batch is what a reader gets at once, and where it has got with it.
type batch struct {
	restart  bool // instead of all before
	changes  []change
	judged   map[string]string // nil: as before
	settled  bool              // judged and unsettled are as given
	frontier frontier
}

// change is how a policy has changed.
type change struct {
	policy  string
	gone    bool
	all     bool                   // instead of all before
	spec    *remediate.RolloutSpec // nil: as before; with all, the policy is only observed
	version string
	ready   bool
	fleet   int // remediate.Totals.Fleet
	totals  map[string]total
	intents []*remediate.Intent
	removed []policy.Ref
}

// total is what Totals have of a member.
type total struct {
	Subjects   int  `json:"s,omitempty"`
	Violations int  `json:"v,omitempty"`
	Unknown    int  `json:"u,omitempty"`
	Unread     bool `json:"r,omitempty"`
	Counted    bool `json:"c,omitempty"` // it has an entry of subjects, if only of 0
}

func totalOf(t *remediate.Totals, member string) total {
	subjects, counted := t.Members[member]
	return total{subjects, t.Violations[member], t.Unknown[member], t.Unread[member], counted}
}

// hasMore reports whether there is something that a reader has not got.
func (s *Sender) hasMore(r *reader) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.restart || r.judged || r.owners != s.owners || len(r.policies) > 0
}

// take returns what a reader has not got, which it has then.
func (s *Sender) take(r *reader) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &batch{restart: r.restart}
	if r.restart {
		r.policies, r.judged = map[string]*dirt{}, true
		for name := range s.policies {
			r.policies[name] = &dirt{all: true}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.policies)) {
		b.changes = append(b.changes, s.changeOf(name, r.policies[name]))
	}
	if b.settled = r.judged; b.settled {
		b.judged = s.judged
	}
	r.restart, r.judged, r.owners, r.policies = false, false, s.owners, map[string]*dirt{}
	b.frontier = frontier{Seq: s.seq, Policies: len(s.policies), Intents: s.intents, Owners: s.owners, Unsettled: s.unsettled, Evaluated: s.judged != nil}
	return b
}

func (s *Sender) changeOf(name string, d *dirt) change {
	now := s.policies[name]
	c := change{policy: name, gone: now == nil, all: d.all}
	switch {
	case c.gone:
		return c
	case now.spec == nil:
		c.all = true
		return c
	}
	c.version, c.ready, c.fleet, c.totals = now.version, now.ready, now.totals.Fleet, map[string]total{}
	if d.all || d.spec {
		c.spec = now.spec
	}
	if d.all {
		for _, member := range changedTotals(&remediate.Totals{}, &now.totals) {
			c.totals[member] = totalOf(&now.totals, member)
		}
		c.intents = slices.SortedFunc(maps.Values(now.intents), compareTargets)
		return c
	}
	for member := range d.totals {
		c.totals[member] = totalOf(&now.totals, member)
	}
	for target := range d.targets {
		if i := now.intents[target]; i != nil {
			c.intents = append(c.intents, i)
		} else {
			c.removed = append(c.removed, target)
		}
	}
	slices.SortFunc(c.intents, compareTargets)
	slices.SortFunc(c.removed, compareRefs)
	return c
}

func compareTargets(a, b *remediate.Intent) int {
	return compareRefs(a.Remedy.Target, b.Remedy.Target)
}

func compareRefs(a, b policy.Ref) int {
	return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
