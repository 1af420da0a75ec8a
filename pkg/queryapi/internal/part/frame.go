package part

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// Type is the type of a frame.
type Type byte

// The types of frames.
const (
	HeaderFrame   Type = 'h'
	ItemFrame     Type = 'i' // of a list
	EventFrame    Type = 'e' // of a watch
	MarkFrame     Type = 'm' // a watch has sent all up to a revision
	InitialFrame  Type = 'n' // the same, and all initial events
	BookmarkFrame Type = 'b' // of a watch of a query: its own bookmark
	ErrorFrame    Type = 's' // a Status, with which the part ends
	End           Type = 'z'
)

// Header is what a part begins with.
type Header struct {
	Epoch    aggregate.Revision `json:"epoch"`    // the first revision of the process
	Revision aggregate.Revision `json:"revision"` // of the snapshot
	// Position is where a watch of the query that the part answers can go on, which means something to its process alone.
	Position string `json:"position,omitempty"`
	// Differs says that the process judges others than Ask.Known; Members are these.
	Differs bool     `json:"differs,omitempty"`
	Members []string `json:"members,omitempty"`
	// Also are those of Ask.Also for which the process answers.
	Also []string `json:"also,omitempty"`
	// Refused is why there is nothing in this part: the caller may read nothing in its
	// members (403), or these do not serve the resource (404).
	Refused *metav1.Status `json:"refused,omitempty"`
	// Unsure are members, in order, of which it is not known whether they serve a resource that none of the
	// others does.
	Unsure []string `json:"unsure,omitempty"`

	Kind        aggregate.Kind  `json:"kind,omitempty"`
	Resource    string          `json:"resource,omitempty"` // <plural>.<group>
	ItemKind    string          `json:"itemKind,omitempty"` // of an item, by its format
	ItemVersion string          `json:"itemVersion,omitempty"`
	Version     string          `json:"version,omitempty"` // the requested one
	Table       bool            `json:"table,omitempty"`
	YAML        bool            `json:"yaml,omitempty"`
	Protobuf    bool            `json:"protobuf,omitempty"`
	Fallback    bool            `json:"fallback,omitempty"` // there is another format than protobuf
	Columns     json.RawMessage `json:"columns,omitempty"`
	Rows        bool            `json:"rows,omitempty"`    // each item is a line of package rows
	Visible     []string        `json:"visible,omitempty"` // with Rows: the members that the list is about, in order

	NotSynced []selection.NotSynced `json:"notSynced,omitempty"`
	// OtherVersions are members, in order, whose objects are at another version, by it.
	OtherVersions map[string][]string `json:"otherVersions,omitempty"`
	Warnings      []string            `json:"warnings,omitempty"`     // before those of freshness
	LateWarnings  []string            `json:"lateWarnings,omitempty"` // after them

	// Of a list with a limit: the number of its items, whether more follow, and how many,
	// if that is counted.
	Count     int   `json:"count,omitempty"`
	More      bool  `json:"more,omitempty"`
	Counted   bool  `json:"counted,omitempty"`
	Remaining int64 `json:"remaining,omitempty"`
	// Page is where its items are: who merges parts has to know the last one before the first is sent.
	Page []PageMember `json:"page,omitempty"`
	// Bookmarks of a watch, encoded as events are: a plain one, and that after the initial events.
	Bookmark, InitialBookmark []byte `json:",omitempty"`
}

// PageMember is the items of a page in one member, each as <namespace>/<name>.
type PageMember struct {
	Member string   `json:"m"`
	Keys   []string `json:"k"`
}

const frameHead = 5 // the type, and the length in four bytes

// Begin appends the beginning of a frame, which Finish completes.
func Begin(dst []byte, t Type) []byte { return append(dst, byte(t), 0, 0, 0, 0) }

// Finish completes the frame that begins at an offset.
func Finish(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at+1:], uint32(len(dst)-at-frameHead)) // below a gigabyte
	return dst
}

// Append appends a frame.
func Append(dst []byte, t Type, payload []byte) []byte {
	at := len(dst)
	return Finish(append(Begin(dst, t), payload...), at)
}

// AppendHeader appends the frame of a header.
func AppendHeader(dst []byte, h *Header) ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return dst, fmt.Errorf("part: %w", err)
	}
	return Append(dst, HeaderFrame, text), nil
}

// AppendPosition appends what an item begins with.
func AppendPosition(dst []byte, p aggregate.Position) []byte {
	for _, s := range []string{p.Member, p.Namespace, p.Name} {
		dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
	}
	return dst
}

