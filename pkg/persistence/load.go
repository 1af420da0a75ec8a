package persistence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// memberReader loads a member from its files.
type memberReader struct {
	loader *aggregate.Loader
	key    []byte
	name   string
	dir    string
	form   func(aggregate.Kind) string // of what is held now
	end    *end                        // how far its files go that readers have seen; nil: not known

	progress *atomic.Int64 // of all members

	to    *aggregate.MemberLoader
	forms map[aggregate.Kind]string // of what was held
	batch []byte                    // of a batch, what has come in frames before its last
	past  []byte                    // of a segment, the commits that led to it
	out   loadedMember
}

// loadedMember is what was loaded of a member.
type loadedMember struct {
	name    string
	nothing bool // there is nothing that is sound

	number  uint64 // of the last file that is used
	last    int64  // bytes of the last log, as far as it is sound
	segment int64  // bytes
	logs    []int64
	unused  []string // names of files that are not used

	base     aggregate.Revision // of the segment
	revision aggregate.Revision // of the last batch
	doubt    error              // why the rest was dropped, which readers may have seen; nil: nothing
	dropped  []aggregate.Kind   // that are held otherwise now
}

// load reads the newest segment that is sound and the logs that continue it. Its error is of what
// is not the content of files.
func (r *memberReader) load(ctx context.Context) error {
	files, err := listMember(r.dir)
	if err != nil {
		return err
	}
	r.out.name, r.out.unused = r.name, files.others
	r.leaveUnseen(&files)
	begins := r.begins(files.logs)
	var segments []uint64
	for _, n := range files.segments {
		if n >= begins { // it is not of an earlier one of the name
			segments = append(segments, n)
		} else {
			r.out.unused = append(r.out.unused, fileName(n, segmentType))
		}
	}
	from, err := r.segments(ctx, segments)
	if err != nil {
		return err
	}
	switch {
	case r.to != nil:
	case begins > 0: // the logs have all that there was since the member joined
		from, r.to = begins, r.loader.Member(aggregate.Member{Name: r.name})
	default:
		r.out.nothing = true
		if r.end != nil {
			r.out.doubt = errors.Join(r.out.doubt, errGone)
		}
		return nil
	}
	if err := r.logsFrom(ctx, from); err != nil {
		return err
	}
	if errors.Is(r.out.doubt, errUnreadable) {
		r.loader.Remove(r.name)
		r.out.nothing = true
		return nil
	}
	for _, n := range files.logs {
		if n < from || n > r.out.number {
			r.out.unused = append(r.out.unused, fileName(n, logType))
		}
	}
	r.dropOthers()
	return nil
}

// errGone is of a member whose files are not there.
var errGone = errors.New("its files are gone")

// leaveUnseen leaves out the files that nobody has seen anything of.
func (r *memberReader) leaveUnseen(files *memberFiles) {
	if r.end == nil {
		return
	}
	leave := func(numbers []uint64, kind string) []uint64 {
		return slices.DeleteFunc(numbers, func(n uint64) bool {
			if n > r.end.number {
				r.out.unused = append(r.out.unused, fileName(n, kind))
			}
			return n > r.end.number
		})
	}
	files.segments, files.logs = leave(files.segments, segmentType), leave(files.logs, logType)
}

// begins returns the number of the newest log before which there was nothing of the member, 0 for none.
func (r *memberReader) begins(logs []uint64) uint64 {
	for _, n := range slices.Backward(logs) {
		if h, err := r.header(n); err == nil && h.Begins {
			return n
		}
	}
	return 0
}

