package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/audit"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// auditor compares what is held of one member with what the member lists, one listWatch at a time.
// What differs is listed again.
type auditor struct {
	member *member
	woken  trigger.Trigger // something may be due

	budget   audit.Budget // run's goroutine only
	reserved time.Time    // run's: when the next request may be sent, which the budgets were charged for; zero: they were not

	mu     sync.Mutex
	asked  map[*listWatch][]chan<- AuditResult // to be audited at once; each has room
	lost   uint64
	newest Loss // the last
}

// auditState is what the auditor knows of a listWatch.
type auditState struct {
	spread    float64         // of the next
	notBefore time.Time       // after a failure
	failures  int             // audits that came to no conclusion since the last that did
	refusals  int             // audits one after the other that the member did not answer
	bookmark  *captureRequest // what differed may be in flight, and is looked at again at this bookmark
	deadline  time.Time       // of that
	sampled   int             // objects of the list before those whose content is compared next
	sampledTo int             // the same once the audit under way has proved the scope
	took      time.Duration   // the last that proved the scope
	limits    auditLimits
	repairs   int // one after the other, after each of which something differed again
}

// Delays of audits.
const (
	auditSleep       = 30 * time.Second // at most between looks at what is due
	maxAuditRetry    = 5 * time.Minute
	bookmarkPatience = 3 * time.Minute // servers send one a minute
	relistPatience   = time.Minute

	// An agent passes a bookmark that follows another every 20 minutes.
	agentBookmarkPatience = 23 * time.Minute
)

// A scope that could not be audited so many times is listed instead: retries come after a delay that
// doubles with each. One that was resumed after a restart is listed sooner, since writes wait for it.
const (
	maxInconclusive        = 5
	auditRetry             = 30 * time.Second
	maxInconclusiveResumed = 2
	auditRetryResumed      = time.Second
)

func newAuditor(mb *member) *auditor {
	o := &mb.manager.opts.Audit
	return &auditor{
		member: mb, woken: trigger.New(), asked: map[*listWatch][]chan<- AuditResult{},
		budget: audit.Budget{Requests: o.RequestsPerSecond, Bytes: float64(o.BytesPerSecond)},
	}
}

// run audits what is due until ctx is done. It is the panic boundary of the auditor: after a while it
// goes on.
func (a *auditor) run(ctx context.Context) {
	defer a.refuseAll()
	for delay := minPanicDelay; ctx.Err() == nil; delay = min(2*delay, maxPanicDelay) {
		if err := recoverPanic(func() error { a.loop(ctx); return nil }); err != nil {
			a.panicked(err, "auditor failed, restarting it")
		}
		if sleep.For(ctx, delay) != nil {
			return
		}
	}
}

// panicked counts and logs a panic, whatever becomes of its report: handlers of logs may panic, too.
func (a *auditor) panicked(err error, message string, args ...any) {
	a.member.manager.metrics.member(a.member.name).panics.Inc()
	_ = recoverPanic(func() error { a.member.log.Error(message, append(args, "error", err)...); return nil }) //nolint:errcheck // see above
}

func (a *auditor) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.woken:
		case <-timer.C:
		}
		for ctx.Err() == nil {
			now := time.Now()
			p, due := a.next(now)
			if p != nil && p.audit.bookmark == nil && !due.After(now) {
				// Before anything is captured: the member would have forgotten it after the wait.
				due = a.reserve(now)
			}
			if wait := due.Sub(now); p == nil || wait > 0 {
				timer.Reset(min(max(wait, time.Millisecond), a.sleep()))
				break
			}
			a.auditNow(ctx, p)
		}
	}
}

// sleep is how long the auditor sleeps at most: what is due changes with what the kinds do.
func (a *auditor) sleep() time.Duration {
	return min(auditSleep, max(a.member.manager.opts.Audit.FirstTier/4, 10*time.Millisecond))
}

