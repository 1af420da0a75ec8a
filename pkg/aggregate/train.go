package aggregate

import (
	"fmt"
	"math/rand/v2"

	"github.com/klauspost/compress/zstd"
)

// A kind gets a dictionary once the fleet holds trainMin of its objects, and a
// new one when it has grown trainGrowth-fold since or when objects of late
// compress less well than the samples did, by trainDecay.
const (
	trainMin       = 64
	trainGrowth    = 8
	trainDecay     = 0.75
	trainDecayOver = 512  // objects that the decay is judged by
	trainGain      = 1.05 // by which a new dictionary must beat the old one

	// Dictionaries may cost so much, and a fraction of what is held more: members do not
	// pay for them. Then the kinds with least go without.
	dictFree  = 64 << 20
	dictShare = 4

	mostSampled = 16 << 20 // bytes of samples that are kept before anything is held

	dictHistory = 96 << 10 // bytes of samples that bodies may refer to
	dictSamples = 256      // objects that the entropy tables are made from
	sampleMax   = 16 << 10 // larger objects are no samples
)

// Training says what a call of Train did.
type Training struct {
	Kind          Kind
	Objects       int   // encoded anew
	Before, After int64 // bytes of their bodies
}

// Train gives one kind that needs it a new dictionary, made from what the
// fleet holds, and encodes the kind's bodies anew with it; or it takes one from
// the kind that has least, where they cost too much. It forgets kinds that have
// no scope any more. It reports false when there is nothing to do. It works on the
// caller's goroutine, stops early when stop is closed, and is safe beside
// everything else: readers decode a body with the dictionary that it was encoded
// with.
func (x *Index) Train(stop <-chan struct{}) (Training, bool, error) {
	x.codecs.training.Lock()
	defer x.codecs.training.Unlock()
	x.forgetKinds()
	snap := x.Snapshot()
	kinds, room := x.weigh(snap)
	for _, k := range kinds {
		trained := false
		switch {
		case room < 0 && k.least:
			k.untrain(x.codecs.plain, k.objects)
			trained = true
		case (room >= encoderCost || k.dictionary || k.large) && k.needs(k.objects):
			var err error
			if trained, err = k.train(x.codecs, snap.samples(k.kind, k.objects), k.objects); err != nil {
				return Training{Kind: k.kind}, false, fmt.Errorf("kind %s: %w", k.kind, err)
			}
		}
		if k.behind || k.trainedAt > 0 && k.objects > k.checkedAt+k.checkedAt/8 {
			t, _, done := x.reencode(snap, k.kind, k.kindCodec, stop)
			// Items encoded before the change may have come since the snapshot,
			// so it ends with a pass that finds none.
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

// forgetKinds drops the codecs of kinds without a scope: a member may serve others
// each time that it is asked.
func (x *Index) forgetKinds() {
	for _, k := range x.codecs.all() {
		x.mu.Lock() // scopes are opened under it, and take their codec
		some := false
		x.scopes.Ascend(pivotScope("", k.kind), func(r *scopeRoot) bool {
			some = r.kind == k.kind
			return false
		})
		if !some {
			x.codecs.forget(k.kind)
		}
		x.mu.Unlock()
	}
}

// weighed is a kind with what is held of it.
type weighed struct {
	named
	objects    int
	bytes      int64
	dictionary bool
	least      bool // of those with a dictionary, and there are several
	large      bool // it has more than twice as much as the least
}

// weigh returns all kinds, and what dictionaries may cost beyond those that there are.
func (x *Index) weigh(snap *Snapshot) (kinds []weighed, room int64) {
	room = dictFree
	least, dictionaries := -1, 0
	for i, k := range x.codecs.all() {
		w := weighed{named: k, dictionary: k.current.Load() != x.codecs.plain}
		for r := range snap.kindScopes(k.kind, "") {
			w.objects += r.objects.Len()
			w.bytes += r.size()
		}
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

// untrain has a kind go without a dictionary until it has grown.
func (k *kindCodec) untrain(plain *encoder, objects int) {
	k.restart()
	k.current.Store(plain)
	k.trainedAt, k.ratio, k.behind = max(objects, trainMin), 0, true
}

// needs reports whether a kind of so many objects is to be trained.
func (k *kindCodec) needs(objects int) bool {
	switch {
	case k.trainedAt == 0:
		return objects >= trainMin || k.enoughEarly(objects)
	case objects >= trainGrowth*k.trainedAt:
		return true
	case k.objects.Load() < trainDecayOver:
		return false
	}
	return k.restart() < trainDecay*k.ratio
}

// restart returns the ratio since the last restart, and counts anew.
func (k *kindCodec) restart() float64 {
	k.objects.Store(0)
	return float64(k.raw.Swap(0)) / float64(max(k.packed.Swap(0), 1))
}

// samples returns bodies spread evenly over all that the fleet holds of a
// kind.
func (s *Snapshot) samples(kind Kind, objects int) [][]byte {
	step := max(objects/(2*dictSamples), 1)
	var out [][]byte
	i := 0
	for r := range s.kindScopes(kind, "") {
		r.objects.Scan(func(e *entry) bool {
			if i++; i%step != 0 {
				return true
			}
			if b, err := e.body.Load().decode(nil); err == nil && len(b) <= sampleMax {
				out = append(out, b)
			}
			return true
		})
	}
	return out
}

// train makes a dictionary and reports whether it became the current one: it
// must do better than the one before on samples that are not part of it.
func (k *kindCodec) train(c *codecs, samples [][]byte, objects int) (bool, error) {
	early := k.takeSamples()
	if len(samples) < trainMin {
		samples = append(samples, early...)
	}
	k.trainedAt = max(objects, len(samples))
	k.restart()
	number := c.numbers.Add(1)
	dict, judges := buildDict(samples, number)
	if dict == nil {
		k.ratio = 0
		return false, nil
	}
	d, err := newEncoder(dict)
	if err != nil {
		return false, err
	}
	before, after := ratioOf(k.current.Load().encodeAll, judges), ratioOf(d.encodeAll, judges)
	if d.fast != nil && after > 0 {
		d.shrink = ratioOf(d.encodeAllFast, judges) / after
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

// buildDict makes a zstd dictionary: as history whole samples, which beats
// extracted substrings on Kubernetes objects by a third and is built in
// milliseconds, and entropy tables from how the samples compress against it.
// It returns nil when the samples are too few or too alike for tables, and
// the samples that the history does not hold.
func buildDict(samples [][]byte, number uint64) (dict []byte, judges [][]byte) {
	// The library panics on inputs that leave nothing to encode.
	defer func() {
		if r := recover(); r != nil {
			dict = nil
		}
	}()
	rng := rand.New(rand.NewPCG(number, 0x5eed))
	rng.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	var history []byte
	for i, s := range samples {
		// At least a quarter stays out, to judge by.
		if len(history)+len(s) <= dictHistory && i < len(samples)*3/4 {
			history = append(history, s...)
		} else {
			judges = append(judges, s)
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
		return nil, nil // such samples are no error: the kind goes without
	}
	return dict, judges
}

// Settle encodes small what was encoded fast (Record.Update) and has not changed
// since the last call, and returns how many objects. It works on the caller's
// goroutine, stops early when stop is closed, and is safe beside everything else, as
// Train is. It looks at all objects of the kinds that have such: once a minute does.
func (x *Index) Settle(stop <-chan struct{}) (settled int) {
	x.codecs.training.Lock()
	defer x.codecs.training.Unlock()
	snap := x.Snapshot()
	for _, k := range x.codecs.all() {
		kind, codec := k.kind, k.kindCodec
		// Those that come from here on count for the next time, as do those left, and
		// items on their way that no snapshot has yet.
		was := codec.unsettled.Swap(0)
		if was == 0 && !codec.again {
			continue
		}
		t, left, done := x.reencode(snap, kind, codec, stop)
		if settled += t.Objects; !done {
			codec.unsettled.Add(was)
			return settled
		}
		codec.unsettled.Add(int64(left))
		codec.again, codec.lookedTo = was > 0, snap.revision
	}
	return settled
}

// reencode encodes small, with the current dictionary, bodies of other dictionaries
// and fast ones that are settled. It returns how many fast ones it left. Content and
// revisions stay, so no reader can tell but by the memory.
func (x *Index) reencode(snap *Snapshot, kind Kind, codec *kindCodec, stop <-chan struct{}) (t Training, left int, done bool) {
	t.Kind = kind
	enc := codec.current.Load()
	var raw, scratch []byte
	done = true
	for r := range snap.kindScopes(kind, "") {
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
			case old.dict == enc.fast && e.revision > codec.lookedTo:
				left++
				return true
			}
			var err error
			if raw, err = old.decode(raw[:0]); err != nil {
				return true // it stays as it is, decodable or not
			}
			var next *body
			next, scratch = enc.encode(raw, scratch)
			x.exchange(scopeKey{r.member, kind}, e, old, next)
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

// exchange swaps an entry's body and keeps the scope's accounts right. Whether
// the scope has a writer may change at any time: without one the account is
// x.mu's, with one the writer's.
func (x *Index) exchange(k scopeKey, e *entry, old, next *body) {
	for {
		x.mu.Lock()
		w := x.writers[k]
		if w == nil {
			if e.body.CompareAndSwap(old, next) {
				if root, ok := x.scopes.Get(pivotScope(k.member, k.kind)); ok {
					root.recode(e, old, next)
				}
			}
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		if w.exchange(e, old, next) {
			return
		}
	}
}

// exchange reports false when the writer has closed meanwhile.
func (s *Scope) exchange(e *entry, old, next *body) bool {
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
	s.last.recode(e, old, next)
	return true
}

// recode notes that the body of an entry, if the root has it, became smaller.
func (r *scopeRoot) recode(e *entry, old, next *body) {
	if held, ok := r.objects.Get(e); ok && held == e {
		r.recoded.Add(next.size() - old.size())
	}
}
