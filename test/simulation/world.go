package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/simulation/apiserver"
)

// world is everything that a schedule is about. It runs in a bubble of synctest; one
// goroutine at a time changes it, the schedule's.
type world struct {
	choices *choices
	ctx     context.Context
	start   time.Time
	step    int
	passes  int  // of time
	calm    bool // faults are over, and people act
	hub     *apiserver.Server
	hubAway bool
	// versions says that versions of policies roll out.
	versions bool
	rates    map[string]int // of what is unusual
	members  []*member

	processes []*process
	born      int
	ahead     time.Duration // most that a clock of a process has been ahead
	behind    time.Duration // least
	zombies   []*process    // crashed, and still ending
	arrived   chan struct{}
	perMember int
	bounds    fleetBounds
	owners    owners
	ceiling   ceiling       // of the source of all policies
	retention time.Duration // of Actions
	keep      int
	late      []*parked // clients have given up, and the request is not executed yet

	mu       sync.Mutex // of what processes ask for while they run
	version  int        // of what follows
	policies map[string]*wish
	stops    remediate.Stops
	held     map[string]string // members that nothing is written to, and why

	approvals []approval
	unproven  bool               // the hub does not prove who creates Approvals
	wishes    map[string][]*wish // all that was wanted of policies, by generation

	unready map[string]time.Time // when it was too early to acknowledge a halt, by its ID

	relapse  bool // what was corrected has to be again, once faults are over
	rival    rival
	upsets   int       // how often processes end while a policy is halted, once faults are over
	deadline time.Time // until when all must be well, once faults are over

	model   model
	states  map[[8]byte]bool
	history []string
	failure error
}

// newWorld draws a world.
func newWorld(ctx context.Context, c *choices) *world { return drawWorld(ctx, c, false) }

func drawWorld(ctx context.Context, c *choices, versions bool) *world {
	w := &world{
		versions: versions, choices: c, ctx: ctx, start: time.Now(), hub: apiserver.New(hubKinds(), false), states: map[[8]byte]bool{}, arrived: make(chan struct{}, 1),
		rates: drawRates(c), perMember: c.between(1, 4), bounds: drawBounds(c), owners: newOwners(), retention: []time.Duration{week, time.Minute}[c.below(2)], keep: []int{1000, 2}[c.below(2)], policies: map[string]*wish{}, wishes: map[string][]*wish{}, held: map[string]string{}, unready: map[string]time.Time{}, stops: remediate.Stops{Policies: map[string]string{}, Members: map[string]string{}},
	}
	for n := range c.between(1, 3) {
		w.addMember(n, c.between(1, 3))
	}
	for _, b := range bindings[:1+c.below(3)] {
		w.policies[b.Name] = w.drawWish(b.Name, 0)
	}
	w.drawDenials()
	w.model = newModel(w)
	for range c.between(1, 2) {
		p := w.addProcess()
		if !c.oneIn(4) {
			p.learn()
			for _, m := range w.members {
				p.list(m)
			}
		}
	}
	return w
}

func (w *world) drawWish(name string, generation int) *wish {
	c := w.choices
	x := &wish{policy: name, generation: generation, enforced: !c.oneIn(8), window: []time.Duration{time.Hour, 10 * time.Minute, 24 * time.Hour}[c.below(3)]}
	x.perPolicy, x.perMember = []int{0, 3, 2, 1}[c.below(4)], []int{0, 2, 1}[c.below(3)]
	if c.oneIn(3) {
		x.waves, x.soak = true, []time.Duration{time.Minute, 0, 10 * time.Minute}[c.below(3)]
	}
	if c.oneIn(3) {
		x.approvals, x.above = c.between(1, 2), []int{0, 50, 0}[c.below(3)]
	}
	if c.oneIn(3) {
		x.percent, x.percentIn = []float64{50, 0, 30}[c.below(3)], []float64{0, 50, 34}[c.below(3)]
	}
	x.fleet = []int{0, 0, 4, 2}[c.below(4)]
	x.opens = openings[c.below(len(openings))]
	kept := *x
	w.wishes[name] = append(w.wishes[name], &kept)
	return x
}

// drawEdit draws what people want of a policy next: something else, or what they wanted before.
func (w *world) drawEdit(name string) *wish {
	all := w.wishes[name]
	next := *all[w.choices.below(len(all))]
	if !w.choices.oneIn(4) {
		next = *w.drawWish(name, len(all))
	}
	next.version = w.policies[name].version + 1
	return &next
}

func (w *world) addProcess() *process {
	w.born++
	offset := []time.Duration{0, 0, 3 * time.Second, -40 * time.Second}[w.choices.below(4)]
	w.ahead, w.behind = max(w.ahead, offset), min(w.behind, offset)
	return w.startProcess(fmt.Sprintf("p%d", w.born), offset)
}

// note adds a line to the history.
func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%4d %10v  ", w.step, time.Since(w.start).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// fail records the first invariant that does not hold.
func (w *world) fail(invariant, format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf("%s: %s", invariant, fmt.Sprintf(format, args...))
		w.note("VIOLATED %v", w.failure)
	}
}

