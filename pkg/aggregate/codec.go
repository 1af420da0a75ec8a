package aggregate

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// dictionary decodes the bodies of one trained dictionary, or of none, in one of the two
// formats. It lives as long as a body refers to it.
type dictionary struct {
	small *zstd.Decoder
	fast  *s2.Dict
	of    *Dictionary // nil: none
}

// encoder encodes bodies with a dictionary: small, or fast. A fast body is one and a half
// times as large, and costs a fifth to encode and a quarter to decode: it is for objects
// that change, and may soon change again.
//
// The states for small bodies are large, 0.8 MB each, and created in 0.2 ms: they are kept
// only while in use, because a fleet has hundreds of kinds of which few are busy.
type encoder struct {
	small  *dictionary
	states sync.Pool // of *zstd.Encoder

	fast   *dictionary // nil without a dictionary
	shrink float64     // size of small bodies relative to fast ones
}

// maxBody bounds the size of a decoded body; the limit of API servers is far lower.
const maxBody = 1 << 30

func newEncoder(dict []byte) (*encoder, error) {
	eopts := []zstd.EOption{
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false),
		zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(128 << 10),
		zstd.WithZeroFrames(true),
	}
	dopts := []zstd.DOption{
		// Decoder states are small, and readers must not wait for one another.
		zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxBody),
	}
	if dict != nil {
		eopts = append(eopts, zstd.WithEncoderDict(dict))
		dopts = append(dopts, zstd.WithDecoderDicts(dict))
	}
	state, err := zstd.NewWriter(nil, eopts...)
	if err != nil {
		return nil, fmt.Errorf("body encoder: %w", err)
	}
	dec, err := zstd.NewReader(nil, dopts...)
	if err != nil {
		return nil, fmt.Errorf("body decoder: %w", err)
	}
	e := &encoder{small: &dictionary{small: dec}, shrink: 1}
	if dict != nil {
		of := &Dictionary{id: sha256.Sum256(dict), raw: dict, enc: e}
		e.small.of = of
		d, err := zstd.InspectDictionary(dict)
		if err != nil {
			return nil, fmt.Errorf("body dictionary: %w", err)
		}
		if fast := s2.MakeDict(d.Content(), nil); fast != nil {
			e.fast = &dictionary{fast: fast, of: of}
		}
	}
	e.states.New = func() any {
		state, err := zstd.NewWriter(nil, eopts...)
		if err != nil {
			panic("aggregate: a valid dictionary became invalid: " + err.Error())
		}
		return state
	}
	e.states.Put(state)
	return e, nil
}

// encodeAll overwrites dst with the encoded bytes.
func (e *encoder) encodeAll(raw, dst []byte) []byte {
	state := e.states.Get().(*zstd.Encoder)
	defer e.states.Put(state)
	return state.EncodeAll(raw, dst[:0])
}

func (e *encoder) encode(raw, scratch []byte) (*body, []byte) {
	scratch = e.encodeAll(raw, scratch)
	return &body{dict: e.small, data: string(scratch)}, scratch
}

// encodeAllFast is encodeAll for fast bodies.
func (e *encoder) encodeAllFast(raw, dst []byte) []byte {
	return e.fast.fast.Encode(dst[:cap(dst)], raw)
}

func (e *encoder) encodeFast(raw, scratch []byte) (*body, []byte) {
	scratch = e.encodeAllFast(raw, scratch)
	return &body{dict: e.fast, data: string(scratch)}, scratch
}

// decode appends the raw body to dst.
func (b *body) decode(dst []byte) ([]byte, error) {
	data := unsafeBytes(b.data)
	if b.dict.fast == nil {
		return b.dict.small.DecodeAll(data, dst)
	}
	n, err := s2.DecodedLen(data)
	if err != nil {
		return dst, err
	}
	dst = slices.Grow(dst, n)
	if _, err := b.dict.fast.Decode(dst[len(dst):len(dst)+n], data); err != nil {
		return dst, err
	}
	return dst[:len(dst)+n], nil
}

// kindCodec is the current dictionary of one kind and its statistics.
type kindCodec struct {
	kind     Kind
	declared []fieldPath
	held     kindTotals // guarded by the index's mu

	current atomic.Pointer[encoder]
	// Since the current dictionary was set: bytes in and out, and objects.
	raw, packed, objects atomic.Int64
	// Bodies that may be fast and not recompressed since.
	pendingBodies atomic.Int64
	// Bodies with dictionaries of other processes were committed since Train last looked.
	foreign atomic.Bool

	// Bodies from before the first dictionary, the newest of each object, so that training
	// can start before the first sync of many objects ends.
	sampling atomic.Bool
	sampled  *atomic.Int64 // bytes of all kinds' early samples
	mu       sync.Mutex
	early    map[Ref][]byte
	earlyLen int

	// Of the last training; Train's lock guards them.
	trainedAt      int      // objects of the kind, when it was last trained or found good
	checkedAt      int      // objects of the kind, when all bodies were last seen to be current
	behind         bool     // there may be bodies of older dictionaries
	ratio          float64  // raw/packed that the dictionary reaches on samples
	recheck        bool     // Recompress must check again
	recompressedTo Revision // of the last Recompress: fast bodies up to it have not changed since
}

