package persistence

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// objectsBytes is about how much of a segment's objects are in one frame.
const objectsBytes = 256 << 10

// segmentWriter writes a segment: all that a snapshot has of a member.
type segmentWriter struct {
	ctx          context.Context
	file         *frames.File
	index        *aggregate.Index
	snap         *aggregate.Snapshot
	forms        func(aggregate.Kind) string
	dictionaries func(*aggregate.Encoder) error // writes those that it needs
	wait         func(ctx context.Context, bytes int) error
	reached      map[aggregate.Kind][]aggregate.Part // as it was written
}

// writeSegment writes a segment under a temporary name, and renames it once it is durable. It
// returns its size, and how far it says that scopes were read.
func (s *Store) writeSegment(ctx context.Context, x *aggregate.Index, member string, number uint64, snap *aggregate.Snapshot, slowly bool) (size int64, reached map[aggregate.Kind][]aggregate.Part, err error) {
	dir := memberDir(s.opts.Directory, member)
	path := filepath.Join(dir, fileName(number, segmentType))
	temporary := path + ".tmp"
	if err := os.Remove(temporary); err != nil && !os.IsNotExist(err) {
		return 0, nil, err
	}
	h := header{Format: formatVersion, Type: segmentType, Member: member, Number: number, Salt: frames.NewSalt(), Sealed: len(s.opts.Key) > 0}
	text, err := json.Marshal(h)
	if err != nil {
		return 0, nil, err
	}
	f, err := frames.Create(temporary, s.opts.Key, text, h.Salt, keyInfo)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	w := segmentWriter{ctx: ctx, file: f, index: x, snap: snap, forms: s.opts.Form, reached: map[aggregate.Kind][]aggregate.Part{}, dictionaries: s.saveDictionaries, wait: func(context.Context, int) error { return nil }}
	if slowly {
		w.wait = s.throttle
	}
	if err := w.write(member); err != nil {
		return 0, nil, fmt.Errorf("segment of member %q: %w", member, err)
	}
	if err := f.Sync(); err != nil {
		return 0, nil, err
	}
	if err := os.Rename(temporary, path); err != nil {
		return 0, nil, err
	}
	return f.Written(), w.reached, frames.SyncDir(dir)
}

func (w *segmentWriter) write(member string) error {
	known, _ := w.snap.Member(member)
	known.Name = member
	payload, err := appendMember(nil, &known)
	if err != nil {
		return err
	}
	if err := w.frame(typeMember, payload); err != nil {
		return err
	}
	scopes := uint64(0)
	for info := range w.snap.Scopes(member) {
		scopes++
		if err := w.scope(&info); err != nil {
			return err
		}
	}
	if err := w.tail(member); err != nil {
		return err
	}
	return w.frame(typeEnd, binary.AppendUvarint(nil, scopes))
}

func (w *segmentWriter) scope(info *aggregate.ScopeInfo) error {
	parts := w.snap.Reached(info.Member, info.Kind) // it may go on meanwhile
	w.reached[info.Kind] = parts
	payload := appendScope(nil, info, parts, w.forms(info.Kind))
	if err := w.frame(typeScope, payload); err != nil {
		return err
	}
	var e aggregate.Encoder
	payload = payload[:0]
	for o := range w.snap.Objects(info.Member, info.Kind) {
		if payload = e.Append(payload, o); len(payload) < objectsBytes {
			continue
		}
		if err := w.frame(typeObjects, payload); err != nil {
			return err
		}
		payload = payload[:0]
	}
	if len(payload) > 0 {
		if err := w.frame(typeObjects, payload); err != nil {
			return err
		}
	}
	return w.dictionaries(&e)
}

// appendScope appends what is known of a scope, before its objects.
func appendScope(dst []byte, info *aggregate.ScopeInfo, parts []aggregate.Part, form string) []byte {
	dst = appendState(dst, info.Kind, info.Status, parts)
	dst = appendText(appendText(appendText(dst, info.Version), info.Resource), form)
	return binary.AppendUvarint(dst, uint64(info.Objects))
}

// tailBytes bounds what of the change log is kept of a member.
const tailBytes = 4 << 20

// tail writes the commits that led to the snapshot, with what was before them: readers go on from
// there after a restart.
func (w *segmentWriter) tail(member string) error {
	encoders := map[aggregate.Kind]*aggregate.Encoder{}
	var payload []byte
	for _, c := range w.index.History(member, w.snap.Revision(), tailBytes) {
		payload = appendText(appendRevisions(payload, &c), string(c.Kind))
		if c.Kind == "" {
			continue
		}
		version, resource, _ := c.Scope()
		payload = appendText(appendText(payload, version), resource)
		if c.Cut() {
			payload = append(payload, 1, opEnd)
			continue
		}
		payload = append(payload, 0)
		e := encoders[c.Kind]
		if e == nil {
			e = &aggregate.Encoder{}
			encoders[c.Kind] = e
		}
		for ch := range c.Changes() {
			switch {
			case ch.Before.IsZero():
				payload = appendText(appendText(append(payload, opAdded), ch.After.Namespace()), ch.After.Name())
			case ch.After.IsZero():
				payload = e.Append(append(payload, opDeleted), ch.Before)
			default:
				payload = e.Append(append(payload, opBefore), ch.Before)
			}
		}
		if payload = append(payload, opEnd); len(payload) < objectsBytes {
			continue
		}
		if err := w.frame(typeTail, payload); err != nil {
			return err
		}
		payload = payload[:0]
	}
	if len(payload) > 0 {
		if err := w.frame(typeTail, payload); err != nil {
			return err
		}
	}
	for _, e := range encoders {
		if err := w.dictionaries(e); err != nil {
			return err
		}
	}
	return nil
}

// frame writes a frame, no faster than what is set aside for it.
func (w *segmentWriter) frame(kind byte, payload []byte) error {
	w.file.Add(kind, uint64(w.snap.Revision()), payload)
	if w.file.Buffered() < objectsBytes && kind != typeEnd {
		return nil
	}
	if err := w.wait(w.ctx, w.file.Buffered()); err != nil {
		return err
	}
	return w.file.Flush()
}
