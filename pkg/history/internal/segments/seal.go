package segments

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/internal/frames"
)

// writeBytes is about how much of a sealed segment is written at once.
const writeBytes = 1 << 20

// partBytes is about how much of a segment is held while it is sealed: it is read once for each part.
const partBytes = 12 << 20

// sealer seals segments, one after the other.
type sealer struct {
	log     *Log
	encoder *zstd.Encoder

	subjects []subject  // sorted
	ranks    [][]uint32 // of the subjects of each block, among these
	bytes    []int      // what the entries of each count for

	rows []row // of a part of the subjects, sorted by them and by position
}

func newSealer(l *Log) (*sealer, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(4*blockBytes), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	return &sealer{log: l, encoder: e}, nil
}

// seal replaces an unsealed segment by a sealed one. Until that is whole on disk under its name, the
// unsealed one is in effect.
func (w *sealer) seal(ctx context.Context, s *segment) error {
	defer func() { w.subjects, w.ranks, w.bytes, w.rows = nil, nil, nil, nil }()
	if err := w.rankSubjects(s); err != nil {
		return err
	}
	// The sealed form is hardly ever longer: there is room for both before it is written.
	w.log.sealing.Store(s.bytes)
	defer w.log.sealing.Store(0)
	w.log.expireFor(0)
	first, last := s.first, s.last
	path := filepath.Join(w.log.opts.Directory, sealedName(first, last))
	temporary := path + temporarySuffix
	if err := os.Remove(temporary); err != nil && !os.IsNotExist(err) {
		return err
	}
	err := w.write(ctx, s, temporary)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err == nil {
		err = frames.SyncDir(w.log.opts.Directory)
	}
	if err != nil {
		os.Remove(temporary) // it is in nobody's way
		return err
	}
	sealed, _, err := openSealed(path, w.log.opts.Key, first, last)
	if err != nil {
		return err
	}
	if sealed.damaged != nil {
		sealed.release()
		return sealed.damaged
	}
	w.log.replace(s, sealed)
	return nil
}

// replace puts a sealed segment in the place of an unsealed one, unless that has expired meanwhile.
func (l *Log) replace(s, sealed *segment) {
	l.mu.Lock()
	l.sealing.Store(0)
	drop := sealed
	if i := slices.Index(l.segments, s); i >= 0 {
		l.segments = slices.Clone(l.segments)
		l.segments[i], drop = sealed, s
		l.forget(s)
	}
	l.mu.Unlock()
	if err := os.Remove(drop.path); err != nil && !os.IsNotExist(err) {
		l.opts.Log.Warn("removing a segment of history", "file", drop.path, "error", err)
	}
	drop.release()
}

// rankSubjects finds what the entries of a segment are about, and sorts that.
func (w *sealer) rankSubjects(s *segment) error {
	numbers := map[subject]uint32{} // as they come
	var bytes []int
	var b block
	err := s.blocks(&b, func(int) {
		of := make([]uint32, len(b.subjects))
		for i := range b.subjects {
			about := &b.subjects[i]
			n, ok := numbers[*about]
			if !ok {
				n = uint32(len(bytes))
				numbers[*about] = n
				w.subjects, bytes = append(w.subjects, *about), append(bytes, about.bytes())
			}
			of[i] = n
		}
		for i := range b.rows {
			bytes[of[b.rows[i].subject]] += len(b.rows[i].payload) + rowBytes
		}
		w.ranks = append(w.ranks, of)
	})
	if err != nil {
		return err
	}
	slices.SortFunc(w.subjects, func(a, b subject) int { return slices.Compare(a[:], b[:]) })
	w.bytes = make([]int, len(bytes))
	rank := make([]uint32, len(bytes))
	for i := range w.subjects {
		n := numbers[w.subjects[i]]
		w.bytes[i], rank[n] = bytes[n], uint32(i)
	}
	for _, of := range w.ranks {
		for i, n := range of {
			of[i] = rank[n]
		}
	}
	return nil
}

// blocks decodes each block of an unsealed segment, which is not appended to any more, and calls f
// with its number.
func (s *segment) blocks(b *block, f func(n int)) error {
	var buf []byte
	for i := range s.chunks {
		c := &s.chunks[i]
		fr, got, err := frames.ReadAt(s.file, s.seal, c.offset, int(c.size), buf)
		if buf = got; err != nil {
			return err
		}
		if fr.Kind != typeEntries {
			return fmt.Errorf("frame at %d: %w", c.offset, frames.ErrDoubt)
		}
		if err := b.decode(fr.Payload, &subject{}); err != nil {
			return fmt.Errorf("frame at %d: %w", c.offset, err)
		}
		f(i)
	}
	return nil
}

