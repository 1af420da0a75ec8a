package remediate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
)

// Requests to the hub.
const (
	hubTimeout  = 10 * time.Second // of one request
	hubAttempts = 6
	hubPage     = 100 // actions, which may have half a megabyte each
	hubWindow   = time.Hour
)

// JournalOptions configure a HubJournal.
type JournalOptions struct {
	// Hub is any REST client of the hub: its paths are not used. Required.
	Hub rest.Interface
	// Window is the longest window of a limit: List returns what was written within
	// it. 0 means an hour.
	Window time.Duration
}

// HubJournal is the Journal of Action objects of the hub. Requests that fail in a way
// that can pass are repeated. Its methods are safe for concurrent use.
type HubJournal struct {
	hub    rest.Interface
	window time.Duration
}

// NewHubJournal returns the journal of a hub.
func NewHubJournal(opts JournalOptions) (*HubJournal, error) {
	switch {
	case opts.Hub == nil:
		return nil, errors.New("remediate: a journal without a hub")
	case opts.Window < 0:
		return nil, fmt.Errorf("remediate: window %v", opts.Window)
	case opts.Window == 0:
		opts.Window = hubWindow
	}
	return &HubJournal{hub: opts.Hub, window: opts.Window}, nil
}

// Create implements Journal. The status of an action that has ended is a request of
// its own: a reader may see the action without.
func (j *HubJournal) Create(ctx context.Context, a *Action) error {
	want, err := toHub(a)
	if err != nil {
		return err
	}
	want.Status = v1alpha1.ActionStatus{}
	body, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	unsure := false // an attempt may have been done though it failed
	err = j.repeat(ctx, func(ctx context.Context) error {
		made := &v1alpha1.Action{}
		err := j.do(ctx, j.request(http.MethodPost).SetHeader("Content-Type", plainJSON).Body(body), made)
		if apierrors.IsAlreadyExists(err) && unsure {
			if err := j.do(ctx, j.request(http.MethodGet, a.Name), made); err != nil {
				return err
			}
			if made.Status.Phase != "" || !reflect.DeepEqual(made.Spec, want.Spec) {
				return ErrExists // somebody else's
			}
			err = nil
		}
		if err == nil {
			a.recorded = made.ResourceVersion
			return nil
		}
		unsure = true
		return err
	})
	switch {
	case apierrors.IsAlreadyExists(err), errors.Is(err, ErrExists):
		return fmt.Errorf("action %q: %w", a.Name, ErrExists)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("%w: it cannot be recorded: %s", ErrIntent, clip(err.Error(), mostMessage/2))
	case err != nil:
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	if a.Phase == Writing {
		return nil // that it has no phase says so
	}
	return j.Update(ctx, a)
}

// Get implements Journal.
func (j *HubJournal) Get(ctx context.Context, name string) (*Action, error) {
	found := &v1alpha1.Action{}
	err := j.repeat(ctx, func(ctx context.Context) error {
		*found = v1alpha1.Action{}
		return j.do(ctx, j.request(http.MethodGet, name), found)
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("action %q: %w", name, ErrNoAction)
	case err != nil:
		return nil, fmt.Errorf("action %q: %w", name, err)
	}
	return fromHub(found), nil
}

// Update implements Journal. Where the record has changed since it was read, what it
// says now decides.
func (j *HubJournal) Update(ctx context.Context, a *Action) error {
	version := a.recorded
	err := j.repeat(ctx, func(ctx context.Context) error {
		if version == "" {
			now := &v1alpha1.Action{}
			if err := j.do(ctx, j.request(http.MethodGet, a.Name), now); err != nil {
				return err
			}
			if known := fromHub(now); !mayFollow(known.Phase, a.Phase) {
				if a.recorded = known.recorded; known.Phase == a.Phase {
					return nil // it is known, from us or from another process
				}
				return fmt.Errorf("%w: %s, not %s", ErrEnded, known.Phase, a.Phase)
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
		a.recorded = made.ResourceVersion
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

// mayFollow reports whether an action may go from one phase to another; some are
// where it ends for good.
func mayFollow(from, to Phase) bool {
	switch from {
	case Succeeded:
		return to == RolledBack
	case NoOp, Superseded, IsGuarded, RolledBack:
		return false
	}
	return true
}

// statusPatch is a merge patch that replaces what is federator's own in a status. Who
// has acknowledged it stays unless there is a newer acknowledgement.
func statusPatch(a *Action, version string) ([]byte, error) {
	text, err := json.Marshal(statusToHub(a))
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

// ended selects the actions of which nothing is to be known at a start.
const ended = "status.phase!=NoOp,status.phase!=Failed,status.phase!=Superseded,status.phase!=Contended," +
	"status.phase!=Protected,status.phase!=DryRunPassed"

// List implements Journal.
func (j *HubJournal) List(ctx context.Context) ([]*Action, error) {
	var found []*Action
	since := time.Now().Add(-j.window)
	err := j.each(ctx, ended, func() { found = nil }, func(in *v1alpha1.Action) {
		if a := fromHub(in); !a.Phase.Final() || a.Ended.After(since) {
			found = append(found, a)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("actions: %w", err)
	}
	return found, nil
}

// Collect deletes the actions that ended longer ago than the retention, and returns
// how many. The newest of those that have ended, as many as keep says, stay anyhow.
func (j *HubJournal) Collect(ctx context.Context, retention time.Duration, keep int) (int, error) {
	if retention < 0 || keep < 0 {
		return 0, fmt.Errorf("remediate: retention %v, keep %d", retention, keep)
	}
	type old struct {
		name, version string
		uid           types.UID
		at            time.Time
	}
	var all []old
	err := j.each(ctx, "", func() { all = nil }, func(in *v1alpha1.Action) {
		if !in.Ended() {
			return
		}
		at := timeOf(in.Status.EndedAt)
		if at.IsZero() {
			at = in.CreationTimestamp.Time
		}
		all = append(all, old{in.Name, in.ResourceVersion, in.UID, at})
	})
	if err != nil {
		return 0, fmt.Errorf("actions: %w", err)
	}
	slices.SortFunc(all, func(a, b old) int { return cmp.Or(b.at.Compare(a.at), strings.Compare(a.name, b.name)) })
	deleted, before := 0, time.Now().Add(-retention)
	for _, o := range all[min(keep, len(all)):] {
		if o.at.After(before) {
			continue
		}
		body, err := json.Marshal(metav1.DeleteOptions{
			TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
			Preconditions: &metav1.Preconditions{UID: &o.uid, ResourceVersion: &o.version}, // it may be tried again
		})
		if err != nil {
			return deleted, err
		}
		err = j.repeat(ctx, func(ctx context.Context) error {
			err := j.do(ctx, j.request(http.MethodDelete, o.name).SetHeader("Content-Type", plainJSON).Body(body), nil)
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil // gone, or in use again
			}
			if err == nil {
				deleted++
			}
			return err
		})
		if err != nil {
			return deleted, fmt.Errorf("action %q: %w", o.name, err)
		}
	}
	return deleted, nil
}

// each reads all actions that a selector lets through, page by page; restart is called
// before the first.
func (j *HubJournal) each(ctx context.Context, selector string, restart func(), f func(*v1alpha1.Action)) error {
	restart()
	next := ""
	for restarts := 0; ; {
		page := &v1alpha1.ActionList{}
		err := j.repeat(ctx, func(ctx context.Context) error {
			*page = v1alpha1.ActionList{}
			r := j.request(http.MethodGet).Param("limit", strconv.Itoa(hubPage))
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

func (j *HubJournal) request(verb string, path ...string) *rest.Request {
	gv := v1alpha1.SchemeGroupVersion()
	return j.hub.Verb(verb).AbsPath(append([]string{"apis", gv.Group, gv.Version, v1alpha1.Actions}, path...)...).
		SetHeader("Accept", plainJSON).MaxRetries(0)
}

func (j *HubJournal) do(ctx context.Context, r *rest.Request, into any) error {
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

// repeat calls f until it succeeds, or fails for good.
func (j *HubJournal) repeat(ctx context.Context, f func(context.Context) error) error {
	for try, wait := 1, firstBackoff; ; try++ {
		err := f(ctx)
		if err == nil || try == hubAttempts || ctx.Err() != nil || !passes(err) {
			return err
		}
		if sleep(ctx, wait) != nil {
			return err
		}
		wait *= 2
	}
}

// passes reports whether what the hub answered may pass. A conflict does: what has
// changed is read again.
func passes(err error) bool {
	if errors.Is(err, ErrEnded) || errors.Is(err, ErrExists) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // the network, or a time-out
	}
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || status.Status().Code >= 500
}
