package segments

import (
	"cmp"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"time"

	"federator.dev/federator/internal/frames"
)

// windowBytes bounds how much of a sealed segment is decompressed and held by a reader: where more
// may match, its blocks are decoded more than once.
const windowBytes = 8 << 20

// fewBlocks are not looked up further: decoding one costs about as much as looking up a few facets.
const fewBlocks = 2

// view is what a reader sees of a segment.
type view struct {
	*segment
	last   uint64
	until  int64
	since  int64
	chunks []chunk
	gap    *GapError // before it
}

// Read reads what the log holds when the iteration begins. It yields entries in order of their
// positions, and with each *GapError no entry; other errors, as ErrClosed, end it.
//
// A caller that goes on from a position (Query.After) is told of what has expired since.
func (l *Log) Read(q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		views, gap, err := l.snapshot(&q)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer func() {
			for _, v := range views {
				v.release()
			}
		}()
		r := &reader{log: l, q: q, about: subject{q.Member, q.Kind, q.Namespace, q.Name, q.UID, q.Policy}, yield: yield}
		r.hashes = r.about.hashes()
		if q.Backward {
			slices.Reverse(views)
		} else if !r.gap(gap) {
			return
		}
		for len(views) > 0 {
			v := views[0]
			if !r.read(v) {
				return
			}
			views = views[1:]
			v.release()
		}
		if q.Backward {
			r.gap(gap)
		}
	}
}

// snapshot returns the segments that may have what is asked for, acquired, and what has expired of it.
func (l *Log) snapshot(q *Query) (views []view, expired *GapError, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, ErrClosed
	}
	for i, s := range l.segments {
		v := view{segment: s, last: s.last, since: s.since, until: s.until, chunks: s.chunks}
		if i > 0 {
			if v.gap = s.hole(l.segments[i-1].last, l.segments[i-1].until); v.gap != nil && !q.touches(v.gap) {
				v.gap = nil
			}
		}
		if v.gap != nil || q.mayMatch(&v) {
			s.acquire()
			views = append(views, v)
		}
	}
	if q.After > 0 && len(l.segments) > 0 && l.segments[0].first > q.After+1 {
		to := l.segments[0].first - 1
		expired = &GapError{From: q.After + 1, To: to, Entries: int(min(to-q.After, 1<<31)), Err: ErrExpired}
	}
	return views, expired, nil
}

// mayMatch reports whether a segment may have what a query asks for.
func (q *Query) mayMatch(v *view) bool {
	return v.last >= v.first && (q.After == 0 || v.last > q.After) && (q.Before == 0 || v.first < q.Before) &&
		(v.damaged != nil || q.spans(v.since, v.until))
}

// spans reports whether some of a time, in milliseconds, is asked for.
func (q *Query) spans(since, until int64) bool {
	return (q.Since.IsZero() || !timeOf(until).Before(q.Since)) && (q.Until.IsZero() || timeOf(since).Before(q.Until))
}

// touches reports whether something may be missing that a query asks for.
func (q *Query) touches(g *GapError) bool {
	return (q.After == 0 || g.To > q.After) && (q.Before == 0 || g.From < q.Before) &&
		(q.Since.IsZero() || g.Until.IsZero() || !g.Until.Before(q.Since)) && (q.Until.IsZero() || g.Since.IsZero() || g.Since.Before(q.Until))
}

// wants reports whether a row is asked for, whose subject is.
func (q *Query) wants(r *row) bool {
	return (q.After == 0 || r.position > q.After) && (q.Before == 0 || r.position < q.Before) && q.spans(r.time, r.time)
}

// reader reads segments one after the other.
type reader struct {
	log    *Log
	q      Query
	about  subject
	hashes [numFacets]uint32
	yield  func(Entry, error) bool

	buf, plain []byte
	block      block
	found      []Entry
}

// gap yields a gap, if there is one that is asked about.
func (r *reader) gap(g *GapError) bool {
	return g == nil || !r.q.touches(g) || r.yield(Entry{}, g)
}

