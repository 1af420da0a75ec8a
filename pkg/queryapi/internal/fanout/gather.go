package fanout

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// gathered is what all processes answered.
type gathered struct {
	assignment *Assignment
	also       []string  // members that are asked of who holds them without judging them, in order
	parts      []*stream // that answered, by ID
	absent     []string  // members that none of them answers for, in order
	lead       *part.Header
	lost       []string // processes that did not answer

	notSynced []selection.NotSynced // of all
}

// end ends all parts.
func (g *gathered) end() {
	for _, s := range g.parts {
		s.end()
	}
}

// errMoving is the error while two processes say that they judge a member.
var errMoving = apierrors.NewTooManyRequests("members move from one process to another: try again", 1)

// gather asks all processes for their parts, which must be ended, also with an error.
func (q *request) gather(ask part.Ask) error {
	if err := q.gatherAll(ask); err != nil {
		return err
	}
	if q.g.columnsDiffer() {
		q.g.end()
		ask.Plain = true // as custom resources are, whose definitions differ among members
		if err := q.gatherAll(ask); err != nil {
			return err
		}
		q.warn("the members have definitions with different columns: only the name and the age are shown")
	}
	return q.unite()
}

// columnsDiffer reports whether processes print different columns of a Table.
func (g *gathered) columnsDiffer() bool {
	var columns []byte
	for _, s := range g.parts {
		h := s.header
		if columns != nil && h.Columns != nil && !bytes.Equal(columns, h.Columns) {
			return true
		}
		if h.Columns != nil {
			columns = h.Columns
		}
	}
	return false
}

func (q *request) gatherAll(ask part.Ask) error {
	g := &gathered{assignment: q.options.Assignment()}
	q.g = g
	places, err := q.places(g.assignment)
	if err != nil {
		return err
	}
	g.also = g.assignment.unjudged
	if q.at == nil && q.leaveOut(places) && g.cover() {
		places = g.others()
	}
	known := len(g.lost)
	if err := q.askAll(places, ask); err != nil {
		return err
	}
	if q.at == nil && len(g.lost) > known && g.cover() {
		g.end()
		if err := q.askAll(g.others(), ask); err != nil {
			return err
		}
	}
	if q.at == nil {
		if err := q.separate(ask); err != nil {
			return err
		}
	}
	g.findAbsent()
	return nil
}

// askAll asks processes for their parts, and keeps those that there are.
func (q *request) askAll(places []place, ask part.Ask) error {
	streams := make([]*stream, len(places))
	var asking sync.WaitGroup
	for i, at := range places {
		asking.Go(func() { streams[i] = q.open(at, q.query(i), q.askOf(at, i, ask)) })
	}
	asking.Wait()
	q.g.parts = streams
	return q.sort()
}

// leaveOut takes note of processes that are known not to answer, and reports whether there are any.
func (q *request) leaveOut(places []place) bool {
	g := q.g
	for _, at := range places {
		if peer := g.assignment.live[at.id]; peer != nil && q.health.lost(peer) != nil {
			g.lost = append(g.lost, at.id)
		}
	}
	return len(g.lost) > 0
}

// cover adds what lost processes judge to what the others are asked for, and reports whether that is more: it takes a
// while until it is known that a process does not live.
func (g *gathered) cover() bool {
	more := slices.Clone(g.assignment.unjudged)
	for _, id := range g.lost {
		more = append(more, g.assignment.byJudge[id]...)
	}
	if len(more) == len(g.also) {
		return false
	}
	g.also = more
	slices.Sort(g.also)
	return true
}

// others are the processes that may answer for what lost ones judge, also those that judge nothing.
func (g *gathered) others() (places []place) {
	for _, id := range g.assignment.living() {
		if !slices.Contains(g.lost, id) {
			places = append(places, place{id: id})
		}
	}
	return places
}

// places returns the processes to ask: those that the client's revision is of, or all that judge.
func (q *request) places(a *Assignment) ([]place, error) {
	ids := q.processes(a)
	if q.at == nil {
		places := make([]place, len(ids))
		for i, id := range ids {
			places[i].id = id
		}
		return places, nil
	}
	var have []string
	for _, p := range q.at.places {
		have = append(have, p.id)
		peer := a.live[p.id]
		if p.id != a.Self && (peer == nil || peer.Epoch != p.epoch) {
			if q.token != nil && peer == nil {
				return nil, unavailable(fmt.Sprintf("process %s, which has a part of this list, is lost", p.id))
			}
			return nil, q.expired()
		}
		if q.token == nil && len(p.except) > 0 {
			return nil, q.expired() // members were moving
		}
	}
	if q.token == nil && !slices.Equal(ids, have) {
		return nil, q.expired()
	}
	return q.at.places, nil
}

