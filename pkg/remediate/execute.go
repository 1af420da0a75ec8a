package remediate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"federator.dev/federator/pkg/policy"
)

// Retries of what can pass.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
	maxAttempts  = 6
	mostAgain    = 1000 // actions of one intent, each of which has ended
)

// errUnknown is of a write that may have been done: nobody has answered.
var errUnknown = errors.New("it is not known whether it was written")

// executor carries intents out, one at a time for each target.
type executor struct {
	clients Clients
	journal Journal
	clock   func() time.Time
	// gate is asked right before each write. Its error keeps the write from being
	// done now: the lease has ended, or somebody has stopped all actions.
	gate func(*Intent) error
	// paused is asked before a member is: its error keeps everything from being tried
	// there. nil: no member is held.
	paused func(member string) error
	// settled is told what has become of what was left; may be nil.
	settled func(*Action)

	mu   sync.Mutex
	held map[policy.Ref]chan struct{} // targets at work; closed when let go
	left map[string]*leftover         // by name: what is recorded and perhaps written
}

// seen is a target as it was a moment ago.
type seen struct{ object map[string]any }

// do carries an intent out and returns what has become of it. Its error is one for
// which nothing is known: of the journal, of the gate, of the context, or of a member
// that does not answer. The intent may be tried again, which writes nothing twice.
func (x *executor) do(ctx context.Context, i *Intent) (*Action, error) {
	a := &Action{Name: i.name(), Intent: *i, Phase: Writing, Started: x.clock()}
	a.APIVersion = i.version()
	if why := Protected(i.Remedy.Target, nil); why != "" {
		return x.end(a, IsGuarded, why), nil
	}
	release, err := x.hold(ctx, i.Remedy.Target)
	if err != nil {
		return a, err
	}
	defer release()
	if err := x.settleOthers(ctx, a); err != nil {
		return a, err
	}
	var before *seen
	if err := x.retry(ctx, a, func(c *Client) (err error) {
		before, err = x.prepare(ctx, c, a)
		return err
	}); err != nil {
		return a, err
	}
	switch {
	case a.Phase == Superseded:
		return x.earlier(ctx, a, before)
	case a.Phase == NoOp || a.Phase == IsGuarded:
		return a, nil
	case a.Phase.Final():
		return x.report(ctx, a)
	case i.DryRun:
		return x.report(ctx, x.end(a, DryRun, ""))
	}
	return x.begin(ctx, a, before)
}

// begin records an action that is ready, and goes on with the write. If it is recorded
// already it goes on from there.
func (x *executor) begin(ctx context.Context, a *Action, before *seen) (*Action, error) {
	for n := range mostAgain {
		a.Name = a.again(n)
		err := x.journal.Create(ctx, a)
		switch {
		case err == nil:
			return x.write(ctx, a, before)
		case errors.Is(err, ErrIntent):
			return x.end(a, Failed, err.Error()), nil
		case !errors.Is(err, ErrExists):
			x.leave(a) // it may have been recorded
			return a, fmt.Errorf("record: %w", err)
		}
		known, err := x.journal.Get(ctx, a.Name)
		if err != nil {
			return a, fmt.Errorf("read the record: %w", err)
		}
		switch known.Phase {
		case Writing:
		case Failed, Contended: // nothing was written, or it shows
			known.Phase, known.Message, known.Manager, known.Attempts, known.Ended = Writing, "", "", 0, time.Time{}
			if err := x.record(ctx, known); err != nil {
				return a, err
			}
		default:
			// The target is again as it was then, or another process has written it since it
			// was read here.
			switch err := x.lookAgain(ctx, a); {
			case err != nil || a.Phase == Superseded:
				return a, err
			case a.Phase.Final():
				return x.report(ctx, a)
			}
			continue
		}
		known.Remedy = a.Remedy // a Secret's is not recorded
		known.follow(a)
		if known.Started.IsZero() {
			known.Started = a.Started
		}
		return x.write(ctx, known, nil)
	}
	return x.end(a, Failed, fmt.Sprintf("the target was corrected %d times and is again as it was", mostAgain)), nil
}

// lookAgain reads the target again. The action has ended if it has moved, or cannot be
// read.
func (x *executor) lookAgain(ctx context.Context, a *Action) error {
	return x.retry(ctx, a, func(c *Client) error {
		_, unmoved, err := x.target(ctx, c, a)
		if err == nil && !unmoved {
			x.end(a, Superseded, "the target has changed since it was judged")
		}
		return err
	})
}

