package hostile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube"
)

// TestHostile plays what has found something once and, where the environment's HOSTILE
// is a duration, attacks for so long from HOSTILE_SEED: a run without it is the same each
// time. HOSTILE_CLASSES, with commas between, are the classes of
// attacks; HOSTILE_EACH is how often each is played in its turn instead. HOSTILE_BINARY is
// a federator that is built already, HOSTILE_SKIP names oracles that are not checked, and
// with HOSTILE_ON a run goes on after a finding.
func TestHostile(t *testing.T) {
	lasts, seed, each := time.Duration(0), uint64(time.Now().UnixNano()), uint64(0)
	var err error
	if v := os.Getenv("HOSTILE"); v != "" {
		lasts, err = time.ParseDuration(v)
		must(t, err)
	}
	for name, to := range map[string]*uint64{"HOSTILE_SEED": &seed, "HOSTILE_EACH": &each} {
		if v := os.Getenv(name); v != "" {
			*to, err = strconv.ParseUint(v, 10, 64)
			must(t, err)
		}
	}
	classes, err := Select(words("HOSTILE_CLASSES"))
	must(t, err)
	t.Logf("HOSTILE_SEED=%d", seed)
	r := newRig(t)
	run := &run{rig: r, found: map[string]int{}}
	defer run.report()
	ended := time.Now().Add(lasts)
	switch {
	case each > 0:
		for _, c := range classes {
			for n := range each {
				if !run.step(n, draw(seed, n, []Class{c})) {
					return
				}
			}
		}
	default:
		for _, e := range found {
			s, err := e.step()
			must(t, err)
			if !run.step(0, s) {
				return
			}
		}
		for n := uint64(0); time.Now().Before(ended); n++ {
			if !run.step(n, draw(seed, n, classes)) {
				return
			}
		}
	}
	must(t, r.unbroken())
	must(t, kube.Until(t.Context(), patience, func() error { return r.backTo(t.Context()) }))
	if !byHand() {
		return
	}
	for _, err := range skipped(r.restarted(t.Context(), r.binary)) {
		t.Error(err)
	}
}

// byHand reports whether somebody looks for what nobody knows yet, and has time.
func byHand() bool { return os.Getenv("HOSTILE") != "" }

func words(variable string) []string {
	return strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' })
}

// run is what a test plays.
type run struct {
	*rig
	found map[string]int // by oracle and classes
	steps int
}

// step plays one step and reports whether the run goes on.
func (r *run) step(n uint64, s step) bool {
	err := r.play(r.t.Context(), s)
	r.steps++
	if err == nil {
		return true
	}
	r.found[oraclesOf(err)+": "+s.names()]++
	r.t.Errorf("HOSTILE_SEED=%d step %d, %s: %v\n%s", s.of, n, s, err, strings.Join(r.trace[max(0, len(r.trace)-6):], "\n"))
	return os.Getenv("HOSTILE_ON") != "" && r.unbroken() == nil
}

// report logs what was played and found.
func (r *run) report() {
	var lines []string
	for what, n := range r.found {
		lines = append(lines, fmt.Sprintf("%d times %s", n, what))
	}
	slices.Sort(lines)
	r.t.Logf("%d steps, %d requests of readers, %d with what may be seen; findings:\n%s", r.steps, r.requests.Load(), r.shown.Load(), strings.Join(lines, "\n"))
}

// step is one attack.
type step struct {
	of      uint64 // the seed that it was drawn from
	seed    uint64
	classes []Class // in force together
	habit   habit   // of a reader meanwhile
	upon    string  // whose server the attacker has
	late    bool    // it is honest until it has been followed for a while
	lasts   time.Duration
	back    bool // its attacks end, and what is held must come to equal it
}

func (s step) names() string {
	var names []string
	for _, c := range s.classes {
		names = append(names, c.Name)
	}
	return strings.Join(names, "+")
}

func (s step) String() string {
	return fmt.Sprintf("%s upon %s (late %v, back %v), habit %s", s.names(), s.upon, s.late, s.back, s.habit.name)
}

