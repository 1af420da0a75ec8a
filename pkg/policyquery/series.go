package policyquery

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"federator.dev/federator/internal/series"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

// Metrics of Series.
const (
	metricViolations  = "violations"
	metricUnknown     = "unknown"
	metricDeltas      = "deltas"
	metricCorrections = "corrections"
)

var seriesMetrics = []string{metricCorrections, metricDeltas, metricUnknown, metricViolations}

// Series serves /query/v1/series: numbers of the last 24 hours since this process has started, in steps of five
// minutes. Each is for callers who may read all that it counts. It must run, and is safe for concurrent use.
type Series struct {
	kinds Kinds
	loop  *enforce.Loop
	index *aggregate.Index
	hub   Hub
	clock func() time.Time

	costs costHistory // of policies

	mu    sync.Mutex
	rings map[string]*series.Ring // by metric

	sampler sampler // of Run's goroutine
}

var (
	_ queryapi.Describer = &Series{}
	_ queryapi.Sharer    = &Series{}
)

// Steps of the series, and bounds of a response.
const (
	seriesStep  = 5 * time.Minute
	seriesHours = 24
	seriesBytes = 8 << 20 // of each metric
	maxSeries   = 2000
)

// SeriesOptions configure Series. Kinds, Loop and Index are required.
type SeriesOptions struct {
	Kinds Kinds
	Loop  *enforce.Loop
	Index *aggregate.Index
	Hub   Hub              // nil: there are no corrections
	Clock func() time.Time // nil means time.Now
}

// NewSeries returns Series that know nothing yet.
func NewSeries(o SeriesOptions) *Series {
	q := &Series{kinds: o.Kinds, loop: o.Loop, index: o.Index, hub: o.Hub, clock: o.Clock, rings: newRings()}
	if q.clock == nil {
		q.clock = time.Now
	}
	return q
}

func newRings() map[string]*series.Ring {
	rings := map[string]*series.Ring{}
	for _, m := range seriesMetrics {
		rings[m] = series.New(series.Options{Steps: int(seriesHours * time.Hour / seriesStep), MaxBytes: seriesBytes})
	}
	return rings
}

var seriesParameters = []queryapi.Parameter{
	{Name: "policy", Description: "Only series of these policies.", Repeated: true},
	{Name: "member", Description: "Only series of these members, <namespace>/<name>.", Repeated: true},
	{Name: "metric", Description: "Only these: violations and unknown are how many there are, deltas how many objects have changed, corrections how many Actions have succeeded.", Repeated: true, Enum: seriesMetrics},
	{Name: "groupBy", Description: "Add up what the caller may read of each member, of all policies. A value of which a part is not known is not known.", Enum: []string{"member"}},
	{Name: "hours", Description: fmt.Sprintf("How many hours, 1 to %d, which is the default.", seriesHours), Type: "integer"},
}

// Describe implements queryapi.Describer.
func (*Series) Describe() queryapi.Operation {
	return queryapi.Operation{
		Description: "How violations, Unknown verdicts, changes and corrections went in the last hours. null is what is not known, such as before federator started.",
		Parameters:  seriesParameters, Response: SeriesList{},
	}
}

// SeriesList is the response of Series.
type SeriesList struct {
	APIVersion  string       `json:"apiVersion"`
	Kind        string       `json:"kind"`
	StepSeconds int          `json:"stepSeconds"`
	Start       time.Time    `json:"start"`             // of the first value
	Series      []SeriesItem `json:"series"`            // without those that were 0 all the time
	Dropped     int          `json:"dropped,omitempty"` // series that are not kept, as there are too many; for callers who may read all
	Truncated   bool         `json:"truncated,omitempty"`
	// Known says of each step whether all series are known that are selected and the caller may read: where it is
	// true, one that is not in the answer was 0.
	Known []bool `json:"known"`
	// Partial is whether some are left out as the caller may not read all that they count. It follows from the
	// caller's grants, never from numbers.
	Partial bool `json:"partial,omitempty"`
	// Absent are members, of those that the caller may read, that no process answers for which shares the fleet. Their
	// values are missing, and those of keys of views are not known.
	Absent []string `json:"absent,omitempty"`
}

// SeriesItem is a series: that of a policy in a member, or of a member.
type SeriesItem struct {
	Policy string `json:"policy,omitempty"` // not set for sums of all
	Member string `json:"member,omitempty"` // not set for keys of views
	Metric string `json:"metric"`
	Values []any  `json:"values"` // numbers, or null
}

