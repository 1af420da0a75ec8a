package policyquery

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

// History serves /query/v1/history: the transitions that a process has recorded, within what the caller may read now.
// Objects are authorized by the resource that they were read under. What became of verdicts is for callers who may read the
// subject, and all that the version of the policy looked at then. What is recorded of a member that has left, or of another one of its
// name, is for callers who may read the kind in all members. Records of Actions, Plans, halts, stops and commits are for those to whom the
// queries about these show them. It is safe for concurrent use.
type History struct {
	Kinds   Kinds
	Index   *aggregate.Index
	History *history.History
	Hub     Hub                  // nil: there are no records of what is on it
	State   func() *policy.State // knows of members that other processes read; nil: there are none
	Clock   func() time.Time     // nil means time.Now

	// WriteTimeout is how long a client of a watch may take for a block of bytes; 0 means 30 s. BookmarkInterval is the time between
	// bookmarks where nothing happens; 0 means 1 minute.
	WriteTimeout, BookmarkInterval time.Duration
}

var (
	_ queryapi.Describer = History{}
	_ queryapi.Sharer    = History{}
	_ queryapi.Watchable = History{}
)

// Orders of histories.
const (
	newestFirst = "newest"
	oldestFirst = "oldest"
)

var historyParameters = []queryapi.Parameter{
	{Name: "member", Description: "Only transitions in these members, <namespace>/<name>.", Repeated: true},
	{Name: "kind", Description: "Only transitions of these kinds, such as Deployment.apps.", Repeated: true},
	{Name: "namespace", Description: "Only transitions in these namespaces.", Repeated: true},
	{Name: "name", Description: "Only transitions of objects of these names.", Repeated: true},
	{Name: "uid", Description: "Only transitions of objects with these UIDs.", Repeated: true},
	{Name: "policy", Description: "Only transitions of these policies: of their verdicts, Actions, Plans, halts, stops and approvals.", Repeated: true},
	{Name: "source", Description: "Only transitions of what is from these PolicySources: their commits, stops and approvals, and the Actions of their policies.", Repeated: true},
	{Name: "type", Description: "Only transitions of these types; without Gap among them, no gaps. Of gaps nothing else is asked but where and when they are.", Repeated: true, Enum: historyTypes()},
	{Name: "transition", Description: "Only these transitions, such as Created, Changed, Deleted, Opened, Closed or Stale.", Repeated: true},
	{Name: "path", Description: "Only transitions that change these fields, or fields below them, such as spec.replicas.", Repeated: true},
	{Name: "since", Description: "Only transitions that were recorded at or after this time, RFC 3339, or within a duration such as 24h."},
	{Name: "until", Description: "Only transitions that were recorded before this time, RFC 3339, or before a duration ago."},
	{Name: "net", Description: "Say how the two ends of the span differ: all transitions of one thing are folded into one, and what differs no more is left out. Without order, limit, continue and watch.", Type: "boolean"},
	{Name: "order", Description: "Which come first; the default is " + newestFirst + ".", Enum: []string{newestFirst, oldestFirst}},
	{Name: "limit", Description: fmt.Sprintf("Maximum number of items per page, 1 to %d; the default is %d. A page may have fewer although there are more.", maxLimit, defaultLimit), Type: "integer"},
	{Name: "continue", Description: "The continue value of the previous page."},
	{Name: "watch", Description: "Send transitions as they are recorded, as lines of JSON, from the parameter after on.", Type: "boolean"},
	{Name: "after", Description: "With watch: the position of the last event that was received, <log>/<position>. Without, what happens from now on."},
	{Name: "timeoutSeconds", Description: "With watch: how long it lasts at most.", Type: "integer"},
}

func historyTypes() (names []string) {
	for _, t := range []history.Type{history.Object, history.Scope, history.Member, history.Verdict, history.Action, history.Policy, history.Gap} {
		names = append(names, string(t))
	}
	return names
}

// Describe implements queryapi.Describer.
func (History) Describe() queryapi.Operation {
	return queryapi.Operation{Description: "List what happened: transitions of objects, members, scopes and verdicts, and of Actions, policies and their sources, that the caller may read.", Parameters: historyParameters, Response: HistoryList{}}
}

// HistoryList is the response of History.
type HistoryList struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Items      []history.Record `json:"items"`
	Log        string           `json:"log,omitempty"` // that positions are of; not set where several processes have answered
	Continue   string           `json:"continue,omitempty"`
	// Since is when the oldest record was made that is kept; not set where there is none.
	Since *time.Time `json:"since,omitempty"`
	// Failing says why nothing is recorded at present.
	Failing string `json:"failing,omitempty"`
	// Span is what a net list is of.
	Span *HistorySpan `json:"span,omitempty"`
	// Absent are members, of those that the caller may read, that no process answers for which shares the fleet.
	Absent []string `json:"absent,omitempty"`
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (HistoryList) SchemaName() string { return "Transitions" }

// historyPlace is a place in the order of the records of all processes.
type historyPlace struct {
	Time     int64  `json:"t"` // milliseconds since 1970
	Log      string `json:"l"`
	Position uint64 `json:"p"`
	Order    string `json:"o"`
}

