package aggregate

import (
	"fmt"
	"math/rand/v2"

	"github.com/klauspost/compress/zstd"
)

// A kind gets a dictionary once the fleet has minTrainObjects of its objects, and a new one
// when it has grown trainGrowth-fold since or when recent objects compress worse than the
// samples did, by trainDecay.
const (
	minTrainObjects = 64
	trainGrowth     = 8
	trainDecay      = 0.75
	minDecayObjects = 512  // objects over which the decay is measured
	trainGain       = 1.05 // by which a new dictionary must beat the old one

	// Dictionaries may cost this much plus a fraction of the index; they are not charged to
	// members. Above that the kinds with the fewest bytes have none.
	dictFree  = 64 << 20
	dictShare = 4

	maxSampled = 16 << 20 // bytes of samples that are kept before the first commits

	dictHistory = 96 << 10 // bytes of samples that bodies may refer to
	dictSamples = 256      // objects that the entropy tables are built from
	maxSample   = 16 << 10 // larger objects are not used
)

// Training says what a call of Train did.
type Training struct {
	Kind          Kind
	Objects       int   // re-encoded
	Before, After int64 // bytes of their bodies
}

// Train gives one kind that needs it a new dictionary, built from the objects of the fleet,
// and re-encodes the kind's bodies with it; or it drops that of the smallest kind, if
// dictionaries cost too much. It drops the codecs of kinds that have no scope any more. It
// reports false when there is nothing to do. It works on the caller's goroutine, stops early
// when stop is closed, and is safe for concurrent use with everything else: readers decode a
// body with the dictionary that it was encoded with.
func (x *Index) Train(stop <-chan struct{}) (Training, bool, error) {
	x.codecs.training.Lock()
	defer x.codecs.training.Unlock()
	x.forgetKinds()
	snap := x.Newest() // also what is held from readers
	kinds, room := x.kindUsages()
	for _, k := range kinds {
		trained := false
		switch {
		case room < 0 && k.least:
			k.dropDictionary(x.codecs.plain, k.objects)
			trained = true
		case (room >= encoderCost || k.dictionary || k.large) && k.needs(k.objects):
			var err error
			if trained, err = k.train(x.codecs, snap.samples(k.kind, k.objects), k.objects); err != nil {
				return Training{Kind: k.kind}, false, fmt.Errorf("kind %s: %w", k.kind, err)
			}
		}
		k.behind = k.foreign.Swap(false) || k.behind
		if k.behind || k.trainedAt > 0 && k.objects > k.checkedAt+k.checkedAt/8 {
			t, _, done := x.reencode(snap, k.kindCodec, stop)
			// Items encoded before the change may have been committed since the snapshot, so
			// it ends with a pass that finds none.
			k.behind, k.checkedAt = !done || t.Objects > 0, k.objects
			if trained || t.Objects > 0 {
				return t, true, nil
			}
		}
		if trained {
			return Training{Kind: k.kind}, true, nil
		}
	}
	return Training{}, false, nil
}

// forgetKinds drops the codecs of kinds without a scope: a member may serve new kinds on
// each discovery.
func (x *Index) forgetKinds() {
	kinds := x.codecs.all()
	x.mu.Lock() // scopes are opened, and get their codec, under it
	defer x.mu.Unlock()
	for _, k := range kinds {
		if k.held.scopes == 0 {
			x.codecs.forget(k.kind)
		}
	}
}

// kindUsage is a kind with its share of the index.
type kindUsage struct {
	*kindCodec
	objects    int
	bytes      int64
	dictionary bool
	least      bool // the smallest of several with a dictionary
	large      bool // more than twice as large as the smallest
}

// kindUsages returns all kinds, and how much more dictionaries may cost.
func (x *Index) kindUsages() (kinds []kindUsage, room int64) {
	room = dictFree
	least, dictionaries := -1, 0
	all := x.codecs.all()
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, k := range all {
		w := kindUsage{kindCodec: k, dictionary: k.current.Load() != x.codecs.plain}
		w.objects, w.bytes = k.held.objects, k.held.bytes
		room += w.bytes / dictShare
		if kinds = append(kinds, w); !w.dictionary {
			continue
		}
		room -= encoderCost
		if dictionaries++; least < 0 || w.bytes < kinds[least].bytes {
			least = i
		}
	}
	if dictionaries > 1 {
		kinds[least].least = true
		for i := range kinds {
			kinds[i].large = kinds[i].bytes > 2*kinds[least].bytes
		}
	}
	return kinds, room
}

// dropDictionary drops a kind's dictionary until the kind has grown.
func (k *kindCodec) dropDictionary(plain *encoder, objects int) {
	k.resetRatio()
	k.current.Store(plain)
	k.trainedAt, k.ratio, k.behind = max(objects, minTrainObjects), 0, true
}

