package persistence

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// header is the first frame of a file.
type header struct {
	Format int    `json:"format"`
	Type   string `json:"type"` // segment or log
	Member string `json:"member"`
	Number uint64 `json:"number"`
	Salt   []byte `json:"salt"` // of the file's key
	Sealed bool   `json:"sealed,omitempty"`

	// Follows is how long the log before this one is that it continues: what that has beyond was never
	// seen. Begins says that there was nothing of the member before this log, Needs that the segment of
	// its number has what is in no log.
	Follows int64 `json:"follows,omitempty"`
	Begins  bool  `json:"begins,omitempty"`
	Needs   bool  `json:"needs,omitempty"`
}

const (
	formatVersion = 1
	segmentType   = "segment"
	logType       = "log"
)

func (h *header) check(number uint64, kind, member string, sealed bool) error {
	switch {
	case h.Format != formatVersion:
		return fmt.Errorf("format %d, not %d: %w", h.Format, formatVersion, frames.ErrDoubt)
	case h.Type != kind || h.Number != number || h.Member != member:
		return fmt.Errorf("it is %s %d of member %q: %w", h.Type, h.Number, h.Member, frames.ErrDoubt)
	case h.Sealed != sealed:
		return fmt.Errorf("encrypted: %t, configured: %t: %w", h.Sealed, sealed, frames.ErrDoubt)
	}
	return nil
}

// A member has a directory, with a segment (all that there was at one revision) and the logs
// that continue it, all numbered: a segment and the log of its number begin at the same revision.
const membersDir = "members"

// memberDir is a member's directory, named after it where its name can be one of a file.
func memberDir(root, member string) string {
	name := url.PathEscape(member)
	if len(name) > 200 || strings.Trim(name, ".") == "" {
		sum := sha256.Sum256([]byte(member))
		name = hashedName + hex.EncodeToString(sum[:16])
	}
	return filepath.Join(root, membersDir, name)
}

// hashedName begins the name of a directory which is not that of its member: no escaped name does.
const hashedName = "%h"

// memberOf returns the member of a directory, false for one that is none's. Where its name does not say
// so a header does, which is checked when the file is read.
func memberOf(root, directory string) (string, bool) {
	if !strings.HasPrefix(directory, hashedName) {
		name, err := url.PathUnescape(directory)
		return name, err == nil
	}
	dir := filepath.Join(root, membersDir, directory)
	files, err := listMember(dir)
	if err != nil {
		return "", false
	}
	for kind, numbers := range map[string][]uint64{segmentType: files.segments, logType: files.logs} {
		for _, n := range numbers {
			if h, err := readHeader(filepath.Join(dir, fileName(n, kind))); err == nil && memberDir(root, h.Member) == dir {
				return h.Member, true
			}
		}
	}
	return "", false
}

// readHeader reads the header of a file without checking it.
func readHeader(path string) (h header, err error) {
	f, err := os.Open(path)
	if err != nil {
		return h, err
	}
	defer f.Close()
	fr, err := frames.NewReader(f).Next()
	if err == nil && fr.Kind != frames.TypeHeader {
		err = frames.ErrDoubt
	}
	if err != nil {
		return h, err
	}
	return h, json.Unmarshal(fr.Payload, &h)
}

func fileName(number uint64, kind string) string { return fmt.Sprintf("%012d.%s", number, kind) }

// memberFiles are the names in a member's directory, by number.
type memberFiles struct {
	segments, logs []uint64 // ascending
	others         []string // that are none of ours, or were not completed
}

// listMember lists a member's directory; one that is not there is empty.
func listMember(dir string) (m memberFiles, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	for _, e := range entries {
		number, kind, ok := strings.Cut(e.Name(), ".")
		n, err := strconv.ParseUint(number, 10, 64)
		switch {
		case ok && err == nil && kind == segmentType && e.Name() == fileName(n, kind):
			m.segments = append(m.segments, n)
		case ok && err == nil && kind == logType && e.Name() == fileName(n, kind):
			m.logs = append(m.logs, n)
		default:
			m.others = append(m.others, e.Name())
		}
	}
	slices.Sort(m.segments)
	slices.Sort(m.logs)
	return m, nil
}

// memberLog is what a member's commits are written to.
type memberLog struct {
	name   string
	dir    string
	number uint64 // of the log
	log    *frames.File
	base   int64 // bytes of the segment
	logged int64 // bytes of logs before this one that continue the segment
	logs   int   // how many

	encoders  map[aggregate.Kind]*aggregate.Encoder // of the batch
	ended     []*aggregate.Encoder                  // of scopes that were removed within it
	payload   []byte                                // of the batch, as far as it is not in frames
	states    map[aggregate.Kind]bool               // that the batch ends with
	recorded  map[aggregate.Kind]*aggregate.Part    // what was written last of how far it reaches
	knows     bool                                  // the batch has what is known of the member
	unwritten bool                                  // the batch has something
	anew      bool                                  // the batch is written as a segment: it has too much, or not all is known
	batched   int64                                 // bytes of the batch
	seen      int64                                 // bytes of the log that are in a batch which was written
}

