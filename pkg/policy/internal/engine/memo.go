package engine

import (
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/value"
)

// memo keeps the outcomes of the evaluations of one pass by what they read: the Pods of
// a ReplicaSet are equal in all that most policies read, so that one evaluation serves
// them. A verdict is a function of what is read, and of nothing else.
type memo struct {
	passID   int64
	outcomes map[memoKey]memoized
	bytes    int

	// Of the object that is being evaluated.
	reading *reading
	member  string
	wanted  []uint64 // the places of bindings that share their verdicts
	any     bool     // whether there are any
	digests []document.Digest
	key     memoKey // of the last get
}

// memoized is an outcome, and what was read of time for it.
type memoized struct {
	outcome *state.Outcome
	times   *times // nil for nothing
}

// times are the instants that were read and have not passed. Each subject that shares the outcome records them.
type times struct {
	keys    []uint64
	inDoubt bool
}

const (
	maxMemoBytes = 8 << 20 // bytes that one worker keeps, outcomes aside
	memoEntry    = 96      // bytes of an entry, about
	minMemoTasks = 4       // fewer hardly repeat each other
)

// memoizable reports whether verdicts of a binding depend only on the kind of the
// subject and on the parts of the object that its mask reads.
func memoizable(b *boundBinding) bool {
	reads := &b.pkg.Reads
	return b.pkg.Subject == module.ObjectSubject && !reads.OfFleet() && reads.External == nil && reads.Member == nil && onlyKind(reads.Ref) &&
		len(b.pkg.Remedies) == 0 && len(b.Exemptions) == 0 && len(b.pins) == 0 &&
		!b.sel.ByNamespaceLabels() && (b.pkg.Admission == nil || !b.pkg.IsOpen()) // members may serve a kind as other resources
}

// onlyKind reports whether a mask of input.ref reads no more than the kind.
func onlyKind(m *mask.Mask) bool {
	if m == nil {
		return true
	}
	for field := range m.Fields {
		if field != "kind" {
			return false
		}
	}
	return !m.All && m.Elem == nil
}

// release forgets the outcomes of a pass, and whose they are.
func (t *memo) release() {
	if t.reading = nil; len(t.outcomes) > 256 {
		*t = memo{}
	}
	clear(t.outcomes)
}

// memoKey is a binding, a kind and the digest of what the binding reads of an object.
type memoKey [3]uint64

// place is that of a binding that shares its verdicts on objects of the member: one that is
// quarantined there has none.
func (t *memo) place(b *boundBinding) (at int, ok bool) {
	at, ok = t.reading.sharing[b]
	return at, ok && b.scores.Reason(t.member) == ""
}

// start prepares the memo for the bindings of a task, and digests what those read of the
// object's body that share their verdicts. Where it is malformed there, nothing is shared.
func (t *memo) start(passID int64, k *kindPlan, task *task, body []byte) {
	t.reading, t.member, t.any = k.reading, task.subject.Ref.Member, false
	if len(t.reading.sharing) == 0 {
		return
	}
	if t.passID != passID || t.bytes > maxMemoBytes {
		if t.passID, t.bytes = passID, 0; t.outcomes == nil || len(t.outcomes) > 256 {
			t.outcomes = map[memoKey]memoized{} // clearing a large map would slow down every pass
		}
		clear(t.outcomes)
	}
	t.wanted = slices.Grow(t.wanted[:0], t.reading.fan.Words())[:t.reading.fan.Words()]
	clear(t.wanted)
	bits := false
	for i := range task.bindings {
		if one := &task.bindings[i]; one.evaluate {
			if at, ok := t.place(one.b); ok {
				t.any = true
				if at >= 0 {
					t.wanted[at/64] |= 1 << (at % 64)
					bits = true
				}
			}
		}
	}
	if !bits {
		return
	}
	var err error
	t.digests, err = t.reading.digests(t.digests, body, t.wanted)
	t.any = err == nil
}