// needs reports whether a kind of so many objects is to be trained.
func (k *kindCodec) needs(objects int) bool {
	switch {
	case k.trainedAt == 0:
		return objects >= minTrainObjects || k.enoughEarly(objects)
	case objects >= trainGrowth*k.trainedAt:
		return true
	case k.objects.Load() < minDecayObjects:
		return false
	}
	return k.resetRatio() < trainDecay*k.ratio
}

// resetRatio returns the compression ratio since the last reset.
func (k *kindCodec) resetRatio() float64 {
	k.objects.Store(0)
	return float64(k.raw.Swap(0)) / float64(max(k.packed.Swap(0), 1))
}

// samples returns bodies spread evenly over all objects of a kind.
func (s *Snapshot) samples(kind Kind, objects int) [][]byte {
	step := max(objects/(2*dictSamples), 1)
	var out [][]byte
	i := 0
	for r := range s.kindScopes(kind, "") {
		r.objects.Scan(func(e *entry) bool {
			if i++; i%step != 0 {
				return true
			}
			if b, err := e.body.Load().decode(nil); err == nil && len(b) <= maxSample {
				out = append(out, b)
			}
			return true
		})
	}
	return out
}

// train builds a dictionary and reports whether it became the current one: it must beat the
// previous one on samples that are not part of it.
func (k *kindCodec) train(c *codecs, samples [][]byte, objects int) (bool, error) {
	early := k.takeSamples()
	if len(samples) < minTrainObjects {
		samples = append(samples, early...)
	}
	k.trainedAt = max(objects, len(samples))
	k.resetRatio()
	number := c.numbers.Add(1)
	dict, holdout := buildDict(samples, number)
	if dict == nil {
		k.ratio = 0
		return false, nil
	}
	d, err := newEncoder(dict)
	if err != nil {
		return false, err
	}
	before, after := ratioOf(k.current.Load().encodeAll, holdout), ratioOf(d.encodeAll, holdout)
	if d.fast != nil && after > 0 {
		d.shrink = ratioOf(d.encodeAllFast, holdout) / after
	}
	if after < trainGain*before {
		k.ratio = before
		return false, nil
	}
	k.ratio = after
	k.current.Store(d)
	k.behind = true
	return true, nil
}

// loadedBodies are those that were loaded of a kind with one dictionary.
type loadedBodies struct {
	count   int
	samples []*body // the first, the second, the fourth, …
}

// goOnWithDictionaries has each kind go on with the dictionary that most of its loaded bodies have, instead
// of training another one and encoding everything again. The index's mu and the lock of
// trainings must be held, and nothing be published yet.
func (x *Index) goOnWithDictionaries() {
	kinds := map[Kind]map[*encoder]*loadedBodies{}
	x.scopes.Scan(func(r *scopeRoot) bool {
		of := kinds[r.kind]
		if of == nil {
			of = map[*encoder]*loadedBodies{}
			kinds[r.kind] = of
		}
		r.objects.Scan(func(e *entry) bool {
			b := e.body.Load()
			if b.dict.of == nil {
				return true
			}
			bodies := of[b.dict.of.enc]
			if bodies == nil {
				bodies = &loadedBodies{}
				of[b.dict.of.enc] = bodies
			}
			if bodies.count++; bodies.count&(bodies.count-1) == 0 {
				bodies.samples = append(bodies.samples, b)
			}
			return true
		})
		return true
	})
	for _, k := range x.codecs.all() {
		var best *encoder
		for e, bodies := range kinds[k.kind] {
			if best == nil || bodies.count > kinds[k.kind][best].count {
				best = e
			}
		}
		if best != nil {
			k.goOn(best, kinds[k.kind][best])
		}
	}
}

// goOn makes a loaded dictionary the kind's.
func (k *kindCodec) goOn(e *encoder, bodies *loadedBodies) {
	var samples [][]byte
	for _, b := range bodies.samples {
		if raw, err := b.decode(nil); err == nil {
			samples = append(samples, raw)
		}
	}
	k.ratio = ratioOf(e.encodeAll, samples)
	if e.fast != nil {
		e.shrink = ratioOf(e.encodeAllFast, samples) / k.ratio
	}
	k.takeSamples() // none are needed any more
	k.trainedAt = max(k.held.objects, minTrainObjects)
	k.checkedAt, k.behind, k.recheck = k.held.objects, bodies.count < k.held.objects, true
	k.current.Store(e)
}

func ratioOf(encode func(raw, dst []byte) []byte, samples [][]byte) float64 {
	var raw, packed int
	var scratch []byte
	for _, s := range samples {
		scratch = encode(s, scratch)
		raw += len(s)
		packed += len(scratch)
	}
	return float64(raw) / float64(max(packed, 1))
}