// read reads a segment and the gap before it, and reports whether to go on.
func (r *reader) read(v view) bool {
	if !r.q.Backward && !r.gap(v.gap) {
		return false
	}
	switch {
	case !r.q.mayMatch(&v):
	case v.damaged != nil:
		if !r.gap(v.whole()) {
			return false
		}
	case v.sealed != nil:
		if !r.readSealed(&v) {
			return false
		}
	default:
		if !r.readUnsealed(&v) {
			return false
		}
	}
	return !r.q.Backward || r.gap(v.gap)
}

// readUnsealed reads the frames of an unsealed segment that may have what is asked for.
func (r *reader) readUnsealed(v *view) bool {
	for i := range v.chunks {
		c := &v.chunks[i]
		if r.q.Backward {
			c = &v.chunks[len(v.chunks)-1-i]
		}
		if r.q.After > 0 && c.last <= r.q.After || r.q.Before > 0 && c.first >= r.q.Before || !r.q.spans(c.since, c.until) || !c.mayHave(&r.about, &r.hashes) {
			continue
		}
		if err := r.decode(v, c.offset, c.size, typeEntries, c.first); err != nil {
			g := &GapError{From: c.first, To: c.last, Since: timeOf(c.since), Until: timeOf(c.until), Entries: int(c.last - c.first + 1), Err: lostIn(v, err)}
			if !r.gap(g) {
				return false
			}
			continue
		}
		r.collect(0, ^uint64(0))
		if !r.flush() {
			return false
		}
	}
	return true
}

func lostIn(v *view, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrLost, filepath.Base(v.path), err)
}

// decode reads a frame, and decodes the block that it is.
func (r *reader) decode(v *view, offset int64, size uint32, kind byte, revision uint64) error {
	f, buf, err := frames.ReadAt(v.file, v.seal, offset, int(size), r.buf)
	if r.buf = buf; err != nil {
		return err
	}
	if f.Kind != kind || f.Revision != revision {
		return fmt.Errorf("frame at %d: %w", offset, frames.ErrDoubt)
	}
	plain := f.Payload
	if kind == typeBlock {
		if r.plain, err = r.log.decoder.DecodeAll(plain, r.plain[:0]); err != nil {
			return fmt.Errorf("frame at %d: %w: %w", offset, frames.ErrDoubt, err)
		}
		plain = r.plain
	}
	return r.block.decode(plain, &r.about)
}

// collect adds what is asked for of a block, within some positions, to what is found.
func (r *reader) collect(from, to uint64) {
	bytes, rows := 0, r.block.rows[:0]
	for i := range r.block.rows {
		row := &r.block.rows[i]
		if row.position >= from && row.position <= to && r.q.wants(row) {
			bytes += len(row.payload)
			rows = append(rows, *row)
		}
	}
	payloads := make([]byte, 0, bytes) // of the block, so that nothing else of it is held
	for i := range rows {
		row := &rows[i]
		s := &r.block.subjects[row.subject]
		at := len(payloads)
		payloads = append(payloads, row.payload...)
		r.found = append(r.found, Entry{
			Position: row.position, Time: time.UnixMilli(row.time).UTC(), Revision: row.revision,
			Member: s[facetMember], Kind: s[facetKind], Namespace: s[facetNamespace], Name: s[facetName], UID: s[facetUID], Policy: s[facetPolicy],
			Payload: payloads[at:len(payloads):len(payloads)],
		})
	}
}

// flush yields what was found, and reports whether to go on.
func (r *reader) flush() bool {
	defer func() {
		clear(r.found)
		r.found = r.found[:0]
	}()
	slices.SortFunc(r.found, func(a, b Entry) int {
		if r.q.Backward {
			a, b = b, a
		}
		return cmp.Compare(a.Position, b.Position)
	})
	for i := range r.found {
		if !r.yield(r.found[i], nil) {
			return false
		}
	}
	return true
}

