package aggregate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/seed"
)

var (
	memberNames = []string{"fleet\x00us", "fleet/ap-1", "fleet/eu", "fleet/eu-1"} // sorted
	kinds       = []aggregate.Kind{"ConfigMap", "Pod", "PodX"}
	namespaces  = []string{"", "n", "n\x00", "n-1", "ö\xff"}
	names       = []string{"", "a", "a\x00", "a-b", "a/b", "ab", "é", "\xff\xfe", "web-1", "web-2"}
	uids        = []string{"6f1c0e1a-0000-4000-8000-00000000000a", "6f1c0e1a-0000-4000-8000-00000000000b", "odd", "", "6F1C0E1A-0000-4000-8000-00000000000A"}
	oddRVs      = []string{"", "0012", "abc", "18446744073709551615", "18446744073709551616", "+7", "-1"}
	plainKeys   = []string{"app", "tier", "x.io/zone"}
	labelKeys   = []string{"", "app", "nul\x00", "tier", "x.io/zone"} // sorted
	plainValues = []string{"", "a", "b", "7"}
	labelValues = []string{"", "a", "b", "7", "v\x00v"}
	ownerUIDs   = []string{"", "owner-1", "6f1c0e1a-0000-4000-8000-0000000000ff"}
	nodes       = []string{"", "node-1", "node-2"}
	phases      = []string{"Running", "7", "true"}
	versions    = []string{"v1", "v1", "v1", "v2"}
)

func pick[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

// history drives an index and its model through the same random operations.
type history struct {
	t        *testing.T
	rng      *rand.Rand
	index    *aggregate.Index
	state    *state
	log      []modelChange
	ranges   []aggregate.Range // of revisions, the last one untouched
	gaps     []aggregate.Range // revisions between those that were issued, ascending
	exact    bool              // the change log is long enough for all of the history
	nextRV   int
	writers  map[scopeKey]*writer
	cursors  []*follower
	sessions chan session
	options  aggregate.Options
	written  *written // for a restart; nil: nothing
}

// writer is a scope's writer with what is not committed yet.
type writer struct {
	scope   *aggregate.Scope
	stale   bool
	target  string // version of new objects
	pending *modelScope
	changes []modelChange
	dirty   bool
	kept    []*keptItem // items that were held once
}

type keptItem struct {
	item  aggregate.Item
	obj   *obj
	taken bool // it has been in the scope
}

type follower struct {
	cursor *aggregate.Cursor
	state  *state
}

// session is a snapshot that a concurrent reader checks against its model.
type session struct {
	snap  *aggregate.Snapshot
	state *state
	seed  uint64
}

// TestModel shows that under random histories every snapshot, however old,
// cursor and replay equals a plain map kept for its revision, also for
// concurrent readers.
func TestModel(t *testing.T) {
	start, n := seed.Of(t), uint64(10)
	if testing.Short() {
		n = 4
	}
	for i := range n {
		t.Run(fmt.Sprintf("seed=%d", start+i), func(t *testing.T) { runHistory(t, start+i) })
	}
}

// firstRevision of all histories.
const firstRevision = 7 << 26

func runHistory(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	logBytes := int64(0)
	if rng.IntN(2) == 0 {
		logBytes = 1 + rng.Int64N(20_000)
	}
	opts := aggregate.Options{
		Revisions: aggregate.Range{First: firstRevision, End: firstRevision + 50}, LogBytes: logBytes,
		Fields: map[aggregate.Kind][]string{"Pod": {"spec.nodeName", "status.phase"}},
	}
	x, err := aggregate.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	h := &history{
		t: t, rng: rng, index: x, options: opts, exact: logBytes == 0,
		ranges:  []aggregate.Range{{First: firstRevision, End: firstRevision + 50}},
		state:   &state{rev: firstRevision, members: map[string]aggregate.Member{}, scopes: map[scopeKey]*modelScope{}},
		writers: map[scopeKey]*writer{}, sessions: make(chan session, 64),
	}
	for range 3 {
		h.cursors = append(h.cursors, &follower{x.Cursor(nil), h.state})
	}
	var readers sync.WaitGroup
	defer readers.Wait()
	defer close(h.sessions)
	for range 2 {
		readers.Go(func() { readSessions(t, h.sessions) })
	}
	for range 400 {
		h.step()
		if t.Failed() {
			return
		}
	}
}

// readSessions checks old snapshots again and again while the writers go on.
func readSessions(t *testing.T, sessions <-chan session) {
	var held []session
	for s := range sessions {
		held = append(held, s)
		rng := rand.New(rand.NewPCG(s.seed, 2))
		for _, i := range []int{len(held) - 1, rng.IntN(len(held))} {
			if err := check(held[i].snap, held[i].state, rng); err != nil {
				t.Errorf("a reader of revision %d, at %d: %v", held[i].state.rev, s.state.rev, err)
				return
			}
		}
	}
}

func (h *history) step() {
	h.t.Helper()
	h.extend()
	switch n := h.rng.IntN(100); {
	case n < 6:
		h.putMember()
	case n < 8:
		h.removeMember()
	case n < 18:
		h.open()
	case n < 21:
		h.close()
	case n < 23:
		h.remove()
	case n < 65:
		h.edit()
	case n < 80:
		h.commit()
	case n < 88:
		h.replace()
	case n < 90:
		h.train()
	case n < 93:
		h.poll()
	case n < 95:
		h.write()
		if h.rng.IntN(3) == 0 {
			h.restart()
		}
	default:
		h.replay()
	}
	if err := check(h.index.Snapshot(), h.state, h.rng); err != nil {
		h.t.Errorf("revision %d: %v", h.state.rev, err)
	}
	h.sizes()
	select {
	case h.sessions <- session{h.index.Snapshot(), h.state, h.rng.Uint64()}:
	default:
	}
}

// record makes a state the newest one.
func (h *history) record(s *state, rev aggregate.Revision, changes ...modelChange) {
	for _, r := range h.ranges {
		if r.First <= rev && rev < r.End && r.First > h.state.rev+1 {
			h.gaps = append(h.gaps, aggregate.Range{First: h.state.rev + 1, End: r.First})
		}
	}
	s.rev = rev
	h.state = s
	h.log = append(h.log, changes...)
	if got := h.index.Snapshot().Revision(); got != rev {
		h.t.Fatalf("revision is %d, want %d", got, rev)
	}
}

func (h *history) putMember() {
	m := aggregate.Member{Name: pick(h.rng, memberNames), UID: fmt.Sprint("uid-", h.rng.IntN(2)), Version: pick(h.rng, versions)}
	for _, k := range labelKeys {
		if h.rng.IntN(3) == 0 {
			m.Labels = append(m.Labels, aggregate.Label{Key: k, Value: pick(h.rng, labelValues)})
		}
	}
	err := h.index.PutMember(m)
	slices.SortFunc(m.Labels, func(a, b aggregate.Label) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) })
	held, ok := h.state.members[m.Name]
	if ok && held.UID != m.UID {
		if !errors.Is(err, aggregate.ErrIdentity) {
			h.t.Fatalf("another identity: %v", err)
		}
		return
	}
	if err != nil {
		h.t.Fatal(err)
	}
	if ok && sameMember(&held, m) {
		return
	}
	s := h.state.next()
	s.members[m.Name] = m
	h.record(s, h.take(1)+1)
}

