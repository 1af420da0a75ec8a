package facts

import (
	"context"
	"fmt"
	"time"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Health returns the health of what was written.
func (c *Client) Health(w remediate.Written) remediate.Health {
	return c.Healths([]remediate.Written{w})[0]
}

// Healths returns the health of what was written, in the same order.
func (c *Client) Healths(list []remediate.Written) []remediate.Health {
	out := make([]remediate.Health, len(list))
	ask(c, healthPath, list, func(w remediate.Written) string { return w.Target.Member }, func(n int, h remediate.Health, err error) {
		if out[n] = h; err != nil {
			out[n] = remediate.Health{Status: remediate.Unknown, Why: err.Error()}
		}
	}, func(n int) { out[n] = c.opts.Local.Health(list[n]) })
	return out
}

// Owner returns who manages a target; of a Ref of a member alone whether that is known there. What was asked at most MaxAge
// ago, by Prefetch for example, is not asked again.
func (c *Client) Owner(target policy.Ref) remediate.Ownership {
	fleet := c.opts.Fleet()
	if fleet.Judges(target.Member) {
		return c.opts.Local.Owner(target)
	}
	if target.Kind == "" {
		f, err := c.factsOf(fleet, target.Member)
		if err != nil {
			f.Owner = err.Error()
		}
		return remediate.Ownership{Unknown: f.Owner}
	}
	c.mu.Lock()
	o, ok := c.owners[target]
	c.mu.Unlock()
	if ok && time.Since(o.at) <= MaxAge {
		return o.Ownership
	}
	return c.askOwners([]policy.Ref{target})[0]
}

// Resolve says what targets are, as those say who judge them. It is for intents.ReceiverOptions.
func (c *Client) Resolve(_ context.Context, claims []enforce.Claim) []enforce.Resolution {
	out := make([]enforce.Resolution, len(claims))
	ask(c, targetsPath, claims, func(of enforce.Claim) string { return of.Target.Member }, func(n int, is enforce.Resolution, err error) {
		if out[n] = is; err != nil {
			out[n] = enforce.Resolution{Why: err.Error()}
		}
	}, func(n int) { out[n] = c.opts.Local.Resolve(claims[n : n+1])[0] })
	return out
}

// Prefetch asks who manages targets, many at once. It is for intents.ReceiverOptions.
func (c *Client) Prefetch(_ context.Context, targets []policy.Ref) {
	fleet := c.opts.Fleet()
	var others []policy.Ref
	for _, t := range targets {
		if !fleet.Judges(t.Member) {
			others = append(others, t)
		}
	}
	if len(others) > 0 {
		c.askOwners(others)
	}
}

func (c *Client) askOwners(targets []policy.Ref) []remediate.Ownership {
	now := time.Now()
	out, failed := make([]remediate.Ownership, len(targets)), make([]bool, len(targets))
	ask(c, ownersPath, targets, func(t policy.Ref) string { return t.Member }, func(n int, o remediate.Ownership, err error) {
		if out[n] = o; err != nil {
			out[n], failed[n] = remediate.Ownership{Unknown: err.Error()}, true
		}
	}, func(n int) { out[n] = c.opts.Local.Owner(targets[n]) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for target, o := range c.owners {
		if now.Sub(o.at) > MaxAge {
			delete(c.owners, target)
		}
	}
	for n, target := range targets {
		if len(c.owners) >= maxOwners {
			break
		}
		if !failed[n] {
			c.owners[target] = owned{now, out[n]}
		}
	}
	return out
}

// ask asks those who judge the members of a list, each for its part, at once. set is told of each answer, or why
// there is none; own answers for this process.
func ask[Q, A any](c *Client, path string, list []Q, memberOf func(Q) string, set func(int, A, error), own func(int)) {
	fleet := c.opts.Fleet()
	of := map[string][]int{}
	peers := map[string]*intents.Peer{}
	for n := range list {
		member := memberOf(list[n])
		if fleet.Judges(member) {
			own(n)
			continue
		}
		judge, peer := fleet.JudgeOf(member)
		peers[judge] = peer
		of[judge] = append(of[judge], n)
	}
	type answered struct {
		numbers []int
		answers []A
		err     error
	}
	parts := make(chan answered)
	running := 0
	for judge, numbers := range of {
		running++
		go func() {
			answers, err := askOne[Q, A](c, judge, peers[judge], path, list, numbers)
			parts <- answered{numbers, answers, err}
		}()
	}
	for range running { // joins all
		p := <-parts
		for n, at := range p.numbers {
			var a A
			if p.err == nil {
				a = p.answers[n]
			}
			set(at, a, p.err)
		}
	}
}

func askOne[Q, A any](c *Client, judge string, peer *intents.Peer, path string, list []Q, numbers []int) ([]A, error) {
	if peer == nil {
		return nil, fmt.Errorf("process %q, which judges its member, is not within reach", judge)
	}
	if err := c.isSilent(judge); err != nil {
		return nil, err
	}
	var all []A
	for _, part := range chunks(numbers) {
		question := make([]Q, 0, len(part))
		for _, n := range part {
			question = append(question, list[n])
		}
		var answers []A
		err := get(*peer, path, question, &answers)
		if err == nil && len(answers) != len(part) {
			err = fmt.Errorf("process %s answers %d of %d questions", judge, len(answers), len(part))
		}
		if err != nil {
			c.mu.Lock()
			c.silent[judge] = time.Now()
			c.mu.Unlock()
			return nil, err
		}
		all = append(all, answers...)
	}
	return all, nil
}

// isSilent returns an error for a process that has just not answered: who asks often does not wait each time.
func (c *Client) isSilent(process string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.silent[process]; ok && time.Since(at) < AskTimeout {
		return fmt.Errorf("process %s did not answer a moment ago", process)
	}
	return nil
}
