package policysource

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"federator.dev/federator/pkg/policysource/internal/checkout"
)

// runner follows one source: one goroutine, which alone uses the fields below now.
type runner struct {
	m      *Manager
	given  Source
	spec   spec
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned
	now    chan struct{} // of capacity 1: look at the remote now

	known    string           // what the remote's reference was at the last fetch
	held     *checkout.Result // a commit that is not active, nil when there is none
	verdict  *verdict         // of held, nil when it was not judged yet
	judged   uint64           // the generation of that
	seen     uint64           // the generation that the last look knew
	passed   string           // the commit that this runner made active
	restored bool             // LastGood was tried
	failures int              // in a row
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

// wait returns true when it is time to look again: after a delay, when asked to,
// or when what a refused commit is compiled with has changed.
func (r *runner) wait(ctx context.Context, delay time.Duration) bool {
	t := time.NewTimer(delay)
	defer t.Stop()
	for {
		var replaced <-chan struct{}
		if r.held != nil {
			st := r.m.State()
			if st.Generation != r.seen {
				return true
			}
			replaced = st.Replaced()
		}
		select {
		case <-ctx.Done():
			return false
		case <-r.now:
			return true
		case <-t.C:
			return true
		case <-replaced:
		}
	}
}

// sync looks at the remote once, and returns for how long to wait.
func (r *runner) sync(ctx context.Context) time.Duration {
	select {
	case r.m.slots <- struct{}{}:
		defer func() { <-r.m.slots }()
	case <-ctx.Done():
		return 0
	}
	r.seen = r.m.State().Generation
	if err := r.restore(ctx); err != nil && ctx.Err() == nil {
		return r.failed(err)
	}
	got, err := r.m.opts.client().Fetch(ctx, r.spec.request(r.known))
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		return r.failed(err)
	case !got.Unchanged:
		r.known, r.held, r.verdict = got.Remote, got, nil
		if got.Commit == r.passed {
			r.held = nil // back to what is active
		}
	}
	if r.held == nil {
		return r.settle(got.Ref)
	}
	return r.judge(ctx, !got.Unchanged)
}

// settle says that what is active is the newest. ref is "" when it is as it was.
func (r *runner) settle(ref string) time.Duration {
	r.failures = 0
	delay := r.delay()
	r.m.update(r.spec.Name, func(s *Status, p *Policies) {
		p.Current = true
		if ref != "" {
			p.Commit.Ref = ref
		}
		commit := p.Commit
		s.Phase, s.Reason, s.Message = Active, "Active", "commit "+commit.Hash+" is active"
		s.Newest = &commit
		r.contact(s, delay, ref != "")
	})
	return delay
}

// contact notes that the remote answered, and perhaps that a commit was fetched.
func (r *runner) contact(s *Status, delay time.Duration, fetched bool) {
	if fetched {
		s.Fetches++
	}
	s.Contact = time.Now()
	s.Next = s.Contact.Add(delay)
	s.Failures = r.failures
}

// judge leads the commit that is held through the gates, if that can say anything
// new, and notes what they say.
func (r *runner) judge(ctx context.Context, fetched bool) time.Duration {
	for {
		st := r.m.State()
		r.seen = st.Generation
		if v := r.verdict; v != nil && !v.again && st.Generation == r.judged {
			break
		}
		_, bounded := st.Policies[r.spec.Name]
		v := r.m.opts.judge(ctx, r.spec, r.held, st, bounded, time.Now())
		if ctx.Err() != nil {
			return 0
		}
		if v.phase == Active {
			r.failures = 0
			delay := r.delay()
			if !r.activate(st, v, true, func(s *Status) { r.contact(s, delay, fetched) }) {
				continue // another source was faster
			}
			return delay
		}
		r.verdict, r.judged = v, st.Generation
		v.candidate = Candidate{Commit: v.candidate.Commit} // the rest is large
		break
	}
	v := r.verdict
	r.failures++
	if !v.unjudged {
		r.failures = 0
	}
	delay := r.delay()
	r.m.update(r.spec.Name, func(s *Status, p *Policies) {
		v.report(s)
		p.Current = false
		r.contact(s, delay, fetched)
	})
	return delay
}