func (p historyPlace) compare(o historyPlace) int {
	return cmp.Or(cmp.Compare(p.Time, o.Time), strings.Compare(p.Log, o.Log), cmp.Compare(p.Position, o.Position))
}

// historyParams are the parameters of History.
type historyParams struct {
	members, kinds, namespaces, names, uids, policies, sources, types, transitions, paths []string

	since, until time.Time
	oldest       bool // come first
	net          bool
	limit        int
	after        *historyPlace

	watchAfter string // <log>/<position>
	timeout    time.Duration
}

func parseHistoryParams(values url.Values, now time.Time) (*historyParams, error) {
	if err := checkParameters(values, historyParameters); err != nil {
		return nil, err
	}
	a := &historyParams{
		members: values["member"], kinds: values["kind"], namespaces: values["namespace"], names: values["name"], uids: values["uid"], policies: values["policy"],
		sources: values["source"], types: values["type"], transitions: values["transition"], paths: values["path"], oldest: values.Get("order") == oldestFirst,
		watchAfter: values.Get("after"),
	}
	var err error
	if a.since, a.until, a.limit, err = parseSpan(values, now); err != nil {
		return nil, err
	}
	if values.Has("timeoutSeconds") {
		n, err := strconv.Atoi(values.Get("timeoutSeconds"))
		if err != nil || n < 1 {
			return nil, badParameter("timeoutSeconds", "is not a number above 0")
		}
		a.timeout = time.Duration(n) * time.Second
	}
	if text := values.Get("continue"); text != "" {
		a.after = &historyPlace{}
		decoded, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err != nil || json.Unmarshal(decoded, a.after) != nil || a.after.Order != a.order() || a.after.Position == 0 {
			return nil, badParameter("continue", "is not a value that this server returned for these parameters")
		}
	}
	switch values.Get("net") {
	case "", "false":
	case "true":
		a.net = true
		return a, a.checkNet(values, now)
	default:
		return nil, badParameter("net", "is neither true nor false")
	}
	return a, nil
}

func (a *historyParams) order() string {
	if a.oldest {
		return oldestFirst
	}
	return newestFirst
}

func (p historyPlace) encode() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// query returns what is read of a log: all that matches is among it.
func (a *historyParams) query() history.Query {
	only := func(values []string) string {
		if len(values) == 1 {
			return values[0]
		}
		return ""
	}
	return history.Query{
		Member: only(a.members), Kind: only(a.kinds), Namespace: only(a.namespaces), Name: only(a.names), UID: only(a.uids), Policy: only(a.policies),
		Since: a.since, Until: a.until, Backward: !a.oldest, Beside: true,
	}
}

// matches reports whether a record is selected. Gaps are, whatever is selected but where and when: something may be in them.
func (a *historyParams) matches(r *history.Record) bool {
	if r.Type == history.Gap {
		return matches(a.types, string(r.Type)) && (r.Member == "" || matches(a.members, r.Member)) && (r.Kind == "" || matches(a.kinds, string(r.Kind)))
	}
	return a.isAbout(r) && matches(a.transitions, r.Transition) && a.changes(r)
}

// isAbout reports whether a record is about what is selected.
func (a *historyParams) isAbout(r *history.Record) bool {
	return matches(a.members, r.Member) && matches(a.kinds, string(r.Kind)) && matches(a.namespaces, r.Namespace) && matches(a.names, r.Name) && matches(a.uids, r.UID) &&
		matches(a.policies, r.Policy) && matches(a.sources, r.Source) && matches(a.types, string(r.Type))
}

// changes reports whether a record changes a selected field.
func (a *historyParams) changes(r *history.Record) bool {
	return len(a.paths) == 0 || slices.ContainsFunc(r.Changes, func(c history.Change) bool {
		return slices.ContainsFunc(a.paths, func(path string) bool {
			rest, below := strings.CutPrefix(c.Path, path)
			return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
		})
	})
}

// maxExamined bounds how many records are read for one page.
const maxExamined = 100_000

// Serve implements queryapi.Query.
func (q History) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	params, err := parseHistoryParams(r.URL.Query(), q.now())
	if err != nil {
		return err
	}
	return q.serve(w, r, caller, params)
}

func (q History) now() time.Time {
	if q.Clock != nil {
		return q.Clock()
	}
	return time.Now()
}

// newList returns a list that is empty yet.
func (q History) newList() *HistoryList {
	out := &HistoryList{APIVersion: "query.federator.dev/v1", Kind: "History", Items: []history.Record{}, Log: q.History.ID()}
	if span := q.History.Span(); !span.OldestTime.IsZero() {
		out.Since = &span.OldestTime
	}
	if err := q.History.Failure(); err != nil {
		out.Failing = "nothing is recorded at present" // why is for who runs federator
	}
	return out
}