// draw makes a step from a seed and its number alone.
func draw(seed, n uint64, classes []Class) step {
	rng := rand.New(rand.NewPCG(seed, n)) // a mix, not a secret
	s := step{
		of: seed, seed: rng.Uint64() | 1, upon: honest[rng.IntN(len(honest))], late: rng.IntN(3) == 0,
		lasts: time.Duration(1500+rng.IntN(2000)) * time.Millisecond, back: rng.IntN(8) == 0,
	}
	for range 1 + rng.IntN(8)/7 { // two at once, sometimes
		total := 0
		for _, c := range classes {
			total += c.Weight
		}
		at := rng.IntN(total)
		for _, c := range classes {
			if at -= c.Weight; at < 0 {
				s.classes = append(s.classes, c)
				break
			}
		}
	}
	if s.habit = drawHabit(rng); len(s.habit.beside) > 0 {
		beside, err := Select(s.habit.beside)
		if err != nil {
			panic(err) // a mistake in the table
		}
		s.classes, s.late, s.back = beside, false, false
	}
	return s
}

// step is that of an attack that has found something.
func (e finding) step() (step, error) {
	classes, err := Select([]string{e.class})
	if err != nil {
		return step{}, err
	}
	s := draw(e.seed, 0, classes)
	s.classes = classes
	i := slices.IndexFunc(habits, func(h habit) bool { return h.name == e.habit })
	if i < 0 {
		return s, fmt.Errorf("there is no habit %q", e.habit)
	}
	s.habit = habits[i]
	return s, nil
}

var steps atomic.Uint64

// play attacks, lets readers query meanwhile, and checks what must hold.
func (r *rig) play(ctx context.Context, s step) (err error) {
	n := steps.Add(1)
	r.note("step: %s", s)
	logged, err := r.fed.logSize()
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(s.seed, 3)) // a mix, not a secret
	var attacks []*Attack
	before, overfull := inJSON, false
	for _, c := range s.classes {
		l := c.Draw(rng)
		s.back, s.late = s.back || l.Back, s.late || l.Late
		if l.Complete {
			before = &Attack{}
		}
		overfull = overfull || l.Overfull
		attacks = append(attacks, l)
	}
	l, err := r.join(ctx, fmt.Sprintf("e%d", n), s.upon)
	if err != nil {
		return err
	}
	left := false
	defer func() {
		if !left {
			err = errors.Join(err, r.leave(ctx, l))
		}
	}()
	if s.late {
		l.proxy.SetAttacks(s.seed^4, before)
	} else {
		l.proxy.SetAttacks(s.seed, attacks...)
	}
	x, err := r.newReader(ctx, fmt.Sprintf("reader-%d-%d", s.seed, n), rng)
	if err != nil {
		return err
	}
	if err := l.register(ctx, r.hub); err != nil {
		return err
	}
	if s.late {
		r.seen(ctx, l, seenWithin)
		l.proxy.SetAttacks(s.seed, attacks...)
	}
	l.awaitRequests(ctx)
	within := seenWithin
	if overfull {
		within *= 8 // hundreds of megabytes
	}
	r.seen(ctx, l, within) // what it says has come in, if ever it does
	// Readers send requests while it attacks.
	asking, end := context.WithTimeout(ctx, s.lasts)
	defer end()
	var readers sync.WaitGroup
	errs := make([]error, 3)
	for i := range 2 {
		rng := rand.New(rand.NewPCG(s.seed, uint64(10+i))) // a mix, not a secret
		y := *x
		readers.Go(func() {
			for asking.Err() == nil && errs[i] == nil {
				errs[i] = y.ask(ctx, rng, []string{l.name})
			}
		})
	}
	readers.Go(func() { errs[2] = s.habit.do(r, ctx, rng, fmt.Sprintf("greedy-%d-%d", s.seed, n)) })
	readers.Wait()
	r.flooded(ctx, l)
	wrong := skipped(errs...)
	checks := []struct {
		name  string
		check func(context.Context) error
	}{
		{"honest", r.honestEqual},
		{"verdicts", func(ctx context.Context) error { return r.verdictsEqual(ctx, overfull) }},
		{"scopes", r.scopesEqual},
		{"heap", func(ctx context.Context) error { return r.heapWithin(ctx, attacks) }},
		{"fresh", r.honestFresh},
		{"state", func(ctx context.Context) error { return r.asSaid(ctx, l, attacks) }},
	}
	for _, c := range checks {
		within := holdsWithin
		if c.name == "heap" {
			within = max(within, r.pagesGone())
		}
		err := kube.Until(ctx, within, func() error {
			if r.unbroken() != nil {
				return nil // it will not get better
			}
			return c.check(ctx)
		})
		if err != nil {
			if c.name == "heap" {
				r.keepHeap(ctx, n)
			}
			wrong = append(wrong, skipped(&Finding{c.name, err})...)
			r.adopt(ctx)
		}
	}
	wrong = append(wrong, skipped(r.unbroken(), l.takenWithin(), r.loggedWithin(logged), r.holds(ctx, l, attacks), r.named(ctx, l, attacks), r.eventsWithin(ctx))...)
	if s.back && len(wrong) == 0 {
		if attacks[0].Then != nil {
			l.proxy.SetAttacks(0, attacks[0].Then)
		} else {
			l.proxy.SetAttacks(s.seed ^ 2)
		}
		if err := r.comesBack(ctx, l); err != nil {
			wrong = append(wrong, skipped(&Finding{"back", err})...)
		}
	}
	left = true
	if err := r.leave(ctx, l); err != nil {
		wrong = append(wrong, skipped(&Finding{"leave", err})...)
	}
	if overfull && r.unbroken() == nil {
		if err := kube.Until(ctx, servedWithin, func() error { return r.verdictsEqual(ctx, false) }); err != nil {
			wrong = append(wrong, skipped(&Finding{"verdicts", fmt.Errorf("after views that held too much: %w", err)})...)
		}
	}
	return errors.Join(wrong...)
}

