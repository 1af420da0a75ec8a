package simulation

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/simulation/apiserver"
)

// options are what may happen next, the most ordinary first.
func (w *world) options() []option {
	var all []option
	add := func(weight int, name string, do func()) {
		if weight *= w.rate(name); weight > 0 {
			all = append(all, option{weight, name, do})
		}
	}
	for _, p := range w.processes {
		w.offerRequests(p, add)
		w.offerReads(p, add)
	}
	add(10, "time", func() {
		w.pass([]time.Duration{time.Second, 3 * time.Second, time.Second, 20 * time.Second, 3 * time.Second, 2 * time.Minute, time.Hour}[w.choices.below(7)])
		w.note("time passes")
	})
	w.offerFleet(add)
	w.offerPeople(add)
	w.offerProcesses(add)
	for _, r := range w.late {
		add(3, "late", func() { w.executeLate(r) })
	}
	return all
}

// unusual are the names of what happens in some schedules often, in others never: what
// matters is often a combination of few things, many times each.
var unusual = []string{"fault", "away", "hub", "crash", "pause", "start", "drift", "degraded", "suspend", "edit", "delete", "stop", "stop a policy", "hold a member", "late", "withdraw", "unproven", "deny", "roll back", "ceiling", "owner"}

// drawRates draws how often each of them happens.
func drawRates(c *choices) map[string]int {
	rates := map[string]int{}
	for _, name := range unusual {
		rates[name] = []int{0, 1, 0, 3}[c.below(4)]
	}
	return rates
}

func (w *world) rate(name string) int {
	if rate, drawn := w.rates[name]; drawn {
		return rate
	}
	return 3
}

// calmOptions are what is left to do once faults are over, in order.
func (w *world) calmOptions() (all []option) {
	add := func(_ int, name string, do func()) { all = append(all, option{1, name, do}) }
	for _, r := range w.late {
		add(1, "late", func() { w.executeLate(r) })
	}
	for _, p := range w.processes {
		for _, r := range p.link.waiting() {
			add(1, "answer", func() { w.answer(p, r) })
		}
		w.offerReads(p, add)
	}
	if w.stops.All != "" {
		add(1, "resume", func() { w.want(func() { w.stops.All = "" }) })
	}
	w.calmApprovals(add)
	w.offerPromotions(add)
	for _, p := range w.processes {
		w.offerOwnersTo(p, add)
	}
	for _, p := range w.processes {
		if !p.recovered() {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(w.policies)) {
			if s, ok := p.dispatcher.Status(name); ok && w.mayAcknowledge(s.Halted) && p.leads() {
				add(1, "acknowledge", func() { w.acknowledge(p, name, s.Halted.ID) })
			}
		}
	}
	for _, m := range w.members { // after processes, which may have to wait for them
		for _, name := range m.unreconciled() {
			add(1, "controller", func() { w.reconcile(m, name, false) })
		}
	}
	w.offerRival(add)
	w.offerRelapse(add)
	return all
}

// server returns who a request is to, nil where nothing reaches them.
func (w *world) server(to string) *apiserver.Server {
	if to == "hub" {
		if w.hubAway {
			return nil
		}
		return w.hub
	}
	if m := w.member(to); !m.away {
		return m.server
	}
	return nil
}

// offerRequests offers what may become of the requests of a process.
func (w *world) offerRequests(p *process, add func(int, string, func())) {
	if p.paused {
		return
	}
	for _, r := range p.link.waiting() {
		if r.hangs {
			continue
		}
		add(40, "answer", func() { w.answer(p, r) })
		add(1, "fault", func() { w.fault(p, r, w.choices.below(8)) })
	}
}

// answer answers a request in order.
func (w *world) answer(p *process, r *parked) {
	s := w.server(r.to)
	if s == nil {
		w.note("%s < %s: refused, it is away: %s", p.name, r.to, r)
		p.link.reply(r, nil, errRefused)
		return
	}
	if r.response == nil {
		r.response = w.execute(p, r, s)
	}
	w.note("%s < %s: %d %s", p.name, r.to, r.response.StatusCode, r)
	p.link.reply(r, r.response, nil)
}

// execute has a server execute a request, and shows the model what came of it.
func (w *world) execute(p *process, r *parked, s *apiserver.Server) *http.Response {
	if m := w.member(r.to); m != nil && m.denies && r.request.Method != http.MethodGet {
		err := apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "x", errors.New("admission webhook denied the request"))
		w.model.waves.answered(w.writeOf(r), http.StatusForbidden)
		return apiserver.StatusResponse(r.request, &err.ErrStatus)
	}
	_, before := s.Since("deployments", 1<<62)
	var was map[string]any
	if r.writes() {
		was = s.Peek("deployments", namespace, w.writeOf(r).name)
	}
	response := r.execute(s)
	if r.to != "hub" && r.request.Method != http.MethodGet {
		w.model.waves.answered(w.writeOf(r), response.StatusCode)
	}
	_, after := s.Since("deployments", 1<<62)
	if r.writes() && after > before {
		w.model.owner.written(w, w.writeOf(r), was)
		w.model.written(w, p, r)
	}
	return response
}