func (q History) list(ctx context.Context, caller queryapi.Caller, a *historyParams) (*HistoryList, error) {
	grants, err := q.grants(ctx, caller)
	if err != nil {
		return nil, err
	}
	out := q.newList()
	examined, bytes := 0, 0
	for record, err := range q.History.Read(a.from(out.Log)) {
		if err != nil {
			return nil, err
		}
		if examined++; examined%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		at := historyPlace{record.Time.UnixMilli(), out.Log, record.Position, a.order()}
		if record.Position == 0 { // what the log has lost: a page never ends with it
			if a.matches(&record) && grants.mayRead(&record) {
				out.Items = append(out.Items, record)
			}
			continue
		}
		if a.after != nil && a.after.Log != out.Log && (at.compare(*a.after) <= 0) == a.oldest {
			continue
		}
		if a.matches(&record) && grants.mayRead(&record) && a.matches(&record) { // what may be read of it still does
			bytes += sizeOf(&record)
			out.Items = append(out.Items, record)
		}
		if len(out.Items) >= a.limit || examined == maxExamined || bytes > maxPage {
			out.Continue = at.encode()
			break
		}
	}
	return out, grants.reader.err // grants are unknown, not denied
}

// from returns what is read of a log for a page: from a position of its own on, or from the time of one of another.
func (a *historyParams) from(log string) history.Query {
	q := a.query()
	if a.after == nil {
		return q
	}
	at := time.UnixMilli(a.after.Time).UTC()
	switch {
	case a.after.Log == log && a.oldest:
		q.After = a.after.Position
	case a.after.Log == log:
		q.Before = a.after.Position
	case a.oldest:
		if at.After(q.Since) {
			q.Since = at
		}
	default:
		if at = at.Add(time.Millisecond); q.Until.IsZero() || at.Before(q.Until) {
			q.Until = at
		}
	}
	return q
}

// sizeOf is about how large a record is.
func sizeOf(r *history.Record) int {
	n := 300 + len(r.Violation) + len(r.Message)
	for i := range r.Changes {
		n += len(r.Changes[i].Path) + len(r.Changes[i].Before) + len(r.Changes[i].After)
	}
	return n
}

// ServeShared implements queryapi.Sharer: what all processes have recorded, in order of time. What several have recorded is
// listed once.
func (q History) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	params, err := parseHistoryParams(r.URL.Query(), q.now())
	if err != nil {
		return err
	}
	asked := r.URL.Query()
	if params.net {
		asked = netQuery(asked, params)
	}
	parts, err := fleet.Ask(asked)
	if err != nil {
		return err
	}
	out := &HistoryList{APIVersion: "query.federator.dev/v1", Kind: "History", Items: []history.Record{}}
	if out.Absent, _, err = caller.VisibleIn(r.Context(), parts.Absent); err != nil {
		return err
	}
	lists := make([]historyPart, len(parts.Bodies))
	for i, body := range parts.Bodies {
		if err := json.Unmarshal(body, &lists[i]); err != nil {
			return fmt.Errorf("history: a part: %w", err)
		}
		parts.Bodies[i] = nil
		out.Absent, out.Failing = append(out.Absent, lists[i].Absent...), cmp.Or(out.Failing, lists[i].Failing)
		if since := lists[i].Since; since != nil && (out.Since == nil || since.Before(*out.Since)) {
			out.Since = since
		}
	}
	slices.Sort(out.Absent)
	out.Absent = slices.Compact(out.Absent)
	merge := out.merge
	if params.net {
		merge = out.mergeNet
	}
	if err := merge(params, lists); err != nil {
		return err
	}
	return writeJSON(w, out)
}

var errHistoryPart = errors.New("history: a part has a continue value that cannot be read")

// merge makes a page of pages of parts. What comes after the end of one that goes on is left for the next page.
func (l *HistoryList) merge(a *historyParams, lists []historyPart) error {
	type placed struct {
		historyPlace

		record *history.Record
	}
	order := func(x, y historyPlace) int {
		if a.oldest {
			return x.compare(y)
		}
		return y.compare(x)
	}
	var end *historyPlace
	var all []placed
	for i := range lists {
		for j := range lists[i].Items {
			r := &lists[i].Items[j]
			all = append(all, placed{historyPlace{r.Time.UnixMilli(), lists[i].Log, r.Position, a.order()}, r})
		}
		if lists[i].Continue == "" {
			continue
		}
		at := historyPlace{}
		decoded, err := base64.RawURLEncoding.Strict().DecodeString(lists[i].Continue)
		if err != nil || json.Unmarshal(decoded, &at) != nil {
			return errHistoryPart
		}
		if end == nil || order(at, *end) < 0 {
			end = &at
		}
	}
	slices.SortStableFunc(all, func(x, y placed) int { return order(x.historyPlace, y.historyPlace) })
	known := map[string]bool{}
	var last historyPlace // of what was looked at
	n := 0
	for _, x := range all {
		if end != nil && order(x.historyPlace, *end) > 0 {
			break
		}
		if x.Position > 0 { // a page never ends with what a log has lost
			if n == a.limit {
				end = &last
				break
			}
			last = x.historyPlace
			if !known[x.record.Key] {
				n++
			}
		}
		if !known[x.record.Key] {
			known[x.record.Key] = true
			l.Items = append(l.Items, *x.record)
		}
	}
	if end != nil {
		l.Continue = end.encode()
	}
	return nil
}
