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
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/quota"
	"federator.dev/federator/pkg/tracing"
)

// Requests to the hub.
const (
	hubPageSize  = 100  // Actions of up to half a megabyte each
	hubTableSize = 2000 // rows of Actions
)

// hubClient sends requests to the hub.
type hubClient struct{ hub rest.Interface }

// hubJournal is the journal of Action objects on the hub. Requests that fail with a
// temporary error are retried.
type hubJournal struct {
	hubClient

	clock func() time.Time
	quota *quota.Quota
}

// newHubJournal returns a journal without bounds.
func newHubJournal(hub rest.Interface, clock func() time.Time) *hubJournal {
	return &hubJournal{hubClient{hub}, clock, quota.New(quota.Usage{})}
}

// within returns the journal with a quota of its Actions.
func (j *hubJournal) within(q *quota.Quota) *hubJournal {
	j.quota = q
	return j
}

// create implements journal. The status of an action that has ended is a second request: a
// reader may see the action without it.
func (j *hubJournal) create(ctx context.Context, a *Action) error {
	record, err := encodeAction(a)
	if err != nil {
		return err
	}
	record.Status = v1alpha1.ActionStatus{}
	body, bytes, err := encodeRecord(record)
	if err != nil {
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	if !j.quota.Reserve(a.Name, bytes, a.RollbackOf != "") { // a person has requested a rollback
		return fmt.Errorf("action %q: %w: %s", a.Name, ErrNotNow, WaitingForRoom)
	}
	a.recordBytes = bytes
	err = j.post(ctx, a, record, body)
	switch {
	case apierrors.IsAlreadyExists(err), errors.Is(err, errExists):
		j.quota.Release(a.Name, bytes)
		return fmt.Errorf("action %q: %w", a.Name, errExists)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		j.quota.Release(a.Name, bytes)
		return fmt.Errorf("%w: it cannot be recorded: %s", errInvalidIntent, clip.Line(err.Error(), maxMessage/2))
	}
	j.quota.Recorded(a.Name, bytes) // also after an error: it may be recorded
	if err != nil {
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	if a.Phase == v1alpha1.PhaseWriting {
		return nil // without a phase it is read as Writing
	}
	return j.update(ctx, a)
}

// post creates a record. It succeeds if an earlier attempt has done so.
func (j *hubJournal) post(ctx context.Context, a *Action, record *v1alpha1.Action, body []byte) error {
	maybeCreated := false // a failed attempt may have been executed
	return j.retry(ctx, func(ctx context.Context) error {
		created := &v1alpha1.Action{}
		err := j.do(ctx, j.request(http.MethodPost, v1alpha1.Actions).SetHeader("Content-Type", plainJSON).Body(body), created)
		if apierrors.IsAlreadyExists(err) && maybeCreated {
			if err := j.do(ctx, j.request(http.MethodGet, v1alpha1.Actions, a.Name), created); err != nil {
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
}

// get implements journal.
func (j *hubJournal) get(ctx context.Context, name string) (*Action, error) {
	record := &v1alpha1.Action{}
	err := j.retry(ctx, func(ctx context.Context) error {
		*record = v1alpha1.Action{}
		return j.do(ctx, j.request(http.MethodGet, v1alpha1.Actions, name), record)
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
			if err := j.do(ctx, j.request(http.MethodGet, v1alpha1.Actions, a.Name), now); err != nil {
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
		err = j.do(ctx, j.request(http.MethodPatch, v1alpha1.Actions, a.Name, "status").SetHeader("Content-Type", mergePatch).Body(body), updated)
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

func (j hubClient) request(verb string, path ...string) *rest.Request {
	return hubclient.Client{REST: j.hub}.Request(verb, path...)
}

func (j hubClient) do(ctx context.Context, r *rest.Request, into any) error {
	if parent := tracing.Traceparent(ctx); parent != "" {
		r = r.SetHeader("Traceparent", parent)
	}
	return hubclient.Client{REST: j.hub}.Do(ctx, r, into)
}

// retry calls f until it succeeds, or fails for good. After a conflict the changed record is
// read again.
func (j hubClient) retry(ctx context.Context, f func(context.Context) error) error {
	return hubclient.Client{REST: j.hub}.Retry(ctx, f, errEnded, errExists, errStateChanged)
}

// tableJSON asks for columns with the metadata of objects; a server that knows no tables
// answers with the objects.
const tableJSON = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// actionPage is a page of Actions, as a Table or as objects.
type actionPage struct {
	metav1.TypeMeta `json:",inline"`

	Metadata metav1.ListMeta                `json:"metadata"`
	Columns  []metav1.TableColumnDefinition `json:"columnDefinitions"`
	Rows     []struct {
		Cells  []any                        `json:"cells"`
		Object metav1.PartialObjectMetadata `json:"object"`
	} `json:"rows"`
	Items []v1alpha1.Action `json:"items"`
}

// list implements journal. It reads no bodies: patches and inverses are not in what it
// returns.
func (j *hubJournal) list(ctx context.Context) ([]*Action, error) {
	var actions []*Action
	err := j.forEach(ctx, func() { actions = nil }, func(a *Action) {
		if !isFinal(a.Phase) || isWritten(a.Phase) {
			actions = append(actions, a)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("actions: %w", err)
	}
	return actions, nil
}

// forEach calls f with all actions, page by page, and counts them; restart is called before the
// first.
func (j *hubJournal) forEach(ctx context.Context, restart func(), f func(*Action)) error {
	restart()
	count := j.quota.Begin()
	defer func() { count.Close() }()
	next := ""
	for restarts := 0; ; {
		page := &actionPage{}
		err := j.retry(ctx, func(ctx context.Context) error {
			*page = actionPage{}
			r := j.request(http.MethodGet, v1alpha1.Actions).SetHeader("Accept", tableJSON).
				Param("limit", strconv.Itoa(hubTableSize)).Param("includeObject", string(metav1.IncludeMetadata))
			if next != "" {
				r = r.Param("continue", next)
			}
			return j.do(ctx, r, page)
		})
		if apierrors.IsResourceExpired(err) && restarts < 3 {
			restarts++ // the continue token has expired
			restart()
			count.Close()
			next, count = "", j.quota.Begin()
			continue
		}
		if err != nil {
			return err
		}
		if err := page.each(func(a *Action) { count.Add(a.Name, a.recordBytes); f(a) }); err != nil {
			return err
		}
		if next = page.Metadata.Continue; next == "" {
			count.End()
			return nil
		}
	}
}

// each calls f with the actions of a page.
func (p *actionPage) each(f func(*Action)) error {
	for n := range p.Items {
		f(decodeAction(&p.Items[n]))
	}
	columns := map[string]int{}
	for n, c := range p.Columns {
		columns[c.Name] = n
	}
	for _, name := range tableColumns {
		if _, ok := columns[name]; !ok && len(p.Rows) > 0 {
			return fmt.Errorf("the CustomResourceDefinition of Actions is of another version: it has no column %q", name)
		}
	}
	for n := range p.Rows {
		cells := p.Rows[n].Cells
		a := &v1alpha1.Action{ObjectMeta: p.Rows[n].Object.ObjectMeta}
		decodeRow(a, func(column string) string {
			if at := columns[column]; at < len(cells) && cells[at] != nil {
				return fmt.Sprint(cells[at])
			}
			return ""
		})
		f(decodeAction(a))
	}
	return nil
}

// tableColumns are the printer columns that a leader needs.
var tableColumns = []string{
	"Policy", "Member", "Verb", "Kind", "Namespace", "Target", "Phase", "Target UID", "Subject", "Generation", "Wave", "Rollback Of",
	"Started", "Ended", "Written Version",
}

// decodeRow sets the fields of an Action from the columns of a row.
func decodeRow(a *v1alpha1.Action, column func(string) string) {
	a.Spec = v1alpha1.ActionSpec{
		Binding: column("Policy"), Verb: v1alpha1.Verb(column("Verb")), Subject: column("Subject"),
		Target: v1alpha1.Target{
			Member: column("Member"), Kind: v1alpha1.Kind(column("Kind")), Namespace: column("Namespace"), Name: column("Target"), UID: column("Target UID"),
		},
		Generation: v1alpha1.RolloutGeneration(column("Generation")), RollbackOf: column("Rollback Of"),
	}
	wave, _ := strconv.ParseInt(column("Wave"), 10, 32) // "" is no wave
	a.Spec.Wave = int32(wave)
	a.Status = v1alpha1.ActionStatus{
		Phase: v1alpha1.ActionPhase(column("Phase")), ResourceVersion: column("Written Version"),
		StartedAt: parseMicroTime(column("Started")), EndedAt: parseMicroTime(column("Ended")),
	}
}

func parseMicroTime(text string) *metav1.MicroTime {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return nil
	}
	m := metav1.NewMicroTime(t)
	return &m
}

// endedAction is an Action that may be deleted.
type endedAction struct {
	name, version string
	uid           types.UID
	bytes         int64
	at            time.Time
	written       bool
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

// record records an action's phase, even while the process ends: a member may have executed
// the request. An action that is rolled back is marked first.
func (x *executor) record(ctx context.Context, a *Action) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if a.Phase == v1alpha1.PhaseSucceeded && a.RollbackOf != "" {
		of, err := x.journal.get(ctx, a.RollbackOf)
		if err == nil && of.Phase == v1alpha1.PhaseSucceeded {
			err = x.journal.update(ctx, x.finish(of, v1alpha1.PhaseRolledBack, "by "+a.Name))
		}
		if err != nil && !errors.Is(err, ErrNoAction) {
			return fmt.Errorf("record the rollback: %w", err)
		}
	}
	traced := tracing.Start(ctx, tracing.Outcome)
	err := x.journal.update(ctx, a)
	if traced(err); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// create records a new action.
func (x *executor) create(ctx context.Context, a *Action) error {
	traced := tracing.Start(ctx, tracing.Record)
	err := x.journal.create(ctx, a)
	traced(err)
	return err
}
