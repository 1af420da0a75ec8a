package intents

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

const (
	// maxAgain bounds the targets that are asked about again at once, and maxFirst those that are before the Actor is told of them:
	// others wait for their turn.
	maxAgain = 1000
	maxFirst = 10 * maxAgain
)

// claimed is a target of which other processes than its judge have remedies, and what its judge has said of it.
type claimed struct {
	claim enforce.Claim
	judge string
	at    time.Time // when it was asked last
	is    enforce.Resolution
	// own is the judge's own intent, nil for none: it is of what the target was when that was said.
	own *remediate.Intent
}

// same reports whether what a judge has said answers a claim.
func (c *claimed) same(o *claimed) bool {
	return c != nil && c.judge == o.judge && reflect.DeepEqual(c.claim, o.claim)
}

// resolve sets what is known of the target of an intent. It reports false where there is no such correction.
func (c *claimed) resolve(i *remediate.Intent) bool {
	switch own := c.own; {
	case c.is.Why != "":
		i.Unresolved = c.is.Why
	case own != nil && (own.MemberUID != c.is.MemberUID || own.UID != c.is.UID || own.ResourceVersion != c.is.ResourceVersion):
		i.Unresolved = "process " + c.judge + ", which judges its target, has told of a remedy for another version of it"
	case i.MemberUID != "" && c.is.MemberUID != "" && i.MemberUID != c.is.MemberUID:
		i.Unresolved = "process " + c.judge + ", which judges its target, has not been asked since its member is another one"
	default:
		i.MemberUID, i.APIVersion, i.UID, i.ResourceVersion = c.is.MemberUID, c.is.APIVersion, c.is.UID, c.is.ResourceVersion
	}
	return c.is.Beyond == ""
}

// ask asks about claims, and notes the answers.
func (r *Receiver) ask(ctx context.Context, list []*claimed) {
	for _, c := range list[min(len(list), maxFirst):] {
		c.is.Why = "the process that judges its target has not been asked about it yet"
	}
	if list = list[:min(len(list), maxFirst)]; len(list) == 0 {
		return
	}
	now := time.Now()
	for n, is := range r.opts.Resolve(ctx, claimsOf(list)) {
		list[n].at, list[n].is = now, is
	}
}

func claimsOf(list []*claimed) []enforce.Claim {
	out := make([]enforce.Claim, 0, len(list))
	for _, c := range list {
		out = append(out, c.claim)
	}
	return out
}

// answered are answers about claims that were asked about before.
type answered struct {
	at     time.Time
	claims []*claimed
	is     []enforce.Resolution
}

// askAgain asks about the claims again that were asked about longest ago, unless that is being done.
func (r *Receiver) askAgain(ctx context.Context, links *sync.WaitGroup) {
	if r.asking || r.fleet == nil {
		return
	}
	now := time.Now()
	var due []*claimed
	for _, g := range r.given {
		for _, c := range g.claims {
			if now.Sub(c.at) >= beat {
				due = append(due, c)
			}
		}
	}
	if len(due) == 0 {
		return
	}
	slices.SortFunc(due, func(a, b *claimed) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.claim.Policy, b.claim.Policy), compareRefs(a.claim.Target, b.claim.Target))
	})
	due = due[:min(len(due), maxAgain)]
	r.asking = true
	questions := claimsOf(due)
	links.Go(func() {
		is := r.opts.Resolve(ctx, questions)
		select {
		case r.answers <- answered{now, due, is}:
		case <-ctx.Done():
		}
	})
}

// takeAnswers takes what was asked for again.
func (r *Receiver) takeAnswers(ctx context.Context, a answered) {
	r.asking = false
	changed := changes{}
	for n, c := range a.claims {
		g := r.given[c.claim.Policy]
		if g == nil || g.claims[c.claim.Target] != c {
			continue // it was asked otherwise since
		}
		if c.at = a.at; c.is != a.is[n] {
			c.is = a.is[n]
			changed.of(c.claim.Policy).targets[c.claim.Target] = true
		}
	}
	if r.fleet != nil && len(changed) > 0 {
		r.settle(ctx, changed)
	}
}

// gathered are the intents for some targets of a policy.
type gathered struct {
	intents []remediate.Intent
	present []policy.Ref // their targets
	gone    []policy.Ref
}

// gather returns the intents for targets of a policy, all of them or those that have changed. Who judges a target of which others have
// remedies is asked.
func (r *Receiver) gather(ctx context.Context, name string, g *given, targets []policy.Ref, all bool) gathered {
	was, next := g.claims, g.claims
	if all || next == nil {
		next = map[policy.Ref]*claimed{}
	}
	var out gathered
	var list []*remediate.Intent
	var ask []*claimed
	for _, target := range targets {
		i, claim := r.intentFor(name, target)
		known := was[target]
		delete(next, target)
		if i == nil {
			out.gone = append(out.gone, target)
			continue
		}
		list = append(list, i)
		if claim == nil {
			continue
		}
		if known.same(claim) {
			known.own = claim.own
			claim = known
		} else {
			ask = append(ask, claim)
		}
		next[target] = claim
	}
	r.ask(ctx, ask)
	g.claims = next
	for _, i := range list {
		target := i.Remedy.Target
		if c := next[target]; c != nil && !c.resolve(i) {
			out.gone = append(out.gone, target)
			continue
		}
		out.intents, out.present = append(out.intents, *i), append(out.present, target)
	}
	return out
}
