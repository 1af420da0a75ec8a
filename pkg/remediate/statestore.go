package remediate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/remediate/internal/history"
	"federator.dev/federator/pkg/remediate/internal/rollout"
)

// record is what lasts of a policy: its PolicyState on the hub. It is recorded before the
// writes that rest on it.
type record struct {
	halts        []*Halt
	rollout      *rollout.State    // nil: no waves yet
	replaced     *rollout.Replaced // whose place the present generation takes; nil: none's
	baseline     []v1alpha1.BaselineCount
	allowances   []allowance
	acknowledged *Acknowledgement
	excused      map[string]bool // failed targets that an acknowledgement has accepted, by excuseKey: it is replaced, or added to
	longest      time.Duration   // of the windows under which it wrote
	history      history.Log
	approval     *v1alpha1.KeptApproval

	changed, saved int       // how often this has changed, and when it was recorded last
	version        string    // resourceVersion of the PolicyState, "" for none
	created        time.Time // the PolicyState, as it was read; zero if this process has recorded it first
}

// touch notes a change that is to be recorded.
func (r *record) touch() { r.changed++ }

// isRecorded reports that the hub has all of it.
func (r *record) isRecorded() bool { return r.changed == r.saved }

// Limits of the CRD.
const (
	maxHalts       = 16
	maxOver        = 500
	maxHaltTargets = 20
	maxAllowances  = 2000
	maxExcused     = 5000
)

// encode returns the record as the hub has it.
func (r *record) encode() *v1alpha1.PolicyStateStatus {
	out := &v1alpha1.PolicyStateStatus{}
	for _, h := range r.halts {
		out.Halts = append(out.Halts, encodeHalt(h))
	}
	if s := r.rollout; s != nil {
		out.Rollout = &v1alpha1.Rollout{
			Generation: v1alpha1.RolloutGeneration(s.Generation), Wave: int32(s.Wave + 1), Phase: s.Phase, // There are few waves.
			Since: *microTime(s.Since), Began: *microTime(s.Began), Done: microTime(s.Done), HealthySince: microTime(s.Healthy), Baseline: r.baseline,
		}
	}
	if s := r.replaced; s != nil {
		out.Replaced = &v1alpha1.ReplacedRollout{
			Generation: v1alpha1.RolloutGeneration(s.Generation), Wave: int32(s.Wave + 1), Began: microTime(s.Began), Done: microTime(s.Done), // There are few waves.
			By: v1alpha1.RolloutGeneration(s.By), Reached: int32(s.Reached),
		}
	}
	for _, a := range r.allowances {
		out.Allowances = append(out.Allowances, v1alpha1.Allowance{
			Halt: a.Halt, Plan: a.plan, Scope: a.scope, Member: a.member, Generation: v1alpha1.RolloutGeneration(a.generation), Targets: int64(a.targets), Subjects: int64(a.subjects),
			By: clip.Text(a.By, maxAcknowledger), At: *microTime(a.At), Expires: *microTime(a.expires),
		})
	}
	if a := r.acknowledged; a != nil {
		out.Acknowledged = &v1alpha1.Acknowledgement{ID: a.Halt, By: clip.Text(a.By, maxAcknowledger), At: metav1.NewTime(a.At)}
	}
	out.Excused = slices.Sorted(maps.Keys(r.excused))
	out.Approval = r.approval
	if r.longest > 0 {
		out.LongestWindow = &metav1.Duration{Duration: r.longest}
	}
	out.History = r.history
	return out
}

func encodeHalt(h *Halt) v1alpha1.RecordedHalt {
	out := v1alpha1.RecordedHalt{
		ID: h.ID, Reason: h.Reason, Message: clip.Text(h.Message, maxMessage), Since: *microTime(h.Since),
		Generation: v1alpha1.RolloutGeneration(h.Generation), Targets: h.Targets, With: h.With, Plan: h.Plan,
	}
	for n := range h.Exceeded {
		out.Over = append(out.Over, encodeLimit(&h.Exceeded[n]))
	}
	return out
}

