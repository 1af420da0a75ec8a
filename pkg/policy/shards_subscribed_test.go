package policy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/internal/completeness"
)

// subscriber is what a process asks others for.
type subscriber struct {
	r       *rand.Rand
	asked   *interest.Set
	held    *interest.Set // of which all that tell have told all
	pending *interest.Set // that the engine does not know of; nil: none
	at      uint64        // the change of the peers' index that has pending
}

// subscription is what one process tells another.
type subscription struct {
	asked   *interest.Set // that it has been asked for
	told    *interest.Set // that it has told all of
	partial bool          // it is about to tell some of what is new
	some    bool          // it has told of a member
}

func (s *sharded) subscriber() *subscriber {
	if !s.subscribes {
		return nil
	}
	return &subscriber{r: s.r}
}

// ask lets what p asks for reach process i before that tells p something, and reports whether all of its members are told
// again. Who is new, or was lost, or is to be heard under more than it was asked for, is asked for all.
func (p *process) ask(i int) (retell bool) {
	if p.subs == nil {
		return false
	}
	l := &p.links[i].asked
	must := !l.some || p.links[i].all || !l.told.Covers(p.subs.held)
	if !must && p.subs.r.IntN(3) == 0 {
		l.asked = l.told
		return false // it has not arrived
	}
	l.asked, l.some = p.subs.asked, true
	l.partial = !must && p.subs.r.IntN(3) == 0
	return must || !l.asked.Equal(l.told)
}

// answered takes in that process i has told all that it was asked for.
func (p *process) answered(i int, l subscription) {
	if p.subs == nil {
		return
	}
	if !l.partial {
		l.told = l.asked
	}
	l.partial = false
	p.links[i].asked, p.links[i].had = l, l.told
	p.countHeld()
}

// countHeld finds what all that tell have told.
func (p *process) countHeld() {
	held := p.subs.asked
	for _, from := range p.from {
		if !p.links[from].lost {
			held = held.Both(p.links[from].asked.told)
		}
	}
	if !held.Equal(p.subs.held) {
		p.subs.held = held
		p.subs.pending, p.subs.at = held, p.peers.Snapshot().Changes()
	}
}

// lacksOfLost reports whether a process that was lost had not told all that is held now. What there was beside that nobody can know,
// not even which keys: what is known of its members is Stale.
func (p *process) lacksOfLost() bool {
	for _, from := range p.from {
		if l := p.links[from]; p.subs != nil && l.lost && !l.had.Covers(p.subs.held) {
			return true
		}
	}
	return false
}

// isTold reports whether the process that is telling p tells it a record.
func (p *process) isTold(kind aggregate.Kind, rec *aggregate.Record) bool {
	if p.subs == nil {
		return true
	}
	l := p.links[p.telling].asked
	if l.partial {
		return isOf(l.told, kind, rec) || isOf(l.asked, kind, rec) && p.subs.r.IntN(2) == 0
	}
	return isOf(l.asked, kind, rec)
}

// isOf reports whether a record has a key of a set.
func isOf(s *interest.Set, kind aggregate.Kind, rec *aggregate.Record) bool {
	var body struct {
		C map[string]map[string]json.RawMessage `json:"c"`
		F map[string]string                     `json:"f"`
		O json.RawMessage                       `json:"o"`
	}
	if err := json.Unmarshal(rec.Body, &body); err != nil {
		panic(err)
	}
	if len(body.F) > 0 || body.O != nil && s.Has(interest.Names(kind), interest.Bucket(interest.NameKey(rec.Namespace, rec.Name))) {
		return true
	}
	for view, keys := range body.C {
		for key := range keys {
			if s.Has(interest.View(view), interest.Bucket(key)) {
				return true
			}
		}
	}
	return false
}

// mayTellMore reports whether process i has not told all that it is asked for.
func (p *process) mayTellMore(i int) bool {
	return p.subs != nil && !p.links[i].asked.told.Equal(p.subs.asked)
}

// follow asks for what the engine wants, and lets it know what it has. It reports whether anything was new.
func (p *process) follow(ctx context.Context, pass func(func() (*policy.Changes, error)) error, heard *aggregate.Snapshot) (more bool, err error) {
	state := p.engine.State()
	if p.subs == nil || state == nil {
		return false, nil
	}
	setHeld := func(held *interest.Set) error {
		return pass(func() (*policy.Changes, error) { return p.engine.SetHeld(ctx, held) })
	}
	if wanted := state.Wanted(); !wanted.Equal(p.subs.asked) {
		more = true
		if !wanted.Covers(state.Held()) {
			if err := setHeld(state.Held().Both(wanted)); err != nil { // before others stop telling
				return false, err
			}
		}
		p.subs.asked, p.subs.held = wanted, p.subs.held.Both(wanted)
		if p.subs.pending != nil {
			p.subs.pending = p.subs.pending.Both(wanted)
		}
	}
	p.countHeld()
	if p.subs.pending == nil || heard == nil || heard.Changes() < p.subs.at {
		return more, nil
	}
	held := p.subs.pending
	p.subs.pending = nil
	return true, setHeld(held)
}

// subscribe lets a process do what it does about keys.
func (s *sharded) subscribe(ctx context.Context, i int) error {
	p := s.processes[i]
	before := p.engine.State()
	more, err := p.follow(ctx, func(do func() (*policy.Changes, error)) error { return p.pass(i, s.processes, do) }, s.views[i].peers)
	if err != nil || !more {
		return err
	}
	was, is := before.Held(), p.engine.State().Held()
	if !was.Covers(is) {
		s.seen.grown.Add(1)
	}
	if !is.Covers(was) {
		s.seen.shrunk.Add(1)
	}
	s.note("  %d asks, and has %d buckets", i, is.Size())
	return nil
}

// countWaiting counts verdicts that wait for keys.
func (s *sharded) countWaiting(p *process) {
	if p.subs != nil {
		s.seen.waiting.Add(int64(waiting(p)))
	}
}

func waiting(p *process) (n int) {
	for _, b := range p.has.bindings {
		for v := range p.engine.State().Verdicts(b.Name, "") {
			if isWaiting(&v) {
				n++
			}
		}
	}
	return n
}

func isWaiting(v *policy.Verdict) bool {
	for _, g := range v.Gaps {
		if g.Reason == completeness.AskedFor {
			return true
		}
	}
	return false
}

// settled checks that nothing waits for keys once all is told.
func (p *process) settled() error {
	if p.subs == nil {
		return nil
	}
	state := p.engine.State()
	if !state.Held().Covers(state.Wanted()) || p.engine.Stats().Awaited > 0 {
		return fmt.Errorf("%w: keys are not held that were asked for", errDiffers)
	}
	if n := waiting(p); n > 0 {
		return fmt.Errorf("%w: %d verdicts still wait for keys", errDiffers, n)
	}
	return nil
}