// Item is an item of a list.
type Item struct {
	Member, Namespace, Name []byte
	Text                    []byte
}

var errMalformed = errors.New("part: a frame is malformed")

// ParseItem parses the payload of an item, which it aliases.
func ParseItem(payload []byte) (it Item, err error) {
	for _, part := range []*[]byte{&it.Member, &it.Namespace, &it.Name} {
		n, size := binary.Uvarint(payload)
		if size <= 0 || n > uint64(len(payload)-size) {
			return it, errMalformed
		}
		*part, payload = payload[size:size+int(n)], payload[size+int(n):]
	}
	it.Text = payload
	return it, nil
}

// Event is an event of a watch. Marks are where in its text the digits of a revision are to be.
type Event struct {
	Revision aggregate.Revision
	Marks    []int
	Text     []byte
}

// AppendEvent appends what an event's frame has before the text.
func AppendEvent(dst []byte, revision aggregate.Revision, marks []int) []byte {
	dst = binary.AppendUvarint(dst, uint64(revision))
	dst = append(dst, byte(len(marks)))
	for _, m := range marks {
		dst = binary.AppendUvarint(dst, uint64(m))
	}
	return dst
}

// ParseEvent parses the payload of an event, which it aliases. Marks are appended to marks.
func ParseEvent(payload []byte, marks []int) (e Event, err error) {
	r, size := binary.Uvarint(payload)
	if size <= 0 || len(payload) == size {
		return e, errMalformed
	}
	e.Revision = aggregate.Revision(r)
	n, payload := int(payload[size]), payload[size+1:]
	for range n {
		m, size := binary.Uvarint(payload)
		if size <= 0 {
			return e, errMalformed
		}
		marks, payload = append(marks, int(m)), payload[size:]
	}
	e.Marks, e.Text = marks, payload
	for _, m := range marks {
		if m < 0 || m >= len(e.Text) {
			return e, errMalformed
		}
	}
	return e, nil
}

// MaxFrame bounds a frame, and a line of a watch: an object of a member is far smaller.
const MaxFrame = 256 << 20

// Reader reads frames.
type Reader struct {
	in  *bufio.Reader
	buf []byte
}

// NewReader returns a Reader.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next frame; its payload is valid until the next call. The error of a part that
// ends without an End is io.ErrUnexpectedEOF, or that of its connection.
func (r *Reader) Next() (Type, []byte, error) {
	var head [frameHead]byte
	if err := r.fill(head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if n > MaxFrame {
		return 0, nil, errMalformed
	}
	r.buf = r.buf[:0]
	for len(r.buf) < n { // room is made as the frame arrives: its length is only what the peer says
		at := len(r.buf)
		r.buf = slices.Grow(r.buf, min(n-at, max(at, 64<<10)))
		r.buf = r.buf[:min(n, cap(r.buf))]
		if err := r.fill(r.buf[at:]); err != nil {
			return 0, nil, err
		}
	}
	return Type(head[0]), r.buf, nil
}

func (r *Reader) fill(b []byte) error {
	_, err := io.ReadFull(r.in, b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("part: %w", err)
	}
	return nil
}

// Header reads the header.
func (r *Reader) Header() (*Header, error) {
	t, payload, err := r.Next()
	if err != nil {
		return nil, err
	}
	if t != HeaderFrame {
		return nil, errMalformed
	}
	h := &Header{}
	if err := json.Unmarshal(payload, h); err != nil {
		return nil, fmt.Errorf("part: %w", err)
	}
	return h, nil
}

// Shrink frees a large buffer while nothing is to be read.
func (r *Reader) Shrink() {
	if cap(r.buf) > 64<<10 {
		r.buf = nil
	}
}

// Batch returns at least one frame, and those that have arrived up to a size. They belong to the
// caller.
func (r *Reader) Batch(size int) (frames []byte, err error) {
	for len(frames) == 0 || len(frames) < size && r.in.Buffered() > 0 {
		t, payload, err := r.Next()
		if err != nil {
			return frames, err
		}
		frames = Append(frames, t, payload)
	}
	r.Shrink()
	return frames, nil
}

// Cut cuts the first of some frames off.
func Cut(frames []byte) (t Type, payload, rest []byte) {
	n := int(binary.BigEndian.Uint32(frames[1:])) + frameHead
	return Type(frames[0]), frames[frameHead:n], frames[n:]
}