// kindTotals are the sums of a kind's scopes, as of the next snapshot. They follow commits, so
// that nobody walks all scopes to find that nothing is to be trained.
type kindTotals struct {
	scopes, objects int
	bytes           int64
}

func (t *kindTotals) add(r *scopeRoot, sign int) {
	t.scopes += sign
	t.objects += sign * r.objects.Len()
	t.bytes += int64(sign) * r.size()
}

// encode encodes a body, one of an update fast.
func (k *kindCodec) encode(ref Ref, raw, scratch []byte, update bool) (*body, []byte) {
	var b *body
	var packed int64
	if e := k.current.Load(); update && e.fast != nil {
		b, scratch = e.encodeFast(raw, scratch)
		packed = int64(float64(len(b.data)) * e.shrink)
		k.pendingBodies.Add(1)
	} else {
		b, scratch = e.encode(raw, scratch)
		packed = int64(len(b.data))
	}
	k.raw.Add(int64(len(raw)))
	k.packed.Add(packed)
	k.objects.Add(1)
	if k.sampling.Load() {
		k.sample(ref, raw)
	}
	return b, scratch
}

// sample keeps a copy of a body for the first training.
func (k *kindCodec) sample(ref Ref, raw []byte) {
	if len(raw) > maxSample {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.sampling.Load() {
		return
	}
	old, again := k.early[ref]
	more := int64(len(raw) - len(old))
	if !again {
		more += sampleBytes
	}
	if k.sampled.Load()+more > maxSampled {
		return // too many samples: this kind is trained from objects in the index
	}
	k.sampled.Add(more)
	if !again {
		ref.Namespace, ref.Name = strings.Clone(ref.Namespace), strings.Clone(ref.Name)
	}
	k.early[ref] = append(old[:0], raw...)
	if k.earlyLen += len(raw) - len(old); k.earlyLen >= 2*dictHistory || len(k.early) >= 2*dictSamples {
		k.sampling.Store(false)
	}
}

// takeSamples ends the sampling and returns what it kept.
func (k *kindCodec) takeSamples() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sampling.Store(false)
	early := make([][]byte, 0, len(k.early))
	for _, ref := range slices.SortedFunc(maps.Keys(k.early), compareRefs) {
		early = append(early, k.early[ref])
	}
	k.dropSamples()
	return early
}

// dropSamples releases the early samples. k.mu must be held.
func (k *kindCodec) dropSamples() {
	k.sampled.Add(-int64(k.earlyLen) - int64(len(k.early))*sampleBytes)
	k.early, k.earlyLen = map[Ref][]byte{}, 0
}

// enoughEarly reports whether the early samples are full and worth training from. Samples
// are dropped once the index holds as many objects: they would only be a second copy.
func (k *kindCodec) enoughEarly(objects int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if objects >= len(k.early) {
		k.dropSamples()
		k.sampling.Store(true)
	}
	return len(k.early) >= minTrainObjects/2 && !k.sampling.Load()
}

// codecs has the codec of each kind.
type codecs struct {
	plain   *encoder
	numbers atomic.Uint64
	sampled atomic.Int64 // bytes of the early samples of all kinds

	received received

	mu    sync.Mutex
	kinds map[Kind]*kindCodec

	training sync.Mutex // held by Train
}

func newCodecs() (*codecs, error) {
	plain, err := newEncoder(nil)
	if err != nil {
		return nil, err
	}
	return &codecs{plain: plain, kinds: map[Kind]*kindCodec{}}, nil
}

func (c *codecs) of(kind Kind, declared []fieldPath) *kindCodec {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.kinds[kind]
	if !ok {
		kind = Kind(strings.Clone(string(kind))) // its scopes share it
		k = &kindCodec{kind: kind, declared: declared, early: map[Ref][]byte{}, sampled: &c.sampled}
		k.current.Store(c.plain)
		k.sampling.Store(true)
		c.kinds[kind] = k
	}
	return k
}

// forget drops the codec of a kind that has no scope any more. Bodies that are still being
// read keep their dictionary.
func (c *codecs) forget(kind Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.kinds[kind]; ok {
		k.takeSamples() // writers that still have the codec add no more
		delete(c.kinds, kind)
	}
}

// size returns the heap bytes of all codecs, estimated.
func (c *codecs) size() int64 {
	n := c.sampled.Load()
	for _, k := range c.all() {
		n += codecBytes
		if k.current.Load() != c.plain {
			n += encoderCost
		}
	}
	return n
}

// all returns the codecs of all kinds, by kind.
func (c *codecs) all() []*kindCodec {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.AppendSeq(make([]*kindCodec, 0, len(c.kinds)), maps.Values(c.kinds))
	slices.SortFunc(list, func(a, b *kindCodec) int { return strings.Compare(string(a.kind), string(b.kind)) })
	return list
}