// report records an action that has been tried and not written. There is one record of
// the correction for all versions of its target: what cannot be written stays so while
// others change the target.
func (x *executor) report(ctx context.Context, a *Action) (*Action, error) {
	a.Name, a.tried = a.triedName(), true
	err := x.journal.Create(ctx, a)
	switch {
	case err == nil:
		return a, nil
	case errors.Is(err, ErrIntent):
		// Its status says so; the record that it cannot have would be one more place.
		return x.end(a, Failed, fmt.Sprintf("%s (%v)", a.Message, err)), nil
	case !errors.Is(err, ErrExists):
		return a, fmt.Errorf("record: %w", err)
	}
	known, err := x.journal.Get(ctx, a.Name)
	if err != nil {
		return a, fmt.Errorf("read the record: %w", err)
	}
	if known.Phase == a.Phase && known.Message == a.Message {
		return a, nil
	}
	known.Phase, known.Message, known.Manager, known.Attempts, known.Ended = a.Phase, a.Message, a.Manager, a.Attempts, a.Ended
	known.follow(a)
	return known, x.record(ctx, known)
}

// follow takes over the acknowledgement that another try follows.
func (a *Action) follow(now *Action) {
	if now.Acknowledged != nil {
		a.Acknowledged = now.Acknowledged
	}
}

// earlier looks whether a target that has moved was written by this very action, which
// another process, or this one, does not know.
func (x *executor) earlier(ctx context.Context, a *Action, now *seen) (*Action, error) {
	if now == nil {
		return a, nil
	}
	known, err := x.journal.Get(ctx, a.Name)
	switch {
	case errors.Is(err, ErrNoAction):
		return a, nil
	case err != nil:
		return a, fmt.Errorf("read the record: %w", err)
	case known.Phase != Writing && known.Phase != Failed && known.Phase != Contended:
		return a, nil
	}
	was := known.Phase
	if x.landed(known, now.object, false); known.Phase == Superseded && was != Writing {
		return a, nil
	}
	return known, x.record(ctx, known)
}

// end gives an action its last phase.
func (x *executor) end(a *Action, phase Phase, message string) *Action {
	a.Phase, a.Message, a.Ended = phase, clip(message, mostMessage), x.clock()
	return a
}

// target returns the target as it is, and whether it is as it was judged.
func (x *executor) target(ctx context.Context, c *Client, a *Action) (object map[string]any, unmoved bool, err error) {
	if object, err = c.get(ctx, &a.Intent); err != nil {
		return nil, false, err
	}
	uid, version := identity(object)
	return object, uid == a.UID && version == a.ResourceVersion, nil
}

func identity(object map[string]any) (uid, resourceVersion string) {
	meta, _ := object["metadata"].(map[string]any)
	uid, _ = meta["uid"].(string)
	resourceVersion, _ = meta["resourceVersion"].(string)
	return uid, resourceVersion
}

func annotationsOf(object map[string]any) map[string]string {
	meta, _ := object["metadata"].(map[string]any)
	raw, _ := meta["annotations"].(map[string]any)
	out := make(map[string]string, len(raw))
	for k, v := range raw {
		out[k], _ = v.(string)
	}
	return out
}

// prepare looks at the target, tries the write and finds its inverse. The action has
// ended if nothing is to be written. Beside an error it returns the target if that has
// not moved.
func (x *executor) prepare(ctx context.Context, c *Client, a *Action) (*seen, error) {
	before, unmoved, err := x.target(ctx, c, a)
	if err != nil {
		return nil, err
	}
	now := &seen{before}
	if !unmoved {
		x.end(a, Superseded, "the target has changed since it was judged")
		return now, nil
	}
	if why := Protected(a.Remedy.Target, annotationsOf(before)); why != "" {
		x.end(a, IsGuarded, why)
		return now, nil
	}
	w, err := a.compose(before, a.Name)
	if err != nil {
		return now, err
	}
	if w == nil {
		x.end(a, NoOp, "the target is gone")
		return now, nil
	}
	after, err := c.send(ctx, &a.Intent, w, true)
	if err != nil {
		return now, err
	}
	if w.verb == "DELETE" {
		after = nil
	} else if same(before, after) {
		x.end(a, NoOp, "nothing would change")
		return now, nil
	}
	secret := isSecret(a.Remedy.Target.Kind)
	a.Before, a.After = digest(before, secret), digest(after, secret)
	inv, err := invert(before, after, secret)
	if err != nil {
		return now, fmt.Errorf("%w: %w", ErrIntent, err)
	}
	a.InverseVerb, a.Inverse, a.Irreversible = inv.verb, inv.body, inv.why
	return now, nil
}