// query returns the parameters of a part.
func (q *request) query(i int) url.Values {
	if q.asked != nil {
		return q.askedOf(i)
	}
	v := q.r.URL.Query()
	for _, name := range []string{"continue", "timeoutSeconds", "timeout", "require"} {
		v.Del(name)
	}
	switch {
	case q.token != nil:
		v.Del("resourceVersion")
		v.Del("resourceVersionMatch")
	case q.at == nil:
	case q.at.revisions[i] != 0:
		v.Set("resourceVersion", strconv.FormatUint(uint64(q.at.revisions[i]), 10))
	default:
		v.Del("resourceVersion")
		if q.params.SendInitialEvents == nil {
			v.Del("resourceVersionMatch")
		}
	}
	return v
}

// askOf returns what a process is asked.
func (q *request) askOf(at place, i int, ask part.Ask) part.Ask {
	ask.Known, ask.Except, ask.Also = q.g.assignment.digests[at.id], at.except, q.g.also
	if q.token != nil {
		if q.at != nil {
			ask.Also = at.also
		}
		ask.After = q.token.After
		if q.at != nil {
			ask.At = q.at.revisions[i]
		}
	}
	return ask
}

// sort leaves the parts that there are. An error is that of the request.
func (q *request) sort() error {
	g := q.g
	all := g.parts
	g.parts = nil
	var failed apierrors.APIStatus
	var own error
	for _, s := range all {
		switch {
		case s.failed != nil:
			if failed == nil || s.place.id == g.assignment.Self {
				failed = s.failed
			}
		case s.lost != nil && s.place.id == g.assignment.Self:
			own = s.lost
		case s.lost != nil:
			q.options.Log.Debug("query API: a process did not answer", "process", s.place.id, "error", s.lost)
			g.lost = append(g.lost, s.place.id)
		default:
			g.parts = append(g.parts, s)
			continue
		}
		s.end()
	}
	switch {
	case own != nil:
		return own
	case q.r.Context().Err() != nil:
		return q.r.Context().Err()
	case failed != nil && failed.Status().Reason == metav1.StatusReasonExpired:
		return q.expired()
	case failed != nil:
		return &apierrors.StatusError{ErrStatus: failed.Status()}
	case q.at != nil && len(g.lost) > 0:
		return unavailable(fmt.Sprintf("process %s, which has a part of this revision, does not answer", g.lost[0]))
	}
	if q.at == nil {
		return nil
	}
	for i, s := range g.parts { // all that were asked answered
		if want := q.at.places[i]; s.header.Epoch != want.epoch || !slices.Equal(s.header.Also, want.also) {
			return q.expired()
		}
		if unknown := q.at.revisions[i] == 0; unknown != (s.header.Revision == 0) {
			return q.expired() // of a resource that its members do, or did, not serve: it is of another state
		}
	}
	return nil
}

// separate asks processes again to leave out members that another one judges.
func (q *request) separate(ask part.Ask) error {
	g := q.g
	a := g.assignment
	if !slices.ContainsFunc(g.parts, (*stream).differs) {
		return nil
	}
	judges := map[string][]*stream{}
	for _, s := range g.parts {
		for _, member := range g.membersOf(s) {
			judges[member] = append(judges[member], s)
		}
	}
	except := map[*stream][]string{}
	for member, several := range judges {
		if len(several) < 2 {
			continue
		}
		keep := several[0]
		for _, s := range several {
			if s.place.id == a.Judges[member] {
				keep = s
			}
		}
		for _, s := range several {
			if s != keep {
				except[s] = append(except[s], member)
			}
		}
	}
	for i, s := range g.parts {
		if len(except[s]) == 0 {
			continue
		}
		if q.info.Verb == selection.Watch {
			return errMoving
		}
		s.end()
		slices.Sort(except[s])
		without := place{id: s.place.id, except: except[s]}
		again := q.open(without, q.query(i), q.askOf(without, i, ask))
		if again.header == nil {
			again.end()
			return errMoving
		}
		g.parts[i] = again
	}
	return nil
}