// segments loads the newest segment that is sound, and returns its number.
func (r *memberReader) segments(ctx context.Context, numbers []uint64) (from uint64, err error) {
	for n := len(numbers) - 1; n >= 0; n-- {
		number := numbers[n]
		if r.to != nil {
			r.out.unused = append(r.out.unused, fileName(number, segmentType))
			continue
		}
		err := r.segment(ctx, number)
		if err == nil {
			from, r.out.number = number, number
			continue
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		r.out.doubt = fmt.Errorf("segment %d: %w", number, err)
		r.out.unused = append(r.out.unused, fileName(number, segmentType))
		r.loader.Remove(r.name)
		r.to, r.forms, r.past = nil, map[aggregate.Kind]string{}, nil
	}
	return from, nil
}

// logsFrom reads the logs from a number on, as far as each continues the one before and readers have
// seen them.
func (r *memberReader) logsFrom(ctx context.Context, from uint64) error {
	for n := from; ; n++ {
		upTo, more := r.upTo(n)
		sound, err := r.log(ctx, n, upTo)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if sound > 0 {
			r.out.number, r.out.last = n, sound
			r.out.logs = append(r.out.logs, sound)
		}
		var torn *frames.TornError
		switch {
		case err == nil && more:
			continue
		case err == nil, upTo < 0 && (errors.As(err, &torn) || errors.Is(err, os.ErrNotExist)):
		default:
			r.out.doubt = errors.Join(r.out.doubt, fmt.Errorf("log %d: %w", n, err))
		}
		return nil
	}
}

// upTo returns how much of a log readers have seen, -1 where that is not known, and whether another one
// follows it.
func (r *memberReader) upTo(number uint64) (bytes int64, more bool) {
	if r.end != nil && number == r.end.number {
		return r.end.size, false
	}
	if h, err := r.header(number + 1); err == nil && !h.Begins && !h.Needs {
		return h.Follows, true
	}
	if r.end != nil {
		return math.MaxInt64, false // the next one is lost
	}
	return -1, false
}

// header returns the header of a log, which is proven where it is sealed.
func (r *memberReader) header(number uint64) (*header, error) {
	f, err := os.Open(filepath.Join(r.dir, fileName(number, logType)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, h, err := openFrames(f, r.key, number, logType, r.name)
	return h, err
}

// log reads a log up to where it was seen, -1 for as far as it is sound, and returns how far it is.
func (r *memberReader) log(ctx context.Context, number uint64, upTo int64) (sound int64, err error) {
	f, err := os.Open(filepath.Join(r.dir, fileName(number, logType)))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in, _, err := openFrames(f, r.key, number, logType, r.name)
	if err != nil {
		return 0, err
	}
	sound = in.Offset()
	r.batch = r.batch[:0]
	for {
		if ctx.Err() != nil {
			return sound, ctx.Err()
		}
		if upTo >= 0 && in.Offset() >= upTo {
			if sound != upTo {
				return sound, fmt.Errorf("it was seen up to %d, which is no end of a batch: %w", upTo, frames.ErrDoubt)
			}
			return sound, nil
		}
		r.progress.Add(1)
		fr, err := in.Next()
		if errors.Is(err, io.EOF) {
			if len(r.batch) > 0 || upTo >= 0 {
				return sound, &frames.TornError{}
			}
			return sound, nil
		}
		if err != nil {
			return sound, err
		}
		switch fr.Kind {
		case typePart:
			r.batch = append(r.batch, fr.Payload...)
			continue
		case typeBatch:
		default:
			return sound, fmt.Errorf("frame of type %q: %w", fr.Kind, frames.ErrDoubt)
		}
		all := fr.Payload
		if len(r.batch) > 0 {
			r.batch = append(r.batch, fr.Payload...)
			all = r.batch
		}
		if err := r.apply(all); err != nil {
			return sound, err
		}
		if r.batch = r.batch[:0]; cap(r.batch) > 4*partBytes {
			r.batch = nil
		}
		sound, r.out.revision = in.Offset(), max(r.out.revision, aggregate.Revision(fr.Revision))
	}
}

// apply applies a batch. A batch that fails has a sound checksum: it is as it was written, but
// by another version or with a dictionary that is lost. What was applied of it stays, and the
// member is dropped.
func (r *memberReader) apply(all []byte) error {
	p := payload{rest: all}
	begun := map[aggregate.Kind]bool{} // scopes that this batch has objects of
	for len(p.rest) > 0 && p.err == nil {
		switch p.byte("a tag") {
		case tagMember:
			if m := p.member(); p.err == nil {
				r.to.Set(m)
			}
		case tagMemberCommit:
			since, from, to := p.revisions()
			if p.err == nil {
				p.err = r.to.Commit(since, from, to)
			}
		case tagCommit:
			r.commit(&p, begun)
		case tagState:
			kind, status, parts := p.state()
			form := p.text("a form")
			if s := r.to.Has(kind); s != nil && p.err == nil {
				s.SetStatus(status)
				s.SetReached(parts)
				r.forms[kind] = form
			}
		default:
			p.fail("a tag")
		}
	}
	if p.err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, p.err)
	}
	return nil
}

// errUnreadable is of frames that are sound and cannot be read.
var errUnreadable = errors.New("a sound frame cannot be read")

// commit applies a commit of a scope.
func (r *memberReader) commit(p *payload, begun map[aggregate.Kind]bool) {
	since, from, to := p.revisions()
	kind := aggregate.Kind(p.text("a kind"))
	if p.byte("whether the scope is there") == 0 {
		r.to.Remove(kind)
		delete(begun, kind)
		if p.err == nil {
			p.err = r.to.Commit(since, from, to)
		}
		return
	}
	s := r.to.Scope(kind, p.text("a version"), p.text("a resource"))
	if !begun[kind] {
		begun[kind] = true
		s.Reset()
	}
	for p.err == nil {
		switch p.byte("a change") {
		case opPut:
			p.rest, p.err = s.Put(p.rest)
			continue
		case opDelete:
			namespace, name := p.text("a namespace"), p.text("a name")
			if p.err == nil {
				s.Delete(namespace, name)
			}
			continue
		case opEnd:
			p.err = errors.Join(p.err, r.to.Commit(since, from, to))
		default:
			p.fail("a change")
		}
		return
	}
}

// segment loads a segment.
func (r *memberReader) segment(ctx context.Context, number uint64) error {
	f, err := os.Open(filepath.Join(r.dir, fileName(number, segmentType)))
	if err != nil {
		return err
	}
	defer f.Close()
	in, _, err := openFrames(f, r.key, number, segmentType, r.name)
	if err != nil {
		return err
	}
	var s *aggregate.ScopeLoader
	scopes, objects := uint64(0), uint64(0) // that came, and that are to come
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.progress.Add(1)
		fr, err := in.Next()
		if err != nil {
			return err
		}
		p := payload{rest: fr.Payload}
		switch fr.Kind {
		case typeMember:
			if m := p.member(); p.err == nil {
				m.Name = r.name
				r.to = r.loader.Member(m)
			}
		case typeScope:
			if r.to == nil || objects > 0 {
				return fmt.Errorf("a scope comes too early: %w", frames.ErrDoubt)
			}
			scopes++
			s, objects = r.beginScope(&p)
		case typeObjects:
			for s != nil && len(p.rest) > 0 && p.err == nil && objects > 0 {
				p.rest, p.err = s.Put(p.rest)
				objects--
			}
		case typeTail:
			r.past = append(r.past, p.rest...)
			p.rest = nil
		case typeEnd:
			if n := p.uvarint("the number of scopes"); n != scopes || objects > 0 || r.to == nil {
				p.fail("the end")
			}
			if p.err == nil {
				p.err = r.tail()
			}
			if p.err == nil {
				p.err = r.to.Settle()
			}
			if p.err == nil {
				r.out.segment, r.out.base, r.out.revision = in.Offset(), aggregate.Revision(fr.Revision), aggregate.Revision(fr.Revision)
				return nil
			}
		default:
			p.fail("a frame's type")
		}
		if p.err == nil && len(p.rest) > 0 {
			p.fail("the end of a frame")
		}
		if p.err != nil {
			return p.err
		}
	}
}