// Serve implements queryapi.Query.
func (q *Series) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	values := r.URL.Query()
	if err := checkParameters(values, seriesParameters); err != nil {
		return err
	}
	hours := seriesHours
	if values.Has("hours") {
		n, err := strconv.Atoi(values.Get("hours"))
		if err != nil || n < 1 || n > seriesHours {
			return badParameter("hours", fmt.Sprintf("is not a number from 1 to %d", seriesHours))
		}
		hours = n
	}
	byMember := values.Get("groupBy") != ""
	state := q.loop.State()
	if state == nil {
		return errNotEvaluated
	}
	queryapi.InPart(r.Context(), state.Snapshot)
	reader, err := newStateReader(r.Context(), caller, q.kinds, state)
	if err != nil {
		return err
	}
	mayListActions, err := caller.HubAllows(r.Context(), "list", string(HubActions))
	if err != nil {
		return err
	}
	g := &seriesGrants{readScope: readScope{state, reader}, actions: mayListActions, readable: map[string]bool{}, known: map[series.Key]bool{}}
	g.setCounted(q.counted())
	metrics := values["metric"]
	if metrics == nil {
		metrics = seriesMetrics
	}
	var keys []series.Key
	all := true
	members := map[string]bool{} // many may be asked about, of very many
	for _, m := range values["member"] {
		members[m] = true
	}
	for _, m := range metrics {
		for _, k := range q.keys(m) {
			switch {
			case !matches(values["policy"], k.Policy) || len(members) > 0 && !members[k.Member]:
			case g.mayReadSeries(k):
				keys = append(keys, k)
			default:
				all = false
			}
		}
	}
	if reader.err != nil { // grants are unknown, not denied
		return reader.err
	}
	steps := hours * int(time.Hour/seriesStep)
	last := stepOf(q.clock())
	from := last - int64(steps) + 1
	out := &SeriesList{
		APIVersion: "query.federator.dev/v1", Kind: "Series", StepSeconds: int(seriesStep / time.Second), Start: time.Unix(from*int64(seriesStep/time.Second), 0).UTC(), Series: []SeriesItem{},
	}
	out.Known, out.Partial = q.known(g, metrics, values["policy"], members, from, steps)
	if reader.err != nil { // grants are unknown, not denied
		return reader.err
	}
	q.fill(out, keys, from, steps, byMember)
	if all && values["policy"] == nil && values["member"] == nil && q.seesAll(g) {
		out.Dropped = q.dropped(metrics)
	}
	return writeJSON(w, out)
}

func stepOf(at time.Time) int64 { return at.Unix() / int64(seriesStep/time.Second) }

func (q *Series) keys(metric string) []series.Key {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.rings[metric].Keys()
}

// fill adds the series of keys, which are sorted, or their sums by member.
func (q *Series) fill(out *SeriesList, keys []series.Key, from int64, steps int, byMember bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	sums := map[series.Key]int{} // places of series, where there are sums
	for _, k := range keys {
		name := k
		if byMember {
			name.Policy = ""
		}
		at, begun := sums[name]
		if !begun && len(out.Series) == maxSeries {
			out.Truncated = true
			continue
		}
		values := q.rings[k.Metric].Values(k, from, steps)
		if begun {
			out.Series[at].add(values)
			continue
		}
		item := SeriesItem{Policy: name.Policy, Member: k.Member, Metric: k.Metric, Values: make([]any, steps)}
		for i, v := range values {
			if v != nil {
				item.Values[i] = *v
			}
		}
		if byMember {
			sums[name] = len(out.Series)
		}
		out.Series = append(out.Series, item)
	}
}

// known returns what is known of the steps, of the policies and members that are selected and readable, and whether
// there are others.
func (q *Series) known(g *seriesGrants, metrics, onlyPolicies []string, onlyMembers map[string]bool, from int64, steps int) (known []bool, partial bool) {
	var policies, members []string
	ofPolicies := slices.ContainsFunc(metrics, func(m string) bool { return m != metricDeltas })
	changed := false // of some, what was counted is of others of their names
	for _, m := range g.reader.visible {
		if len(onlyMembers) == 0 || onlyMembers[m] {
			members = append(members, m)
			changed = changed || g.others[subject{member: m}]
		}
	}
	changed = changed || ofPolicies && g.otherKeys
	for b := range g.state.Bindings() {
		switch {
		case !ofPolicies || !matches(onlyPolicies, b.Name):
		case !g.mayRead(b.Name):
			partial = true
		default:
			policies = append(policies, b.Name)
			changed = changed || g.others[subject{policy: b.Name}]
		}
	}
	known = slices.Repeat([]bool{!changed}, steps)
	for _, m := range metrics {
		partial = partial || !g.readsAll(m, policies, members)
		of := policies
		if m == metricDeltas {
			of = nil
		}
		q.mu.Lock()
		for i, is := range q.rings[m].Known(of, members, from, steps) {
			known[i] = known[i] && is
		}
		q.mu.Unlock()
	}
	return known, partial
}

// add adds values; what is not known in one of them is not known.
func (s *SeriesItem) add(values []*int64) {
	for i, v := range values {
		if n, known := s.Values[i].(int64); known && v != nil {
			s.Values[i] = n + *v
		} else {
			s.Values[i] = nil
		}
	}
}