// buildDict builds a zstd dictionary: its history is complete samples, which beats extracted
// substrings on Kubernetes objects by a third and takes milliseconds; its entropy tables are
// from compressing the samples with it. It returns nil when the samples are too few or too
// similar for tables, and the samples that are not in the history.
func buildDict(samples [][]byte, number uint64) (dict []byte, holdout [][]byte) {
	// The library panics on inputs that compress to nothing.
	defer func() {
		if r := recover(); r != nil {
			dict = nil
		}
	}()
	rng := rand.New(rand.NewPCG(number, 0x5eed))
	rng.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	var history []byte
	for i, s := range samples {
		// At least a quarter is held out, to compare dictionaries on.
		if len(history)+len(s) <= dictHistory && i < len(samples)*3/4 {
			history = append(history, s...)
		} else {
			holdout = append(holdout, s)
		}
	}
	contents := samples
	if len(contents) > dictSamples {
		contents = contents[len(contents)-dictSamples:]
	}
	if len(contents) < 8 || len(history) < 256 {
		return nil, nil
	}
	dict, err := zstd.BuildDict(zstd.BuildDictOptions{
		ID: uint32(number)%(1<<31-1) + 1, Contents: contents, History: history,
		Offsets: [3]int{1, 4, 8}, Level: zstd.SpeedFastest,
	})
	if err != nil {
		return nil, nil // not an error: the kind has no dictionary
	}
	return dict, holdout
}

// Recompress encodes small what was encoded fast (Record.Update) and has not changed since
// the last call, and returns the number of objects. It works on the caller's goroutine,
// stops early when stop is closed, and is safe for concurrent use with everything else, as
// Train is. It iterates over all objects of the kinds that have fast bodies: once a minute
// suffices.
func (x *Index) Recompress(stop <-chan struct{}) (recompressed int) {
	x.codecs.training.Lock()
	defer x.codecs.training.Unlock()
	snap := x.Snapshot()
	for _, codec := range x.codecs.all() {
		// Bodies from here on are left for the next call, as are those that changed
		// recently, and items that are not in a snapshot yet.
		was := codec.pendingBodies.Swap(0)
		if was == 0 && !codec.recheck {
			continue
		}
		t, left, done := x.reencode(snap, codec, stop)
		if recompressed += t.Objects; !done {
			codec.pendingBodies.Add(was)
			return recompressed
		}
		codec.pendingBodies.Add(int64(left))
		codec.recheck, codec.recompressedTo = was > 0, snap.revision
	}
	return recompressed
}

// reencode encodes small, with the current dictionary, bodies of other dictionaries and fast
// ones that have not changed recently. It returns the number of fast ones left. Content and
// revisions stay, so readers see no difference.
func (x *Index) reencode(snap *Snapshot, codec *kindCodec, stop <-chan struct{}) (t Training, left int, done bool) {
	t.Kind = codec.kind
	enc := codec.current.Load()
	var raw, scratch []byte
	done = true
	for r := range snap.kindScopes(codec.kind, "") {
		r.objects.Scan(func(e *entry) bool {
			select {
			case <-stop:
				done = false
				return false
			default:
			}
			old := e.body.Load()
			switch {
			case old.dict == enc.small:
				return true
			case old.dict == enc.fast && e.revision > codec.recompressedTo:
				left++
				return true
			}
			var err error
			if raw, err = old.decode(raw[:0]); err != nil {
				return true // leave it unchanged, decodable or not
			}
			var next *body
			next, scratch = enc.encode(raw, scratch)
			x.replaceBody(codec, r.scopeID, e, old, next)
			t.Objects++
			t.Before += int64(len(old.data))
			t.After += int64(len(next.data))
			return true
		})
		if !done {
			break
		}
	}
	return t, left, done
}

// replaceBody replaces an entry's body and updates the scope's account. A scope may get or
// lose its writer at any time: the account is guarded by x.mu without a writer, and by the
// writer's mu, too, with one.
func (x *Index) replaceBody(codec *kindCodec, id *scopeID, e *entry, old, next *body) {
	for {
		x.mu.Lock()
		root, ok := x.scopes.Get(pivotScope(id.member, id.kind))
		if !ok || root.writer == nil {
			if e.body.CompareAndSwap(old, next) && ok {
				root.resize(codec, e, old, next)
			}
			x.mu.Unlock()
			return
		}
		w := root.writer
		x.mu.Unlock()
		if w.replaceBody(e, old, next) {
			return
		}
	}
}

// replaceBody reports false when the writer has been closed in the meantime.
func (s *Scope) replaceBody(e *entry, old, next *body) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if !e.body.CompareAndSwap(old, next) {
		return true
	}
	if held, ok := s.root.objects.Get(e); ok && held == e {
		s.root.bytes += next.size() - old.size()
	}
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if root, ok := x.scopes.Get(s.last); ok && root.writer == s { // the member is still there
		root.resize(s.codec, e, old, next)
	}
	return true
}

// resize records that the body of an entry, if it is in the root, became smaller. The index's
// lock must be held.
func (r *scopeRoot) resize(codec *kindCodec, e *entry, old, next *body) {
	if held, ok := r.objects.Get(e); ok && held == e {
		r.recoded.Add(next.size() - old.size())
		codec.held.bytes += next.size() - old.size()
	}
}
