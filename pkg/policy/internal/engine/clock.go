package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/tidwall/btree"

	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// clock is the time of an engine, in seconds since 1970.
type clock struct {
	// asOf is the time of verdicts: it never falls.
	asOf int64
	// now is that of the caller's clock. After a step back it is before asOf: instants in between have passed
	// once and are in doubt until they pass again.
	now int64
}

// maxStepBack is how far a clock may go back unnoticed: clocks are corrected all the time.
const maxStepBack = 5

// set takes in the time of the caller's clock, and reports whether it has stepped back.
func (c *clock) set(now int64) (back bool) {
	if back = c.isBack(now); back || now > c.now {
		c.now = now
	}
	c.asOf = max(c.asOf, c.now)
	return back
}

func (c *clock) isBack(now int64) bool { return now < c.now-maxStepBack }

// wall returns the time of the caller's clock.
func (e *Engine) wall() time.Time {
	if !e.opts.AsOf.IsZero() {
		return e.opts.AsOf
	}
	return e.opts.Clock()
}

// instants are those that verdicts have read and that had not passed then, in order: which keys of the tables of
// reads name an instant. They come and go with the reads.
type instants struct {
	inOrder *btree.BTreeG[int64] // an instant, and in the last bit the table that has it
}

func newInstants() instants {
	return instants{btree.NewBTreeGOptions(func(a, b int64) bool { return a < b }, btree.Options{NoLocks: true})}
}

// watch returns what a table of reads tells of its keys.
func (s instants) watch(table int64) func(key uint64, read bool) {
	return func(key uint64, read bool) {
		at, ok := instantOf(key)
		switch {
		case !ok:
		case read:
			s.inOrder.Set(at<<1 | table)
		default:
			s.inOrder.Delete(at<<1 | table)
		}
	}
}

// until yields the instants up to one.
func (s instants) until(now int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		s.inOrder.Scan(func(x int64) bool { return x>>1 <= now && yield(x>>1) })
	}
}

// after returns the first instant after one; ok is false when there is none.
func (s instants) after(now int64) (at int64, ok bool) {
	s.inOrder.Ascend((now+1)<<1, func(x int64) bool {
		at, ok = x>>1, true
		return false
	})
	return at, ok
}

// passed is data.fleet.passed[instant]. An instant that has passed goes on having passed, so that only others
// are recorded.
func (ev *evaluation) passed(path []string) (ast.Value, []string, error) {
	if len(path) == 0 {
		return nil, nil, fmt.Errorf("data.fleet.passed: %w: name an instant", errNoKey)
	}
	at, err := fleetdoc.Instant(path[0])
	if err != nil {
		return nil, nil, err
	}
	c := &ev.w.e.clock
	if at > c.now {
		ev.record(instantKey(at))
		if at <= c.asOf {
			ev.reads.AddDoubt()
		}
	}
	return fleetdoc.Passed(at, c.asOf), path[1:], nil
}

// markPassed marks the subjects that read an instant which has passed since. After a step back these are all
// that may have read one which had passed: such reads are not recorded.
func (r *pass) markPassed() {
	for at := range r.e.instants.until(r.e.clock.now) {
		r.invalidate(instantKey(at))
	}
	if !r.steppedBack {
		return
	}
	for _, b := range r.e.bindings {
		if b.pkg.Reads.Time {
			r.markSubjects(b)
		}
	}
}

// markSubjects marks all subjects of a binding.
func (r *pass) markSubjects(b *boundBinding) {
	switch b.pkg.Subject {
	case module.ObjectSubject:
		for kind := range state.KindsOf(b.pkg, r.after) {
			for o := range state.ObjectsOf(r.after, kind, "") {
				if b.isSubject(&b.selected, o) {
					r.markObject(b, o.Ref())
				}
			}
		}
	case module.MemberSubject:
		for m := range r.after.Members() {
			var s verdict.Subject
			s.Ref.Member = m.Name
			r.markSubject(b, s)
		}
	case module.ViewSubject:
		for k := range b.view.Keys() {
			r.markSubject(b, verdict.Subject{Key: k})
		}
	}
}

// Advance takes the engine to the present time at its snapshot: it evaluates what read an instant that has
// passed since, and what quarantines withheld that have ended, and no others. Apply does so as well. It returns
// nil, and publishes nothing, when nothing is due.
func (e *Engine) Advance(ctx context.Context) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	if e.needsReset || e.snapshot == nil {
		return nil, ErrReset
	}
	if !e.due(e.wall()) {
		return nil, nil
	}
	r := e.startPass(ctx, e.snapshot)
	r.markPassed()
	r.markRetries()
	return r.finish(func() error {
		return firstError(r.endQuarantines, r.retryContributions, r.restoreViews, r.evaluateMembersAndKeys, r.evaluateReaders)
	})
}

// due reports whether time alone has changed something.
func (e *Engine) due(now time.Time) bool {
	s := e.State()
	if !s.Retry.IsZero() && !now.Before(s.Retry) || !s.Wake.IsZero() && !now.Before(s.Wake) {
		return true
	}
	if !e.clock.isBack(now.Unix()) {
		return false
	}
	for _, b := range e.bindings {
		if b.pkg.Reads.Time {
			return true
		}
	}
	return false
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

var errAsOf = errors.New("policy engine: AsOf is before 1970")
