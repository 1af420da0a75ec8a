package aggregate_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"federator.dev/federator/pkg/aggregate"
)

func (h *history) item(w *writer, o *obj) aggregate.Item {
	rec := &aggregate.Record{
		Namespace: o.ref.Namespace, Name: o.ref.Name, UID: o.uid, ResourceVersion: o.rv,
		Labels: slices.Clone(o.labels), Owners: slices.Clone(o.owners), Body: slices.Clone(o.body),
		Update: h.rng.IntN(2) == 0,
	}
	item := w.scope.Item(rec)
	clear(rec.Body) // it belongs to the decoder, which goes on
	clear(rec.Labels)
	clear(rec.Owners)
	ns, name := item.Key()
	if ns != o.ref.Namespace || name != o.ref.Name || item.UID() != o.uid || item.ResourceVersion() != o.rv || item.Size() <= 0 {
		h.t.Fatalf("item is %q %q %q %q, want %+v", ns, name, item.UID(), item.ResourceVersion(), o)
	}
	return item
}

// edit makes one change to a scope without committing it.
func (h *history) edit() {
	k, w := h.writer()
	if w == nil {
		return
	}
	at := objKey{pick(h.rng, namespaces), pick(h.rng, names)}
	old := w.pending.objects[at]
	switch n := h.rng.IntN(10); {
	case n == 0:
		status := aggregate.Status{State: pick(h.rng, []aggregate.State{aggregate.Synced, aggregate.Stale, aggregate.Partial}), Reason: pick(h.rng, names)}
		w.scope.SetStatus(status)
		w.dirty = w.dirty || status != w.pending.status
		w.pending.status = status
		if w.scope.Status() != status {
			h.t.Fatalf("status is %v, want %v", w.scope.Status(), status)
		}
	case n <= 2:
		w.scope.Delete(at.namespace, at.name)
		if old != nil {
			w.dirty = true
			delete(w.pending.objects, at)
			w.changes = append(w.changes, modelChange{before: old})
		}
	case w.stale: // what follows waits for the Replace
	case n == 3 && old != nil: // again, as it is
		o := *old
		h.upsert(w, &o, h.keep(w, &o))
	case n == 4 && len(w.kept) > 0: // an item held once, perhaps changed or gone since
		kept := pick(h.rng, w.kept)
		o := *kept.obj
		h.upsert(w, &o, kept)
	default:
		o := h.randomObject(k, w, at)
		h.upsert(w, o, h.keep(w, o))
	}
}

// keep makes an item that may be given to the scope again and again.
func (h *history) keep(w *writer, o *obj) *keptItem { return &keptItem{item: h.item(w, o), obj: o} }

// upsert does to the model what Upsert does to the scope.
func (h *history) upsert(w *writer, o *obj, kept *keptItem) {
	at := objKey{o.ref.Namespace, o.ref.Name}
	old := w.pending.objects[at]
	w.scope.Upsert(kept.item)
	if o.rv != "" && h.rng.IntN(2) == 0 { // without a version, Held cannot detect it
		w.kept = append(w.kept, kept)
	}
	if old != nil && old.uid == o.uid && old.rv == o.rv && (canonicalRV(o.rv) || old.by == kept) {
		return
	}
	if o.by = nil; !kept.taken { // what was in the scope before comes in as another
		o.by, kept.taken = kept, true
	}
	w.dirty = true
	w.pending.objects[at] = o
	if old != nil && old.uid != o.uid {
		w.changes = append(w.changes, modelChange{before: old}, modelChange{after: o})
		return
	}
	w.changes = append(w.changes, modelChange{before: old, after: o})
}

func (h *history) commit() {
	k, w := h.writer()
	if w == nil {
		return
	}
	rev, err := w.scope.Commit()
	if err != nil {
		h.t.Fatal(err)
	}
	want := h.state.rev
	if w.dirty {
		want = h.take(max(1, len(w.changes)))
		for i := range w.changes {
			want++
			w.changes[i].rev = want
			if o := w.changes[i].after; o != nil {
				o.rev = want
			}
		}
		s := h.state.next()
		s.scopes[k] = w.pending.clone()
		if len(w.changes) == 0 {
			want++
		}
		h.record(s, want, w.changes...)
		w.changes, w.dirty = nil, false
		want = h.state.rev
	}
	if rev != want {
		h.t.Fatalf("commit returned revision %d, want %d", rev, want)
	}
}

