package remediate

import (
	"cmp"
	"fmt"
	"time"
)

// The gate is asked directly before each request to write, and again for each attempt of a
// retry; a plan asks the same functions, for what it starts and what it shows. Rollbacks are
// requests of people: what holds a policy does not hold them.

// Why nothing is written for a policy.
const (
	halted    = "halted"
	recording = "its state is being recorded"
)

// refusal is why nothing is written now, and when that may change; zero is not known.
type refusal struct {
	why   string
	until time.Time
}

// admitWrite returns until when a write may last that follows at once, or why there must be
// none, as ErrNotNow. The write counts from then on.
func (d *Dispatcher) admitWrite(i *Intent) (until time.Time, err error) {
	until, err = d.lease()
	if err != nil {
		return until, fmt.Errorf("%w: %w", ErrNotNow, err)
	}
	if err := d.checkMember(i.Remedy.Target.Member); err != nil {
		return until, err
	}
	if i.RollbackOf != "" {
		if err := d.admitRollback(i); err != nil {
			return until, err
		}
	}
	if why := d.checkAway(); why != "" {
		return until, fmt.Errorf("%w: %s", ErrNotNow, why)
	}
	if owner, err := d.opts.owner(i); err != nil {
		return until, err
	} else if owner != "" {
		return until, fmt.Errorf("%w: it is managed by %s", ErrNotNow, owner)
	}
	ceiling := d.ceilingOf(d.sourceOf(i))
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.opts.Clock()
	if why := d.refuseWriteLocked(i, ceiling, now); why != "" {
		return until, fmt.Errorf("%w: %s", ErrNotNow, why)
	}
	if !d.bounds.Write(now) {
		return until, fmt.Errorf("%w: as many writes as the whole fleet may have in a second were sent", ErrNotNow)
	}
	d.ledger.BeginWrite(i.Binding, i.Remedy.Target, i.Subject, now)
	d.metrics.writes.WithLabelValues(i.Remedy.Target.Member).Inc()
	return until, nil
}

// admitRollback returns why a rollback must not be written now. Corrections of a member that has
// left are not desired any more.
func (d *Dispatcher) admitRollback(i *Intent) error {
	if err := d.checkSameMember(i); err != nil || i.admit == nil {
		return err
	}
	return i.admit()
}

// checkMember returns why a member may not be written to now, as ErrNotNow.
func (d *Dispatcher) checkMember(member string) error {
	if err := d.opts.Held(member); err != nil {
		return fmt.Errorf("%w: %w", ErrNotNow, err)
	}
	return nil
}

// sourceOf returns the source whose ceiling an intent keeps to: its policy's.
func (d *Dispatcher) sourceOf(i *Intent) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.policies[i.Binding]; s != nil && i.RollbackOf == "" {
		return s.spec.Source
	}
	return i.Source
}

// ceilingOf returns which ceiling a source has now. It is asked without the lock.
func (d *Dispatcher) ceilingOf(source string) string {
	if d.opts.Ceiling == nil || source == "" {
		return ""
	}
	return d.opts.Ceiling(source)
}

// refuseCeiling returns why nothing is written under the ceiling that a source has now, "" if
// the policy's intents keep to it.
func (s *RolloutSpec) refuseCeiling(now string) string {
	if s.Source == "" || s.Ceiling == now {
		return ""
	}
	return fmt.Sprintf("the ceiling of source %q has changed", s.Source)
}

// refuseWriteLocked returns why an intent must not be written, "" if it may be. Lease, held
// members and the ceiling of its source are asked without the lock, before.
func (d *Dispatcher) refuseWriteLocked(i *Intent, ceiling string, now time.Time) string {
	if !d.recovered {
		return resolving
	}
	if why := d.refuseFleetLocked(); why != "" {
		return why
	}
	stop := cmp.Or(d.stops.policy(i.Binding, i.Source), d.stops.member(i.Remedy.Target.Member))
	if stop != "" && (i.RollbackOf == "" || !i.WhileStopped) {
		return stop
	}
	if why := d.Protected(i.Remedy.Target, nil); why != "" {
		return why
	}
	if i.RollbackOf != "" {
		return ""
	}
	s := d.policies[i.Binding]
	if s == nil || s.removed {
		return "the policy is gone"
	}
	if now := s.intents[i.Remedy.Target]; now != nil && now.Unresolved != "" {
		return now.Unresolved
	}
	if s.spec.DryRun {
		return "the policy is in mode DryRun"
	}
	if why := s.spec.refuseCeiling(ceiling); why != "" {
		return why
	}
	if r := d.refusePolicyLocked(s, now); r.why != "" {
		return r.why
	}
	s.reviewApprovals(&pass{now: now})
	switch {
	case s.totals.Unread[i.Remedy.Target.Member]:
		return unread(i.Remedy.Target.Member)
	case !s.isRecorded():
		return recording
	case !s.isDesired(i):
		return "the policy no longer requires this write"
	case !s.lets(i.Remedy.Target, s.reached(now)):
		return "the wave of member " + i.Remedy.Target.Member + " has not begun"
	}
	if why := s.refuseUnapproved(i); why != "" {
		return why
	}
	return d.permitLocked(s, i, now)
}

// refusePolicyLocked returns why nothing is written for a policy now. Without a reason,
// until is when one begins.
func (d *Dispatcher) refusePolicyLocked(s *policyState, now time.Time) refusal {
	if why := cmp.Or(d.refuseFleetLocked(), d.stops.policy(s.name, s.spec.Source), d.opts.Incomplete(s.name)); why != "" {
		return refusal{why: why}
	}
	switch {
	case len(s.halts) > 0:
		return refusal{why: halted}
	case s.spec.Suspend:
		return refusal{why: "suspended"}
	case !s.ready:
		return refusal{why: "its verdicts have not all been counted"}
	}
	open, until := s.spec.Window.IsOpen(now)
	if !open {
		return refusal{WaitingForWindow, until}
	}
	open, ceiling := s.spec.CeilingWindow.IsOpen(now)
	if !open {
		return refusal{WaitingForCeilingWindow, ceiling}
	}
	return refusal{until: earliest(until, ceiling)}
}

// unread says why a member is not written to of which Totals say so.
func unread(member string) string {
	return "not all that the policy reads of member " + member + " has been read yet"
}

// refuseMemberLocked returns why an intent is not carried out now in its member, "" if it may
// be.
func (d *Dispatcher) refuseMemberLocked(s *policyState, i *Intent, p *pass) string {
	member := i.Remedy.Target.Member
	if s.totals.Unread[member] && i.RollbackOf == "" {
		return unread(member)
	}
	if why := p.unknown[member]; why != "" && !i.OverrideGitOps {
		p.again(p.now.Add(heldPollInterval))
		return why
	}
	if why := d.stops.member(member); why != "" {
		return why
	}
	if err := p.held[member]; err != nil {
		p.again(p.now.Add(heldPollInterval))
		return err.Error()
	}
	return ""
}
