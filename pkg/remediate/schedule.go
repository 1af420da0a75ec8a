package remediate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/pkg/policy"
)

// Run deals with what a predecessor left whenever this process comes to lead, and then
// corrects what bindings want, until the context ends. It returns when all that it
// started has ended.
func (d *Dispatcher) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { d.sweep(ctx) })
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if err := d.serve(ctx); err != nil {
			return err
		}
		start, changed, next := d.plan(time.Now())
		for _, i := range start {
			workers.Go(func() { d.correct(ctx, i) })
		}
		d.tell(changed...)
		timer.Reset(max(time.Until(next), time.Millisecond))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.wake:
		case <-timer.C:
		}
	}
}

// plan decides what is corrected now, which bindings' status has changed, and when to
// look again at the latest.
func (d *Dispatcher) plan(now time.Time) (start []*Intent, changed []string, next time.Time) {
	follower := ""
	if d.opts.Lead != nil {
		if err := d.opts.Lead(); err != nil {
			follower = err.Error()
		}
	}
	health, held := d.look(), d.heldMembers()
	d.mu.Lock()
	defer d.mu.Unlock()
	next = now.Add(time.Hour)
	if follower != "" {
		next = now.Add(time.Second)
	}
	d.ledger.prune(now, func(binding string) time.Duration {
		if w := d.bindings[binding]; w != nil {
			return w.contract.Limits.Window
		}
		return 0
	})
	for _, name := range sortedKeys(d.bindings) {
		w := d.bindings[name]
		before := w.mark()
		w.follower = follower
		more, at := d.planBinding(name, w, health, held, now)
		start = append(start, more...)
		next = earlier(next, at)
		if w.mark() != before {
			changed = append(changed, name)
		}
	}
	return start, changed, next
}

// mark is what of a binding's status is worth telling.
func (w *wanted) mark() string {
	id := ""
	if w.halt != nil {
		id = w.halt.ID
	}
	return fmt.Sprint(id, w.waiting, w.pending, w.progress.wave, w.progress.phase, w.progress.unhealthy)
}

// look finds the health of what waves have written, without the lock.
func (d *Dispatcher) look() map[policy.Ref]Health {
	found := map[policy.Ref]Health{}
	d.mu.Lock()
	for _, w := range d.bindings {
		if len(w.contract.Waves) > 0 && w.progress.phase != WaveDone {
			for target := range w.progress.touched {
				found[target] = Healthy
			}
		}
	}
	d.mu.Unlock()
	for target := range found {
		found[target] = d.opts.Health(target)
	}
	return found
}

// heldEvery is how soon it is asked again whether a member is still held.
const heldEvery = time.Second

// heldMembers says which members of those that corrections are wanted on may not be
// written to, and why. It is asked without the lock.
func (d *Dispatcher) heldMembers() map[string]error {
	held := map[string]error{}
	d.mu.Lock()
	for _, w := range d.bindings {
		for member := range w.members {
			held[member] = nil
		}
	}
	d.mu.Unlock()
	for member := range held {
		held[member] = d.opts.Held(member)
	}
	return held
}

// planBinding is plan for one binding. The caller holds the lock.
func (d *Dispatcher) planBinding(name string, w *wanted, health map[policy.Ref]Health, held map[string]error, now time.Time) (start []*Intent, next time.Time) {
	for target := range w.left {
		w.leave(target)
	}
	var targets []policy.Ref
	why, until := d.mayNot(w, now)
	if w.halt == nil && why == "" {
		targets, next = w.open(now, d.opts.Retry)
		w.pending = len(targets)
		if !w.contract.DryRun && len(targets) > 0 {
			if err := d.hold(name, w, targets, now); err != nil {
				why = err.Error()
			}
		}
	} else {
		w.pending, next = w.count(now, d.opts.Retry)
	}
	if w.waiting = why; why != "" {
		return nil, earlier(next, until)
	}
	left, waiting := 0, 0
	for _, target := range targets {
		if !w.progress.reach(w.contract.Waves, target.Member) {
			continue
		}
		left++
		if err := held[target.Member]; err != nil {
			next = earlier(next, now.Add(heldEvery))
			if waiting++; w.waiting == "" {
				w.waiting = err.Error()
			}
			continue
		}
		i := w.intents[target]
		if d.busy[target] || d.load[target.Member] >= d.opts.PerMember {
			continue // whoever ends wakes the plan
		}
		if at := d.ledger.soon(name, target.Member, w.contract.Limits.PerMinute, now); at.After(now) {
			next = earlier(next, at)
			continue
		}
		d.busy[target] = true
		d.load[target.Member]++
		if !i.DryRun {
			d.ledger.started(name, target.Member, now)
		}
		start = append(start, w.consented(i.Intent, now))
	}
	for target := range d.busy {
		if w.intents[target] != nil && w.progress.reach(w.contract.Waves, target.Member) {
			left++
		}
	}
	if waiting < left {
		w.waiting = "" // others are written to
	}
	if !w.contract.DryRun {
		halt, again := w.progress.advance(w.contract.Waves, left, func(r policy.Ref) Health { return health[r] }, now)
		if halt != "" {
			d.halt(name, w, Unhealthy, halt, nil)
			d.poke()
		}
		next = earlier(next, again)
	}
	return start, next
}