func (q *Series) dropped(metrics []string) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range metrics {
		n += q.rings[m].Dropped()
	}
	return n
}

// seesAll reports whether the caller may read every policy and every member: no other may know how many
// series there are.
func (*Series) seesAll(g *seriesGrants) bool {
	for b := range g.state.Bindings() {
		for m := range g.state.Snapshot.Members() {
			if !g.mayReadSeries(series.Key{Policy: b.Name, Member: m.Name, Metric: metricViolations}) {
				return false
			}
		}
	}
	return true
}

// seriesGrants say which series a caller may read.
type seriesGrants struct {
	readScope

	actions bool             // the caller may list Actions on the hub
	others  map[subject]bool // policies and members that are not those whose numbers are kept
	// otherKeys says that the keys of views which are judged here are not those that were counted.
	otherKeys bool
	readable  map[string]bool // policies, as mayRead says
	known     map[series.Key]bool
}

// mayReadSeries reports whether the caller may read all that a series counts.
func (g *seriesGrants) mayReadSeries(k series.Key) bool {
	may, ok := g.known[k]
	if !ok {
		may = g.check(k)
		g.known[k] = may
	}
	return may
}

// subject is a policy or a member.
type subject struct{ policy, member string }

// counted returns what the numbers are about. It must not be changed.
func (q *Series) counted() counted {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sampler.counted
}

// setCounted takes in what the numbers are about. Until the next sample that may be policies and members of the
// same names that are no more.
func (g *seriesGrants) setCounted(c counted) {
	g.others = map[subject]bool{}
	policies, members := c.changed(g.state, c.next(g.state, g.reader.kinds))
	for _, name := range policies {
		g.others[subject{policy: name}] = true
	}
	for _, name := range members {
		g.others[subject{member: name}] = true
	}
	g.otherKeys = c.otherKeys(g.state)
}

func (g *seriesGrants) check(k series.Key) bool {
	if k.Member == "" && g.otherKeys || g.others[subject{policy: k.Policy}] || g.others[subject{member: k.Member}] {
		return false
	}
	if k.Metric == metricDeltas {
		return g.wholeMember(k.Member)
	}
	versions := slices.Collect(g.state.Packages(k.Policy))
	if len(versions) == 0 {
		return false // nobody knows what it has read
	}
	may, ok := g.readable[k.Policy]
	if !ok {
		may = g.mayRead(k.Policy)
		g.readable[k.Policy] = may
	}
	ofKeys := func(p *policy.Package) bool { return p.SubjectView != "" }
	// Each version that is in effect may have been that of the member before.
	whole := func(p *policy.Package) bool { return g.wholeOf(p, k.Member) }
	switch {
	case !may:
		return false
	case k.Metric != metricCorrections && k.Member == "":
		return slices.ContainsFunc(versions, ofKeys)
	case k.Metric != metricCorrections:
		return every(versions, whole)
	case !g.actions || !g.reader.MayReadMember(k.Member) || k.Member == "":
		return false
	}
	return every(versions, func(p *policy.Package) bool {
		return (ofKeys(p) || whole(p)) && g.wholeTargets(p, k.Member)
	})
}

// wholeTargets reports whether the caller may read all that remedies of a version write to in a member.
func (g *seriesGrants) wholeTargets(p *policy.Package, member string) bool {
	for _, r := range p.Remedies {
		if !g.wholeKind(member, r.Kind) {
			return false
		}
	}
	return true
}

func every[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !is(x) })
}

// readsAll reports whether the caller may read all series of a metric, of policies that it may read, in members that
// it may see.
func (g *seriesGrants) readsAll(metric string, policies, members []string) bool {
	if metric == metricDeltas {
		return !slices.ContainsFunc(members, func(m string) bool { return !g.wholeMember(m) })
	}
	for _, name := range policies {
		ofKeys := every(slices.Collect(g.state.Packages(name)), func(p *policy.Package) bool { return p.SubjectView != "" })
		if metric != metricCorrections && (ofKeys || g.everywhere(name)) {
			continue
		}
		if slices.ContainsFunc(members, func(m string) bool { return !g.mayReadSeries(series.Key{Policy: name, Member: m, Metric: metric}) }) {
			return false
		}
	}
	return true
}

// wholeMember reports whether the caller may read all objects of a member.
func (g *seriesGrants) wholeMember(member string) bool {
	if !g.reader.MayReadMember(member) {
		return false
	}
	return !slices.ContainsFunc(g.state.Snapshot.KindsOf(member), func(kind aggregate.Kind) bool { return !g.wholeKind(member, kind) })
}

// Run samples until the context ends.
func (q *Series) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		now := q.clock()
		q.tick(now)
		timer.Reset(now.Truncate(pollStep).Add(pollStep).Sub(now))
	}
}
