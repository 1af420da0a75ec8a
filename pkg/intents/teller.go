package intents

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// teller is what a process has said. All but when it was heard of is of the goroutine of Receiver.Run.
type teller struct {
	id     string
	peer   Peer
	lives  bool // peer is how it is reached
	cancel func()
	heard  atomic.Pointer[time.Time] // when its last frontier came; nil: none did

	spoken    bool // since it is followed
	policies  map[string]*teaching
	judged    map[string]string // nil: it has not said
	unsettled string
	owners    uint64
}

// teaching is what a process has said of a policy.
type teaching struct {
	spec    *remediate.RolloutSpec // nil: it only observes it
	version string
	ready   bool
	fleet   int
	totals  map[string]total
	intents map[policy.Ref]*remediate.Intent
}

func newTeller(id string) *teller {
	return &teller{id: id, cancel: func() {}, policies: map[string]*teaching{}}
}

// changes are what has changed of policies.
type changes map[string]*changed

// changed is what has changed of one.
type changed struct {
	all     bool
	targets map[policy.Ref]bool
}

func (c changes) of(name string) *changed {
	if c[name] == nil {
		c[name] = &changed{targets: map[policy.Ref]bool{}}
	}
	return c[name]
}

func (c changes) all(name string) { c.of(name).all = true }

// apply takes what a process says. After an error it has said nothing: it is to start over.
func (t *teller) apply(b *batch) (changes, error) {
	out := changes{}
	if b.restart {
		for name := range t.policies {
			out.all(name)
		}
		t.policies, t.judged, t.spoken = map[string]*teaching{}, nil, false
	}
	for n := range b.changes {
		t.change(&b.changes[n], out)
	}
	if b.settled {
		t.judged = b.judged
	}
	intents := 0
	for _, p := range t.policies {
		intents += len(p.intents)
	}
	if f := &b.frontier; f.Policies != len(t.policies) || f.Intents != intents {
		t.spoken = false
		return out, fmt.Errorf("process %q has %d policies and %d intents, and has told of %d and %d", t.id, f.Policies, f.Intents, len(t.policies), intents)
	}
	t.unsettled, t.owners, t.spoken = b.frontier.Unsettled, b.frontier.Owners, true
	return out, nil
}

func (t *teller) change(c *change, out changes) {
	if c.gone {
		delete(t.policies, c.policy)
		out.all(c.policy)
		return
	}
	now := t.policies[c.policy]
	if now == nil || c.all {
		now = &teaching{totals: map[string]total{}, intents: map[policy.Ref]*remediate.Intent{}}
		t.policies[c.policy] = now
		out.all(c.policy)
	}
	of := out.of(c.policy)
	if c.spec != nil {
		now.spec = c.spec
	}
	now.version, now.ready, now.fleet = c.version, c.ready, c.fleet
	for member, n := range c.totals {
		if now.totals[member] = n; n == (total{}) {
			delete(now.totals, member)
		}
	}
	for _, target := range c.removed {
		delete(now.intents, target)
		of.targets[target] = true
	}
	for _, i := range c.intents {
		now.intents[i.Remedy.Target] = i
		of.targets[i.Remedy.Target] = true
	}
}

// targets returns those of all policies.
func (t *teller) targets() (all []policy.Ref) {
	for _, p := range t.policies {
		all = slices.AppendSeq(all, maps.Keys(p.intents))
	}
	return all
}

func (t *teller) heardAt(at time.Time) { t.heard.Store(&at) }

// silent returns why a process does not count as heard of, "" if it does. It may be called by any goroutine.
func (t *teller) silent(now time.Time) string {
	at := t.heard.Load()
	switch {
	case at == nil:
		return fmt.Sprintf("process %s has not said yet what its members need", t.id)
	case now.Sub(*at) > SilentAfter:
		return fmt.Sprintf("nothing has been heard of process %s for more than %v", t.id, SilentAfter)
	}
	return ""
}

// refuse returns why nothing is known of the whole fleet, "" if it is.
func (r *Receiver) refuse(tellers []*teller, now time.Time) string {
	for _, t := range tellers {
		switch {
		case t.id != r.fleet.Self && !t.lives:
			return fmt.Sprintf("process %s is lost", t.id)
		case !t.spoken || t.judged == nil:
			return fmt.Sprintf("process %s has not said yet what its members need", t.id)
		}
		if why := t.silent(now); why != "" {
			return why
		}
		if t.unsettled != "" {
			return fmt.Sprintf("process %s: %s", t.id, t.unsettled)
		}
	}
	if !r.checked {
		r.unjudged, r.checked = r.findUnjudged(tellers), true
	}
	return r.unjudged
}

// findUnjudged returns whose judge is not as the map says, "" if all are.
func (r *Receiver) findUnjudged(tellers []*teller) string {
	for _, t := range tellers {
		for member := range t.judged {
			if r.fleet.Members[member].Judge != t.id {
				return fmt.Sprintf("process %s judges member %s, which it is not to judge", t.id, member)
			}
		}
	}
	for member, m := range r.fleet.Members {
		t := r.tellers[m.Judge]
		if t == nil {
			return fmt.Sprintf("no process judges member %s", member)
		}
		uid, judged := t.judged[member]
		if !judged || m.UID != "" && uid != "" && uid != m.UID {
			return fmt.Sprintf("process %s does not judge member %s yet", t.id, member)
		}
	}
	return ""
}

// refusePolicy returns why not all is known of a policy, "" if it is.
func refusePolicy(name string, tellers []*teller, own *teaching) string {
	for _, t := range tellers {
		switch p := t.policies[name]; {
		case p == nil:
			return fmt.Sprintf("process %s does not know the policy yet", t.id)
		case p.spec == nil:
			return fmt.Sprintf("process %s only observes the policy", t.id)
		case p.version != own.version:
			return fmt.Sprintf("process %s has another version of the policy", t.id)
		case !p.ready:
			return fmt.Sprintf("process %s has not counted all verdicts of its members", t.id)
		}
	}
	return ""
}