// part returns up to which subject a part goes that begins at one.
func (w *sealer) part(from int) (to, bytes int) {
	for to = from; to < len(w.subjects) && (to == from || bytes+w.bytes[to] <= partBytes); to++ {
		bytes += w.bytes[to]
	}
	return to, bytes
}

// readPart reads the entries about some subjects, and sorts them by these; they come by position.
func (w *sealer) readPart(s *segment, from, to, bytes int) error {
	payloads := make([]byte, 0, bytes) // it has room for them: it never moves
	var rows []row
	next := make([]int, to-from+1)
	b := block{numbersOnly: true}
	err := s.blocks(&b, func(of int) {
		for _, r := range b.rows {
			n := int(w.ranks[of][r.subject])
			if n < from || n >= to {
				continue
			}
			at := len(payloads)
			payloads = append(payloads, r.payload...)
			r.subject, r.payload = uint32(n), payloads[at:len(payloads):len(payloads)]
			next[n-from+1]++
			rows = append(rows, r)
		}
	})
	if err != nil {
		return err
	}
	for i := 1; i < len(next); i++ {
		next[i] += next[i-1]
	}
	w.rows = make([]row, len(rows))
	for _, r := range rows {
		n := int(r.subject) - from
		w.rows[next[n]] = r
		next[n]++
	}
	return nil
}

// write writes a sealed segment, and syncs it.
func (w *sealer) write(ctx context.Context, s *segment, path string) error {
	out, err := createFile(path, w.log.opts.Key, header{Type: sealedType, Log: w.log.id, First: s.first, Last: s.last})
	if err != nil {
		return err
	}
	defer out.Close()
	d := &directory{}
	var index indexWriter
	for from := 0; from < len(w.subjects); {
		to, bytes := w.part(from)
		if err := w.readPart(s, from, to, bytes); err != nil {
			return err
		}
		if err := w.writeBlocks(ctx, out, d, &index, s.first); err != nil {
			return err
		}
		from, w.rows = to, nil
	}
	index.pages(func(hash uint32, page []byte) {
		at := out.Size()
		out.Add(typePage, uint64(len(d.pages)), page)
		d.pages = append(d.pages, pageInfo{offset: at, size: uint32(out.Size() - at), first: hash})
	})
	at := out.Size()
	out.Add(typeDirectory, 0, d.append(nil))
	end := binary.LittleEndian.AppendUint64(nil, uint64(at))
	out.Add(typeEnd, 0, binary.LittleEndian.AppendUint64(end, uint64(out.Size()-at)))
	if err := out.Flush(); err != nil {
		return err
	}
	w.grow(out)
	return out.Sync()
}

// grow counts what is written, where it is longer than expected.
func (w *sealer) grow(out *frames.File) {
	if n := out.Written(); n > w.log.sealing.Load() {
		w.log.sealing.Store(n)
		w.log.expireFor(0)
	}
}

func (w *sealer) writeBlocks(ctx context.Context, out *frames.File, d *directory, index *indexWriter, first uint64) error {
	var b blockWriter
	var plain, packed []byte
	flush := func() error {
		plain = b.append(plain[:0])
		packed = w.encoder.EncodeAll(plain, packed[:0])
		info := blockInfo{offset: out.Size(), plain: uint32(len(plain)), entries: uint32(len(b.rows)), first: ^uint32(0), since: b.rows[0].time, until: b.rows[0].time}
		for i := range b.rows {
			r := &b.rows[i]
			at := uint32(r.position - first)
			info.first, info.last = min(info.first, at), max(info.last, at)
			info.since, info.until = min(info.since, r.time), max(info.until, r.time)
		}
		for i := range b.subjects {
			index.add(len(d.blocks), &b.subjects[i])
		}
		d.entries += len(b.rows)
		out.Add(typeBlock, uint64(len(d.blocks)), packed)
		info.size = uint32(out.Size() - info.offset)
		d.blocks = append(d.blocks, info)
		b.reset()
		if out.Buffered() < writeBytes {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := out.Flush()
		w.grow(out)
		return err
	}
	for _, r := range w.rows {
		if b.add(&w.subjects[r.subject], r); b.full() {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(b.rows) > 0 {
		return flush()
	}
	return nil
}