// adopt takes what has been found for what is, so that it is not found in each step.
func (r *rig) adopt(ctx context.Context) {
	members, err := r.fed.members(ctx)
	if err != nil {
		return
	}
	for _, name := range honest {
		for _, s := range members[name].Details {
			r.kinds[name][s.Kind] = true
		}
	}
}

// holdsWithin is how long what must hold may take to come about on a busy machine.
const holdsWithin = time.Minute

// seenWithin is how long an attacker may take to be followed.
const seenWithin = 5 * time.Second

// seen waits for an attacker to be followed.
func (r *rig) seen(ctx context.Context, l *attacker, within time.Duration) {
	_ = kube.Until(ctx, within, func() error { // whether it is decides nothing
		members, err := r.fed.members(ctx)
		if err == nil && !members[l.name].Synced {
			err = fmt.Errorf("%s has not synced", l.name)
		}
		for _, scope := range members[l.name].Details {
			if scope.State == aggregate.Syncing || scope.State == aggregate.Stale {
				err = fmt.Errorf("%s of %s is %s", scope.Kind, l.name, scope.State)
			}
		}
		return err
	})
}

// inJSON changes nothing but the encoding: what is requested in protobuf comes in JSON, as
// it does under attacks that change content.
var inJSON = &Attack{Object: func(*Call, map[string]any) {}}

// awaitRequests waits a moment for lists of an attacker, on a busy machine too.
func (l *attacker) awaitRequests(ctx context.Context) {
	before := l.proxy.Requests(List) + l.proxy.Requests(WatchList)
	_ = kube.Until(ctx, 6*time.Second, func() error { // some attacks keep it from being listed at all
		if n := l.proxy.Requests(List) + l.proxy.Requests(WatchList) - before; n < 20 {
			return fmt.Errorf("%d lists were requested", n)
		}
		return nil
	})
}

// flooded waits a moment for what an attacker sends to have been sent.
func (r *rig) flooded(ctx context.Context, l *attacker) {
	_ = kube.Until(ctx, 2*holdsWithin, func() error { // who does not read it has nothing of it
		if n := l.proxy.Flooding(); n > 0 {
			return fmt.Errorf("%d floods are under way", n)
		}
		return nil
	})
}

// comesBack waits for what is held of a member to equal what it serves, and then for the
// verdicts on it, if it is still followed: what is beyond a budget is tried again only
// minutes later.
func (r *rig) comesBack(ctx context.Context, l *attacker) error {
	followed := false
	err := kube.Until(ctx, 40*time.Second, func() error {
		members, err := r.fed.members(ctx)
		if err != nil {
			return err
		}
		for _, s := range members[l.name].Details {
			if s.State.String() == "OverBudget" {
				return nil
			}
		}
		if members[l.name].State == "Refused" {
			return nil
		}
		err = r.equal(ctx, l.name, l.upon, disguise)
		followed = err == nil
		return err
	})
	if !followed {
		return err
	}
	want, err := r.fullEvaluation(ctx, l)
	if err != nil {
		return err
	}
	// A quarantine takes a minute.
	return kube.Until(ctx, 2*patience, func() error { return r.verdictsMatch(ctx, want, nil, url.Values{"member": {l.name}}) })
}
