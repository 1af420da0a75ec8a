package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/intents/facts"
	"federator.dev/federator/pkg/intents/relay"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/memhttp"
	"federator.dev/federator/test/seed"
	"federator.dev/federator/test/simulation/apiserver"
)

// shardedFleet is three processes that share three members, each with a Dispatcher of its own. What their Correctors say
// is what their members need.
type shardedFleet struct {
	rand    *rand.Rand
	hub     *apiserver.Server
	members map[string]*apiserver.Server
	judges  map[string]string
	fleet   atomic.Pointer[intents.Fleet]
	shards  []*shard
	leader  atomic.Pointer[string]
	reached map[string]*atomic.Pointer[memhttp.Transport] // the processes, by ID
	clients map[string]*http.Client

	mu      sync.Mutex
	writes  []string
	failure string
	killed  int // leaders, with something left to correct
}

type shard struct {
	id        string
	dead      atomic.Bool
	judged    map[string]bool
	sender    *intents.Sender
	receiver  *intents.Receiver
	transport *memhttp.Transport
	stop      func()
}

const shardPolicy, shardObjects = "replicas", 6

// network is how a process reaches a server, as long as it lives.
type network struct {
	f      *shardedFleet
	s      *shard
	member string // "" is the hub
	server http.RoundTripper
}

func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.s.dead.Load() {
		return nil, errCut
	}
	response, err := n.server.RoundTrip(r)
	if err == nil && n.member != "" && r.Method != http.MethodGet && !r.URL.Query().Has("dryRun") && response.StatusCode < 300 {
		n.f.written(n.member, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
	}
	if n.s.dead.Load() { // killed meanwhile: the answer reaches nobody
		return nil, errCut
	}
	return response, err
}

// written is told of each write that a member has executed.
func (f *shardedFleet) written(member, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := member + " " + name
	switch {
	case slices.Contains(f.writes, at):
		f.failure = at + " is written twice"
	case member != "fleet/m0" && len(f.wrongOf("fleet/m0")) > 0:
		f.failure = at + " is written, and the first wave has something to be corrected"
	}
	f.writes = append(f.writes, at)
}

// wrongOf returns the objects of a member that are to be corrected.
func (f *shardedFleet) wrongOf(member string) (wrong []map[string]any) {
	objects, _ := f.members[member].Objects("deployments")
	for _, o := range objects {
		if fmt.Sprint(o["spec"].(map[string]any)["replicas"]) == "1" {
			wrong = append(wrong, o)
		}
	}
	return wrong
}

// lossy loses answers of peers now and then: a relay may have executed the request.
type lossy struct {
	f  *shardedFleet
	to *atomic.Pointer[memhttp.Transport]
}

func (l lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	to := l.to.Load()
	if to == nil { // it has not started
		return nil, errRefused
	}
	response, err := to.RoundTrip(r)
	if err != nil || r.Method != http.MethodPatch {
		return response, err
	}
	l.f.mu.Lock()
	lost := l.f.rand.IntN(3) == 0
	l.f.mu.Unlock()
	if lost {
		response.Body.Close()
		return nil, errReset
	}
	return response, nil
}