// landed ends an action whose target shows its write, or has moved otherwise.
func (x *executor) landed(a *Action, object map[string]any, unmoved bool) {
	uid, version := identity(object)
	switch {
	case a.Remedy.Action == "delete" && (uid != a.UID || terminating(object)):
		x.end(a, Succeeded, "the target is gone")
	case object != nil && annotationsOf(object)[ActionAnnotation] == a.Name:
		a.Written = version
		x.end(a, Succeeded, "")
	case !unmoved:
		x.end(a, Superseded, "the target has changed before it was written")
	}
}

// write does the write that is recorded. before is the target if it was just seen.
func (x *executor) write(ctx context.Context, a *Action, before *seen) (*Action, error) {
	x.forget(a.Name)
	resumed := before == nil // somebody may have sent a request before
	unsure := false          // a request may have been done though it failed
	shown := false           // the target says what came of it
	err := x.retry(ctx, a, func(c *Client) error {
		if before == nil {
			object, unmoved, err := x.target(ctx, c, a)
			if err != nil {
				return err
			}
			if x.landed(a, object, unmoved); a.Phase.Final() {
				shown = true
				if a.Remedy.Action == "delete" && a.Phase == Succeeded && !resumed && !unsure {
					x.end(a, Superseded, "somebody else has deleted the target")
				}
				return nil
			}
			before = &seen{object}
		}
		w, err := a.compose(before.object, a.Name)
		if err != nil {
			return err
		}
		before = nil // look again, next time
		if err := x.gate(&a.Intent); err != nil {
			return &gateError{err}
		}
		object, err := c.send(ctx, &a.Intent, w, false)
		if err != nil {
			unsure = unsure || !unsent(err)
			return err
		}
		_, a.Written = identity(object)
		x.end(a, Succeeded, "")
		return nil
	})
	if err == nil && !shown && a.Phase != Succeeded && (unsure || resumed && a.Phase == Superseded) {
		err = fmt.Errorf("%w: %s", errUnknown, a.Message)
		a.Phase, a.Manager, a.Ended = Writing, "", time.Time{}
		a.Message = clip(err.Error(), mostMessage)
	}
	if err == nil {
		err = x.record(ctx, a)
	} else if errors.Is(err, errUnknown) {
		err = errors.Join(err, x.record(ctx, a))
	}
	if a.Phase == Superseded && errors.Is(err, ErrEnded) {
		// Another process has taken it up, and knows what has come of it.
		known, unread := x.journal.Get(ctx, a.Name)
		if unread == nil {
			return known, nil
		}
		err = errors.Join(err, unread)
	}
	if err != nil {
		x.leave(a)
	}
	return a, err
}

// record writes down where an action stands; what a member has been told must be
// known even where the process is about to end. What is taken back is marked first.
func (x *executor) record(ctx context.Context, a *Action) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if a.Phase == Succeeded && a.RollbackOf != "" {
		of, err := x.journal.Get(ctx, a.RollbackOf)
		if err == nil && of.Phase == Succeeded {
			err = x.journal.Update(ctx, x.end(of, RolledBack, "by "+a.Name))
		}
		if err != nil && !errors.Is(err, ErrNoAction) {
			return fmt.Errorf("record what is taken back: %w", err)
		}
	}
	if err := x.journal.Update(ctx, a); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

type gateError struct{ error }

func (e *gateError) Unwrap() error { return e.error }

// retry does something with the target's client until it succeeds, or is refused for
// good, which ends the action. Its error is the context's or the gate's.
func (x *executor) retry(ctx context.Context, a *Action, f func(*Client) error) error {
	for try, wait := 1, firstBackoff; ; try++ {
		if x.paused != nil {
			if err := x.paused(a.Remedy.Target.Member); err != nil {
				return err
			}
		}
		c, err := x.clients.Client(a.Remedy.Target.Member, a.Remedy.Target.Kind, a.APIVersion)
		if err == nil {
			err = f(c)
		}
		var gate *gateError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &gate):
			return gate.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		a.Attempts++
		r := judge(err, &a.Intent)
		why := explain(err, a.Remedy.Target)
		switch {
		case r.phase == Superseded && try < maxAttempts:
			// The target says whether it has moved, and by whom.
		case r.phase != "":
			a.Manager = r.manager
			x.end(a, r.phase, why)
			return nil
		case try >= maxAttempts:
			x.end(a, Failed, fmt.Sprintf("tried %d times: %s", try, why))
			return nil
		}
		jittered := time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // Jitter.
		if err := sleep(ctx, max(r.after, jittered)); err != nil {
			return err
		}
		wait = min(2*wait, lastBackoff)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