func encodeLimit(u *BudgetUsage) v1alpha1.ExceededLimit {
	l := v1alpha1.ExceededLimit{Allowed: int64(u.Max), Denominator: int64(u.Denominator), Scope: v1alpha1.MemberScope, Member: u.Scope}
	switch u.Scope {
	case scopePolicy:
		l.Scope, l.Member = v1alpha1.PolicyScope, ""
	case scopeFleet:
		l.Scope, l.Member = v1alpha1.FleetScope, ""
	}
	if u.Percent {
		l.Subjects = int64(u.Targets)
	} else {
		l.Targets = int64(u.Targets)
	}
	return l
}

// decodeRecord returns the record that a PolicyState has.
func decodeRecord(in *v1alpha1.PolicyState) record {
	s := &in.Status
	r := record{version: in.ResourceVersion, created: in.CreationTimestamp.Time, history: s.History, approval: s.Approval}
	for n := range s.Halts {
		r.halts = append(r.halts, decodeHalt(&s.Halts[n]))
	}
	if o := s.Rollout; o != nil {
		r.rollout = &rollout.State{
			Generation: string(o.Generation), Wave: int(o.Wave) - 1, Phase: o.Phase, Since: o.Since.Time, Began: o.Began.Time,
			Done: timeOf(o.Done), Healthy: timeOf(o.HealthySince),
		}
		r.baseline = o.Baseline
	}
	r.replaced = decodeReplaced(s.Replaced)
	for _, a := range s.Allowances {
		r.allowances = append(r.allowances, allowance{
			Acknowledgement: Acknowledgement{Halt: a.Halt, By: a.By, At: a.At.Time},
			plan:            a.Plan, scope: a.Scope, member: a.Member, generation: string(a.Generation), targets: int(a.Targets), subjects: int(a.Subjects), expires: a.Expires.Time,
		})
	}
	for _, key := range s.Excused {
		if r.excused == nil {
			r.excused = map[string]bool{}
		}
		r.excused[key] = true
	}
	if a := s.Acknowledged; a != nil {
		r.acknowledged = &Acknowledgement{Halt: a.ID, By: a.By, At: a.At.Time}
	}
	if s.LongestWindow != nil {
		r.longest = s.LongestWindow.Duration
	}
	return r
}

func decodeReplaced(in *v1alpha1.ReplacedRollout) *rollout.Replaced {
	if in == nil {
		return nil
	}
	r := &rollout.Replaced{
		State: rollout.State{Generation: string(in.Generation), Wave: int(in.Wave) - 1, Began: timeOf(in.Began), Done: timeOf(in.Done), Phase: v1alpha1.WaveWriting},
		By:    string(in.By), Reached: int(in.Reached),
	}
	if !r.Done.IsZero() {
		r.Phase, r.Since = v1alpha1.WaveDone, r.Done
	}
	return r
}

func decodeHalt(in *v1alpha1.RecordedHalt) *Halt {
	h := &Halt{
		ID: in.ID, Reason: in.Reason, Message: in.Message, Since: in.Since.Time, Generation: string(in.Generation),
		Targets: slices.Clone(in.Targets), With: in.With, Plan: in.Plan,
	}
	for _, l := range in.Over {
		u := BudgetUsage{Scope: l.Member, Targets: int(l.Targets), Max: int(l.Allowed), Denominator: int(l.Denominator)}
		switch l.Scope {
		case v1alpha1.PolicyScope:
			u.Scope = scopePolicy
		case v1alpha1.FleetScope:
			u.Scope = scopeFleet
		}
		if l.Subjects > 0 {
			u.Targets, u.Percent = int(l.Subjects), true
		}
		h.Exceeded = append(h.Exceeded, u)
	}
	if len(h.Exceeded) > 0 {
		h.Over = &h.Exceeded[0]
	}
	return h
}

// errStateChanged is returned for a PolicyState that somebody else has written.
var errStateChanged = errors.New("the PolicyState has been changed")

// errStateGone is that of an attempt to change a PolicyState that was deleted.
var errStateGone = errors.New("the PolicyState has been deleted")

// stateStore has the PolicyStates. Its methods are safe for concurrent use.
type stateStore interface {
	// listStates returns all PolicyStates as they are now.
	listStates(ctx context.Context) ([]v1alpha1.PolicyState, error)
	// putState records a policy's state, and returns its new version. Its error is
	// errStateChanged where the state is not in the given version; "" is for none.
	putState(ctx context.Context, policy, version string, status *v1alpha1.PolicyStateStatus) (string, error)
	// isUsed reports whether there is such a FleetPolicy, or there are Actions of it.
	isUsed(ctx context.Context, policy string) (bool, error)
	// deleteState deletes a policy's state in a version, and reports whether it is gone: if not,
	// it has been recorded since.
	deleteState(ctx context.Context, policy, version string) (bool, error)
}

