package intents_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/memhttp"
	"federator.dev/federator/test/seed"
)

// process is one of those that share the fleet of a test.
type process struct {
	id        string
	epoch     int
	sender    *intents.Sender
	transport *memhttp.Transport // to it
	reached   atomic.Pointer[memhttp.Transport]
	receiver  *intents.Receiver
	actor     *recorder
	leads     atomic.Bool
	stop      func()
	alive     bool
	cut       bool

	// What its Corrector thinks.
	version   int
	ready     bool
	unsettled string
	judged    map[string]bool
	gone      bool // the policy is
	observes  bool
	deaf      bool               // nobody tells it of other processes' objects
	knows     map[policy.Ref]int // what it was told of them
}

type fleet struct {
	t         *testing.T
	rand      *rand.Rand
	processes []*process
	members   map[string]string // by member: its judge
	drift     map[string]map[string]int
	now       atomic.Pointer[intents.Fleet]
	truth     atomic.Pointer[truth]
	history   []string
	failed    bool
	seen      map[string]int // how often targets of others were resolved, and why they were not
}

const thePolicy = "p"

func (f *fleet) publish() {
	next := &intents.Fleet{Peers: map[string]intents.Peer{}, Members: map[string]intents.Member{}}
	for _, p := range f.processes {
		next.Processes = append(next.Processes, p.id)
	}
	for m, judge := range f.members {
		next.Members[m] = intents.Member{UID: "uid-" + m, Judge: judge}
	}
	f.now.Store(next)
	for _, p := range f.processes {
		if p.alive {
			p.receiver.FleetChanged()
		}
	}
}

// start starts a process that knows nothing.
func (f *fleet) start(p *process) {
	p.epoch++
	p.alive, p.ready, p.unsettled, p.gone, p.observes = true, true, "", false, false
	must := func(err error) {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	var err error
	p.actor = newRecorder()
	p.sender, err = intents.NewSender(intents.SenderOptions{Self: p.id, Epoch: fmt.Sprint(p.epoch), Protected: p.actor.Protected})
	must(err)
	p.transport = &memhttp.Transport{Handler: p.sender}
	p.reached.Store(p.transport)
	if p.cut {
		p.transport.Cut(true)
	}
	p.receiver, err = intents.NewReceiver(intents.ReceiverOptions{
		Self: p.sender, Actor: p.actor, Fleet: f.fleetOf(p), Resolve: func(_ context.Context, claims []enforce.Claim) []enforce.Resolution { return f.resolve(claims) },
		Lease: func() (time.Time, error) {
			if !p.leads.Load() {
				return time.Time{}, errors.New("another one leads")
			}
			return time.Time{}, nil
		},
	})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = p.receiver.Run(ctx) })
	p.stop = func() {
		p.alive = false
		p.leads.Store(false)
		p.transport.Cut(true)
		cancel()
		running.Wait()
		p.transport.Wait()
	}
	p.judged = map[string]bool{}
	for m, judge := range f.members {
		p.judged[m] = judge == p.id
	}
	p.deaf = false
	f.hear(p)
	f.say(p)
}

// fleetOf returns the fleet as a process sees it: itself is no peer.
func (f *fleet) fleetOf(p *process) func() *intents.Fleet {
	var mu sync.Mutex
	var of, made *intents.Fleet
	transports := map[string]*http.Client{}
	return func() *intents.Fleet {
		mu.Lock()
		defer mu.Unlock()
		now := f.now.Load()
		if now == nil || now == of {
			return made
		}
		next := *now
		next.Self, next.Peers = p.id, map[string]intents.Peer{}
		for _, o := range f.processes {
			if o == p {
				continue
			}
			if transports[o.id] == nil {
				transports[o.id] = &http.Client{Transport: late{o}}
			}
			next.Peers[o.id] = intents.Peer{ID: o.id, URL: "http://" + o.id, Client: transports[o.id]}
		}
		of, made = now, &next
		return made
	}
}

// late finds the process of now.
type late struct{ *process }

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	return l.reached.Load().RoundTrip(r)
}

func (f *fleet) spec(p *process) remediate.RolloutSpec {
	s := remediate.RolloutSpec{Generation: fmt.Sprint("g", p.version), Waves: []remediate.Wave{{Name: "w", Members: map[string]bool{}}}}
	for m, is := range p.judged {
		if is {
			s.Waves[0].Members[m] = true
		}
	}
	s.Approval.Authors = nil
	s.Approval.Made = []remediate.Made{{Of: p.id}} // as far as the process has seen
	return s
}

func target(member, name string) policy.Ref {
	return policy.Ref{Member: member, Kind: "Deployment.apps", Namespace: "shop", Name: name}
}