// replace relists a scope: some objects gone, some new, some changed, the rest
// held or decoded again.
func (h *history) replace() {
	k, w := h.writer()
	if w == nil {
		return
	}
	next := &modelScope{version: w.target, status: aggregate.Status{State: pick(h.rng, []aggregate.State{aggregate.Synced, aggregate.Partial})}, objects: map[objKey]*obj{}}
	namespace := ""
	if h.rng.IntN(3) == 0 {
		namespace = pick(h.rng, namespaces)
	}
	var items []aggregate.Item
	for _, at := range w.pending.keys() {
		old := w.pending.objects[at]
		if namespace != "" && at.namespace != namespace {
			if !w.stale { // of another API version they cannot stay
				next.objects[at] = old
			}
			continue
		}
		switch h.rng.IntN(8) {
		case 0: // gone
		case 1: // changed
			o := h.randomObject(k, w, at)
			if h.rng.IntN(2) == 0 { // only in content: the member has other defaults now
				o.uid, o.rv = old.uid, old.rv
			}
			next.objects[at] = o
			items = append(items, h.item(w, o))
			if old.uid == o.uid && old.rv == o.rv && canonicalRV(o.rv) && !w.stale && bytes.Equal(old.body, o.body) {
				next.objects[at] = old
			}
		default:
			items = append(items, h.again(w, next, at, old))
		}
	}
	for range h.rng.IntN(6) {
		at := objKey{pick(h.rng, namespaces), pick(h.rng, names)}
		if namespace != "" {
			at.namespace = namespace
		}
		if next.objects[at] == nil && w.pending.objects[at] == nil {
			o := h.randomObject(k, w, at)
			next.objects[at] = o
			items = append(items, h.item(w, o))
		}
	}
	h.rng.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	h.replaceBy(k, w, next, namespace, items)
}

// again returns the item of an object that a relist finds unchanged.
func (h *history) again(w *writer, next *modelScope, at objKey, old *obj) aggregate.Item {
	rec := &aggregate.Record{Namespace: at.namespace, Name: at.name, UID: old.uid, ResourceVersion: old.rv, Body: old.body}
	held, ok := w.scope.Held(rec)
	if ok != (!w.stale && old.rv != "") {
		h.t.Fatalf("held %q of uid %q version %q: %t", at, old.uid, old.rv, ok)
	}
	rec.Body = append(slices.Clone(rec.Body), ' ')
	if _, ok := w.scope.Held(rec); ok {
		h.t.Fatalf("%q is held with another body", at)
	}
	rec.Body, rec.ResourceVersion = old.body, old.rv+"1"
	if _, ok := w.scope.Held(rec); ok {
		h.t.Fatalf("%q is held at another version", at)
	}
	if ok && h.rng.IntN(3) > 0 {
		next.objects[at] = old
		return held
	}
	o := *old
	o.apiVersion, o.by = w.target, nil
	next.objects[at] = &o
	if !w.stale && canonicalRV(o.rv) {
		next.objects[at] = old
	}
	return h.item(w, &o)
}