// hubStates is the stateStore of PolicyStates on the hub. Requests that fail with a temporary
// error are retried.
type hubStates struct{ hubClient }

// listStates implements stateStore.
func (s hubStates) listStates(ctx context.Context) (states []v1alpha1.PolicyState, err error) {
	next := ""
	for restarts := 0; ; {
		page := &v1alpha1.PolicyStateList{}
		err := s.retry(ctx, func(ctx context.Context) error {
			*page = v1alpha1.PolicyStateList{}
			r := s.request(http.MethodGet, v1alpha1.PolicyStates).Param("limit", strconv.Itoa(hubPageSize))
			if next != "" {
				r = r.Param("continue", next)
			}
			return s.do(ctx, r, page)
		})
		if apierrors.IsResourceExpired(err) && restarts < 3 {
			restarts++
			states, next = nil, ""
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("policy states: %w", err)
		}
		states = append(states, page.Items...)
		if next = page.Continue; next == "" {
			return states, nil
		}
	}
}

// putState implements stateStore. One that was deleted by somebody is recorded again.
func (s hubStates) putState(ctx context.Context, policy, version string, status *v1alpha1.PolicyStateStatus) (string, error) {
	maybePut := false
	var out *v1alpha1.PolicyState
	err := s.retry(ctx, func(ctx context.Context) error {
		verb, path := http.MethodPost, []string{v1alpha1.PolicyStates}
		if version != "" {
			verb, path = http.MethodPut, append(path, policy)
		}
		body, err := json.Marshal(&v1alpha1.PolicyState{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "PolicyState"},
			ObjectMeta: metav1.ObjectMeta{Name: policy, ResourceVersion: version}, Status: *status,
		})
		if err != nil {
			return err
		}
		out = &v1alpha1.PolicyState{}
		err = s.do(ctx, s.request(verb, path...).SetHeader("Content-Type", plainJSON).Body(body), out)
		switch {
		case apierrors.IsNotFound(err) && version != "":
			version = ""
			return errStateGone // which is temporary
		case (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) && maybePut:
			if err := s.do(ctx, s.request(http.MethodGet, v1alpha1.PolicyStates, policy), out); err != nil {
				return err
			}
			if sameState(&out.Status, status) {
				return nil
			}
			return errStateChanged
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			return errStateChanged
		case err != nil:
			maybePut = true
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("policy state %q: %w", policy, err)
	}
	return out.ResourceVersion, nil
}

// isUsed implements stateStore.
func (s hubStates) isUsed(ctx context.Context, policy string) (used bool, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		err := s.do(ctx, s.request(http.MethodGet, v1alpha1.FleetPolicies, policy), &metav1.PartialObjectMetadata{})
		if used = err == nil; !apierrors.IsNotFound(err) {
			return err
		}
		list := &v1alpha1.ActionList{}
		if err := s.do(ctx, s.request(http.MethodGet, v1alpha1.Actions).Param("limit", "1").Param("fieldSelector", "spec.binding="+policy), list); err != nil {
			return err
		}
		used = len(list.Items) > 0 || list.Continue != ""
		return nil
	})
	if err != nil {
		return true, fmt.Errorf("policy state %q: %w", policy, err)
	}
	return used, nil
}

// deleteState implements stateStore.
func (s hubStates) deleteState(ctx context.Context, policy, version string) (gone bool, err error) {
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &metav1.Preconditions{ResourceVersion: &version},
	})
	if err != nil {
		return false, err
	}
	err = s.retry(ctx, func(ctx context.Context) error {
		err := s.do(ctx, s.request(http.MethodDelete, v1alpha1.PolicyStates, policy).SetHeader("Content-Type", plainJSON).Body(body), nil)
		switch {
		case apierrors.IsConflict(err):
			return nil // it is needed
		case apierrors.IsNotFound(err):
			err = nil
		}
		gone = err == nil
		return err
	})
	if err != nil {
		return false, fmt.Errorf("policy state %q: %w", policy, err)
	}
	return gone, nil
}