// gone appends the changes that take away all of a scope.
func gone(dst []modelChange, rev *aggregate.Revision, sc *modelScope) []modelChange {
	for _, k := range sc.keys() {
		*rev++
		dst = append(dst, modelChange{*rev, sc.objects[k], nil})
	}
	return dst
}

func (h *history) removeMember() {
	name := pick(h.rng, memberNames)
	_, was := h.state.members[name]
	if got := h.index.RemoveMember(name); got != was {
		h.t.Fatalf("remove %q: %t, want %t", name, got, was)
	}
	if !was {
		return
	}
	s := h.state.next()
	delete(s.members, name)
	rev := h.take(1 + h.objects(func(k scopeKey) bool { return k.member == name }))
	var changes []modelChange
	for _, k := range h.state.scopeKeys() {
		if k.member != name {
			continue
		}
		changes = gone(changes, &rev, s.scopes[k])
		delete(s.scopes, k)
	}
	h.record(s, rev+1, changes...)
	for k, w := range h.writers {
		if k.member != name {
			continue
		}
		w.scope.SetStatus(aggregate.Status{Reason: "too late"})
		if _, err := w.scope.Commit(); !errors.Is(err, aggregate.ErrClosed) {
			h.t.Fatalf("commit into a member that left: %v", err)
		}
		delete(h.writers, k)
	}
}

func (h *history) open() {
	k := scopeKey{pick(h.rng, kinds), pick(h.rng, memberNames)}
	version := pick(h.rng, versions)
	scope, err := h.index.OpenScope(k.member, k.kind, version)
	_, joined := h.state.members[k.member]
	switch {
	case !joined:
		if !errors.Is(err, aggregate.ErrNoMember) {
			h.t.Fatalf("open in no member: %v", err)
		}
		return
	case h.writers[k] != nil:
		if !errors.Is(err, aggregate.ErrScopeOpen) {
			h.t.Fatalf("open twice: %v", err)
		}
		return
	case err != nil:
		h.t.Fatal(err)
	}
	w := &writer{scope: scope, target: version}
	h.writers[k] = w
	if sc := h.state.scopes[k]; sc != nil {
		w.stale = sc.version != version
		w.pending = sc.clone()
		// Opening walks all that is there, so the account is recounted.
		info, _ := h.index.Snapshot().Scope(k.member, k.kind)
		if objects, size := scope.Size(); objects != len(sc.objects) || size != info.Bytes {
			h.t.Fatalf("scope %v: account of %d bytes, recounted %d", k, info.Bytes, size)
		}
		return
	}
	s := h.state.next()
	s.scopes[k] = &modelScope{version: version, objects: map[objKey]*obj{}}
	w.pending = s.scopes[k].clone()
	h.record(s, h.take(1)+1)
}

