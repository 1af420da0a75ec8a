package aggregate

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

// dictionary encodes and decodes bodies with one trained dictionary, or with
// none. It lives as long as a body refers to it and is collected after.
type dictionary struct {
	number  uint64
	enc     *zstd.Encoder
	dec     *zstd.Decoder
	trained bool
}

// maxBody bounds what a body may decode to; API servers refuse requests long
// before.
const maxBody = 1 << 30

// codecParallelism bounds the encoder states a dictionary may hold: each is
// about half a megabyte, so more would cost more memory than it saves time.
func codecParallelism() int { return min(runtime.GOMAXPROCS(0), 4) }

func newDictionary(number uint64, dict []byte) (*dictionary, error) {
	eopts := []zstd.EOption{
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(codecParallelism()),
		zstd.WithEncoderCRC(false),
		zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(128 << 10),
		zstd.WithZeroFrames(true),
	}
	dopts := []zstd.DOption{
		zstd.WithDecoderConcurrency(codecParallelism()),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxBody),
	}
	if dict != nil {
		eopts = append(eopts, zstd.WithEncoderDict(dict))
		dopts = append(dopts, zstd.WithDecoderDicts(dict))
	}
	enc, err := zstd.NewWriter(nil, eopts...)
	if err != nil {
		return nil, fmt.Errorf("body encoder: %w", err)
	}
	dec, err := zstd.NewReader(nil, dopts...)
	if err != nil {
		return nil, fmt.Errorf("body decoder: %w", err)
	}
	return &dictionary{number: number, enc: enc, dec: dec, trained: dict != nil}, nil
}

func (d *dictionary) encode(raw, scratch []byte) (*body, []byte) {
	scratch = d.enc.EncodeAll(raw, scratch[:0])
	return &body{dict: d, data: string(scratch)}, scratch
}

func (b *body) decode(dst []byte) ([]byte, error) {
	return b.dict.dec.DecodeAll(unsafeBytes(b.data), dst)
}

// kindCodec is the current dictionary of one kind and how well it does.
type kindCodec struct {
	current atomic.Pointer[dictionary]
	// Since the current dictionary came: bytes in and out, and objects.
	raw, packed, objects atomic.Int64

	// Bodies from before the first dictionary, so that a first sync of many
	// objects need not end to be trained from.
	sampling atomic.Bool
	mu       sync.Mutex
	early    [][]byte
	earlyLen int

	// Of the last training; Train's lock guards them.
	trainedAt int     // objects of the kind, when it was last trained or found good
	checkedAt int     // objects of the kind, when all bodies were last seen to be current
	behind    bool    // bodies of older dictionaries are left
	ratio     float64 // raw/packed that the dictionary reaches on samples
}

func (k *kindCodec) encode(raw, scratch []byte) (*body, []byte) {
	b, scratch := k.current.Load().encode(raw, scratch)
	k.raw.Add(int64(len(raw)))
	k.packed.Add(int64(len(b.data)))
	k.objects.Add(1)
	if k.sampling.Load() {
		k.sample(raw)
	}
	return b, scratch
}

// sample keeps a copy of a body for the first training.
func (k *kindCodec) sample(raw []byte) {
	if len(raw) > sampleMax {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.sampling.Load() {
		return
	}
	k.early = append(k.early, slices.Clone(raw))
	if k.earlyLen += len(raw); k.earlyLen >= 2*dictHistory || len(k.early) >= 2*dictSamples {
		k.sampling.Store(false)
	}
}

// takeSamples ends the sampling and returns what it kept.
func (k *kindCodec) takeSamples() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sampling.Store(false)
	early := k.early
	k.early, k.earlyLen = nil, 0
	return early
}

func (k *kindCodec) sampled() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.early)
}

// codecs hands out the codec of each kind.
type codecs struct {
	plain   *dictionary
	numbers atomic.Uint64

	mu    sync.Mutex
	kinds map[Kind]*kindCodec

	training sync.Mutex // held by Train
}

func newCodecs() (*codecs, error) {
	plain, err := newDictionary(0, nil)
	if err != nil {
		return nil, err
	}
	return &codecs{plain: plain, kinds: map[Kind]*kindCodec{}}, nil
}

func (c *codecs) of(kind Kind) *kindCodec {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.kinds[kind]
	if !ok {
		k = &kindCodec{}
		k.current.Store(c.plain)
		k.sampling.Store(true)
		c.kinds[kind] = k
	}
	return k
}

func (c *codecs) names() []Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]Kind, 0, len(c.kinds))
	for k := range c.kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}