// sameState compares two statuses as they are on the hub.
func sameState(a, b *v1alpha1.PolicyStateStatus) bool {
	plain := func(s *v1alpha1.PolicyStateStatus) (out any) {
		text, err := json.Marshal(s)
		if err != nil || json.Unmarshal(text, &out) != nil {
			return err
		}
		return out
	}
	return reflect.DeepEqual(plain(a), plain(b))
}

// saveRequest is a record to be written.
type saveRequest struct {
	policy  string
	status  *v1alpha1.PolicyStateStatus
	version string // of the PolicyState
	changed int    // which change it is
	epoch   int    // of the leadership
}

// saveLocked has a policy's record written if it has changed.
func (d *Dispatcher) saveLocked(s *policyState, p *pass) {
	if s.isRecorded() || s.saving {
		return
	}
	if p.now.Before(s.retryAt) {
		p.again(s.retryAt)
		return
	}
	s.saving = true
	p.saves = append(p.saves, saveRequest{s.name, s.encode(), s.version, s.changed, d.epoch})
}

// saveRecord writes a record. Where somebody else has written it, everything is read again.
func (d *Dispatcher) saveRecord(ctx context.Context, r saveRequest) {
	until, err := d.lease()
	if err == nil {
		if !until.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, until)
			defer cancel()
		}
		r.version, err = d.states.putState(ctx, r.policy, r.version, r.status)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[r.policy]
	if d.epoch != r.epoch || s == nil {
		return // what it was about is forgotten
	}
	s.saving = false
	switch {
	case err == nil:
		s.saved, s.version = r.changed, r.version
	case errors.Is(err, errStateChanged):
		d.opts.Logger.Warn("a PolicyState was changed by somebody else: reading all of them again", "policy", r.policy)
		d.readAgainLocked()
	default:
		s.retryAt = d.opts.Clock().Add(time.Second)
		if ctx.Err() == nil {
			d.opts.Logger.Error("recording the state of a policy failed", "policy", r.policy, "error", err)
		}
	}
	d.trigger()
}

// PolicyStates outlive their FleetPolicies: deleting one and creating it again ends no halt,
// forgets no acknowledgement and lowers no approval. One that says nothing of the kind, of a
// policy that has not been there for long, is deleted.

// statesKept is how long a PolicyState is kept since something has happened to its policy.
const statesKept = 30 * 24 * time.Hour

// idleState is a PolicyState that holds nothing back.
type idleState struct {
	name, version string
	epoch         int
}

// deleteStates deletes the PolicyStates that nobody needs.
func (d *Dispatcher) deleteStates(ctx context.Context) {
	for _, c := range d.idleStates() {
		gone, err := d.deleteState(ctx, c)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.opts.Logger.Error("deleting an old PolicyState failed", "policy", c.name, "error", err) // the next pass tries again
		case gone:
			d.opts.Logger.Info("old PolicyState deleted", "policy", c.name)
		}
	}
}

func (d *Dispatcher) idleStates() (out []idleState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.opts.Clock().Add(-statesKept)
	for _, name := range sortedKeys(d.policies) {
		if s := d.policies[name]; d.recovered && s.isIdle(before) {
			out = append(out, idleState{name, s.version, d.epoch})
		}
	}
	return out
}

// deleteState deletes a PolicyState in the version that was seen, if the hub has neither such a
// FleetPolicy nor Actions that count. One that is created meanwhile has its state recorded again.
func (d *Dispatcher) deleteState(ctx context.Context, c idleState) (gone bool, err error) {
	until, err := d.lease()
	if err != nil {
		return false, err
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	if used, err := d.states.isUsed(ctx, c.name); used || err != nil {
		return false, err
	}
	if gone, err = d.states.deleteState(ctx, c.name, c.version); !gone || err != nil {
		return false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[c.name]
	switch {
	case s == nil || d.epoch != c.epoch:
	case s.saving || s.version != c.version: // it is recorded again
	case s.removed && s.isRecorded():
		delete(d.policies, c.name)
	default: // there is such a policy again
		s.version = ""
		s.touch()
		d.trigger()
	}
	return true, nil
}
