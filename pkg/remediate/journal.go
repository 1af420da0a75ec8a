package remediate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/sleep"
)

// Requests to the hub.
const (
	hubTimeout     = 10 * time.Second // of one request
	hubAttempts    = 6
	hubPageSize    = 100 // Actions of up to half a megabyte each
	defaultHistory = time.Hour
)

// hubJournal is the journal of Action objects on the hub. Requests that fail with a
// temporary error are retried.
type hubJournal struct {
	hub     rest.Interface
	history time.Duration // how far back list returns what was written
	clock   func() time.Time
}

func newHubJournal(hub rest.Interface, history time.Duration, clock func() time.Time) *hubJournal {
	if clock == nil {
		clock = time.Now
	}
	return &hubJournal{hub: hub, history: cmp.Or(history, defaultHistory), clock: clock}
}

// create implements journal. The status of an action that has ended is a second request: a
// reader may see the action without it.
func (j *hubJournal) create(ctx context.Context, a *Action) error {
	record, err := encodeAction(a)
	if err != nil {
		return err
	}
	record.Status = v1alpha1.ActionStatus{}
	body, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	maybeCreated := false // a failed attempt may have been executed
	err = j.retry(ctx, func(ctx context.Context) error {
		created := &v1alpha1.Action{}
		err := j.do(ctx, j.request(http.MethodPost).SetHeader("Content-Type", plainJSON).Body(body), created)
		if apierrors.IsAlreadyExists(err) && maybeCreated {
			if err := j.do(ctx, j.request(http.MethodGet, a.Name), created); err != nil {
				return err
			}
			if created.Status.Phase != "" || !reflect.DeepEqual(created.Spec, record.Spec) {
				return errExists // of another process
			}
			err = nil
		}
		if err == nil {
			a.recordVersion = created.ResourceVersion
			return nil
		}
		maybeCreated = true
		return err
	})
	switch {
	case apierrors.IsAlreadyExists(err), errors.Is(err, errExists):
		return fmt.Errorf("action %q: %w", a.Name, errExists)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("%w: it cannot be recorded: %s", errInvalidIntent, clip.Line(err.Error(), maxMessage/2))
	case err != nil:
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	if a.Phase == v1alpha1.PhaseWriting {
		return nil // without a phase it is read as Writing
	}
	return j.update(ctx, a)
}

// get implements journal.
func (j *hubJournal) get(ctx context.Context, name string) (*Action, error) {
	record := &v1alpha1.Action{}
	err := j.retry(ctx, func(ctx context.Context) error {
		*record = v1alpha1.Action{}
		return j.do(ctx, j.request(http.MethodGet, name), record)
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("action %q: %w", name, ErrNoAction)
	case err != nil:
		return nil, fmt.Errorf("action %q: %w", name, err)
	}
	return decodeAction(record), nil
}

// update implements journal. Where the record has changed since it was read, its present
// phase decides.
func (j *hubJournal) update(ctx context.Context, a *Action) error {
	version := a.recordVersion
	err := j.retry(ctx, func(ctx context.Context) error {
		if version == "" {
			now := &v1alpha1.Action{}
			if err := j.do(ctx, j.request(http.MethodGet, a.Name), now); err != nil {
				return err
			}
			if known := decodeAction(now); !validTransition(known.Phase, a.Phase) {
				if a.recordVersion = known.recordVersion; known.Phase == a.Phase {
					return nil // recorded by an earlier attempt, or another process
				}
				return fmt.Errorf("%w: %s, not %s", errEnded, known.Phase, a.Phase)
			}
			version = now.ResourceVersion
		}
		body, err := statusPatch(a, version)
		if err != nil {
			return err
		}
		updated := &v1alpha1.Action{}
		err = j.do(ctx, j.request(http.MethodPatch, a.Name, "status").SetHeader("Content-Type", mergePatch).Body(body), updated)
		if err != nil {
			version = "" // the next attempt reads it first
			return err
		}
		a.recordVersion = updated.ResourceVersion
		return nil
	})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("action %q: %w", a.Name, ErrNoAction)
	case err != nil:
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	return nil
}

// validTransition reports whether an action may go from one phase to another: some phases
// have no successor.
func validTransition(from, to v1alpha1.ActionPhase) bool {
	switch from {
	case v1alpha1.PhaseSucceeded:
		return to == v1alpha1.PhaseRolledBack
	case v1alpha1.PhaseNoOp, v1alpha1.PhaseSuperseded, v1alpha1.PhaseProtected, v1alpha1.PhaseRolledBack:
		return false
	}
	return true
}

// statusPatch returns a merge patch that replaces the fields of a status that the
// dispatcher sets. An acknowledgement stays unless there is a newer one.
func statusPatch(a *Action, version string) ([]byte, error) {
	text, err := json.Marshal(encodeStatus(a))
	if err != nil {
		return nil, err
	}
	status := map[string]any{
		"phase": nil, "message": nil, "manager": nil, "attempts": nil, "resourceVersion": nil, "startedAt": nil, "endedAt": nil,
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "status": status})
}

// recoverySelector selects the actions that a new leader needs.
const recoverySelector = "status.phase!=NoOp,status.phase!=Failed,status.phase!=Superseded,status.phase!=Contended," +
	"status.phase!=Protected,status.phase!=Managed,status.phase!=DryRunPassed"

// list implements journal.
func (j *hubJournal) list(ctx context.Context) ([]*Action, error) {
	var actions []*Action
	since := j.clock().Add(-j.history)
	err := j.forEach(ctx, recoverySelector, func() { actions = nil }, func(in *v1alpha1.Action) {
		if a := decodeAction(in); !isFinal(a.Phase) || a.Ended.After(since) {
			actions = append(actions, a)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("actions: %w", err)
	}
	return actions, nil
}

// forEach calls f with all actions that a selector keeps, page by page; restart is called
// before the first.
func (j *hubJournal) forEach(ctx context.Context, selector string, restart func(), f func(*v1alpha1.Action)) error {
	restart()
	next := ""
	for restarts := 0; ; {
		page := &v1alpha1.ActionList{}
		err := j.retry(ctx, func(ctx context.Context) error {
			*page = v1alpha1.ActionList{}
			r := j.request(http.MethodGet).Param("limit", strconv.Itoa(hubPageSize))
			if selector != "" {
				r = r.Param("fieldSelector", selector)
			}
			if next != "" {
				r = r.Param("continue", next)
			}
			return j.do(ctx, r, page)
		})
		if apierrors.IsResourceExpired(err) && restarts < 3 {
			restarts++ // the continue token has expired
			restart()
			next = ""
			continue
		}
		if err != nil {
			return err
		}
		for n := range page.Items {
			f(&page.Items[n])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

func (j *hubJournal) request(verb string, path ...string) *rest.Request {
	gv := v1alpha1.SchemeGroupVersion()
	return j.hub.Verb(verb).AbsPath(append([]string{"apis", gv.Group, gv.Version, v1alpha1.Actions}, path...)...).
		SetHeader("Accept", plainJSON).MaxRetries(0)
}

func (j *hubJournal) do(ctx context.Context, r *rest.Request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	result := r.Do(ctx)
	if err := result.Error(); err != nil || into == nil {
		return err
	}
	body, err := result.Raw() // whose own error does not have the hub's message
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("hub response: %w", err)
	}
	return nil
}

// retry calls f until it succeeds, or fails for good.
func (j *hubJournal) retry(ctx context.Context, f func(context.Context) error) error {
	for try, wait := 1, initialBackoff; ; try++ {
		err := f(ctx)
		if err == nil || try == hubAttempts || ctx.Err() != nil || !retryable(err) {
			return err
		}
		if sleep.For(ctx, wait) != nil {
			return err
		}
		wait *= 2
	}
}

// retryable reports whether an error of the hub is temporary. A conflict is: the changed
// record is read again.
func retryable(err error) bool {
	if errors.Is(err, errEnded) || errors.Is(err, errExists) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // the network, or a time-out
	}
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || status.Status().Code >= 500
}
