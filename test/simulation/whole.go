package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/enforcement"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/simulation/apiserver"
)

// whole is a world in which processes are whole: their controllers read what people want
// from the hub, and policies from git.
type whole struct {
	*world

	git     *repository
	gitAway bool
	newest  content         // of the repository
	good    content         // the newest that is no error
	acked   map[string]bool // halts that people acknowledge, by ID
	status  statusModel
}

// wholeNames are the FleetPolicies, each of the package of its name.
var wholeNames = []string{"replicas", "tier"}

// hubNamespace is federator's namespace.
const hubNamespace = "federator"

// newWhole draws a world of whole processes.
func newWhole(ctx context.Context, c *choices) *whole {
	w := &whole{
		world: &world{
			choices: c, ctx: ctx, start: time.Now(), hub: apiserver.New(hubKinds(), false), states: map[[8]byte]bool{}, arrived: make(chan struct{}, 1),
			rates: drawRates(c), perMember: 4, held: map[string]string{}, policies: map[string]*wish{},
		},
		git: newRepository(), acked: map[string]bool{}, status: newStatusModel(),
	}
	w.model = newModel(w.world)
	w.model.whole = true
	for _, name := range wholeNames {
		w.policies[name] = &wish{policy: name}
	}
	for n := range c.between(1, 3) {
		w.addMember(n, c.between(1, 3))
	}
	w.commit(0)
	w.hub.Change("policysources", "", "team", "person", func(map[string]any) map[string]any {
		return object("PolicySource", "team", map[string]any{
			"url": "https://git.example/policies", "interval": "10s", "ceiling": map[string]any{"maxMode": "Enforce", "actions": []any{
				map[string]any{"verbs": []any{"patch", "apply"}, "kinds": []any{"Deployment.apps"}},
			}},
		})
	})
	for _, name := range wholeNames[:1+c.below(2)] {
		w.put(name, w.drawSpec(name))
	}
	w.boot()
	if c.oneIn(2) {
		w.boot()
	}
	return w
}

// object is an object of federator's kinds.
func object(kind, name string, spec map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}
}

// drawSpec draws the spec of a FleetPolicy.
func (w *whole) drawSpec(name string) map[string]any {
	c := w.choices
	count := func(n int) map[string]any { return map[string]any{"count": int64([]int{20, 3, 2, 1}[n])} }
	spec := map[string]any{
		"package": name, "mode": []string{"Enforce", "Enforce", "Enforce", "Observe"}[c.below(4)], "suspend": c.oneIn(8),
		"limits": map[string]any{
			"window":      []string{"1h", "10m"}[c.below(2)],
			"maxAffected": map[string]any{"policy": count(c.below(4)), "member": count(c.below(4))},
		},
	}
	return spec
}

// put creates a FleetPolicy, or changes its spec.
func (w *whole) put(name string, spec map[string]any) {
	text, err := json.Marshal(spec)
	must(err)
	w.note("people: FleetPolicy %s: %s", name, text)
	w.hub.Change(v1alpha1.FleetPolicies, "", name, "person", func(o map[string]any) map[string]any {
		if o == nil {
			return object("FleetPolicy", name, spec)
		}
		o["spec"] = spec
		return o
	})
	w.policies[name].version++
}

// boot starts a process, and answers it until it has nothing to ask.
func (w *whole) boot() {
	p := w.addWhole()
	for range 4 {
		w.serve(p)
		w.pass(time.Second)
	}
}

// wholeMembers are the members as a process knows them: the world has read them.
type wholeMembers struct{ *process }

// CheckWritable implements enforcement.Members.
func (m wholeMembers) CheckWritable(member string) error { return m.held(member) }

// RequireKinds implements enforcement.Members: there is one kind.
func (wholeMembers) RequireKinds([]policy.Kind) {}

