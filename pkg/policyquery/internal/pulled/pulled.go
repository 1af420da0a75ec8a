package pulled

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"federator.dev/federator/pkg/aggregate"
)

// Scope is what is known of a scope.
type Scope struct {
	Kind              aggregate.Kind
	Version, Resource string `json:",omitempty"`
	Status            aggregate.Status
}

// member is the first item of a member.
type member struct {
	Member aggregate.Member
	Scopes []Scope `json:",omitempty"`
}

// Types of items: their first byte.
const (
	memberItem = 'm'
	objectItem = 'o'
)

// Writer encodes items.
type Writer struct {
	Item func(payload []byte) error // which may keep nothing of it
	buf  []byte
}

// Member begins a member. What people write into its Cluster in their own words is left out.
func (w *Writer) Member(m aggregate.Member, scopes []Scope) error {
	m.Cluster, m.Discovery, m.Role = m.Cluster.Plain(), "", aggregate.Judge
	text, err := json.Marshal(member{m, scopes})
	if err != nil {
		return fmt.Errorf("pulled: %w", err)
	}
	return w.Item(append([]byte{memberItem}, text...))
}

// Object writes an object of the member that was begun last, of one of its scopes, with a body.
func (w *Writer) Object(o aggregate.Object, body []byte) error {
	w.buf = append(w.buf[:0], objectItem)
	for _, s := range []string{string(o.Ref().Kind), o.Namespace(), o.Name(), o.UID(), o.ResourceVersion()} {
		w.buf = append(binary.AppendUvarint(w.buf, uint64(len(s))), s...)
	}
	w.buf = append(w.buf, body...)
	return w.Item(w.buf)
}

// TooLargeError is the error of an Index that would hold more than it may.
type TooLargeError struct {
	Max   int64
	Kind  aggregate.Kind // that takes most
	Bytes int64          // which it takes so far
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("it reads more than %d bytes of members that other processes judge, most of it %s (%d bytes so far): name members, namespaces or fewer kinds, or read fewer fields",
		e.Max, e.Kind, e.Bytes)
}

var errMalformed = errors.New("pulled: what another process sent is malformed")

// Index holds what is pulled.
type Index struct {
	index  *aggregate.Index
	max    int64
	bytes  int64
	kinds  map[aggregate.Kind]int64
	seen   map[string]bool
	scopes map[aggregate.Kind]*scope // of the member whose items arrive; nil: they are skipped
}

// scope is one whose objects arrive.
type scope struct {
	writer *aggregate.Scope
	items  []aggregate.Item
	status aggregate.Status
}

// New returns an Index of at most so many bytes of items.
func New(maxBytes int64) (*Index, error) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), LogBytes: 1 << 10}) // nobody watches it
	if err != nil {
		return nil, fmt.Errorf("pulled: %w", err)
	}
	return &Index{index: index, max: maxBytes, kinds: map[aggregate.Kind]int64{}, seen: map[string]bool{}}, nil
}

// Take takes an item in, of which it keeps nothing. Of a member that two processes send, what the first sent counts.
func (x *Index) Take(item []byte) error {
	if len(item) == 0 {
		return errMalformed
	}
	switch item[0] {
	case memberItem:
		var m member
		if err := json.Unmarshal(item[1:], &m); err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		return x.Add(m.Member, m.Scopes)
	case objectItem:
		return x.object(item[1:], int64(len(item)))
	}
	return errMalformed
}

// Add adds a member without objects, unless it is there.
func (x *Index) Add(m aggregate.Member, scopes []Scope) error {
	if err := x.end(); err != nil || x.seen[m.Name] {
		return err
	}
	x.seen[m.Name] = true
	if err := x.index.PutMember(m); err != nil {
		return fmt.Errorf("pulled: %w", err)
	}
	x.scopes = map[aggregate.Kind]*scope{}
	for _, s := range scopes {
		writer, err := x.index.OpenScopeAs(m.Name, s.Kind, s.Version, s.Resource)
		if err != nil {
			return fmt.Errorf("pulled: %w", err)
		}
		x.scopes[s.Kind] = &scope{writer: writer, status: s.Status}
	}
	return nil
}

// AddScope adds a scope without objects to a member that is there, unless it has it.
func (x *Index) AddScope(member string, s Scope) error {
	if err := x.end(); err != nil {
		return err
	}
	at := x.index.Snapshot()
	if _, has := at.Scope(member, s.Kind); has || !x.seen[member] {
		return nil
	}
	writer, err := x.index.OpenScopeAs(member, s.Kind, s.Version, s.Resource)
	if err != nil {
		return fmt.Errorf("pulled: %w", err)
	}
	x.scopes = map[aggregate.Kind]*scope{s.Kind: {writer: writer, status: s.Status}}
	return nil
}

func (x *Index) object(rest []byte, size int64) error {
	var texts [5]string
	for i := range texts {
		n, at := binary.Uvarint(rest)
		if at <= 0 || n > uint64(len(rest)-at) {
			return errMalformed
		}
		texts[i], rest = string(rest[at:at+int(n)]), rest[at+int(n):]
	}
	kind := aggregate.Kind(texts[0])
	x.bytes += size
	x.kinds[kind] += size
	if x.bytes > x.max {
		return x.tooLarge()
	}
	if x.scopes == nil {
		return nil
	}
	s := x.scopes[kind]
	if s == nil || len(rest) == 0 {
		return errMalformed
	}
	s.items = append(s.items, s.writer.Item(&aggregate.Record{
		Namespace: texts[1], Name: texts[2], UID: texts[3], ResourceVersion: texts[4], Body: rest,
	}))
	return nil
}

func (x *Index) tooLarge() error {
	err := &TooLargeError{Max: x.max}
	for kind, bytes := range x.kinds {
		if bytes > err.Bytes || bytes == err.Bytes && kind < err.Kind {
			err.Kind, err.Bytes = kind, bytes
		}
	}
	return err
}

// end commits the member whose items have arrived.
func (x *Index) end() error {
	for _, s := range x.scopes {
		if _, err := s.writer.Replace(s.items, s.status); err != nil {
			return fmt.Errorf("pulled: %w", err)
		}
		s.writer.Close()
	}
	x.scopes = nil
	return nil
}

// Snapshot returns what was taken in.
func (x *Index) Snapshot() (*aggregate.Snapshot, error) {
	if err := x.end(); err != nil {
		return nil, err
	}
	return x.index.Snapshot(), nil
}