// get returns the outcome of an object of equal content. share says whether the binding's
// outcome is to be put there.
func (t *memo) get(b *boundBinding) (f memoized, ok, share bool) {
	if !t.any {
		return f, false, false
	}
	at, share := t.place(b)
	if !share || at >= 0 && t.wanted[at/64]>>(at%64)&1 == 0 { // nothing was digested for it
		return f, false, false
	}
	var d document.Digest // of nothing
	if at >= 0 {
		d = t.digests[at]
	}
	t.key = memoKey{uint64(b.id)<<32 | uint64(t.reading.number), d[0], d[1]}
	f, ok = t.outcomes[t.key]
	return f, ok, true
}

// put stores the result for the object of the last get. Errors are not stored: they
// may be transient.
func (t *memo) put(r *result) {
	if r.outcome != nil && r.outcome.Failure != nil {
		return
	}
	f := memoized{outcome: r.outcome}
	if len(r.keys) > 0 {
		f.times = &times{r.keys, r.readSet.InDoubt}
		t.bytes += 64 + 8*len(r.keys)
	}
	t.outcomes[t.key] = f
	t.bytes += memoEntry
}

// documentCache keeps documents that several evaluations of one snapshot read, until
// the pass ends: an idle engine holds none. Reads are recorded above it,
// so cache hits are recorded, too.
type documentCache struct {
	values map[documentKey]cachedDocument
	named  map[nameKey][]aggregate.Object // of all members, for the bindings of all packages
	bytes  int64
}

type nameKey struct {
	kind            aggregate.Kind
	namespace, name string
}

type documentKey struct {
	section    byte
	visibility uint32
	pkg        *module.Package // of objects, which are pruned to what it reads
	a, b, c    string
}

type cachedDocument struct {
	value value.Value
	bytes int64
}

const maxCachedBytes = 8 << 20 // bytes of text in one worker's cache

// cache returns the documents, empty where what it has is of an earlier snapshot.
func (w *worker) cache() *documentCache {
	c := &w.documents
	if w.passID != w.e.passID || c.values == nil {
		w.passID = w.e.passID
		c.clear()
	}
	return c
}

func (c *documentCache) clear() {
	*c = documentCache{values: map[documentKey]cachedDocument{}, named: map[nameKey][]aggregate.Object{}}
}

// room makes room for some bytes: what is larger than all of it is alone.
func (c *documentCache) room(n int64) {
	if c.bytes += n; c.bytes > maxCachedBytes {
		c.clear()
		c.bytes = n
	}
}

// named returns the objects of a name in all members.
func (w *worker) named(kind aggregate.Kind, namespace, name string) []aggregate.Object {
	c, k := w.cache(), nameKey{kind, namespace, name}
	list, ok := c.named[k]
	if !ok {
		list = slices.Collect(w.e.fleet.Named(kind, namespace, name))
		c.room(int64(64 + 16*len(list)))
		c.named[k] = list
	}
	return list
}

// cached returns a document, built once per snapshot while the cache has room, and
// charges the evaluation for it.
func (ev *evaluation) cached(k documentKey, build func() (value.Value, error)) (value.Value, error) {
	k.visibility = ev.binding.visible.ID
	c := ev.w.cache()
	if d, ok := c.values[k]; ok {
		return d.value, ev.charge(d.bytes)
	}
	before := ev.bytesRead
	v, err := build()
	if err == nil {
		d := cachedDocument{value: v, bytes: ev.bytesRead - before}
		c.room(d.bytes + 64)
		c.values[k] = d
	}
	return v, err
}

const keptBody = 256 << 10 // bytes of a body that an idle worker has room for

// rest drops the cache, the memo and what the last evaluation has left behind.
func (w *worker) rest() {
	w.memo.release()
	w.documents, w.lastRequest = documentCache{}, requestOf{}
	w.evaluation.binding = nil
	for _, b := range []*[]byte{&w.body, &w.otherBody} {
		if cap(*b) > keptBody {
			*b = nil
		}
	}
	w.objects.Release()
	w.inputs.Release()
	w.machine.Release()
	w.found = nil // it may be as large as a policy makes it
}