// run does so many steps, then lets everything come to rest.
func (w *world) run(steps int) {
	defer w.end()
	for w.step = 1; w.step <= steps && w.failure == nil; w.step++ {
		w.settle()
		if w.failure != nil {
			return
		}
		w.states[digest(w.state())] = true
		w.choices.pick(w.options()).do()
	}
	if w.failure == nil && !w.choices.oneIn(2) {
		w.rest()
	}
}

// settle waits until no goroutine has anything to do, and looks at what has been sent.
func (w *world) settle() {
	synctest.Wait()
	w.observe()
}

// observe shows the model the requests that have been sent since, and who gave up.
func (w *world) observe() {
	for _, p := range w.processes {
		for _, r := range p.link.waiting() {
			if w.model.seen[r] {
				continue
			}
			w.model.seen[r] = true
			w.note("%s > %s: %s", p.name, r.to, r)
			w.model.sent(w, p, r)
		}
	}
	w.model.check(w)
}

// pass lets time pass, until something is sent or so much has passed.
func (w *world) pass(most time.Duration) {
	select {
	case <-w.arrived: // of before
	default:
	}
	// Timers of a bubble that fire at one instant do so in a random order: the world's fires
	// at an instant of its own.
	w.passes++
	until := time.Now().Add(most).Truncate(time.Microsecond).Add(time.Duration(w.passes%1000) * time.Nanosecond)
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-w.arrived:
	case <-timer.C:
	}
}

// end ends all processes, as a kill does.
func (w *world) end() {
	for _, p := range w.processes {
		p.crash()
	}
	for _, p := range append(w.processes, w.zombies...) {
		p.ended.Wait()
	}
}

// patience is how long everything may take once faults are over: several retries of what
// has failed.
const patience = 40 * time.Minute

// mostAtOnce is how many requests a process may have answered without time passing.
const mostAtOnce = 2000

// rest ends all faults: requests are answered in their order, people acknowledge, and
// what is wanted must come to pass.
func (w *world) rest() {
	w.calm = true
	w.note("faults are over")
	w.hubAway, w.unproven = false, false
	for _, m := range w.members {
		w.setAway(m, false)
		m.denies = false
	}
	for len(w.processes) > 1 {
		w.crash(w.processes[1])
	}
	if len(w.processes) == 0 {
		w.addProcess()
	}
	for _, p := range w.processes {
		p.paused = false
		for _, r := range p.link.waiting() {
			if r.hangs {
				p.link.reply(r, nil, errReset)
			}
		}
	}
	w.relapse = !w.choices.oneIn(2)
	w.rival, w.upsets = w.drawRival(), []int{0, 0, 1, 0, 2}[w.choices.below(5)]
	fight := w.choices.oneIn(4)
	clear(w.owners.unknown)
	w.owners.version++
	w.mu.Lock()
	w.version++
	w.stops, w.held = remediate.Stops{Policies: map[string]string{}, Members: map[string]string{}}, map[string]string{}
	for name, x := range w.policies {
		x.suspended = false
		if name == "thrift" && !fight {
			x.enforced = false
		}
	}
	w.mu.Unlock()
	atOnce := 0 // answers since time last passed
	conceded := time.Now().Add(patience / 4)
	for w.deadline = time.Now().Add(patience); time.Now().Before(w.deadline) && w.failure == nil; w.step++ {
		w.settle()
		if w.thrives() && (w.isFighting("thrift") || w.isFighting("replicas") || time.Now().After(conceded)) {
			w.concede()
		}
		if w.upsets > 0 && (w.isHalted() || w.isSoaking()) { // before people and controllers act
			w.upsets--
			w.restart(false)
		}
		if o := w.calmOptions(); len(o) > 0 {
			o[0].do()
			if atOnce++; atOnce == mostAtOnce {
				w.fail("7 liveness", "%d requests without a pause in between: it writes without end", atOnce)
			}
		} else if w.model.quiet(w) {
			return
		} else {
			w.pass(time.Minute)
			atOnce = 0
		}
	}
	w.model.unfinished(w)
}

// state is a digest of what the world is like, to count how many are reached.
func (w *world) state() string {
	var b strings.Builder
	for _, m := range w.members {
		objects, _ := m.server.Objects("deployments")
		for _, o := range objects {
			labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
			fmt.Fprint(&b, o["spec"].(map[string]any)["replicas"], labels["tier"], " ")
		}
		fmt.Fprint(&b, m.away, "|")
	}
	for _, p := range w.processes {
		fmt.Fprint(&b, p.leads(), p.paused, w.version-p.told.version, " ")
		for _, m := range w.members {
			fmt.Fprint(&b, p.behind(m), " ")
		}
		var requests []string
		for _, r := range p.link.waiting() {
			requests = append(requests, r.to+r.request.Method)
		}
		slices.Sort(requests)
		fmt.Fprint(&b, requests, "|")
	}
	return b.String()
}