func (f *fleet) totals(p *process) remediate.Totals {
	t := remediate.Totals{Members: map[string]int{}, Violations: map[string]int{}, Unknown: map[string]int{}, Unread: map[string]bool{}}
	for m, is := range p.judged {
		if is {
			t.Members[m], t.Violations[m] = 5, len(f.intentsOf(p, m))
			t.Fleet += 5
		}
	}
	return t
}

// say has the Corrector of a process say everything.
func (f *fleet) say(p *process) {
	switch {
	case p.gone:
		p.sender.RemovePolicy(thePolicy)
	case p.observes:
		p.sender.ClearIntents(thePolicy)
	default:
		var list []remediate.Intent
		for m, is := range p.judged {
			if is {
				list = append(list, f.intentsOf(p, m)...)
			}
		}
		if err := p.sender.SetIntents(thePolicy, f.spec(p), f.totals(p), list, p.ready); err != nil {
			f.t.Fatal(err)
		}
	}
	f.evaluated(p)
}

func (f *fleet) evaluated(p *process) {
	p.sender.Evaluated(func(yield func(aggregate.Member) bool) {
		for m, is := range p.judged {
			role := aggregate.Standby
			if is {
				role = aggregate.Judge
			}
			if !yield(aggregate.Member{Name: m, UID: "uid-" + m, Role: role}) {
				return
			}
		}
	}, p.unsettled)
}

// act does one thing.
func (f *fleet) act() {
	defer f.reveal()
	p := f.processes[f.rand.IntN(len(f.processes))]
	member := fmt.Sprint("m", f.rand.IntN(5))
	what := f.rand.IntN(16)
	f.history = append(f.history, fmt.Sprint(what, " ", p.id, " ", member))
	switch what {
	default: // an object changes
		name := fmt.Sprint("o", f.rand.IntN(3))
		at := target(member, name)
		f.drift[member][name] = f.rand.IntN(4)
		f.reveal()
		for _, p := range f.processes {
			if !p.deaf && p.alive {
				p.knows[at] = f.drift[member][name]
			}
			if !p.alive || !p.judged[f.subjectOf(at)] || p.gone || p.observes {
				continue
			}
			var gone []policy.Ref
			var list []remediate.Intent
			if f.known(p, at) == 0 {
				gone = append(gone, at)
			}
			for _, i := range f.intentsOf(p, f.subjectOf(at)) {
				if i.Remedy.Target == at {
					list = append(list, i)
				}
			}
			if err := p.sender.UpdateIntents(thePolicy, f.spec(p), f.totals(p), list, gone, p.ready); err != nil {
				f.t.Fatal(err)
			}
		}
	case 0: // a member moves: by the map, and then, perhaps, at the processes
		was := f.members[member]
		f.members[member] = p.id
		f.publish()
		for _, o := range f.processes { // at once: nobody has followed yet
			if o.leads.Load() && was != p.id && o.receiver.Incomplete(thePolicy) == "" {
				f.fail("%s writes although %s has just moved", o.id, member)
			}
		}
		if f.rand.IntN(2) == 0 {
			f.follow()
		}
	case 1:
		f.follow()
	case 2:
		if p.alive {
			p.version = f.rand.IntN(2)
			f.say(p)
		}
	case 3:
		for _, p := range f.processes {
			if p.alive {
				p.version, p.ready, p.unsettled, p.gone, p.observes = 1, true, "", false, false
				f.say(p)
			}
		}
	case 4:
		p.ready = !p.ready
		if p.alive {
			f.say(p)
		}
	case 5:
		p.cut = !p.cut
		p.transport.Cut(p.cut || !p.alive)
	case 6:
		if p.alive {
			p.stop()
		}
	case 7, 8:
		for _, p := range f.processes {
			if !p.alive {
				f.start(p)
			}
			p.cut = false
			p.transport.Cut(false)
		}
	case 9: // another leader
		for _, o := range f.processes {
			o.leads.Store(o == p && p.alive)
		}
	case 10:
		if p.alive {
			p.unsettled = []string{"", "keys of views change their owner"}[f.rand.IntN(2)]
			f.evaluated(p)
		}
	case 11:
		if p.alive {
			p.gone, p.observes = f.rand.IntN(2) == 0, f.rand.IntN(2) == 0
			f.say(p)
		}
	case 12:
		if p.alive {
			if p.deaf = !p.deaf; !p.deaf {
				f.hear(p)
			}
			f.say(p)
		}
	}
}

// follow has processes judge what the map says.
func (f *fleet) follow() {
	for _, p := range f.processes {
		if !p.alive {
			continue
		}
		p.judged = map[string]bool{}
		for m, judge := range f.members {
			p.judged[m] = judge == p.id
		}
		f.say(p)
	}
}

