package people

import (
	"context"
	"fmt"
	"sync"
	"time"

	"federator.dev/federator/internal/admission"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/trigger"
)

// How often a hub is asked what it proves.
const (
	proofInterval    = time.Minute
	unprovenInterval = 10 * time.Second // while names of Approvals are not proven
	proofRequest     = 5 * time.Second  // at most that often on request, and after an error
	proofTimeout     = 15 * time.Second // of one answer
	maxProofAge      = 3 * time.Minute  // older answers prove nothing

	maxWhy = 512
)

// ProofsOptions configure Proofs. All are required.
type ProofsOptions struct {
	// Check asks the hub, as admission.Keeper does.
	Check    func(context.Context) (admission.KnownProofs, error)
	IsLeader func() bool // whether this process may ask
	OnChange func()      // something else is proven, or was asked again; it must not block
}

// Proofs know what the hub proves, as far as this process leads.
type Proofs struct {
	opts      ProofsOptions
	requested trigger.Trigger

	mu     sync.Mutex
	answer Answer
}

// Answer is what the hub has last proven.
type Answer struct {
	// Asked is when the hub was asked: nothing is said of what has been seen since. Zero: it
	// was not, or has not answered.
	Asked time.Time
	// What is proven is known only if Asked is set.
	admission.KnownProofs
	Why string // there is no answer
}

// NewProofs returns Proofs that know nothing before Run.
func NewProofs(opts ProofsOptions) *Proofs {
	return &Proofs{opts: opts, requested: trigger.New(), answer: Answer{Why: unknownYet}}
}

const unknownYet = "it is not known yet"

// Request has the hub asked soon, as of now. It does not block.
func (p *Proofs) Request() { p.requested.Fire() }

// Answer returns what the hub has proven; without an answer, nothing is.
func (p *Proofs) Answer(now time.Time) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.answer; !a.Asked.IsZero() && now.Sub(a.Asked) > maxProofAge {
		return Answer{Why: fmt.Sprintf("the hub was last asked at %s", a.Asked.UTC().Format(time.RFC3339))}
	}
	return p.answer
}

// Run asks the hub until the context ends.
func (p *Proofs) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var began time.Time // of the last question
	wanted := false
	for {
		switch {
		case !p.opts.IsLeader():
			began, wanted = time.Time{}, false
			p.set(Answer{Why: unknownYet}) // another process asks, and may learn that it has changed
		case began.IsZero(), time.Since(began) >= p.interval(wanted):
			began, wanted = time.Now(), false
			p.ask(ctx, began)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.requested:
			wanted = true
		case <-tick.C:
		}
	}
}

func (p *Proofs) ask(ctx context.Context, began time.Time) {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	known, err := p.opts.Check(ctx)
	if err != nil {
		p.set(Answer{Why: clip.Text("the hub was asked in vain: "+err.Error(), maxWhy)})
		return
	}
	p.set(Answer{Asked: began, KnownProofs: known})
}

// interval is the time from one question to the next.
func (p *Proofs) interval(wanted bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case wanted, p.answer.Asked.IsZero():
		return proofRequest
	case p.answer.Approvals.Since.IsZero(): // somebody may install what is missing, and waits
		return unprovenInterval
	}
	return proofInterval
}

func (p *Proofs) set(a Answer) {
	p.mu.Lock()
	changed := p.answer != a
	p.answer = a
	p.mu.Unlock()
	if changed {
		p.opts.OnChange()
	}
}