// next returns the listWatch whose turn is next, and when.
func (a *auditor) next(now time.Time) (*listWatch, time.Time) {
	later := now.Add(auditSleep)
	if a.member.conn.current() == nil {
		a.refuseAll()
		return nil, later
	}
	var all []*listWatch
	var scopes []audit.Scope
	for _, r := range a.member.runningInformers() {
		for _, p := range r.listWatches {
			s, can := a.scope(p)
			switch asked := a.isAsked(p); {
			case !can:
				a.conclude(p, p.result(outcomeNotSynced, "it is not kept up to date at the moment"))
			case p.audit.bookmark != nil && len(p.audit.bookmark.reply) == 0 && now.Before(p.audit.deadline):
			case p.audit.bookmark != nil, asked:
				return p, now
			case !a.member.manager.opts.Audit.Off:
				all, scopes = append(all, p), append(scopes, s)
			}
		}
	}
	a.concludeEnded()
	n, due := a.member.auditPlan().Next(scopes, now)
	if n < 0 {
		return nil, later
	}
	return all[n], due
}

// scope returns what decides on when a listWatch is audited, and whether it can be.
func (a *auditor) scope(p *listWatch) (s audit.Scope, can bool) {
	i := p.informer
	if p.audit.spread == 0 {
		p.audit.spread = rand.Float64()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return audit.Scope{
		First: a.isFirstTier(i.kind), Proved: p.proved, Resumed: p.resumed, Changes: p.changes, Objects: int(i.objects),
		Spread: p.audit.spread, NotBefore: p.audit.notBefore, Took: p.audit.took,
	}, p.state == aggregate.Synced && p.reached != "" && p.repairs.Load() == nil
}

// isFirstTier reports whether a kind is audited most often: it decides on security, or policies read it.
func (a *auditor) isFirstTier(kind aggregate.Kind) bool {
	_, required := a.member.manager.required.sinceWhen(kind)
	return required || audit.Security(kind)
}

// interval is how often a listWatch is audited.
func (a *auditor) interval(p *listWatch) time.Duration {
	plan := a.member.auditPlan()
	if a.isFirstTier(p.informer.kind) {
		return min(plan.FirstTier, plan.Interval)
	}
	return plan.Interval
}

// repairDelay is for how long a scope is not audited after so many repairs one after the other: a
// member whose answers keep disagreeing would be listed as often as it is audited at most.
func repairDelay(repairs int, interval time.Duration) time.Duration {
	if repairs < 2 {
		return 0
	}
	return backOff(repairs-1, interval)
}

// backOff doubles with each of what came one after the other before, up to the interval of audits.
func backOff(before int, interval time.Duration) time.Duration {
	return min(auditRetry<<min(before, 10), interval)
}

// auditNow audits a listWatch. It is the panic boundary of an audit: whatever becomes of it, who has
// asked for it is answered.
func (a *auditor) auditNow(ctx context.Context, p *listWatch) {
	var r AuditResult
	err := recoverPanic(func() error { r = a.audit(ctx, p); return nil })
	if err != nil {
		r = p.result(outcomeFailed, "the audit failed")
		a.panicked(err, "audit failed", "kind", p.informer.kind)
		if err := recoverPanic(func() error { a.inconclusive(ctx, p, &r, nil); return nil }); err != nil {
			a.panicked(err, "audit failed", "kind", p.informer.kind)
		}
	}
	if ctx.Err() != nil {
		return
	}
	a.member.manager.metrics.shared.countAudit(&r)
	if r.Outcome != outcomeInFlight {
		a.conclude(p, r)
	}
}

// Outcomes of audits.
const (
	outcomeEqual       = "equal"       // everything is held as the member has it
	outcomeDifferent   = "different"   // something is not, and is listed again
	outcomeUnconfirmed = "unconfirmed" // a second list at the same resourceVersion did not say the same
	outcomeInFlight    = "inFlight"    // what differs may be on its way: it is looked at again at the next bookmark
	outcomeExpired     = "expired"     // the member has forgotten the resourceVersion
	outcomeFailed      = "failed"      // the member did not answer as it should
	outcomeListed      = "listed"      // it could not be audited, and was listed instead
	outcomeNotSynced   = "notSynced"   // it is not kept up to date at the moment
)

// audit compares a listWatch with what the member lists, and repairs it where it differs.
func (a *auditor) audit(ctx context.Context, p *listWatch) (r AuditResult) {
	began := time.Now()
	r = p.result(outcomeNotSynced, "")
	defer func() { r.Took = time.Since(began) }()
	awaited := p.audit.bookmark != nil
	c := a.capture(ctx, p)
	if c == nil {
		if awaited {
			r.Outcome, r.Message = outcomeExpired, "the member has sent no bookmark"
		}
		a.inconclusive(ctx, p, &r, nil)
		return r
	}
	r.ResourceVersion, c.until = c.resourceVersion, began.Add(auditDeadline)
	if c.unkept { // what an audit finds may be among them
		r.Outcome, r.Message = outcomeListed, "more objects may be left out than can be compared within the member's budget"
		r.Repaired = a.relisted(ctx, p, a.order(p))
		return r
	}
	first, err := a.read(ctx, p, c, &r)
	if expiredOrUnsupported(err) {
		// What is newest is of another resourceVersion, but what is equal to it is equal.
		r.Outcome, r.Message = outcomeExpired, message.Clip(err.Error())
		newest := *c
		newest.resourceVersion = ""
		switch first, err = a.read(ctx, p, &newest, &r); {
		case err != nil || first.Total() == 0:
		case c.bookmark:
			a.inconclusive(ctx, p, &r, nil)
			return r
		default:
			a.awaitBookmark(p, &r)
			return r
		}
	}
	switch {
	case err != nil:
		a.inconclusive(ctx, p, &r, err)
	case first.Total() == 0:
		a.equal(p, c, &first, &r)
	case first.Total() == first.InFlight:
		a.awaitBookmark(p, &r)
	default:
		a.confirm(ctx, p, c, &first, &r)
	}
	return r
}

// equal takes note of a scope that is as the member has it.
func (a *auditor) equal(p *listWatch, c *capture, found *audit.Result, r *AuditResult) {
	r.Outcome, r.Message = outcomeEqual, ""
	sampled := p.audit.sampledTo
	if sampled >= found.Listed {
		sampled = 0
	}
	p.audit = auditState{spread: rand.Float64(), sampled: sampled, took: time.Since(c.at), limits: p.audit.limits.grown(a.member.manager.opts.Audit.Sample)}
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.proved.Before(c.at) {
		p.provedLocked(c.at)
	}
}

// bookmarkPatience is how long a bookmark may take.
func (a *auditor) bookmarkPatience() time.Duration {
	if a.member.byAgent() {
		return agentBookmarkPatience
	}
	return bookmarkPatience
}

// awaitBookmark has the scope audited again when the member has said that nothing is in flight.
func (a *auditor) awaitBookmark(p *listWatch, r *AuditResult) {
	r.Outcome = outcomeInFlight
	p.audit.bookmark, p.audit.deadline = &captureRequest{bookmark: true, reply: make(chan *capture, 1), ready: a.woken.Fire}, time.Now().Add(a.bookmarkPatience())
	p.captures.Store(p.audit.bookmark)
}

// confirm asks the member again, and repairs what it says again.
func (a *auditor) confirm(ctx context.Context, p *listWatch, c *capture, first *audit.Result, r *AuditResult) {
	second, err := a.read(ctx, p, c, r)
	if err != nil {
		a.inconclusive(ctx, p, r, err)
		return
	}
	differs := audit.Confirm(*first, second)
	switch {
	case differs.Total() > 0:
	case second.Total() == 0:
		a.equal(p, c, &second, r)
		r.Outcome = outcomeUnconfirmed
		return
	default:
		r.Outcome = outcomeUnconfirmed
		a.inconclusive(ctx, p, r, nil)
		return
	}
	if p.informer.ended.Load() || !a.member.isCurrent(p.informer) {
		return // another cluster may have answered
	}
	r.Outcome, r.Differences, r.Examples = outcomeDifferent, map[string]int{}, nil
	for cause, n := range differs.Counts {
		if n > 0 {
			r.Differences[audit.Causes[cause]] = n
		}
	}
	for _, d := range differs.Differences[:min(len(differs.Differences), maxExamples)] {
		r.Examples = append(r.Examples, message.Clip(fmt.Sprintf("%s %.63s/%.253s", d.Cause, d.Namespace, d.Name)))
	}
	p.audit = auditState{limits: p.audit.limits.grown(a.member.manager.opts.Audit.Sample), repairs: p.audit.repairs + 1}
	order := a.order(p) // whatever becomes of the report
	p.audit.notBefore = time.Now().Add(repairDelay(p.audit.repairs, a.interval(p)))
	if err := recoverPanic(func() error { a.report(p, r); return nil }); err != nil {
		a.panicked(err, "reporting lost events failed", "kind", p.informer.kind)
	}
	r.Repaired = a.relisted(ctx, p, order)
}

// maxExamples is how many objects that differ are named.
const maxExamples = 10

// inconclusive takes note of an audit that has found nothing out. The scope is audited again after
// a while or, after some, listed.
func (a *auditor) inconclusive(ctx context.Context, p *listWatch, r *AuditResult, err error) {
	if err != nil {
		r.Message = message.Clip(err.Error())
		if r.Outcome = outcomeFailed; expiredOrUnsupported(err) {
			r.Outcome = outcomeExpired
		}
	}
	p.captures.Store(nil)
	p.audit.bookmark = nil
	most, delay := maxInconclusive, auditRetry
	resumed := p.isResumed()
	if resumed {
		most, delay = maxInconclusiveResumed, auditRetryResumed
	}
	p.audit.notBefore = time.Now().Add(min(delay<<min(p.audit.failures, 10), maxAuditRetry))
	// To list it would fail, too; but so much more than is held may be what was lost.
	switch {
	case r.Outcome == outcomeNotSynced:
		return
	case r.Outcome == outcomeFailed && !resumed && !errors.Is(err, audit.ErrManyObjects):
		p.audit.notBefore = time.Now().Add(min(backOff(p.audit.refusals, a.interval(p)), maxAuditRetry))
		p.audit.refusals++
		return
	}
	p.audit.refusals = 0
	if p.audit.failures++; p.audit.failures < most {
		return
	}
	order := a.order(p)
	p.informer.log().Info("listing a scope again because it cannot be audited", "outcome", r.Outcome, "detail", r.Message)
	r.Outcome = outcomeListed
	r.Repaired = a.relisted(ctx, p, order)
}

// expiredOrUnsupported reports whether the member cannot list at the resourceVersion.
func expiredOrUnsupported(err error) bool {
	if err == nil {
		return false
	}
	class := classify(err)
	return errors.Is(err, errNotExact) || class == expired || class == unsupported
}

// conclude answers those who have asked for an audit.
func (a *auditor) conclude(p *listWatch, r AuditResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, reply := range a.asked[p] {
		reply <- r
	}
	delete(a.asked, p)
}

// concludeEnded answers those who have asked for audits of what is not watched any more.
func (a *auditor) concludeEnded() {
	a.mu.Lock()
	all := slices.Collect(maps.Keys(a.asked))
	a.mu.Unlock()
	for _, p := range all {
		if p.informer.ended.Load() {
			a.conclude(p, p.result(outcomeNotSynced, "it is not watched any more"))
		}
	}
}

func (a *auditor) isAsked(p *listWatch) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.asked[p]) > 0
}

// refuseAll answers those who have asked for audits that cannot be done.
func (a *auditor) refuseAll() {
	a.mu.Lock()
	all := slices.Collect(maps.Keys(a.asked))
	a.mu.Unlock()
	for _, p := range all {
		a.conclude(p, p.result(outcomeNotSynced, "the member is out of reach"))
	}
}

// result returns what an audit of the listWatch begins with.
func (p *listWatch) result(outcome, message string) AuditResult {
	i := p.informer
	return AuditResult{Member: i.member.name, Kind: i.kind, Namespace: p.namespace, Outcome: outcome, Message: message}
}