// fault lets a request fail.
func (w *world) fault(p *process, r *parked, how int) {
	s := w.server(r.to)
	status := func(what string, err *apierrors.StatusError) {
		w.note("%s < %s: %s: %s", p.name, r.to, what, r)
		p.link.reply(r, apiserver.StatusResponse(r.request, &err.ErrStatus), nil)
	}
	switch {
	case how == 0 || s == nil:
		w.note("%s < %s: refused: %s", p.name, r.to, r)
		p.link.reply(r, nil, errRefused)
	case how == 1:
		status("429", apierrors.NewTooManyRequests("busy", 1))
	case how == 2:
		status("503", apierrors.NewServiceUnavailable("not now"))
	case how == 3:
		status("500", apierrors.NewInternalError(fmt.Errorf("etcd")))
	case how == 4:
		w.note("%s < %s: executed, the answer is lost: %s", p.name, r.to, r)
		if r.response == nil {
			w.execute(p, r, s)
		}
		p.link.reply(r, nil, errReset)
	case how == 5:
		w.note("%s < %s: lost before it is executed: %s", p.name, r.to, r)
		p.link.reply(r, nil, errReset)
	case how == 6 && r.request.Method == http.MethodPatch:
		status("409", apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "x", fmt.Errorf("somebody else was faster")))
	case how == 6 && r.response == nil:
		w.note("%s < %s: the answer waits: %s", p.name, r.to, r)
		r.response = w.execute(p, r, s)
	default:
		w.note("%s < %s: hangs: %s", p.name, r.to, r)
		r.hangs = true
		if r.response == nil {
			w.late = append(w.late, r)
		}
	}
}

// executeLate executes a request that hangs, whether or not its client still waits.
func (w *world) executeLate(r *parked) {
	w.late = slices.DeleteFunc(w.late, func(o *parked) bool { return o == r })
	if s := w.server(r.to); s != nil && time.Since(r.sent) < time.Minute {
		w.note("%s: executed late: %s %s", r.process, r.to, r)
		w.execute(nil, r, s)
	}
}

// offerReads offers that a process reads what members have to say.
func (w *world) offerReads(p *process, add func(int, string, func())) {
	if p.paused {
		return
	}
	if p.told.version < w.version {
		add(10, "learn", func() { p.learn(); w.note("%s learns what people want", p.name) })
	}
	for _, m := range w.members {
		_, listed := p.read[m.name]
		switch {
		case m.away:
		case !listed:
			add(20, "list", func() { p.list(m); w.note("%s lists %s", p.name, m.name) })
		default:
			if n := p.behind(m); n > 0 {
				add(20, "follow", func() { p.follow(m, 1+w.choices.below(n)); w.note("%s reads changes of %s", p.name, m.name) })
			}
		}
	}
}

// offerFleet offers what happens to members without federator.
func (w *world) offerFleet(add func(int, string, func())) {
	add(5, "drift", func() {
		m := w.members[w.choices.below(len(w.members))]
		name, how := fmt.Sprintf("d%d", w.choices.below(3)), w.choices.below(7)
		w.drift(m, name, how)
		w.note("%s: %s is changed (%d)", m.name, name, how)
	})
	for _, m := range w.members {
		for _, name := range m.unreconciled() {
			add(5, "controller", func() { w.reconcile(m, name, false) })
			add(1, "degraded", func() { w.reconcile(m, name, true) })
		}
	}
	add(1, "away", func() {
		m := w.members[w.choices.below(len(w.members))]
		w.setAway(m, !m.away)
	})
	add(3, "deny", func() {
		m := w.members[w.choices.below(len(w.members))]
		m.denies = !m.denies
		w.note("%s: it denies writes %t", m.name, m.denies)
	})
	add(1, "hub", func() {
		w.hubAway = true
		w.note("hub: away")
	})
	if w.hubAway {
		add(20, "hub is back", func() {
			w.hubAway = false
			w.note("hub: back")
		})
	}
}

func (w *world) reconcile(m *member, name string, fails bool) {
	m.reconcile(name, fails) // which keeps annotations
	w.note("%s: the controller of %s has reconciled it, degraded %t", m.name, name, fails)
}

// offerProcesses offers that processes end, pause and start.
func (w *world) offerProcesses(add func(int, string, func())) {
	if len(w.processes) < 3 {
		add(1, "start", func() { w.addProcess(); w.note("p%d starts", w.born) })
	}
	for _, p := range w.processes {
		add(1, "crash", func() { w.crash(p) })
		add(1, "pause", func() {
			p.paused = !p.paused
			w.note("%s: paused %t", p.name, p.paused)
		})
	}
}

// crash ends a process as a kill does.
func (w *world) crash(p *process) {
	w.note("%s crashes", p.name)
	p.crash()
	w.processes = slices.DeleteFunc(w.processes, func(o *process) bool { return o == p })
	w.zombies = append(w.zombies, p)
}

// setAway says whether a member is within reach. Processes notice at once.
func (w *world) setAway(m *member, away bool) {
	m.away = away
	w.note("%s: away %t", m.name, m.away)
	for _, p := range w.processes {
		if _, listed := p.read[m.name]; listed {
			p.setState(m, map[bool]aggregate.State{true: aggregate.Stale, false: aggregate.Synced}[away])
		}
	}
}
