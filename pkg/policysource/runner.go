package policysource

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"federator.dev/federator/internal/lineage"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/policysource/internal/checkout"
)

// runner loads one source, with one goroutine. It alone uses the fields after terms.
type runner struct {
	m         *Manager
	source    Source
	spec      validSource
	cancel    context.CancelFunc
	done      chan struct{}   // closed when run has returned
	triggered trigger.Trigger // check the remote now
	changed   trigger.Trigger // terms have changed
	terms     atomic.Pointer[rolloutTerms]

	remoteHash       string           // hash of the remote's ref at the last fetch
	pending          *checkout.Result // a fetched commit that is not active; nil: none
	result           *gateResult      // of pending, with the candidate if it may become active; nil: not evaluated yet
	resultGeneration uint64           // generation of the state that result is for
	generation       uint64           // generation of the state at the last check
	line             lineage.Line     // leads to the last commit that was fetched
	activated        string           // the commit that this runner has activated
	first            bool             // it was the first that was seen here, without one before it
	restored         bool             // LastGood has been tried
	failures         int              // consecutive
}

func (r *runner) run(ctx context.Context) {
	defer close(r.done)
	for {
		delay := r.sync(ctx)
		if ctx.Err() != nil || !r.wait(ctx, delay) {
			return
		}
	}
}

// wait returns true when it is time for the next check: after a delay, when triggered, or
// when the policies that a commit that is not active is compiled with have changed. How such
// a commit rolls out takes effect without a check: the remote may be out of reach.
func (r *runner) wait(ctx context.Context, delay time.Duration) bool {
	t := time.NewTimer(delay)
	defer t.Stop()
	for {
		var replaced <-chan struct{}
		if r.pending != nil {
			st := r.m.State()
			if st.Generation != r.generation {
				return true
			}
			replaced = st.Replaced()
		}
		select {
		case <-ctx.Done():
			return false
		case <-r.triggered:
			return true
		case <-t.C:
			return true
		case <-r.changed:
			if r.reconsider(ctx); r.ahead() {
				return true
			}
		case <-replaced:
		}
	}
}

// sync checks the remote once, and returns the delay until the next check.
func (r *runner) sync(ctx context.Context) time.Duration {
	if r.m.slots.Acquire(ctx, 1) != nil {
		return 0
	}
	defer r.m.slots.Release(1)
	r.generation = r.m.State().Generation
	if err := r.restore(ctx); err != nil && ctx.Err() == nil {
		return r.recordFailure(err)
	}
	got, err := r.m.opts.client().Fetch(ctx, r.spec.request(r.remoteHash))
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		return r.recordFailure(err)
	case !got.Unchanged:
		r.remoteHash, r.pending, r.result = got.Remote, got, nil
		if got.Commit == r.activated {
			r.pending = nil // the ref points to the active commit again
		}
	}
	if r.pending == nil {
		return r.markCurrent(got.Ref)
	}
	return r.evaluate(ctx, func(s *Status, delay time.Duration) { r.recordContact(s, delay, !got.Unchanged) })
}

// markCurrent records that the active commit is the newest. ref is "" if it is unchanged.
func (r *runner) markCurrent(ref string) time.Duration {
	r.failures = 0
	delay := r.delay()
	r.m.withdraw(r.spec.Name, func(s *Status, p *Policies) {
		p.Current = true
		if ref != "" {
			p.Commit.Ref = ref
		}
		commit := p.Commit
		s.Phase, s.Reason, s.Message = Active, "Active", "commit "+commit.Hash+" is active"
		s.Newest = &commit
		r.recordContact(s, delay, ref != "")
	})
	return delay
}

// recordContact records a successful check of the remote, and whether a commit was fetched.
func (r *runner) recordContact(s *Status, delay time.Duration, fetched bool) {
	if fetched {
		s.Fetches++
	}
	s.Contact = time.Now()
	s.Next = s.Contact.Add(delay)
	s.Failures = r.failures
}

// evaluate runs the gates for the pending commit, if the result may differ from the last
// one, and records the result. note adds to the status, and is told when the next check is.
func (r *runner) evaluate(ctx context.Context, note func(*Status, time.Duration)) time.Duration {
	for {
		st := r.m.State()
		r.generation = st.Generation
		if v := r.result; v == nil || v.retriable || st.Generation != r.resultGeneration {
			if r.judge(ctx, st); ctx.Err() != nil {
				return 0
			}
		}
		terms := *r.terms.Load()
		v := r.decide(st, &terms)
		r.failures++
		if !v.inconclusive {
			r.failures = 0
		}
		delay := r.delay()
		if r.record(st, v, func(s *Status) { note(s, delay) }) {
			return delay
		} // else another source has changed the sets
	}
}

// judge runs the gates for the pending commit.
func (r *runner) judge(ctx context.Context, st *State) {
	_, replaces := st.Policies[r.spec.Name]
	// A commit that was active before a restart is not compared with nothing; any other is,
	// where that one cannot be fetched any more.
	bounded := replaces || r.spec.LastGood != "" && r.pending.Commit != r.spec.LastGood
	bounded = bounded && r.pending.Commit != r.terms.Load().begun
	v := r.m.opts.runGates(ctx, r.spec, r.pending, st, r.m.reserved(st), bounded, time.Now())
	if ctx.Err() != nil {
		return
	}
	r.line = r.line.Extend(r.pending.Commit, r.pending.Parents, v.candidate.author)
	if v.phase != Active {
		v.candidate = Candidate{Source: r.spec.Name, Commit: v.candidate.Commit} // release the memory of the rest
	}
	r.result, r.resultGeneration = v, st.Generation
}