// addWhole starts a whole process.
func (w *whole) addWhole() *process {
	w.born++
	name := fmt.Sprintf("p%d", w.born)
	offset := []time.Duration{0, 0, 3 * time.Second, -40 * time.Second}[w.choices.below(4)]
	p := &process{world: w.world, name: name, offset: offset, scopes: map[string]*aggregate.Scope{}, read: map[string]uint64{}, away: map[string]bool{}}
	p.link = &link{process: name, arrived: w.arrived}
	p.told.stops.All = "nothing is known yet"
	var err error
	p.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	must(err)
	for _, m := range w.members {
		must(p.index.PutMember(aggregate.Member{Name: m.name, UID: m.name}))
		p.scopes[m.name], err = p.index.OpenScope(m.name, "Deployment.apps", "apps/v1")
		must(err)
	}
	e, err := enforcement.New(enforcement.Options{
		Hub:   &rest.Config{Host: "http://hub", Transport: route{p.link, "hub"}, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
		Index: p.index, Members: wholeMembers{p}, Namespace: hubNamespace, Identity: name,
		Git: policysource.Options{
			Transport: route{p.link, gitHost}, Jitter: func(d time.Duration) time.Duration { return d },
			Test: func(context.Context, policysource.Candidate) ([]policy.Finding, error) { return nil, nil },
		},
		Retention: 7 * 24 * time.Hour, Keep: 1000, MemberAway: p.unreachable, Clock: func() time.Time { return time.Now().Add(p.offset) },
	})
	must(err)
	p.lease = e.Lease
	ctx, cancel := context.WithCancel(w.ctx)
	p.cancel = cancel
	p.ended.Go(func() { _ = e.Run(ctx) })
	w.processes = append(w.processes, p)
	w.note("%s starts", name)
	return p
}

// watch reports whether a request is a watch.
func (p *parked) watch() bool { return p.to == "hub" && p.request.URL.Query().Get("watch") != "" }

// answer answers a request in order.
func (w *whole) answer(p *process, r *parked) {
	switch {
	case r.to == gitHost && w.gitAway || r.watch() && w.hubAway:
		w.refuse(p, r)
	case r.to == gitHost:
		w.note("%s < git: %s", p.name, r)
		p.link.reply(r, w.git.answer(r), nil)
	case r.watch():
		w.note("%s < hub: watch %s", p.name, r.request.URL.Path)
		response, err := w.hub.RoundTrip(r.request)
		must(err)
		if watch, ok := response.Body.(*apiserver.Watch); ok {
			p.watches = append(p.watches, watch)
		}
		p.link.reply(r, response, nil)
		w.learn(p)
	default:
		w.status.before(w, r)
		w.world.answer(p, r)
		w.status.after(w, p, r)
	}
}

func (w *whole) refuse(p *process, r *parked) {
	w.note("%s < %s: refused: %s", p.name, r.to, r)
	p.link.reply(r, nil, errRefused)
}

// fault lets a request fail.
func (w *whole) fault(p *process, r *parked, how int) {
	switch {
	case r.to != gitHost && !r.watch():
		w.status.before(w, r)
		w.world.fault(p, r, how)
		w.status.after(w, p, r)
	case how == 0:
		w.note("%s < %s: hangs: %s", p.name, r.to, r)
		r.hangs = true
	case how%2 == 0:
		w.note("%s < %s: 503: %s", p.name, r.to, r)
		p.link.reply(r, &http.Response{StatusCode: http.StatusServiceUnavailable, Request: r.request, Header: http.Header{}, Body: http.NoBody}, nil)
	default:
		w.refuse(p, r)
	}
}

// open returns the open watches of a process.
func (p *process) open() []*apiserver.Watch {
	p.watches = slices.DeleteFunc(p.watches, func(o *apiserver.Watch) bool { return o.Context().Err() != nil || o.Ended() })
	slices.SortStableFunc(p.watches, func(a, b *apiserver.Watch) int { return strings.Compare(a.Resource(), b.Resource()) })
	return p.watches
}

// deliver delivers the next events of the watches of a resource of a process.
func (w *whole) deliver(p *process, resource string, most int) {
	for _, o := range p.open() {
		if o.Resource() == resource {
			o.Deliver(most)
		}
	}
	w.note("%s reads changes of %s", p.name, resource)
	w.learn(p)
}

// pending returns the resources of which a process has not been told everything.
func (p *process) pending() (resources []string) {
	for _, o := range p.open() {
		if o.Pending() > 0 && !slices.Contains(resources, o.Resource()) {
			resources = append(resources, o.Resource())
		}
	}
	return resources
}

// knows returns the revision of a resource that all watches of a process have reached, 0 if
// it has none.
func (p *process) knows(resource string) (revision uint64) {
	for _, o := range p.open() {
		if o.Resource() == resource && (revision == 0 || o.Revision() < revision) {
			revision = o.Revision()
		}
	}
	return revision
}

// learn notes what a process could know of what people want.
func (w *whole) learn(p *process) {
	if at := p.knows(v1alpha1.FleetPolicies); at > 0 {
		p.told.policies = map[string]*wish{}
		for _, o := range w.hub.ObjectsAt(v1alpha1.FleetPolicies, at) {
			x := wishOf(o)
			p.told.policies[x.policy] = x
		}
	}
	if at := p.knows("configmaps"); at > 0 {
		p.told.stops = remediate.Stops{Policies: map[string]string{}, Members: map[string]string{}}
		for _, o := range w.hub.ObjectsAt("configmaps", at) {
			data, _ := o["data"].(map[string]any)
			if name, _ := data["name"].(string); name != "" {
				p.told.stops.Policies[name] = "stopped"
			} else {
				p.told.stops.All = "stopped"
			}
		}
	}
}

// wishOf is what a FleetPolicy wants.
func wishOf(o map[string]any) *wish {
	text, err := json.Marshal(o)
	must(err)
	var fp v1alpha1.FleetPolicy
	must(json.Unmarshal(text, &fp))
	x := &wish{policy: fp.Name, enforced: fp.Spec.Mode == v1alpha1.Enforce, suspended: fp.Spec.Suspend, window: fp.Spec.Limits.Window.Duration}
	x.perPolicy, x.perMember = int(*fp.Spec.Limits.MaxAffected.Policy.Count), int(*fp.Spec.Limits.MaxAffected.Member.Count)
	return x
}

// serve answers all that a process asks and tells it all there is, until it has no questions.
func (w *whole) serve(p *process) {
	for range 500 {
		w.settle()
		if w.failure != nil || p.paused {
			return
		}
		if o := w.ordinary(p); len(o) > 0 {
			o[0].do()
			continue
		}
		return
	}
	w.fail("7 liveness", "%s asks without end", p.name)
}

// ordinary is what ought to happen to a process, in order.
func (w *whole) ordinary(p *process) (all []option) {
	add := func(_ int, name string, do func()) { all = append(all, option{1, name, do}) }
	for _, r := range p.link.waiting() {
		if !r.hangs {
			add(1, "answer", func() { w.answer(p, r) })
		}
	}
	for _, resource := range p.pending() {
		add(1, "deliver", func() { w.deliver(p, resource, 0) })
	}
	w.offerReads(p, add)
	return all
}

// run does so many steps, then lets everything come to rest.
func (w *whole) run(steps int) {
	defer w.end()
	for w.step = 1; w.step <= steps && w.failure == nil; w.step++ {
		w.settle()
		if w.failure != nil {
			return
		}
		w.states[digest(w.state())] = true
		w.choices.pick(w.options()).do()
		w.status.check(w)
	}
	if w.failure == nil {
		w.rest()
	}
}

// rest ends all faults: everything is answered and delivered, people acknowledge halts, and
// what is wanted comes to pass, and the hub says so.
func (w *whole) rest() {
	w.note("faults are over")
	w.calm, w.hubAway, w.gitAway = true, false, false
	for _, m := range w.members {
		w.setAway(m, false)
		m.denies = false
	}
	w.mu.Lock()
	clear(w.held)
	w.mu.Unlock()
	for len(w.processes) > 1 {
		w.crash(w.processes[1])
	}
	if len(w.processes) == 0 {
		w.addWhole()
	}
	p := w.processes[0]
	p.paused = false
	p.told.held = map[string]string{}
	for _, r := range p.link.waiting() {
		if r.hangs {
			p.link.reply(r, nil, errReset)
		}
	}
	why := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && w.failure == nil; w.step++ {
		w.serve(p)
		for _, m := range w.members {
			for _, name := range m.unreconciled() {
				w.reconcile(m, name, false)
			}
		}
		for _, r := range w.late {
			w.executeLate(r)
		}
		w.acknowledgeAll()
		w.status.check(w)
		if why = w.unrest(p); why == "" {
			return
		}
		w.pass(time.Minute)
	}
	if w.failure == nil {
		for _, resource := range []string{v1alpha1.PolicySources, v1alpha1.FleetPolicies, "policystates"} {
			objects, _ := w.hub.Objects(resource)
			for _, o := range objects {
				text, err := json.Marshal(o["status"])
				must(err)
				w.note("hub: %s %s: %s", resource, o["metadata"].(map[string]any)["name"], text)
			}
		}
		kind, text, _ := strings.Cut(why, ": ")
		w.fail(kind, "%v after the last fault: %s", patience, text)
	}
}

// unrest says what is not yet as it has to be, "" if all is.
func (w *whole) unrest(*process) string {
	if targets := w.wantedOfWhole(); len(targets) > 0 {
		return fmt.Sprintf("7 liveness: neither written nor refused: %v", targets)
	}
	if open := w.model.record.open(w.world); len(open) > 0 {
		return fmt.Sprintf("5 record: Actions that do not say what became of them: %v", open)
	}
	return w.status.wrong(w)
}

// RunWhole runs the schedule of a seed with whole processes.
func RunWhole(t *testing.T, seed uint64) Result { return playWhole.run(t, seed) }

// playWhole plays a schedule of whole processes.
var playWhole Player = func(t *testing.T, c *choices) Result {
	return bubble(t, func(ctx context.Context) Result {
		w := newWhole(ctx, c)
		w.run(minSteps + c.below(30))
		return Result{Steps: w.step, Failure: w.failure, History: w.history, States: w.states, choices: c.made}
	})
}

func must(err error) {
	if err != nil {
		panic(err) // of what is in memory
	}
}