// readSealed reads the blocks of a sealed segment that may have what is asked for. They are sorted by
// subject: where they are many, a part of the positions is read at a time.
func (r *reader) readSealed(v *view) bool {
	blocks := r.candidates(v)
	plain, lo, hi := int64(0), ^uint64(0), uint64(0)
	for _, n := range blocks {
		b := &v.sealed.blocks[n]
		plain += int64(b.plain)
		lo, hi = min(lo, v.first+uint64(b.first)), max(hi, v.first+uint64(b.last))
	}
	if len(blocks) == 0 {
		return true
	}
	if lo = max(lo, r.q.After+1); r.q.Before > 0 {
		hi = min(hi, r.q.Before-1)
	}
	told := map[uint32]bool{}
	for parts := uint64((plain + windowBytes - 1) / windowBytes); lo <= hi; parts-- {
		from, to := lo, hi
		if width := (hi - lo + parts) / max(parts, 1); parts > 1 && r.q.Backward {
			from = hi - width + 1
		} else if parts > 1 {
			to = lo + width - 1
		}
		if !r.readWindow(v, blocks, from, to, told) {
			return false
		}
		if r.q.Backward {
			hi = from - 1
		} else {
			lo = to + 1
		}
	}
	return true
}

// readWindow reads what some blocks have of some positions, and tells once of those that are damaged.
func (r *reader) readWindow(v *view, blocks []uint32, from, to uint64, told map[uint32]bool) bool {
	for _, n := range blocks {
		b := &v.sealed.blocks[n]
		first, last := v.first+uint64(b.first), v.first+uint64(b.last)
		if first > to || last < from || told[n] {
			continue
		}
		err := r.decode(v, b.offset, b.size, typeBlock, uint64(n))
		if err == nil {
			r.collect(from, to)
			continue
		}
		told[n] = true
		if !r.gap(&GapError{From: first, To: last, Since: timeOf(b.since), Until: timeOf(b.until), Entries: int(b.entries), Err: lostIn(v, err)}) {
			return false
		}
	}
	return r.flush()
}

// candidates returns the blocks that may have what is asked for.
func (r *reader) candidates(v *view) (blocks []uint32) {
	all := true
	for _, f := range [...]int{facetUID, facetName, facetPolicy, facetNamespace, facetKind, facetMember} { // those of few blocks first
		if r.about[f] == "" || !all && len(blocks) <= fewBlocks {
			continue
		}
		have, err := r.lookup(v, r.hashes[f])
		if err != nil { // without the index, all blocks are read
			r.log.opts.Log.Warn("the index of a segment of history is damaged", "file", v.path, "error", err)
			continue
		}
		if all {
			blocks, all = have, false
		} else {
			blocks = intersect(blocks, have)
		}
	}
	if all {
		for n := range v.sealed.blocks {
			blocks = append(blocks, uint32(n))
		}
	}
	return slices.DeleteFunc(blocks, func(n uint32) bool {
		b := &v.sealed.blocks[n]
		return r.q.After > 0 && v.first+uint64(b.last) <= r.q.After || r.q.Before > 0 && v.first+uint64(b.first) >= r.q.Before || !r.q.spans(b.since, b.until)
	})
}

// lookup returns the blocks that the index has for a hash.
func (r *reader) lookup(v *view, hash uint32) ([]uint32, error) {
	pages := v.sealed.pages
	i, found := slices.BinarySearchFunc(pages, hash, func(p pageInfo, h uint32) int { return cmp.Compare(p.first, h) })
	if !found {
		i--
	}
	if i < 0 {
		return nil, nil
	}
	f, buf, err := frames.ReadAt(v.file, v.seal, pages[i].offset, int(pages[i].size), r.buf)
	if r.buf = buf; err != nil {
		return nil, err
	}
	if f.Kind != typePage || f.Revision != uint64(i) {
		return nil, fmt.Errorf("index: %w", frames.ErrDoubt)
	}
	return find(f.Payload, pages[i].first, hash, len(v.sealed.blocks))
}
