package remediate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Retries of what can pass.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
	maxAttempts  = 6
)

// executor carries intents out, one at a time for each target.
type executor struct {
	clients Clients
	journal Journal
	clock   func() time.Time
	// gate is asked right before each write. Its error keeps the write from being
	// done now: the lease has ended, or somebody has stopped all actions.
	gate func(*Intent) error
}

// do carries an intent out and returns what has become of it. Its error is one for
// which nothing is known: of the journal, of the gate, or of the context. The intent
// may be tried again, which writes nothing twice.
func (x *executor) do(ctx context.Context, i *Intent) (*Action, error) {
	a := &Action{Name: i.name(), Intent: *i, Phase: Writing, Started: x.clock()}
	if why := Protected(i.Remedy.Target, nil); why != "" {
		return x.end(a, IsGuarded, why), nil
	}
	var done bool
	err := x.retry(ctx, a, func(c *Client) (err error) {
		done, err = x.prepare(ctx, c, a)
		return err
	})
	if err != nil || done || a.Phase == Superseded {
		return a, err
	}
	if i.DryRun && !a.Phase.Final() {
		x.end(a, DryRun, "")
	}
	if a.Phase.Final() { // for all to see
		if err := x.journal.Create(ctx, a); err != nil && !errors.Is(err, ErrExists) {
			return a, fmt.Errorf("record: %w", err)
		}
		return a, nil
	}
	switch err := x.journal.Create(ctx, a); {
	case errors.Is(err, ErrExists):
		known, err := x.journal.Get(ctx, a.Name)
		if err != nil {
			return a, fmt.Errorf("read the record: %w", err)
		}
		switch known.Phase {
		case Failed, Contended: // nothing was written, or it shows
			known.Phase, known.Attempts = Writing, 0
		case Writing:
		default:
			return known, nil
		}
		return x.resume(ctx, known)
	case err != nil:
		return a, fmt.Errorf("record: %w", err)
	}
	return x.write(ctx, a)
}

// end gives an action its last phase.
func (x *executor) end(a *Action, phase Phase, message string) *Action {
	a.Phase, a.Message, a.Ended = phase, clip(message, 1024), x.clock()
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

// prepare looks at the target, tries the write and finds its inverse. It reports
// whether the action has ended without one.
func (x *executor) prepare(ctx context.Context, c *Client, a *Action) (done bool, err error) {
	before, unmoved, err := x.target(ctx, c, a)
	if err != nil {
		return false, err
	}
	if !unmoved {
		x.end(a, Superseded, "the target has changed since it was judged")
		return true, nil
	}
	if why := Protected(a.Remedy.Target, annotationsOf(before)); why != "" {
		x.end(a, IsGuarded, why)
		return true, nil
	}
	w, err := a.compose(before, a.Name)
	switch {
	case err != nil:
		x.end(a, Failed, err.Error())
		return true, nil
	case w == nil:
		x.end(a, NoOp, "the target is gone")
		return true, nil
	}
	after, err := c.do(ctx, &a.Intent, w, true)
	if err != nil {
		return false, err
	}
	if w.verb == "DELETE" {
		after = nil
	} else if same(before, after) {
		x.end(a, NoOp, "nothing would change")
		return true, nil
	}
	a.Before, a.After = digest(before), digest(after)
	inv, err := invert(before, after, a.Remedy.Target.Kind == "Secret")
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrIntent, err)
	}
	a.InverseVerb, a.Inverse, a.Irreversible = inv.verb, inv.body, inv.why
	return false, nil
}

// resume finds out what became of an action that a process left Writing, and goes on
// with it.
func (x *executor) resume(ctx context.Context, a *Action) (*Action, error) {
	err := x.retry(ctx, a, func(c *Client) error {
		object, unmoved, err := x.target(ctx, c, a)
		if err == nil {
			x.landed(a, object, unmoved)
		}
		return err
	})
	if err != nil {
		return a, err
	}
	if a.Phase.Final() {
		return a, x.record(ctx, a)
	}
	return x.write(ctx, a)
}

// landed says of an action that is Writing whether the target shows its write, or has
// moved otherwise.
func (x *executor) landed(a *Action, object map[string]any, unmoved bool) {
	uid, version := identity(object)
	switch {
	case a.Remedy.Action == "delete" && uid != a.UID:
		x.end(a, Succeeded, "the target is gone")
	case object != nil && annotationsOf(object)[ActionAnnotation] == a.Name:
		a.Written = version
		x.end(a, Succeeded, "")
	case !unmoved:
		x.end(a, Superseded, "the target has changed before it was written")
	}
}

// write does the write that is recorded.
func (x *executor) write(ctx context.Context, a *Action) (*Action, error) {
	err := x.retry(ctx, a, func(c *Client) error {
		before, unmoved, err := x.target(ctx, c, a)
		if err != nil {
			return err
		}
		if x.landed(a, before, unmoved); a.Phase.Final() {
			return nil
		}
		w, err := a.compose(before, a.Name)
		if err != nil {
			x.end(a, Failed, err.Error())
			return nil
		}
		if err := x.gate(&a.Intent); err != nil {
			return &gateError{err}
		}
		object, err := c.do(ctx, &a.Intent, w, false)
		if err != nil {
			return err
		}
		_, a.Written = identity(object)
		x.end(a, Succeeded, "")
		return nil
	})
	if err != nil {
		return a, err
	}
	return a, x.record(ctx, a)
}

// record writes down where an action stands; what a member has been told must be
// known even where the process is about to end.
func (x *executor) record(ctx context.Context, a *Action) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
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
		c, err := x.clients.Client(a.Remedy.Target.Member, a.Remedy.Target.Kind, a.APIVersion)
		if err == nil {
			err = f(c)
		}
		var gate *gateError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &gate):
			return gate.error
		}
		a.Attempts++
		r := judge(err, verbOf(a))
		switch {
		case errors.Is(err, ErrIntent):
			x.end(a, Failed, err.Error())
			return nil
		case r.phase == Superseded && try > 1:
			// A write of ours may have been done though its answer was lost.
			r.phase = ""
			if try >= maxAttempts {
				r.phase = Superseded
			}
		}
		if r.phase != "" {
			a.Manager = r.manager
			x.end(a, r.phase, err.Error())
			return nil
		}
		if try >= maxAttempts {
			x.end(a, Failed, fmt.Sprintf("tried %d times: %v", try, err))
			return nil
		}
		if err := sleep(ctx, max(r.after, time.Duration(float64(wait)*(0.8+0.4*rand.Float64())))); err != nil { //nolint:gosec // Jitter.
			return err
		}
		wait = min(2*wait, lastBackoff)
	}
}

// verbOf is how an intent is written where the target does not exist.
func verbOf(a *Action) string {
	if a.Remedy.Action == "apply" && a.UID == "" {
		return "POST"
	}
	return "PATCH"
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