// want returns what a leader has to know, and why nothing is to be written.
func (f *fleet) want(leader *process) (all map[policy.Ref]string, why string) {
	all = map[policy.Ref]string{}
	for _, p := range f.processes {
		switch {
		case !p.alive:
			why = p.id + " is dead"
		case p.cut && p != leader:
			why = p.id + " is cut off"
		case p.gone || p.observes || p.version != leader.version || !p.ready || p.unsettled != "":
			why = p.id + " says something else"
		}
		for m, judge := range f.members {
			if p.judged[m] != (judge == p.id) {
				why = p.id + " judges other members"
			}
			if judge == p.id && p.alive {
				for _, i := range f.intentsOf(p, m) {
					at := i.Remedy.Target
					all[at] = i.ResourceVersion
					if is := fmt.Sprint(f.drift[at.Member][at.Name]); i.Basis == is {
						all[at] = is
					} else if i.Basis != "" {
						all[at] = "it is another one"
					}
				}
			}
		}
	}
	return all, why
}

func (f *fleet) check() {
	for _, p := range f.processes {
		if !p.alive || !p.leads.Load() {
			if p.alive && p.receiver.Incomplete(thePolicy) == "" {
				f.fail("%s does not lead, and says that all is known", p.id)
			}
			continue
		}
		want, why := f.want(p)
		p.actor.mu.Lock()
		is := p.actor.policies[thePolicy]
		says := p.receiver.Incomplete(thePolicy)
		switch {
		case why != "" && is != nil && is.ready && says == "":
			f.fail("%s writes although %s", p.id, why)
		case why != "" && says == "":
			f.fail("%s says nothing although %s", p.id, why)
		case why != "":
		case is == nil || !is.ready || says != "":
			f.fail("%s does not write: %v, %q", p.id, is, says)
		default:
			f.compare(p, is, want)
		}
		p.actor.mu.Unlock()
	}
}

func (f *fleet) compare(p *process, is *recorded, want map[policy.Ref]string) {
	got := map[policy.Ref]string{}
	for target, i := range is.intents {
		if got[target] = i.ResourceVersion; i.Unresolved != "" {
			got[target] = i.Unresolved
		}
		if f.members[f.subjectOf(target)] != f.members[target.Member] {
			f.seen[i.Unresolved]++
		}
		if string(i.Remedy.Patch) != ` {"spec": "<&>"}` {
			f.fail("the patch is %q", i.Remedy.Patch)
		}
	}
	if !maps.Equal(got, want) {
		f.fail("%s has %v, not %v", p.id, got, want)
	}
	members := map[string]bool{}
	for m := range f.members {
		members[m] = true
	}
	if !reflect.DeepEqual(is.spec.Waves[0].Members, members) || is.spec.Approval.Made[0].Of != p.id {
		f.fail("%s has spec %v", p.id, is.spec)
	}
	if is.totals.Fleet != 5*len(f.members) || len(is.totals.Members) != len(f.members) {
		f.fail("%s has totals %v", p.id, is.totals)
	}
}

func (f *fleet) fail(format string, args ...any) {
	if !f.failed {
		f.t.Errorf("%s\n%v", fmt.Sprintf(format, args...), f.history)
	}
	f.failed = true
}

// TestReceiver_HasWhatAllProcessesSay_OrWritesNothing: whatever moves, ends, is cut off or says something else.
func TestReceiver_HasWhatAllProcessesSay_OrWritesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 1))
	seen := map[string]int{}
	for range 60 {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{t: t, rand: r, seen: seen, members: map[string]string{}, drift: map[string]map[string]int{}}
			for n := range 3 {
				f.processes = append(f.processes, &process{id: fmt.Sprint("p", n)})
			}
			for n := range 5 {
				m := fmt.Sprint("m", n)
				f.members[m], f.drift[m] = f.processes[r.IntN(3)].id, map[string]int{}
			}
			f.reveal()
			for _, p := range f.processes {
				f.start(p)
			}
			f.publish()
			f.processes[0].leads.Store(true)
			f.reveal()
			for range 60 {
				if f.act(); f.failed {
					break
				}
				time.Sleep(time.Duration(8+r.IntN(3)) * time.Second) // longer than silence, and waits
				synctest.Wait()
				if f.check(); f.failed {
					break
				}
			}
			for _, p := range slices.Clone(f.processes) {
				if p.alive {
					p.stop()
				}
			}
		})
	}
	t.Logf("targets of others, by why they are not resolved: %v", seen)
	if len(seen) != 2 {
		t.Errorf("targets of others were resolved, or not, as %v", seen)
	}
}