// report writes a verdict into a status.
func (v *verdict) report(s *Status) {
	commit := v.candidate.Commit
	s.Phase, s.Reason, s.Message, s.Findings, s.Diff, s.Newest = v.phase, v.reason, v.message, v.findings, v.diff, &commit
}

// activate makes a candidate active, if the state is still the one that it was
// judged with.
func (r *runner) activate(st *State, v *verdict, current bool, note func(*Status)) bool {
	c := v.candidate
	var before, after Status
	if !r.m.publish(st, func(out *State) {
		out.Generation++
		out.Set = c.Set
		out.Policies[c.Source] = Policies{
			Commit: c.Commit, Current: current, Since: time.Now(), Files: c.Files, Tree: c.Tree,
			Packages: packages(c.Set, c.Source), origin: originOf(r.given),
		}
		before, after = out.set(c.Source, func(s *Status, _ *Policies) {
			v.report(s)
			note(s)
		})
	}) {
		return false
	}
	r.held, r.verdict, r.passed = nil, nil, c.Commit.Hash
	r.m.opts.note(before, after)
	return true
}

// restore makes the commit active that was so before a restart. While the remote
// does not answer nothing newer is tried: it is to be compared with that.
func (r *runner) restore(ctx context.Context) error {
	if _, active := r.m.State().Policies[r.spec.Name]; r.restored || active || r.spec.LastGood == "" {
		r.restored = true
		return nil
	}
	req := r.spec.request("")
	req.Ref = r.spec.LastGood
	got, err := r.m.opts.client().Fetch(ctx, req)
	if errors.Is(err, checkout.ErrUnreachable) || errors.Is(err, checkout.ErrDenied) {
		return err
	}
	r.restored = true
	if err != nil {
		return nil // the look at the newest commit says what is wrong
	}
	for ctx.Err() == nil {
		st := r.m.State()
		v := r.m.opts.judge(ctx, r.spec, got, st, false, time.Now())
		if v.phase != Active || r.activate(st, v, false, func(*Status) {}) {
			break
		}
	}
	return nil
}

// broken are errors about what the remote has: its newest commit is not the active
// one. Others say nothing about it.
var broken = map[error]struct {
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

// failed notes a fetch that failed.
func (r *runner) failed(err error) time.Duration {
	phase, reason, current := Fetch, "Unreachable", true
	if errors.Is(err, checkout.ErrDenied) {
		reason = "Denied"
	}
	for kind, what := range broken {
		if errors.Is(err, kind) {
			phase, reason, current = what.phase, what.reason, false
		}
	}
	r.failures++
	if phase == Content || reason == "NoReference" {
		r.failures = 0 // the remote is well; a new commit is waited for
	}
	delay := r.delay()
	r.m.update(r.spec.Name, func(s *Status, p *Policies) {
		s.Phase, s.Reason, s.Message, s.Findings, s.Diff = phase, reason, shorten(err.Error()), nil, nil
		p.Current = p.Current && current
		if r.failures == 0 {
			r.contact(s, delay, false)
		}
		s.Failures, s.Next = r.failures, time.Now().Add(delay)
	})
	return delay
}

// delay is how long to wait: the interval, or a back-off after failures, give or
// take a tenth, so that sources do not ask in step.
func (r *runner) delay() time.Duration {
	d := r.spec.Interval
	if r.failures > 0 {
		d = backoff(r.m.opts.MinBackoff, r.m.opts.MaxBackoff, r.failures)
	}
	return d - d/10 + rand.N(d/5+1)
}

// backoff doubles from least to most with each failure.
func backoff(least, most time.Duration, failures int) time.Duration {
	d := least
	for range failures - 1 {
		if d >= most/2 {
			return most
		}
		d *= 2
	}
	return min(d, most)
}