// differs reports whether a process answers for others than those that it is known to judge.
func (s *stream) differs() bool { return s.header.Differs || len(s.header.Also) > 0 }

// membersOf returns the members that a process answers for by its own account.
func (g *gathered) membersOf(s *stream) []string {
	if s.header.Differs {
		return slices.Concat(s.header.Members, s.header.Also)
	}
	return slices.Concat(g.assignment.byJudge[s.place.id], s.header.Also)
}

// findAbsent sets the members that no process answers for.
func (g *gathered) findAbsent() {
	a := g.assignment
	if !slices.ContainsFunc(g.parts, (*stream).differs) {
		g.absent = slices.Clone(a.unjudged)
		for id, members := range a.byJudge {
			if !slices.ContainsFunc(g.parts, func(s *stream) bool { return s.place.id == id }) {
				g.absent = append(g.absent, members...)
			}
		}
		slices.Sort(g.absent)
		return
	}
	there := map[string]bool{}
	for _, s := range g.parts {
		for _, member := range g.membersOf(s) {
			there[member] = true
		}
	}
	for member := range a.Judges {
		if !there[member] {
			g.absent = append(g.absent, member)
		}
	}
	slices.Sort(g.absent)
}

// unite unites what the headers say. Its error is that of a request which all refuse.
func (q *request) unite() error {
	g := q.g
	for _, s := range g.parts {
		if s.header.Kind != "" && (g.lead == nil || s.header.Refused == nil && g.lead.Refused != nil) {
			g.lead = s.header
		}
	}
	readable, err := q.readable(g.absent)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(g.parts, func(s *stream) bool { return s.header.Refused == nil }) {
		if len(readable) > 0 {
			return unavailable(fmt.Sprintf("%d members that may have this are not known now, as %s", len(readable), readable[0]))
		}
		return g.refusal()
	}
	for _, s := range g.parts {
		h := s.header
		g.notSynced = append(g.notSynced, h.NotSynced...)
		if h.Refused == nil && (h.YAML != g.lead.YAML || h.Protobuf != g.lead.Protobuf || h.Table != g.lead.Table || h.Rows != g.lead.Rows || h.ItemKind != g.lead.ItemKind) {
			return unavailable("the processes of the fleet differ in what they serve")
		}
	}
	var unsure []string
	for _, s := range g.parts {
		unsure = append(unsure, s.header.Unsure...)
	}
	if unsure, err = q.readable(unsure); err != nil {
		return err
	}
	for _, member := range append(readable, unsure...) {
		g.notSynced = append(g.notSynced, selection.NewNotSynced(aggregate.ScopeInfo{Member: member, Kind: g.lead.Kind}, nil, noTime))
	}
	slices.SortFunc(g.notSynced, func(a, b selection.NotSynced) int { return strings.Compare(a.Member, b.Member) })
	for i := selection.MaxListed; i < len(g.notSynced); i++ {
		g.notSynced[i].Age = ""
	}
	return nil
}

// refusal is the error of a request that all processes refuse: it is forbidden, unless none knows
// the resource.
func (g *gathered) refusal() error {
	best := g.parts[0].header.Refused
	for _, s := range g.parts {
		if r := s.header.Refused; r.Reason == metav1.StatusReasonForbidden && best.Reason != metav1.StatusReasonForbidden {
			best = r
		}
	}
	return &apierrors.StatusError{ErrStatus: *best}
}

// readable returns those of some members of which little is known that the request is about, as far as that
// is known, and that the caller may read.
func (q *request) readable(about []string) ([]string, error) {
	if len(about) == 0 {
		return nil, nil
	}
	if about = selection.ByName(q.params.LabelSelector, about); len(about) == 0 {
		return nil, nil
	}
	readable, err := q.options.Readable(q.r.Context(), q.user, q.info.Verb, schema.GroupResource{Group: q.info.APIGroup, Resource: q.info.Resource}, about)
	if err != nil {
		return nil, fmt.Errorf("fanout: %w", err)
	}
	return readable, nil
}

// vector returns how far the parts are.
func (g *gathered) vector() *vector {
	v := &vector{}
	for _, s := range g.parts {
		v.places = append(v.places, s.place)
		v.revisions = append(v.revisions, s.header.Revision)
		v.positions = append(v.positions, s.header.Position)
	}
	if slices.Contains(v.positions, "") {
		v.positions = nil
	}
	return v
}
