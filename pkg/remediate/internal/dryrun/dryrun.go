// Package dryrun asks members what they would answer to writes, at bounded rates.
//
// # Concurrency
//
// A Pacer is safe for concurrent use: all dry runs of a process share one. A Gathering asks the
// targets of each member one after the other in a goroutine of their own, and joins all of them:
// a member that hangs delays nobody but itself.
//
// # Trade-offs
//
// A member that does not answer three times in a row is not asked about the rest of its targets:
// they are Unreachable, which is said of each of them.
package dryrun

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

// Rates bound how often members are asked in a second, all of them together and each.
type Rates struct{ PerSecond, MemberPerSecond float64 }

// Default rates: each question is a read and a dry run.
const (
	DefaultPerSecond       = 100
	DefaultMemberPerSecond = 20
)

// OrDefault returns the rates with defaults for those that are 0.
func (r Rates) OrDefault() Rates {
	if r.PerSecond == 0 {
		r.PerSecond = DefaultPerSecond
	}
	if r.MemberPerSecond == 0 {
		r.MemberPerSecond = DefaultMemberPerSecond
	}
	return r
}

// Validate returns what is wrong with the rates.
func (r Rates) Validate() error {
	for _, n := range []float64{r.PerSecond, r.MemberPerSecond} {
		if n < 0 || math.IsNaN(n) || math.IsInf(n, 0) {
			return errors.New("a rate of dry runs is negative or no number")
		}
	}
	return nil
}

// maxMembers bounds the members that a Pacer remembers: those of a fleet, and some that left.
const maxMembers = 10_000

// Pacer spreads questions over time.
type Pacer struct {
	rates Rates
	fleet *rate.Limiter

	mu      sync.Mutex
	members map[string]*rate.Limiter
}

// NewPacer returns a Pacer, for rates above 0.
func NewPacer(r Rates) *Pacer {
	return &Pacer{rates: r, fleet: limiter(r.PerSecond), members: map[string]*rate.Limiter{}}
}

// limiter lets a tenth of what a second has pass at once, and at least one.
func limiter(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond/10)))
}

// Wait waits until a member may be asked.
func (p *Pacer) Wait(ctx context.Context, member string) error {
	if err := p.member(member).Wait(ctx); err != nil {
		return err
	}
	return p.fleet.Wait(ctx)
}

func (p *Pacer) member(name string) *rate.Limiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.members[name]
	if l == nil {
		if len(p.members) >= maxMembers {
			clear(p.members)
		}
		l = limiter(p.rates.MemberPerSecond)
		p.members[name] = l
	}
	return l
}

// maxSilent is how often in a row a member does not answer before it is not asked any more.
const maxSilent = 3

// maxDiffs is of how many targets a Plan shows what would change.
const maxDiffs = 20

// Ask sets what a target's member answered: DryRun, Message, Irreversible and, if it is wanted
// and something would change, Diff.
type Ask func(ctx context.Context, t *plans.Target, diff bool)

// Gathering asks about targets. Its targets are those of the caller, and nobody else uses them
// before Run has returned.
type Gathering struct {
	targets  []plans.Target
	answered atomic.Int64
}

// New returns a Gathering that has not asked anything.
func New(targets []plans.Target) *Gathering { return &Gathering{targets: targets} }

// Remaining returns how many targets have no answer yet. It is safe for concurrent use.
func (g *Gathering) Remaining() int { return len(g.targets) - int(g.answered.Load()) }

// Run asks about all targets. Its error is the context's.
func (g *Gathering) Run(ctx context.Context, p *Pacer, ask Ask) error {
	byMember := map[string][]*plans.Target{}
	for n := range g.targets {
		t := &g.targets[n]
		byMember[t.Ref.Member] = append(byMember[t.Ref.Member], t)
	}
	diffs := (maxDiffs + len(byMember) - 1) / max(1, len(byMember)) // of each member
	var members sync.WaitGroup
	for member, targets := range byMember {
		members.Go(func() { g.askMember(ctx, p, member, targets, diffs, ask) })
	}
	members.Wait()
	return context.Cause(ctx)
}

func (g *Gathering) askMember(ctx context.Context, p *Pacer, member string, targets []*plans.Target, diffs int, ask Ask) {
	silent := 0
	for n, t := range targets {
		if silent == maxSilent {
			t.DryRun, t.Message = v1alpha1.DryRunUnreachable, "not asked, since: "+targets[n-1].Message
			for _, rest := range targets[n+1:] {
				rest.DryRun, rest.Message = t.DryRun, t.Message
			}
			g.answered.Add(int64(len(targets) - n))
			return
		}
		if p.Wait(ctx, member) != nil {
			return
		}
		ask(ctx, t, diffs > 0)
		if ctx.Err() != nil {
			return // it was not answered
		}
		if t.Diff != "" {
			diffs--
		}
		if silent++; t.DryRun != v1alpha1.DryRunUnreachable {
			silent = 0
		}
		g.answered.Add(1)
	}
}

// Count returns the numbers of targets by answer.
func Count(targets []plans.Target) *v1alpha1.DryRunCounts {
	c := &v1alpha1.DryRunCounts{}
	for n := range targets {
		switch targets[n].DryRun {
		case v1alpha1.DryRunPassed:
			c.Passed++
		case v1alpha1.DryRunNoOp:
			c.NoOp++
		case v1alpha1.DryRunRefused:
			c.Refused++
		case v1alpha1.DryRunContended:
			c.Contended++
		case v1alpha1.DryRunProtected:
			c.Protected++
		case v1alpha1.DryRunManaged:
			c.Managed++
		case v1alpha1.DryRunInvalid:
			c.Invalid++
		case v1alpha1.DryRunSuperseded:
			c.Superseded++
		default:
			c.Unreachable++
		}
	}
	return c
}
