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
)

// Requests to the hub.
const (
	hubTimeout     = 10 * time.Second // of one request
	hubAttempts    = 6
	hubPageSize    = 100 // actions, which may have half a megabyte each
	defaultHistory = time.Hour
)

// hubJournal is the journal of Action objects on the hub. Requests that fail with a
// temporary error are retried.
type hubJournal struct {
	hub     rest.Interface
	history time.Duration // how far back list returns what was written
}

func newHubJournal(hub rest.Interface, history time.Duration) *hubJournal {
	return &hubJournal{hub: hub, history: cmp.Or(history, defaultHistory)}
}

// create implements Journal. The status of an action that has ended is a request of
// its own: a reader may see the action without.
func (j *hubJournal) create(ctx context.Context, a *Action) error {
	want, err := encodeAction(a)
	if err != nil {
		return err
	}
	want.Status = v1alpha1.ActionStatus{}
	body, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	unsure := false // an attempt may have been done though it failed
	err = j.retry(ctx, func(ctx context.Context) error {
		made := &v1alpha1.Action{}
		err := j.do(ctx, j.request(http.MethodPost).SetHeader("Content-Type", plainJSON).Body(body), made)
		if apierrors.IsAlreadyExists(err) && unsure {
			if err := j.do(ctx, j.request(http.MethodGet, a.Name), made); err != nil {
				return err
			}
			if made.Status.Phase != "" || !reflect.DeepEqual(made.Spec, want.Spec) {
				return errExists // somebody else's
			}
			err = nil
		}
		if err == nil {
			a.recordVersion = made.ResourceVersion
			return nil
		}
		unsure = true
		return err
	})
	switch {
	case apierrors.IsAlreadyExists(err), errors.Is(err, errExists):
		return fmt.Errorf("action %q: %w", a.Name, errExists)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("%w: it cannot be recorded: %s", errInvalidIntent, truncateLine(err.Error(), maxMessage/2))
	case err != nil:
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	if a.Phase == v1alpha1.PhaseWriting {
		return nil // that it has no phase says so
	}
	return j.update(ctx, a)
}

// get implements Journal.
func (j *hubJournal) get(ctx context.Context, name string) (*Action, error) {
	found := &v1alpha1.Action{}
	err := j.retry(ctx, func(ctx context.Context) error {
		*found = v1alpha1.Action{}
		return j.do(ctx, j.request(http.MethodGet, name), found)
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("action %q: %w", name, ErrNoAction)
	case err != nil:
		return nil, fmt.Errorf("action %q: %w", name, err)
	}
	return decodeAction(found), nil
}

// update implements Journal. Where the record has changed since it was read, what it
// says now decides.
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
					return nil // it is known, from us or from another process
				}
				return fmt.Errorf("%w: %s, not %s", errEnded, known.Phase, a.Phase)
			}
			version = now.ResourceVersion
		}
		body, err := statusPatch(a, version)
		if err != nil {
			return err
		}
		made := &v1alpha1.Action{}
		err = j.do(ctx, j.request(http.MethodPatch, a.Name, "status").SetHeader("Content-Type", mergePatch).Body(body), made)
		if err != nil {
			version = "" // look first, next time
			return err
		}
		a.recordVersion = made.ResourceVersion
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

// validTransition reports whether an action may go from one phase to another; some are
// where it ends for good.
func validTransition(from, to v1alpha1.ActionPhase) bool {
	switch from {
	case v1alpha1.PhaseSucceeded:
		return to == v1alpha1.PhaseRolledBack
	case v1alpha1.PhaseNoOp, v1alpha1.PhaseSuperseded, v1alpha1.PhaseProtected, v1alpha1.PhaseRolledBack:
		return false
	}
	return true
}

// statusPatch is a merge patch that replaces what is federator's own in a status. Who
// has acknowledged it stays unless there is a newer acknowledgement.
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

// recoverySelector selects the actions of which nothing is to be known at a start.
const recoverySelector = "status.phase!=NoOp,status.phase!=Failed,status.phase!=Superseded,status.phase!=Contended," +
	"status.phase!=Protected,status.phase!=DryRunPassed"

// list implements Journal.
func (j *hubJournal) list(ctx context.Context) ([]*Action, error) {
	var found []*Action
	since := time.Now().Add(-j.history)
	err := j.forEach(ctx, recoverySelector, func() { found = nil }, func(in *v1alpha1.Action) {
		if a := decodeAction(in); !isFinal(a.Phase) || a.Ended.After(since) {
			found = append(found, a)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("actions: %w", err)
	}
	return found, nil
}

// forEach reads all actions that a selector lets through, page by page; restart is called
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
			restarts++ // the pages have become too old
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
	body, err := result.Raw() // whose own error does not say what the hub answered
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the hub's answer: %w", err)
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
		if sleep(ctx, wait) != nil {
			return err
		}
		wait *= 2
	}
}

// retryable reports whether what the hub answered may pass. A conflict does: what has
// changed is read again.
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