// record records a result, if the sets are still those that it is of.
func (r *runner) record(st *State, v *gateResult, note func(*Status)) bool {
	switch {
	case v.phase == Active:
		return r.activate(st, v, true, note)
	case v.rollingOut != nil:
		return r.rollOut(st, v, note)
	}
	r.m.withdraw(r.spec.Name, func(s *Status, p *Policies) {
		v.applyTo(s)
		s.Line = r.line
		p.Current = false
		note(s)
	})
	return true
}

// applyTo writes a result into a status.
func (v *gateResult) applyTo(s *Status) {
	commit := v.candidate.Commit
	s.Phase, s.Reason, s.Message, s.Findings, s.Diff, s.Newest = v.phase, v.reason, v.message, v.findings, v.diff, &commit
}

// activate makes a candidate active, if the set is still the one that the gates were
// evaluated with.
func (r *runner) activate(st *State, v *gateResult, current bool, note func(*Status)) bool {
	c := v.candidate
	var before, after Status
	if !r.m.publish(st, c.Set, st.without(c.Source), func(out *State) {
		out.Policies[c.Source] = Policies{
			Commit: c.Commit, Line: r.line, Current: current, Since: time.Now(), Files: c.Files, Tree: c.Tree,
			Packages: packages(c.Set, c.Source), origin: originOf(r.source),
		}
		before, after = out.set(c.Source, func(s *Status, _ *Policies) {
			v.applyTo(s)
			s.Line = r.line
			note(s)
		})
	}) {
		return false
	}
	_, replaces := st.Policies[c.Source]
	r.pending, r.result, r.activated, r.first = nil, nil, c.Commit.Hash, current && !replaces
	r.m.opts.logChange(before, after)
	return true
}

// ahead reports whether the commit that is active here is one that rolls out, as the caller says: it was the first that was
// seen here, before the one that is active elsewhere was known.
func (r *runner) ahead() bool {
	t := r.terms.Load()
	return t.rollout && r.first && t.begun == r.activated && t.promoted != r.activated && t.active != "" && t.active != r.activated
}

// restore activates the commit that was active before a restart, or is elsewhere. While the remote cannot
// be reached no newer commit is tried, because it has to be compared with that one.
func (r *runner) restore(ctx context.Context) error {
	req := r.spec.request("")
	req.Ref = r.spec.LastGood
	switch _, active := r.m.State().Policies[r.spec.Name]; {
	case r.ahead():
		req.Ref, r.remoteHash = r.terms.Load().active, "" // the newest one is read again after it
	case r.restored || active || req.Ref == "":
		r.restored = true
		return nil
	}
	got, err := r.m.opts.client().Fetch(ctx, req)
	if errors.Is(err, checkout.ErrUnreachable) || errors.Is(err, checkout.ErrDenied) {
		return err
	}
	r.restored = true
	if err != nil {
		return nil // fetching the newest commit will report the error
	}
	for ctx.Err() == nil {
		st := r.m.State()
		v := r.m.opts.runGates(ctx, r.spec, got, st, r.m.reserved(st), false, time.Now())
		r.line = r.line.Extend(got.Commit, got.Parents, v.candidate.author)
		if v.phase != Active || r.activate(st, v, false, func(*Status) {}) {
			break
		}
	}
	return nil
}

// fetchErrors are errors that mean that the newest commit is not the active one. With
// others it is unknown.
var fetchErrors = map[error]struct {
	phase  Phase
	reason string
}{
	checkout.ErrEmpty:    {Content, "Emptied"},
	checkout.ErrContent:  {Content, "Refused"},
	checkout.ErrLimit:    {Content, "TooLarge"},
	checkout.ErrRef:      {Fetch, "NoReference"},
	checkout.ErrNotFound: {Fetch, "NotFound"},
	checkout.ErrHostKey:  {Fetch, "HostKey"},
	checkout.ErrRedirect: {Fetch, "Redirect"},
	checkout.ErrProtocol: {Fetch, "Protocol"},
	checkout.ErrRequest:  {Fetch, "Request"},
}

// recordFailure records a fetch that failed.
func (r *runner) recordFailure(err error) time.Duration {
	phase, reason, current := Fetch, "Unreachable", true
	if errors.Is(err, checkout.ErrDenied) {
		reason = "Denied"
	}
	for kind, what := range fetchErrors {
		if errors.Is(err, kind) {
			phase, reason, current = what.phase, what.reason, false
		}
	}
	r.failures++
	if phase == Content || reason == "NoReference" {
		r.failures = 0 // the remote works; wait for a new commit
	}
	delay := r.delay()
	change := r.m.update
	if !current {
		change = r.m.withdraw
	}
	change(r.spec.Name, func(s *Status, p *Policies) {
		s.Phase, s.Reason, s.Message, s.Findings, s.Diff = phase, reason, shorten(err.Error()), nil, nil
		p.Current = p.Current && current
		if r.failures == 0 {
			r.recordContact(s, delay, false)
		}
		s.Failures, s.Next = r.failures, time.Now().Add(delay)
	})
	return delay
}

// delay returns the delay until the next check: the interval, or a backoff after
// failures, with jitter.
func (r *runner) delay() time.Duration {
	d := r.spec.Interval
	if r.failures > 0 {
		d = backoff(r.m.opts.MinBackoff, r.m.opts.MaxBackoff, r.failures)
	}
	return r.m.opts.Jitter(d)
}

// backoff doubles from minDelay to maxDelay with each failure.
func backoff(minDelay, maxDelay time.Duration, failures int) time.Duration {
	d := minDelay
	for range failures - 1 {
		if d >= maxDelay/2 {
			return maxDelay
		}
		d *= 2
	}
	return min(d, maxDelay)
}
