package handover

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

// SeenPath is where a Giver says since when violations are there.
const SeenPath = "/handover/v1/seen"

// Seen is when a violation was first seen, in seconds since 1970, of what has digests that are the same in all processes.
type Seen struct {
	Binding, Subject, Violation uint64
	At                          int64
}

// The answer is seenMagic and records of four numbers, little endian, as they are in Seen. The last has no time, and how many came
// before as its violation.
const (
	seenMagic = "fdhseen1"
	seenBytes = 32
	seenType  = "application/vnd.federator.seen"
	maxSeen   = 1 << 20 // of what a member, or all keys, have more nothing is told
	seenLimit = 30 * time.Second
)

var errSeen = errors.New("it is not when violations were first seen")

func (s *Seen) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.Binding)
	b = binary.LittleEndian.AppendUint64(b, s.Subject)
	b = binary.LittleEndian.AppendUint64(b, s.Violation)
	return binary.LittleEndian.AppendUint64(b, uint64(s.At))
}

// sendSeen writes when violations were first seen.
func (g *Giver) sendSeen(w http.ResponseWriter, r *http.Request, list iter.Seq[Seen]) error {
	to := &stallWriter{to: w, control: http.NewResponseController(w), stall: g.o.Stall}
	w.Header().Set("Content-Type", seenType)
	w.WriteHeader(http.StatusOK)
	buf := append(make([]byte, 0, 64<<10), seenMagic...)
	flush := func() error {
		_, err := to.Write(buf)
		if err == nil {
			err = g.rate.WaitN(r.Context(), len(buf))
		}
		buf = buf[:0]
		return err
	}
	end := Seen{}
	for s := range list {
		if end.Violation == maxSeen {
			break
		}
		end.Violation++
		if buf = s.append(buf); len(buf) > 63<<10 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	buf = end.append(buf)
	if err := flush(); err != nil {
		return err
	}
	return to.flush()
}

// Seen asks a process since when the violations of a member are there, or of the keys of views that it judges where member is "". It
// returns all that it says, or an error.
func (t *Taker) Seen(ctx context.Context, h Holder, member, uid string) (list []Seen, err error) {
	err = t.inTurn(ctx, question{h.ID, true}, seenLimit, func(ctx context.Context) error {
		return t.stream(ctx, h, request{path: SeenPath, member: member, uid: uid, contentType: seenType}, func(_ context.Context, from io.Reader) (err error) {
			list, err = readSeen(from, time.Now())
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func readSeen(from io.Reader, now time.Time) ([]Seen, error) {
	r := bufio.NewReader(from)
	var head [len(seenMagic)]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", errSeen, err)
	}
	if string(head[:]) != seenMagic {
		return nil, errSeen
	}
	var list []Seen
	for {
		var record [seenBytes]byte
		if _, err := io.ReadFull(r, record[:]); err != nil {
			return nil, fmt.Errorf("%w: after %d: %w", errSeen, len(list), err)
		}
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(record[8*i:]) }
		s := Seen{word(0), word(1), word(2), int64(word(3))}
		switch {
		case s == Seen{Violation: uint64(len(list))}:
			if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("%w: it does not end", errSeen)
			}
			return list, nil
		case s.At <= 0, len(list) == maxSeen:
			return nil, fmt.Errorf("%w: record %d", errSeen, len(list))
		}
		s.At = min(s.At, now.Unix()) // the process's clock may be ahead, or have been: the others of its times are no worse for it
		list = append(list, s)
	}
}
