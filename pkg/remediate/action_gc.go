package remediate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/remediate/internal/ledger"
)

const (
	deleteInterval     = time.Hour
	exhaustedInterval  = 10 * time.Minute // while there is no room for more Actions
	leaderPollInterval = time.Second
)

// deleteLoop deletes Actions that ended long ago: when this process comes to lead, and
// every hour from then on. That counts those that there are, too.
func (d *Dispatcher) deleteLoop(ctx context.Context) {
	var last time.Time // of the process's clock
	for sleep.For(ctx, leaderPollInterval) == nil {
		if d.checkLeader() != nil {
			last = time.Time{}
			continue
		}
		interval := deleteInterval
		if d.opts.quota.Exhausted() {
			interval = exhaustedInterval
		}
		if time.Since(last) < interval {
			continue
		}
		last = time.Now()
		n, err := d.journal.deleteEnded(ctx, d.opts.Retention, d.longestWindow(), d.opts.Keep)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.opts.Logger.Error("deleting old Actions failed", "deleted", n, "error", err)
		case n > 0:
			d.opts.Logger.Info("old Actions deleted", "deleted", n, "retention", d.opts.Retention)
		}
		d.deletePlans(ctx)
	}
}

// plansPerPass is how many Plans and parts are deleted at once.
const plansPerPass = 1000

// deletePlans deletes Plans that were over long ago.
func (d *Dispatcher) deletePlans(ctx context.Context) {
	n, left, err := d.plans.Purge(ctx, d.opts.Clock().Add(-d.opts.Retention), plansPerPass, d.isPlanInUse)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		d.opts.Logger.Error("deleting old Plans failed", "deleted", n, "error", err)
	case n > 0:
		d.opts.Logger.Info("old Plans deleted", "deleted", n, "left", left, "retention", d.opts.Retention)
	}
}

// isPlanInUse reports whether a Plan is one that decides about writes.
func (d *Dispatcher) isPlanInUse(p *v1alpha1.Plan) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[string(p.Spec.Policy)]
	return s != nil && (s.freezing || s.plan(p.Name) != nil)
}

// endedAction is an Action that may be deleted.
type endedAction struct {
	name, version string
	uid           types.UID
	bytes         int64
	at            time.Time
	written       bool
}

// longestWindow is how far back any limit counts writes, or a fight.
func (d *Dispatcher) longestWindow() time.Duration {
	longest := max(d.opts.FleetWindow, ledger.SlowFightWithin)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.policies {
		longest = max(longest, s.longest, s.spec.Limits.Window)
	}
	return longest
}

// deleteEnded implements journal.
func (j *hubJournal) deleteEnded(ctx context.Context, retention, window time.Duration, keep int) (int, error) {
	var all []endedAction
	err := j.forEach(ctx, func() { all = nil }, func(a *Action) {
		if !isFinal(a.Phase) {
			return
		}
		at := a.Ended
		if at.IsZero() {
			at = a.created
		}
		all = append(all, endedAction{a.Name, a.recordVersion, a.recordUID, a.recordBytes, at, isWritten(a.Phase)})
	})
	if err != nil {
		return 0, fmt.Errorf("actions: %w", err)
	}
	slices.SortFunc(all, func(a, b endedAction) int { return cmp.Or(b.at.Compare(a.at), strings.Compare(a.name, b.name)) })
	deleted, now := 0, j.clock()
	for _, a := range all[min(keep, len(all)):] {
		keepFor := retention
		if a.written {
			keepFor = max(retention, window)
		}
		if now.Sub(a.at) < keepFor {
			continue
		}
		done, err := j.delete(ctx, a)
		if done {
			deleted++
			j.quota.Remove(a.bytes)
		}
		if err != nil {
			return deleted, fmt.Errorf("action %q: %w", a.name, err)
		}
	}
	return deleted, nil
}

// delete deletes an Action that is as it was read: it may be retried in the meantime.
func (j *hubJournal) delete(ctx context.Context, a endedAction) (deleted bool, err error) {
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &a.uid, ResourceVersion: &a.version},
	})
	if err != nil {
		return false, err
	}
	err = j.retry(ctx, func(ctx context.Context) error {
		err := j.do(ctx, j.request(http.MethodDelete, v1alpha1.Actions, a.name).SetHeader("Content-Type", plainJSON).Body(body), nil)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // gone, or in use again
		}
		deleted = err == nil
		return err
	})
	return deleted, err
}