// consented is an intent that says whose acknowledgement it follows.
func (w *wanted) consented(i *Intent, now time.Time) *Intent {
	if w.consent == nil || !now.Before(w.consent.until) {
		return i
	}
	out, by := *i, w.consent.Acknowledgement
	out.Acknowledged = &by
	return &out
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// open are the targets that are wanted and not done, in order, and when the next of
// those that have failed is tried again.
func (w *wanted) open(now time.Time, retry time.Duration) (targets []policy.Ref, next time.Time) {
	targets = make([]policy.Ref, 0, len(w.due))
	for target := range w.due {
		if w.failed[target] {
			if at := w.outcomes[target].At.Add(retry); at.After(now) {
				next = earlier(next, at)
				continue
			}
		}
		targets = append(targets, target)
	}
	slices.SortFunc(targets, func(a, b policy.Ref) int { return strings.Compare(a.String(), b.String()) })
	return targets, next
}

// count is open where nothing is written: how many targets, at the cost of those that
// have failed.
func (w *wanted) count(now time.Time, retry time.Duration) (n int, next time.Time) {
	n = len(w.due)
	for target := range w.failed {
		if at := w.outcomes[target].At.Add(retry); at.After(now) {
			next = earlier(next, at)
			n--
		}
	}
	return n, next
}

// mayNot says why nothing is written for a binding now, and when that may differ.
func (d *Dispatcher) mayNot(w *wanted, now time.Time) (why string, until time.Time) {
	switch {
	case w.follower != "":
		return w.follower, time.Time{}
	case !d.open:
		return "what was left by another process is being dealt with", time.Time{}
	case d.stopped != "":
		return "all actions are stopped: " + d.stopped, time.Time{}
	case w.halt != nil:
		return "halted", time.Time{}
	case w.contract.Suspend:
		return "suspended", time.Time{}
	case !w.ready:
		return "its verdicts have not all been counted", time.Time{}
	}
	if open, at := w.contract.Window.open(now); !open {
		return "the window is closed", at
	} else if !at.IsZero() {
		return "", at
	}
	return "", time.Time{}
}

// hold halts a binding that would exceed a limit, or whose corrections do not clear
// what they are for.
func (d *Dispatcher) hold(name string, w *wanted, targets []policy.Ref, now time.Time) error {
	spent, err := d.ledger.check(name, w.contract.Limits, w.of, targets, now)
	w.spent = spent
	var over *OverLimitError
	if errors.As(err, &over) {
		if w.acked != nil && now.Before(w.acked.until) && over.Targets <= w.acked.targets {
			return nil
		}
		d.halt(name, w, OverLimit, over.Error(), &over.Spent)
		return err
	}
	for _, target := range targets {
		if o := w.outcomes[target]; o != nil {
			if o.writes = recent(o.writes, w.contract.Limits.Window); len(o.writes) >= d.opts.Fights {
				err := fmt.Errorf("%s has been corrected %d times and violates again", target, len(o.writes))
				d.halt(name, w, Fighting, err.Error(), nil)
				return err
			}
		}
	}
	return nil
}

// correct carries one intent out and takes note of what has come of it.
func (d *Dispatcher) correct(ctx context.Context, i *Intent) {
	a, err := d.guarded(ctx, i)
	target := i.Remedy.Target
	log := d.opts.Logger.With("policy", i.Binding, "member", target.Member, "kind", string(target.Kind), "namespace", target.Namespace, "name", target.Name)
	d.mu.Lock()
	delete(d.busy, target)
	d.ledger.end(target)
	if d.load[target.Member]--; d.load[target.Member] == 0 {
		delete(d.load, target.Member)
	}
	if w := d.bindings[i.Binding]; w != nil {
		w.take(i, a, err)
	}
	if !i.DryRun && (err == nil && a.Phase == Succeeded || err != nil && !errors.Is(err, errNotNow)) {
		d.ledger.note(i.Binding, target, time.Now())
	}
	d.mu.Unlock()
	if err == nil {
		d.opts.Corrected(a)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && !errors.Is(err, errNotNow):
		log.Error("a correction is not known to be done", "action", a.Name, "err", err)
	case err == nil && a.Phase != NoOp && a.Phase != Superseded:
		log.Info("correction", "action", a.Name, "phase", string(a.Phase), "message", a.Message, "revision", uint64(i.Revision))
	}
	d.tell(i.Binding)
	d.poke()
}

// guarded keeps a panic from ending more than one correction.
func (d *Dispatcher) guarded(ctx context.Context, i *Intent) (a *Action, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = &Action{Name: i.name(), Intent: *i}, fmt.Errorf("panicked: %v", p)
		}
	}()
	return d.do(ctx, i)
}

// take notes what came of an intent. What is not known is tried again after a while.
func (w *wanted) take(i *Intent, a *Action, err error) {
	target := i.Remedy.Target
	o := w.outcomes[target]
	if o == nil {
		o = &outcome{}
		w.outcomes[target] = o
	}
	if w.intents[target] == nil {
		w.left[target] = true
	}
	defer w.judge(target)
	now := time.Now()
	switch {
	case errors.Is(err, errNotNow):
		o.name = "" // as if it had not been tried
		return
	case err != nil:
		o.Outcome = Outcome{Action: a.Name, Phase: Failed, Message: clip(err.Error(), 1024), At: now}
	default:
		o.Outcome = Outcome{Action: a.Name, Phase: a.Phase, Message: a.Message, At: now}
	}
	o.name = i.name()
	if err == nil && a.Phase == Succeeded {
		o.writes = append(o.writes, now)
		if w.progress.touched != nil {
			w.progress.touched[target] = true
		}
	}
}