// tail reads the commits that led to a segment.
func (r *memberReader) tail() error {
	p := payload{rest: r.past}
	r.past = nil
	for len(p.rest) > 0 && p.err == nil {
		since, from, to := p.revisions()
		kind := aggregate.Kind(p.text("a kind"))
		if kind == "" {
			if p.err == nil {
				p.err = r.to.PastOfMember(since, from, to)
			}
			continue
		}
		past := r.to.Past(kind, p.text("a version"), p.text("a resource"))
		cut := p.byte("whether a commit was cut") != 0
	changes:
		for p.err == nil {
			switch op := p.byte("a change"); op {
			case opEnd:
				if p.err == nil {
					p.err = past.End(since, from, to, cut)
				}
				break changes
			case opAdded:
				namespace, name := p.text("a namespace"), p.text("a name")
				past.Added(namespace, name)
			case opBefore, opDeleted:
				p.rest, p.err = past.Before(p.rest, op == opDeleted)
			default:
				p.fail("a change")
			}
		}
	}
	return p.err
}

func (r *memberReader) beginScope(p *payload) (*aggregate.ScopeLoader, uint64) {
	kind, status, parts := p.state()
	version, resource, form := p.text("a version"), p.text("a resource"), p.text("a form")
	objects := p.uvarint("the number of objects")
	if p.err != nil {
		return nil, 0
	}
	s := r.to.Scope(kind, version, resource)
	s.Reset()
	s.SetStatus(status)
	s.SetReached(parts)
	r.forms[kind] = form
	return s, objects
}

// dropOthers drops scopes that would be held otherwise now, and makes the others what they are: as
// of the last contact.
func (r *memberReader) dropOthers() {
	for kind, form := range r.forms {
		s := r.to.Has(kind)
		switch {
		case s == nil:
		case form != r.form(kind):
			r.to.Drop(kind)
			r.out.dropped = append(r.out.dropped, kind)
		default:
			s.SetStatus(loadedStatus(s.Status(), s.Resumable()))
		}
	}
}

// loadedStatus is the status of a scope of an earlier process.
func loadedStatus(was aggregate.Status, resumable bool) aggregate.Status {
	switch was.State {
	case aggregate.Synced, aggregate.Partial, aggregate.Stale:
		if resumable {
			return aggregate.Status{State: aggregate.Stale, Unread: true, Reason: "loaded from disk, resuming"}
		}
		return aggregate.Status{State: aggregate.Stale, Unread: true, Reason: "loaded from disk, to be listed"}
	}
	return aggregate.Status{State: aggregate.Unknown, Reason: "not known since the restart"}
}