func (h *history) replaceBy(k scopeKey, w *writer, next *modelScope, namespace string, items []aggregate.Item) {
	var rev aggregate.Revision
	var err error
	if namespace == "" {
		rev, err = w.scope.Replace(items, next.status)
	} else {
		rev, err = w.scope.ReplaceNamespace(namespace, items, next.status)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	dirty := w.dirty || w.stale || next.status != w.pending.status || !maps.Equal(next.objects, w.pending.objects)
	w.changes, w.dirty, w.stale = nil, false, false
	w.pending = next.clone()
	if dirty {
		h.recordBulk(k, next)
	}
	if rev != h.state.rev {
		h.t.Fatalf("replace returned revision %d, want %d", rev, h.state.rev)
	}
}

// recordBulk records a relist: deletions first, then the rest, each by key.
func (h *history) recordBulk(k scopeKey, next *modelScope) {
	s := h.state.next()
	before := s.scopes[k]
	s.scopes[k] = next
	var deleted, put []modelChange
	for _, c := range diff(&state{scopes: map[scopeKey]*modelScope{k: before}}, &state{scopes: map[scopeKey]*modelScope{k: next}}) {
		if c.after == nil {
			deleted = append(deleted, c)
		} else {
			put = append(put, c)
		}
	}
	changes := append(deleted, put...)
	at := h.take(max(1, len(changes)))
	for i := range changes {
		at++
		changes[i].rev = at
		if o := changes[i].after; o != nil {
			o.rev = at
		}
	}
	if len(changes) == 0 {
		at++
	}
	h.record(s, at, changes...)
}

// poll compares what a cursor gives with the difference of two states, and
// makes or moves cursors.
func (h *history) poll() {
	if h.rng.IntN(8) == 0 {
		h.cursors = append(h.cursors, &follower{h.index.Cursor(h.index.Snapshot()), h.state})
	}
	f := pick(h.rng, h.cursors)
	batch, ok := f.cursor.Poll()
	if ok != (f.state != h.state) {
		h.t.Fatalf("poll at %d from %d: %t", h.state.rev, f.state.rev, ok)
	}
	if !ok {
		return
	}
	if batch.Before.Revision() != f.state.rev || batch.After.Revision() != h.state.rev {
		h.t.Fatalf("batch is %d to %d, want %d to %d", batch.Before.Revision(), batch.After.Revision(), f.state.rev, h.state.rev)
	}
	want := diff(f.state, h.state)
	for range 2 {
		i := 0
		for d := range batch.Deltas() {
			if i >= len(want) {
				h.t.Fatalf("delta %d of %d: %+v", i, len(want), d.Ref)
			}
			if err := errors.Join(sameObject(d.Before, want[i].before), sameObject(d.After, want[i].after)); err != nil {
				h.t.Fatalf("delta %d of %s, %d to %d: %v", i, d.Ref, f.state.rev, h.state.rev, err)
			}
			i++
		}
		if i != len(want) {
			h.t.Fatalf("%d deltas, want %d", i, len(want))
		}
	}
	for d := range batch.Deltas() { // it can be left early
		_ = d
		break
	}
	h.pollScopes(f, batch)
	h.pollMembers(f, batch)
	f.state = h.state
}

func (h *history) pollScopes(f *follower, batch *aggregate.Batch) {
	keys := append(f.state.scopeKeys(), h.state.scopeKeys()...)
	slices.SortFunc(keys, compareScopeKeys)
	var want, got []string
	for _, k := range slices.Compact(keys) {
		b, a := f.state.scopes[k], h.state.scopes[k]
		bi, ai := describe(k, b), describe(k, a)
		if (b == nil) != (a == nil) || b != nil && (b.status != a.status || b.version != a.version) {
			want = append(want, bi+" > "+ai)
		}
	}
	for d := range batch.Scopes() {
		got = append(got, describeInfo(d.Before)+" > "+describeInfo(d.After))
	}
	if !slices.Equal(got, want) {
		h.t.Fatalf("scopes %q, want %q", got, want)
	}
}

func describe(k scopeKey, s *modelScope) string {
	if s == nil {
		s = &modelScope{}
	}
	return describeInfo(aggregate.ScopeInfo{Member: k.member, Kind: k.kind, Version: s.version, Status: s.status, Objects: len(s.objects)})
}

func describeInfo(i aggregate.ScopeInfo) string {
	i.Bytes = 0
	return fmt.Sprintf("%q", []any{i.Member, i.Kind, i.Version, i.Status.State.String(), i.Status.Reason, fmt.Sprint(i.Objects)})
}

func (h *history) pollMembers(f *follower, batch *aggregate.Batch) {
	all := maps.Clone(f.state.members)
	maps.Copy(all, h.state.members)
	var want, got []string
	note := func(b, a *aggregate.Member) string { return fmt.Sprintf("%+v > %+v", b, a) }
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b, was := f.state.members[name]
		a, is := h.state.members[name]
		switch {
		case was && is && sameMember(&b, a):
		case was && is && b.UID == a.UID:
			want = append(want, note(&b, &a))
		default:
			if was {
				want = append(want, note(&b, nil))
			}
			if is {
				want = append(want, note(nil, &a))
			}
		}
	}
	for d := range batch.Members() {
		got = append(got, note(d.Before, d.After))
	}
	if !slices.Equal(got, want) {
		h.t.Fatalf("members %q, want %q", got, want)
	}
}