func (f *shardedFleet) rest(s *shard, member string, server http.RoundTripper, gv schema.GroupVersion, api string) rest.Interface {
	c, err := rest.RESTClientForConfigAndClient(&rest.Config{
		Host: "http://x", APIPath: api, QPS: -1, ContentConfig: rest.ContentConfig{GroupVersion: &gv, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	}, &http.Client{Transport: network{f, s, member, server}})
	must(err)
	return c
}

// ownClients are a process's own connections to members.
type ownClients struct {
	f *shardedFleet
	s *shard
}

func (o ownClients) Client(member string, _ policy.Kind, _ string) (*remediate.Client, error) {
	o.f.mu.Lock()
	judges := o.s.judged[member]
	o.f.mu.Unlock()
	if !judges {
		return nil, fmt.Errorf("%s does not read %s", o.s.id, member)
	}
	return &remediate.Client{REST: o.f.rest(o.s, member, o.f.members[member], schema.GroupVersion{Group: "apps", Version: "v1"}, "/apis"), Resource: "deployments", Namespaced: true}, nil
}

func (f *shardedFleet) fleetOf(id string) func() *intents.Fleet {
	var mu sync.Mutex
	var of, made *intents.Fleet
	return func() *intents.Fleet {
		mu.Lock()
		defer mu.Unlock()
		if now := f.fleet.Load(); now != of {
			next := *now
			next.Self, next.Peers = id, map[string]intents.Peer{}
			for _, o := range now.Processes {
				if o != id {
					next.Peers[o] = intents.Peer{ID: o, URL: "http://" + o, Client: f.clients[id+" "+o]}
				}
			}
			of, made = now, &next
		}
		return made
	}
}

func (f *shardedFleet) publish() {
	next := &intents.Fleet{Processes: []string{"p0", "p1", "p2"}, Members: map[string]intents.Member{}}
	for m, judge := range f.judges {
		next.Members[m] = intents.Member{UID: m, Judge: judge}
	}
	f.fleet.Store(next)
	for _, s := range f.shards {
		s.receiver.FleetChanged()
	}
}

// start starts a process as package enforcement wires it.
func (f *shardedFleet) start(n int, epoch int) *shard {
	s := &shard{id: fmt.Sprint("p", n), judged: map[string]bool{}}
	for m, judge := range f.judges {
		s.judged[m] = judge == s.id
	}
	of := f.fleetOf(s.id)
	lease := func() (time.Time, error) {
		if s.dead.Load() || *f.leader.Load() != s.id {
			return time.Time{}, errors.New("another one leads")
		}
		return time.Now().Add(10 * time.Second), nil
	}
	local := facts.Local{
		Held: func(string) error { return nil }, MemberUID: func(m string) string { return m }, MemberAway: func(string) error { return nil },
		Health:    func(remediate.Written) remediate.Health { return remediate.Health{Status: remediate.Healthy} },
		Owner:     func(policy.Ref) remediate.Ownership { return remediate.Ownership{} },
		Resolve:   func(claims []enforce.Claim) []enforce.Resolution { return f.resolve(s, claims) },
		Summaries: func() map[string]facts.Summary { return map[string]facts.Summary{} },
	}
	none := func(policy.Ref, map[string]string) string { return "" }
	var err error
	s.sender, err = intents.NewSender(intents.SenderOptions{Self: s.id, Epoch: fmt.Sprint(epoch), Protected: none})
	must(err)
	client, err := facts.NewClient(facts.ClientOptions{Local: local, Fleet: of, Lease: lease})
	must(err)
	var dispatcher *remediate.Dispatcher
	dispatcher, err = remediate.New(remediate.Options{
		Clients: &relay.Client{Local: ownClients{f, s}, Fleet: of}, Hub: f.rest(s, "", f.hub, schema.GroupVersion{Version: "v1"}, "/api"), Lease: lease,
		Held: client.Held, MemberUID: client.MemberUID, MemberAway: client.MemberAway, Healths: client.Healths, Owner: client.Owner, Away: client.Away,
		Incomplete: func(name string) string { return s.receiver.Incomplete(name) }, RetryAfter: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	must(err)
	s.receiver, err = intents.NewReceiver(intents.ReceiverOptions{Self: s.sender, Actor: dispatcher, Lease: lease, Fleet: of, Resolve: client.Resolve, Prefetch: client.Prefetch, OwnersChanged: dispatcher.OwnersChanged})
	must(err)
	answers, err := facts.NewServer(local, of, nil)
	must(err)
	passes, err := relay.NewServer(relay.ServerOptions{
		Fleet: of, Clients: ownClients{f, s}, Held: local.Held, Leader: func() string { return *f.leader.Load() },
		Peer: func(r *http.Request) string { return r.Header.Get("Test-Process") },
	})
	must(err)
	mux := http.NewServeMux()
	mux.Handle(intents.Path, s.sender)
	mux.Handle(facts.Path, answers)
	mux.Handle(relay.Path, passes)
	s.transport = &memhttp.Transport{Handler: mux}
	f.reached[s.id].Store(s.transport)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{client.Run, s.receiver.Run, dispatcher.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	s.stop = func() {
		s.dead.Store(true)
		s.transport.Cut(true)
		cancel()
		running.Wait()
		s.transport.Wait()
	}
	return s
}

// named says which process a request is from.
type named struct {
	id   string
	base http.RoundTripper
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Test-Process", n.id)
	return n.base.RoundTrip(r)
}

// say has the Corrector of a process say what its members need now.
func (f *shardedFleet) say(s *shard) {
	spec := remediate.RolloutSpec{
		Generation: "9e4a", Limits: remediate.Limits{Window: 24 * time.Hour, Policy: remediate.Limit{Count: 3 * shardObjects}, Member: remediate.Limit{Count: shardObjects}, PerMinute: 2},
		Waves: []remediate.Wave{{Name: "first", Members: map[string]bool{}, Timeout: time.Hour}, {Name: "rest", Members: map[string]bool{}, Timeout: time.Hour}},
	}
	totals := remediate.Totals{Members: map[string]int{}, Violations: map[string]int{}, Unknown: map[string]int{}}
	var list []remediate.Intent
	for m, is := range s.judged {
		if !is {
			continue
		}
		wave := 1
		if m == "fleet/m0" {
			wave = 0
		}
		spec.Waves[wave].Members[m] = true
		wrong := f.wrongOf(m)
		totals.Fleet, totals.Members[m], totals.Violations[m] = totals.Fleet+shardObjects, shardObjects, len(wrong)
	}
	for m := range f.members {
		for _, o := range f.wrongOf(m) {
			if i := intentOf(m, o); s.judged[i.Subject.Ref.Member] {
				if s.judged[m] {
					describeObject(m, o, &i)
				} else {
					i.Basis = basisOf(o)
				}
				list = append(list, i)
			}
		}
	}
	must(s.sender.SetIntents(shardPolicy, spec, totals, list, true))
	s.sender.Evaluated(func(yield func(aggregate.Member) bool) {
		for m, is := range s.judged {
			if is && !yield(aggregate.Member{Name: m, UID: m}) {
				return
			}
		}
	}, "")
}

// intentOf returns the intent for an object, whose subject is in the next member if its number is odd.
func intentOf(member string, object map[string]any) remediate.Intent {
	target := policy.Ref{Member: member, Kind: "Deployment.apps", Namespace: namespace, Name: objectName(object)}
	subject := target
	if n := int(target.Name[len(target.Name)-1] - '0'); n%2 == 1 {
		subject.Member = fmt.Sprint("fleet/m", (int(member[len(member)-1]-'0')+1)%3)
	}
	return remediate.Intent{
		Binding: shardPolicy, Package: "replicas", Message: "too few", Subject: policy.Subject{Ref: subject}, Revision: 1, Generation: "9e4a",
		Remedy: policy.Remedy{Action: "patch", Target: target, Patch: []byte(`{"spec":{"replicas":3}}`)},
	}
}

func objectName(object map[string]any) string {
	return fmt.Sprint(object["metadata"].(map[string]any)["name"])
}

func describeObject(member string, object map[string]any, i *remediate.Intent) {
	meta := object["metadata"].(map[string]any)
	i.MemberUID, i.APIVersion, i.UID, i.ResourceVersion = member, "apps/v1", fmt.Sprint(meta["uid"]), fmt.Sprint(meta["resourceVersion"])
}

// basisOf is what another process knows of an object.
func basisOf(object map[string]any) string {
	return fmt.Sprint(object["spec"].(map[string]any)["replicas"])
}

// resolve says what targets are in the members that a process judges.
func (f *shardedFleet) resolve(s *shard, claims []enforce.Claim) (out []enforce.Resolution) {
	for _, c := range claims {
		is := enforce.Resolution{Why: s.id + " does not judge " + c.Target.Member}
		f.mu.Lock()
		judges := s.judged[c.Target.Member]
		f.mu.Unlock()
		objects, _ := f.members[c.Target.Member].Objects("deployments")
		for _, o := range objects {
			if objectName(o) != c.Target.Name || !judges {
				continue
			}
			is.Why = "its target is another one"
			if !slices.ContainsFunc(c.Bases, func(k enforce.KnownBy) bool { return k.Basis != basisOf(o) }) {
				var i remediate.Intent
				describeObject(c.Target.Member, o, &i)
				is = enforce.Resolution{MemberUID: i.MemberUID, APIVersion: i.APIVersion, UID: i.UID, ResourceVersion: i.ResourceVersion}
			}
		}
		out = append(out, is)
	}
	return out
}

// left returns how many objects are still to be corrected.
func (f *shardedFleet) left() (n int) {
	for m := range f.members {
		n += len(f.wrongOf(m))
	}
	return n
}

// disturb lets something go wrong, or another process lead.
func (f *shardedFleet) disturb(epoch int) {
	n := f.rand.IntN(3)
	switch f.rand.IntN(6) {
	case 0: // a kill, of the leader most often
		for k, s := range f.shards {
			if s.id == *f.leader.Load() && f.rand.IntN(3) > 0 {
				n = k
			}
		}
		killed := f.shards[n]
		if killed.id == *f.leader.Load() && f.left() > 0 {
			f.killed++
		}
		killed.stop()
		next := fmt.Sprint("p", (n+1+f.rand.IntN(2))%3)
		f.leader.Store(&next)
		f.shards[n] = f.start(n, epoch)
	case 1: // a partition
		f.shards[n].transport.Cut(true)
	case 2:
		for _, s := range f.shards {
			s.transport.Cut(false)
		}
	case 3: // a move: the map first, then the new judge, then the old one
		m := fmt.Sprint("fleet/m", f.rand.IntN(3))
		f.judges[m] = f.shards[n].id
		f.publish()
	case 4: // processes follow the map
		f.follow()
	case 5: // another leader, without a kill
		next := f.shards[n].id
		f.leader.Store(&next)
	}
}

func (f *shardedFleet) follow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.shards {
		for m, judge := range f.judges {
			s.judged[m] = judge == s.id
		}
	}
}

// TestShards_NothingIsWrittenTwiceOrLost: leaders are killed in the middle of a wave, members move, processes are cut off and
// answers of relays lost. Each target is written once, and the second wave after the first.
func TestShards_NothingIsWrittenTwiceOrLost(t *testing.T) {
	prepare()
	r := rand.New(rand.NewPCG(seed.Of(t), 1))
	for range 12 {
		synctest.Test(t, func(t *testing.T) {
			f := &shardedFleet{rand: r, hub: apiserver.New(hubKinds(), false), members: map[string]*apiserver.Server{}, judges: map[string]string{}, reached: map[string]*atomic.Pointer[memhttp.Transport]{}, clients: map[string]*http.Client{}}
			leader := "p0"
			f.leader.Store(&leader)
			for n := range 3 {
				m := fmt.Sprint("fleet/m", n)
				f.members[m], f.judges[m] = apiserver.New(apiserver.Builtins(), false), fmt.Sprint("p", n)
				for k := range shardObjects {
					name := fmt.Sprint("d", k)
					f.members[m].Change("deployments", namespace, name, "person", func(map[string]any) map[string]any { return deployment(name) })
				}
				f.reached[fmt.Sprint("p", n)] = &atomic.Pointer[memhttp.Transport]{}
			}
			for _, from := range slices.Collect(maps.Keys(f.reached)) {
				for to, at := range f.reached {
					f.clients[from+" "+to] = &http.Client{Transport: named{from, lossy{f, at}}}
				}
			}
			f.publish()
			for n := range 3 {
				f.shards = append(f.shards, f.start(n, 0))
			}
			step := func() {
				for _, s := range f.shards {
					f.say(s)
				}
				time.Sleep(time.Second)
				synctest.Wait()
			}
			for n := range 300 {
				if step(); f.rand.IntN(3) == 0 {
					f.disturb(n + 1)
				}
			}
			during := len(f.writes)
			f.follow()
			for _, s := range f.shards {
				s.transport.Cut(false)
			}
			for range 1200 {
				if step(); f.left() == 0 {
					break
				}
			}
			for _, s := range f.shards {
				s.stop()
			}
			t.Logf("%d of %d writes during faults, %d leaders killed before the last", during, len(f.writes), f.killed)
			if f.failure != "" || f.left() > 0 || len(f.writes) != 3*shardObjects {
				t.Errorf("%s; %d are not corrected, writes %v; %s", f.failure, f.left(), f.writes, f.shards[0].receiver.Incomplete(shardPolicy))
			}
		})
	}
}