// newLog begins a log of a member, with what its header says of its place.
func newLog(root string, key []byte, h header) (*frames.File, error) {
	dir := memberDir(root, h.Member)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	h.Format, h.Type, h.Salt, h.Sealed = formatVersion, logType, frames.NewSalt(), len(key) > 0
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	f, err := frames.Create(filepath.Join(dir, fileName(h.Number, logType)), key, text, h.Salt, keyInfo)
	if err != nil {
		return nil, err
	}
	if err := f.Flush(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (m *memberLog) encoder(kind aggregate.Kind) *aggregate.Encoder {
	e := m.encoders[kind]
	if e == nil {
		e = &aggregate.Encoder{}
		m.encoders[kind] = e
	}
	return e
}

// allEncoders are those of the batch.
func (m *memberLog) allEncoders() iter.Seq[*aggregate.Encoder] {
	return func(yield func(*aggregate.Encoder) bool) {
		for _, e := range m.ended {
			if !yield(e) {
				return
			}
		}
		for _, e := range m.encoders {
			if !yield(e) {
				return
			}
		}
	}
}

// part moves what the batch has so far into a frame, once it is long.
func (m *memberLog) part(revision aggregate.Revision) {
	if len(m.payload) < partBytes {
		return
	}
	m.log.Add(typePart, uint64(revision), m.payload)
	m.batched += int64(len(m.payload))
	m.payload = m.payload[:0]
	if m.log.Buffered() >= 2*partBytes {
		_ = m.log.Flush() // the error stays, for the batch's end
	}
}

// isTooLong reports whether a segment is better than the batch: it is written, and read, piece by piece.
func (m *memberLog) isTooLong() bool { return m.batched > max(longBatch, m.base/4) }

// abandon drops the batch, of which a segment will have all.
func (m *memberLog) abandon() {
	m.reset()
	m.log.Discard()
	m.anew, m.unwritten = true, true
}

func newMemberLog(root, member string, number uint64, f *frames.File) *memberLog {
	return &memberLog{
		name: member, dir: memberDir(root, member), number: number, log: f,
		seen: f.Written(), encoders: map[aggregate.Kind]*aggregate.Encoder{}, states: map[aggregate.Kind]bool{}, recorded: map[aggregate.Kind]*aggregate.Part{},
	}
}

// commit adds a commit to the batch.
func (m *memberLog) commit(c *aggregate.Commit) {
	m.unwritten = true
	if m.anew {
		return
	}
	if c.Lost() {
		m.abandon()
		return
	}
	if c.Kind == "" {
		m.payload = appendRevisions(append(m.payload, tagMemberCommit), c)
		m.knows = true
		return
	}
	version, resource, is := c.Scope()
	m.payload = appendRevisions(append(m.payload, tagCommit), c)
	m.payload = appendText(m.payload, string(c.Kind))
	if !is {
		m.payload = append(m.payload, 0)
		delete(m.states, c.Kind)
		delete(m.recorded, c.Kind)
		if e := m.encoders[c.Kind]; e != nil { // it is read anew from here on, by the same dictionaries
			m.ended = append(m.ended, e)
			delete(m.encoders, c.Kind)
		}
		return
	}
	m.payload = appendText(appendText(append(m.payload, 1), version), resource)
	m.states[c.Kind] = true
	e := m.encoder(c.Kind)
	for ch := range c.Changes() {
		if ch.After.IsZero() {
			m.payload = appendText(appendText(append(m.payload, opDelete), ch.Before.Namespace()), ch.Before.Name())
		} else {
			m.payload = e.Append(append(m.payload, opPut), ch.After)
		}
		if m.part(c.To); m.isTooLong() {
			m.abandon()
			return
		}
	}
	m.payload = append(m.payload, opEnd)
}

// What a commit does to an object.
const (
	opEnd    byte = iota // there are no more
	opPut                // the object follows
	opDelete             // namespace and name follow

	// Of commits that led to a segment:
	opAdded   // namespace and name follow
	opBefore  // what the object was before follows
	opDeleted // as opBefore, of one that was deleted
)

// end ends the batch, with the states of its scopes.
func (m *memberLog) end(after *aggregate.Snapshot, forms func(aggregate.Kind) string) error {
	if !m.unwritten {
		return nil
	}
	if m.knows {
		if known, ok := after.Member(m.name); ok {
			var err error
			if m.payload, err = appendMember(append(m.payload, tagMember), &known); err != nil {
				return err
			}
		}
	}
	for kind := range m.states {
		info, ok := after.Scope(m.name, kind)
		if !ok {
			continue
		}
		parts := after.Reached(m.name, kind)
		m.payload = appendText(appendState(append(m.payload, tagState), kind, info.Status, parts), forms(kind))
		m.note(kind, parts)
	}
	m.log.Add(typeBatch, uint64(after.Revision()), m.payload)
	m.reset()
	return nil
}

// note notes how far a scope is recorded.
func (m *memberLog) note(kind aggregate.Kind, parts []aggregate.Part) {
	if len(parts) == 0 {
		delete(m.recorded, kind)
	} else {
		m.recorded[kind] = &parts[0]
	}
}

// noteAll notes how far scopes are recorded in what is on disk.
func (m *memberLog) noteAll(reached map[aggregate.Kind][]aggregate.Part) {
	for kind, parts := range reached {
		m.note(kind, parts)
	}
}

// progress adds how far scopes were read since they were last recorded, also where that is not known any
// more.
func (m *memberLog) progress(snap *aggregate.Snapshot) {
	for _, kind := range snap.KindsOf(m.name) {
		var now *aggregate.Part
		if parts := snap.Reached(m.name, kind); len(parts) > 0 {
			now = &parts[0]
		}
		if m.recorded[kind] != now {
			m.states[kind], m.unwritten = true, true
		}
	}
}

func (m *memberLog) reset() {
	clear(m.ended)
	m.ended = m.ended[:0]
	for _, e := range m.encoders {
		e.Reset()
	}
	if len(m.encoders) > 64 {
		clear(m.encoders)
	}
	clear(m.states)
	if m.payload = m.payload[:0]; cap(m.payload) > 2*partBytes {
		m.payload = nil
	}
	m.knows, m.unwritten, m.anew, m.batched = false, false, false, 0
}