func (h *history) writer() (scopeKey, *writer) {
	keys := make([]scopeKey, 0, len(h.writers))
	for k := range h.writers {
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return scopeKey{}, nil
	}
	slices.SortFunc(keys, compareScopeKeys)
	k := pick(h.rng, keys)
	return k, h.writers[k]
}

func (h *history) close() {
	k, w := h.writer()
	if w == nil {
		return
	}
	w.scope.Close()
	w.scope.SetStatus(aggregate.Status{Reason: "too late"})
	if _, err := w.scope.Commit(); !errors.Is(err, aggregate.ErrClosed) {
		h.t.Fatalf("commit after close: %v", err)
	}
	if _, err := w.scope.Replace(nil, aggregate.Status{}); !errors.Is(err, aggregate.ErrClosed) {
		h.t.Fatalf("replace after close: %v", err)
	}
	delete(h.writers, k)
}

func (h *history) remove() {
	k, w := h.writer()
	if w == nil {
		return
	}
	w.scope.Remove()
	w.scope.Remove() // again changes nothing
	delete(h.writers, k)
	s := h.state.next()
	rev := h.take(1 + h.objects(func(other scopeKey) bool { return other == k }))
	changes := gone(nil, &rev, s.scopes[k])
	delete(s.scopes, k)
	h.record(s, rev+1, changes...)
}

func (h *history) train() {
	stop := make(chan struct{})
	if h.rng.IntN(4) == 0 {
		close(stop)
	}
	for range 10 {
		_, more, err := h.index.Train(stop)
		if err != nil {
			h.t.Fatal(err)
		}
		if !more {
			return
		}
	}
}

// sizes compares the writers' accounts with what they hold.
func (h *history) sizes() {
	for k, w := range h.writers {
		objects, size := w.scope.Size()
		if objects != len(w.pending.objects) {
			h.t.Errorf("scope %v: size %d, want %d", k, objects, len(w.pending.objects))
		}
		if w.dirty {
			continue
		}
		info, _ := h.index.Snapshot().Scope(k.member, k.kind)
		if size != info.Bytes || (size == 0) != (objects == 0) {
			h.t.Errorf("scope %v: account of %d bytes for %d objects, in the snapshot %d", k, size, objects, info.Bytes)
		}
	}
}

// randomObject makes a new version of an object, in canonical JSON mostly.
func (h *history) randomObject(k scopeKey, w *writer, at objKey) *obj {
	h.nextRV++
	o := &obj{
		ref: aggregate.Ref{Member: k.member, Kind: k.kind, Namespace: at.namespace, Name: at.name},
		uid: pick(h.rng, uids), rv: fmt.Sprint(h.nextRV), apiVersion: w.target,
	}
	if old := w.pending.objects[at]; old != nil && h.rng.IntN(4) > 0 {
		o.uid = old.uid
	}
	if h.rng.IntN(8) == 0 {
		o.rv = pick(h.rng, oddRVs)
	}
	for _, key := range labelKeys {
		if h.rng.IntN(3) == 0 {
			o.labels = append(o.labels, aggregate.Label{Key: key, Value: pick(h.rng, labelValues)})
		}
	}
	for range h.rng.IntN(3) { // the same one twice, at times
		o.owners = append(o.owners, aggregate.Owner{
			APIVersion: "v1", Kind: "ReplicaSet", Name: pick(h.rng, names), UID: pick(h.rng, ownerUIDs), Controller: h.rng.IntN(2) == 0,
		})
	}
	o.body = h.randomBody()
	return o
}

func (h *history) randomBody() []byte {
	switch h.rng.IntN(200) {
	case 0, 3, 4, 5, 6, 7:
		return []byte{}
	case 1, 8, 9, 10, 11, 12:
		return []byte("\x00\xffno json")
	case 2:
		return bytes.Repeat([]byte("x"), 300_000)
	}
	v := map[string]any{"apiVersion": "v1", "kind": "Pod", "pad": fmt.Sprintf("%0200d", h.rng.IntN(50))}
	if h.rng.IntN(4) > 0 {
		v["spec"] = map[string]any{"nodeName": pick(h.rng, nodes), "other": []any{1, "}", `"`}}
	}
	status := []any{"Running", 7, true, nil, []string{"Running"}, `es\caped`}
	if h.rng.IntN(4) > 0 {
		v["status"] = map[string]any{"phase": pick(h.rng, status)}
	}
	b, err := json.Marshal(v)
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}
