package policyquery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/queryapi"
)

// HistorySpan is what a net history is of.
type HistorySpan struct {
	Since *time.Time `json:"since,omitempty"` // not set: what is kept begins then
	Until *time.Time `json:"until,omitempty"`
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (HistorySpan) SchemaName() string { return "TransitionSpan" }

// checkNet refuses what a net history does not have, and resolves its end.
func (a *historyParams) checkNet(values url.Values, now time.Time) error {
	for _, name := range []string{"order", "limit", "continue", "watch", "after", "timeoutSeconds"} {
		if values.Has(name) {
			return badParameter(name, "does not go with net")
		}
	}
	if a.until.IsZero() || a.until.After(now) {
		a.until = now
	}
	if !a.since.Before(a.until) {
		return badParameter("since", "is not before until, or now")
	}
	a.oldest = true
	return nil
}

// about reports whether a record is about what is selected. Gaps are always, and members and scopes that came or went with all that they had.
func (a *historyParams) about(r *history.Record) bool {
	if r.IsBeside() && matches(a.members, r.Member) || r.Type == history.Gap && r.Member == "" {
		objects := len(a.policies) == 0 && len(a.sources) == 0 &&
			(len(a.types) == 0 || slices.Contains(a.types, string(history.Object)) || slices.Contains(a.types, string(history.Scope)) || slices.Contains(a.types, string(r.Type)))
		return (objects || r.Type == history.Gap) && (r.Kind == "" || matches(a.kinds, string(r.Kind)))
	}
	return r.Type != history.Gap && a.isAbout(r)
}

// shows reports whether how something differs is selected. That fields are missing may be of those that are.
func (a *historyParams) shows(r *history.Record) bool {
	return r.IsBeside() || matches(a.transitions, r.Transition) && (a.changes(r) || r.More > 0)
}

// tooLarge makes a 413 of the error of a fold that is beyond its bounds.
func tooLarge(err error) error {
	var bound *history.FoldError
	if !errors.As(err, &bound) {
		return err
	}
	refused := apierrors.NewRequestEntityTooLargeError("")
	refused.ErrStatus.Message = bound.Error()
	return refused
}

// fold folds what this process has recorded, as far as the caller may read it.
func (q History) fold(ctx context.Context, caller queryapi.Caller, a *historyParams) (*history.Fold, error) {
	done, err := q.History.Folding(ctx, caller.User().GetName())
	if err != nil {
		return nil, err
	}
	defer done()
	grants, err := q.grants(ctx, caller)
	if err != nil {
		return nil, err
	}
	members, part := queryapi.MembersInPart(ctx, grants.snapshot)
	fold := history.NewFold(a.since, a.until, part)
	examined, absent := 0, map[string]string{} // names of members that are gone, by UID
	add := func(r *history.Record) error {
		if examined++; examined%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !a.about(r) || !grants.mayRead(r) || !a.about(r) {
			return nil
		}
		if r.Type == history.Object && !grants.present(r.Member, r.MemberUID) {
			absent[r.MemberUID] = r.Member
		}
		return fold.Add(r)
	}
	for r, err := range q.History.Read(a.query()) {
		if err == nil {
			err = fold.Examined()
		}
		if err == nil {
			err = add(&r)
		}
		if err != nil {
			return nil, err
		}
	}
	for r, err := range q.History.Gaps(a.until) { // which may have begun before
		if err == nil {
			err = add(&r)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := q.addUnknown(a, grants, members, part, add); err != nil {
		return nil, err
	}
	if !grants.everything() { // who may list everything reads that a member has left
		for uid, name := range absent {
			if err := fold.Add(gapUntil(a.until, name, uid, "", "the member is not there any more: when its objects went is not said")); err != nil {
				return nil, err
			}
		}
	}
	begins := q.History.Span().OldestTime
	if begins.IsZero() {
		begins = a.until
	}
	fold.Begins(q.History.ID(), begins)
	if part {
		for m := range grants.snapshot.Members() {
			fold.Holds(m.Name, m.UID)
		}
	}
	return fold, grants.reader.err // grants are unknown, not denied
}

// addUnknown adds gaps of what is not known yet, or is not recorded at all.
func (q History) addUnknown(a *historyParams, grants *historyGrants, members []string, part bool, add func(*history.Record) error) error {
	for _, kind := range a.kinds {
		kind := aggregate.Kind(kind)
		if of := len(a.types) == 0 || slices.Contains(a.types, string(history.Object)); of && len(a.policies) == 0 && !q.History.Records(kind) {
			if err := add(gapUntil(a.until, "", "", kind, "what happens to objects of this kind is not recorded")); err != nil {
				return err
			}
		}
	}
	if q.History.Failure() != nil {
		r := gapUntil(a.until, "", "", "", "nothing is recorded at present")
		if last := q.History.Span().LastTime; !last.IsZero() {
			r.From = &last
		}
		if err := add(r); err != nil {
			return err
		}
	}
	for m := range grants.snapshot.Members() {
		if _, judged := slices.BinarySearch(members, m.Name); part && !judged || !matches(a.members, m.Name) {
			continue
		}
		for info := range grants.snapshot.Scopes(m.Name) {
			state := info.Status.State
			if state != aggregate.Stale && state != aggregate.OverBudget || !q.History.Records(info.Kind) || !matches(a.kinds, string(info.Kind)) {
				continue
			}
			if ctx := grants.reader.ctx; ctx.Err() != nil { // when it was last seen may be far back
				return context.Cause(ctx)
			}
			r := gapUntil(a.until, m.Name, m.UID, info.Kind, "it is "+state.String()+": what has happened since is not known yet")
			if !a.about(r) || !grants.mayRead(r) {
				continue
			}
			if last, err := q.lastSeen(m.Name, m.UID, info.Kind); err != nil {
				return err
			} else if !last.IsZero() {
				r.From = &last
			}
			if err := add(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastSeen returns when a scope was last seen, as far as it is recorded; zero: it is not.
func (q History) lastSeen(member, uid string, kind aggregate.Kind) (time.Time, error) {
	n := 0
	for r, err := range q.History.Read(history.Query{Member: member, Kind: string(kind), Backward: true}) {
		if err != nil {
			return time.Time{}, err
		}
		if (r.Type == history.Object || r.Type == history.Scope) && r.MemberUID == uid {
			return r.Time, nil
		}
		if n++; n == 1000 {
			break
		}
	}
	return time.Time{}, nil
}

func gapUntil(until time.Time, member, uid string, kind aggregate.Kind, why string) *history.Record {
	return &history.Record{
		Type: history.Gap, Transition: "Gap", Time: until, To: &until, Member: member, MemberUID: uid, Kind: kind, Message: why,
		Key: history.Key("gap", "until", uid, string(kind), why),
	}
}

// historyPart is what a process answers to another one.
type historyPart struct {
	HistoryList

	Fold json.RawMessage `json:"fold,omitempty"` // of a net list, in the place of its items
}

// serve answers with a list, or with how the ends of a span differ.
func (q History) serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, a *historyParams) error {
	if !a.net {
		out, err := q.list(r.Context(), caller, a)
		if err != nil {
			return err
		}
		return writeJSON(w, out)
	}
	fold, err := q.fold(r.Context(), caller, a)
	if err != nil {
		return tooLarge(err)
	}
	out := q.newList()
	if _, part := queryapi.MembersInPart(r.Context(), q.Index.Snapshot()); part {
		text, err := json.Marshal(fold)
		if err != nil {
			return fmt.Errorf("history: %w", err)
		}
		return writeJSON(w, historyPart{*out, text})
	}
	out.setNet(a, fold)
	return writeJSON(w, out)
}

// setNet says how the ends of a span differ.
func (l *HistoryList) setNet(a *historyParams, fold *history.Fold) {
	l.Span, l.Log = &HistorySpan{Until: &a.until}, ""
	if !a.since.IsZero() {
		l.Span.Since = &a.since
	}
	l.Items = slices.DeleteFunc(fold.Records(), func(r history.Record) bool { return !a.shows(&r) })
}

// netQuery is what processes that share a fleet are asked, so that all fold the same span.
func netQuery(values url.Values, a *historyParams) url.Values {
	values = maps.Clone(values)
	values.Set("until", a.until.Format(time.RFC3339Nano))
	if !a.since.IsZero() {
		values.Set("since", a.since.Format(time.RFC3339Nano))
	}
	return values
}

// mergeNet merges what several processes have folded.
func (l *HistoryList) mergeNet(a *historyParams, lists []historyPart) error {
	fold := history.NewFold(a.since, a.until, false)
	for i := range lists {
		if err := fold.Merge(lists[i].Fold); err != nil {
			return tooLarge(err)
		}
		lists[i].Fold = nil
	}
	l.setNet(a, fold)
	return nil
}
