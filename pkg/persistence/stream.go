package persistence

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"time"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// A member is handed to another process as a stream of the frames that a segment has, without the commits that led to it, and
// with each dictionary before the first objects of a scope that need it: nobody keeps those of the scope before. It is not sealed: its sender sees to that.
const streamType = "stream"

// Bounds of a stream, which the reader checks.
const (
	maxStreamPayload      = 8 << 20
	maxStreamScopes       = 20_000
	maxStreamDictionaries = 1024 // of one scope
	maxStreamParts        = 4096 // of one scope
	maxStreamText         = 4096 // of names, versions and what else is known of a scope
	maxStreamScope        = 1 << 20
)

// SendOptions say what is sent of a member.
type SendOptions struct {
	Form func(aggregate.Kind) string // as in Options
	// Proved returns when a scope was last known to be what the member has; zero: it never was. nil: none was.
	Proved func(aggregate.Kind) time.Time
	// Flush is called after each block, with the bytes that were written since the last time. Its error ends the stream. nil:
	// nothing is.
	Flush func(bytes int) error
}

// Sent is what was sent.
type Sent struct {
	Scopes, Objects int
	Bytes           int64
}

// Send writes what a snapshot has of a member, for Receive: all scopes of which it is known how far they were read, but those that
// a reader does not let come: of one it would take the stream for false, and the sender for one that has failed. Memory is that of
// a block, and the snapshot is held while the reader reads.
func Send(ctx context.Context, w io.Writer, snap *aggregate.Snapshot, member string, o SendOptions) (Sent, error) {
	s := streamWriter{ctx: ctx, out: w, snap: snap, o: o, told: map[aggregate.DictionaryID]bool{}}
	if s.o.Proved == nil {
		s.o.Proved = func(aggregate.Kind) time.Time { return time.Time{} }
	}
	if s.o.Flush == nil {
		s.o.Flush = func(int) error { return nil }
	}
	err := s.write(member)
	return s.sent, err
}

type streamWriter struct {
	ctx  context.Context
	out  io.Writer
	snap *aggregate.Snapshot
	o    SendOptions
	told map[aggregate.DictionaryID]bool
	buf  []byte
	sent Sent
}

func (s *streamWriter) write(member string) error {
	header, err := json.Marshal(header{Format: formatVersion, Type: streamType, Member: member})
	if err != nil {
		return err
	}
	s.add(frames.TypeHeader, header)
	known, _ := s.snap.Member(member)
	payload, err := appendMember(nil, &known)
	if err != nil {
		return err
	}
	s.add(typeMember, payload)
	for info := range s.snap.Scopes(member) {
		parts := s.snap.Reached(member, info.Kind)
		if len(parts) == 0 || !isHanded(info.Status.State) || len(parts) > maxStreamParts || longParts(parts) {
			continue
		}
		if err := s.scope(&info, parts); err != nil {
			return err
		}
	}
	s.add(typeEnd, binary.AppendUvarint(nil, uint64(s.sent.Scopes)))
	return s.flush()
}

// isHanded reports whether another process can go on with a scope in a state.
func isHanded(state aggregate.State) bool {
	return state == aggregate.Synced || state == aggregate.Partial || state == aggregate.Stale
}

func (s *streamWriter) scope(info *aggregate.ScopeInfo, parts []aggregate.Part) error {
	payload := appendScope(nil, info, parts, s.o.Form(info.Kind))
	if len(payload) > maxStreamScope-binary.MaxVarintLen64 {
		return nil
	}
	s.sent.Scopes++
	age := uint64(0) // in milliseconds, and one: 0 is of one that was never proved
	if at := s.o.Proved(info.Kind); !at.IsZero() {
		age = 1 + uint64(max(time.Since(at), 0)/time.Millisecond)
	}
	s.add(typeScope, binary.AppendUvarint(payload, age))
	clear(s.told)
	var e aggregate.Encoder
	payload = payload[:0]
	for o := range s.snap.Objects(info.Member, info.Kind) {
		payload = e.Append(payload, o)
		if len(payload) < objectsBytes {
			continue
		}
		if len(payload) > maxStreamPayload {
			return s.void()
		}
		if whole, err := s.objects(&e, payload); err != nil || !whole {
			return err
		}
		payload = payload[:0]
	}
	if whole, err := s.objects(&e, payload); err != nil || !whole {
		return err
	}
	s.sent.Objects += info.Objects
	return nil
}

// void ends a scope that a reader does not let come.
func (s *streamWriter) void() error {
	s.add(typeVoid, nil)
	return s.flush()
}

// objects writes a block of objects, after the dictionaries that they need, and reports whether they may come.
func (s *streamWriter) objects(e *aggregate.Encoder, payload []byte) (whole bool, err error) {
	if len(payload) == 0 {
		return true, nil
	}
	for d := range e.Dictionaries {
		if s.told[d.ID()] {
			continue
		}
		if len(s.told) == maxStreamDictionaries {
			return false, s.void()
		}
		s.told[d.ID()] = true
		s.add(typeDictionary, d.Bytes())
	}
	s.add(typeObjects, payload)
	return true, s.flush()
}

func (s *streamWriter) add(kind byte, payload []byte) {
	s.buf = frames.Append(s.buf, nil, 0, kind, uint64(s.snap.Revision()), payload)
}

func (s *streamWriter) flush() error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	n, err := s.out.Write(s.buf)
	s.buf = s.buf[:0]
	s.sent.Bytes += int64(n)
	if err != nil {
		return err
	}
	return s.o.Flush(n)
}
