package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/election"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/simulation/apiserver"
)

// process is a replica of federator: the real corrector, dispatcher, executor and elector.
// Its index and what it is told by people are fed by the world.
type process struct {
	world  *world
	name   string
	offset time.Duration // of its clock
	link   *link
	paused bool // it neither sends nor receives

	index      *aggregate.Index
	scopes     map[string]*aggregate.Scope // by member
	away       map[string]bool             // members whose scope is Stale; guarded by the world's lock
	read       map[string]uint64           // revision of each member that the index has; absent: not listed yet
	corrector  *enforce.Corrector
	dispatcher *remediate.Dispatcher
	lease      func() (time.Time, error)
	watches    []*apiserver.Watch // of the hub, of a process of the whole
	told       told
	owners     owners                                      // that it knows of; guarded by the world's lock
	ceiling    ceiling                                     // that it knows of; guarded by the world's lock
	failures   []time.Time                                 // of its corrections; with tripped, guarded by the world's lock
	tripped    bool                                        // it has stopped everything since the last look
	counted    map[string]map[types.UID]remediate.Approved // by policy: what Approvals come to, and it has not been told
	approved   map[string]map[types.UID]remediate.Approved // what it has been told, and when
	toldAt     map[string]time.Time

	rollingBack bool // guarded by the world's lock

	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// told is what a process knows of what people want.
type told struct {
	version  int // of the world's wishes
	policies map[string]*wish
	stops    remediate.Stops
	held     map[string]string // members, and why
}

// startProcess starts a replica.
func (w *world) startProcess(name string, offset time.Duration) *process {
	p := &process{world: w, name: name, offset: offset, scopes: map[string]*aggregate.Scope{}, read: map[string]uint64{}, away: map[string]bool{}, counted: map[string]map[types.UID]remediate.Approved{}, approved: map[string]map[types.UID]remediate.Approved{}, toldAt: map[string]time.Time{}}
	p.link = &link{process: name, arrived: w.arrived}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var err error
	p.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	must(err)
	elector, err := election.New(&rest.Config{Host: "http://hub", Transport: route{p.link, "hub"}, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, "federator", name, slog.New(slog.DiscardHandler))
	must(err)
	p.lease = elector.Lease
	options := remediate.Options{
		Clients: p, Hub: p.client("hub", schema.GroupVersion{Version: "v1"}), Lease: p.lease, Held: p.held, MemberAway: p.unreachable, Health: hub.Health(hub.HealthOptions{Index: p.index}),
		MemberConcurrency: w.perMember, Retention: w.retention, Keep: w.keep, Clock: func() time.Time { return time.Now().Add(p.offset) },
	}
	p.owners = owners{w.owners.version, maps.Clone(w.owners.targets), maps.Clone(w.owners.unknown)}
	options.Ceiling, options.Owner = p.ceilingOf, p.owner
	w.bounds.configure(p, &options)
	p.dispatcher, err = remediate.New(options)
	must(err)
	p.corrector = enforce.NewCorrector(p.dispatcher, nil)
	if w.versions {
		p.corrector = enforce.NewCorrector(versions{p.dispatcher}, nil)
	}
	loop, err := enforce.New(enforce.Options{Index: p.index, Set: packages(), Bindings: bindings, Changed: p.corrector.Changed})
	must(err)
	p.dispatcher.SetStops(remediate.Stops{All: "nothing is known yet"})
	p.told.stops.All = "nothing is known yet"
	for _, m := range w.members {
		must(p.index.PutMember(aggregate.Member{Name: m.name, UID: m.name}))
		p.scopes[m.name], err = p.index.OpenScope(m.name, "Deployment.apps", "apps/v1")
		must(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	p.ctx, p.cancel = ctx, cancel
	p.ended.Go(func() { _ = loop.Run(ctx) })
	p.ended.Go(func() { _ = p.dispatcher.Run(ctx) })
	p.ended.Go(func() { _ = elector.Run(ctx) })
	w.processes = append(w.processes, p)
	return p
}

// client returns a client of the hub or a member.
func (p *process) client(to string, gv schema.GroupVersion) rest.Interface {
	api := "/apis"
	if gv.Group == "" {
		api = "/api"
	}
	c, err := rest.RESTClientForConfigAndClient(&rest.Config{
		Host: "http://" + strings.ReplaceAll(to, "/", "."), APIPath: api, QPS: -1, UserAgent: "federator/simulated",
		ContentConfig: rest.ContentConfig{GroupVersion: &gv, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	}, &http.Client{Transport: route{p.link, to}})
	if err != nil {
		panic(err)
	}
	return c
}

// Client implements remediate.ClientFactory.
func (p *process) Client(member string, kind policy.Kind, _ string) (*remediate.Client, error) {
	if p.world.member(member) == nil {
		return nil, fmt.Errorf("member %q is unknown", member)
	}
	return &remediate.Client{REST: p.client(member, schema.GroupVersion{Group: "apps", Version: "v1"}), Resource: "deployments", Namespaced: true}, nil
}

func (p *process) held(member string) error {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if why := p.told.held[member]; why != "" {
		return fmt.Errorf("member %q: %s", member, why)
	}
	return nil
}

// unreachable says why it is not known what is in a member now.
func (p *process) unreachable(member string) error {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if p.away[member] {
		return fmt.Errorf("member %q is away", member)
	}
	return nil
}

// crash ends the process as a kill does: nothing that it does from now on leaves it.
func (p *process) crash() {
	p.link.sever()
	for _, w := range p.watches {
		w.Cut(errCut)
	}
	p.cancel()
}

// leads reports whether the process may write, as far as it knows.
func (p *process) leads() bool {
	_, err := p.lease()
	return err == nil
}

// recovered reports whether the process has taken over all that lasts. It acknowledges nothing
// before, however often people ask.
func (p *process) recovered() bool {
	s, _ := p.dispatcher.Status("")
	return s.Restored
}

// learn tells the process what people want now.
func (p *process) learn() {
	w := p.world
	w.mu.Lock()
	p.ceiling = w.ceiling
	p.told = told{version: w.version, policies: map[string]*wish{}, stops: w.stops, held: maps.Clone(w.held)}
	p.told.stops.Policies, p.told.stops.Members = maps.Clone(w.stops.Policies), maps.Clone(w.stops.Members)
	specs := map[string]enforce.EnforcementSpec{}
	for name, x := range w.policies {
		if x.gone {
			continue
		}
		copied := *x
		p.told.policies[name] = &copied
		specs[name] = copied.spec(w)
	}
	w.mu.Unlock()
	p.dispatcher.SetStops(p.told.stops)
	if err := p.corrector.SetSpecs(specs); err != nil {
		panic(err)
	}
}

// list fills the process's scope of a member with all that the member has.
func (p *process) list(m *member) {
	objects, revision := m.server.Objects("deployments")
	scope := p.scopes[m.name]
	items := make([]aggregate.Item, 0, len(objects))
	for _, o := range objects {
		items = append(items, scope.Item(record(o)))
	}
	if _, err := scope.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
		panic(err)
	}
	p.read[m.name] = revision
}

// follow applies the next so many changes of a member.
func (p *process) follow(m *member, most int) {
	changes, _ := m.server.Since("deployments", p.read[m.name])
	scope := p.scopes[m.name]
	for _, c := range changes[:min(most, len(changes))] {
		if c.Deleted {
			meta := c.Object["metadata"].(map[string]any)
			scope.Delete(meta["namespace"].(string), meta["name"].(string))
		} else {
			scope.Upsert(scope.Item(record(c.Object)))
		}
		p.read[m.name] = c.Revision
	}
	if _, err := scope.Commit(); err != nil {
		panic(err)
	}
}

// behind returns how many changes of a member the process has not read.
func (p *process) behind(m *member) int {
	changes, _ := m.server.Since("deployments", p.read[m.name])
	return len(changes)
}

// setState sets the state of the process's scope of a member.
func (p *process) setState(m *member, state aggregate.State) {
	scope := p.scopes[m.name]
	p.world.mu.Lock()
	p.away[m.name] = state == aggregate.Stale
	p.world.mu.Unlock()
	scope.SetStatus(aggregate.Status{State: state})
	if _, err := scope.Commit(); err != nil {
		panic(err)
	}
}

// record is an object as the index holds it.
func record(object map[string]any) *aggregate.Record {
	meta := maps.Clone(object["metadata"].(map[string]any))
	delete(meta, "managedFields")
	object = maps.Clone(object)
	object["metadata"] = meta
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if err := e.Encode(object); err != nil {
		panic(err)
	}
	r := &aggregate.Record{
		Namespace: fmt.Sprint(meta["namespace"]), Name: fmt.Sprint(meta["name"]), UID: fmt.Sprint(meta["uid"]),
		ResourceVersion: fmt.Sprint(meta["resourceVersion"]), Body: bytes.TrimSpace(body.Bytes()), Update: true,
	}
	labels, _ := meta["labels"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		r.Labels = append(r.Labels, aggregate.Label{Key: key, Value: fmt.Sprint(labels[key])})
	}
	return r
}
