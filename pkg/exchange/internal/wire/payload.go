package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"federator.dev/federator/pkg/aggregate"
)

var (
	errShort = errors.New("it ends too early")
	errLong  = errors.New("it has more than its fields")
)

// Version is that of the protocol.
const Version = 2

// Hello is the first frame of a stream.
type Hello struct {
	Version int    `json:"version"`
	Process string `json:"process"`
	Epoch   uint64 `json:"epoch,string"`
	Resumed bool   `json:"resumed"`       // what follows is what changed since; else the state is first
	Stream  uint64 `json:"stream,string"` // by which digests are asked for of what this importer is told
}

// Append appends the payload.
func (h Hello) Append(dst []byte) []byte { return appendJSON(dst, h) }

// ParseHello is the reverse of Append.
func ParseHello(p []byte) (h Hello, err error) { return h, json.Unmarshal(p, &h) }

func appendJSON(dst []byte, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // there is nothing in these types that could fail
	}
	return append(dst, b...)
}

// Begin begins a batch.
type Begin struct {
	Sequence uint64
	State    bool   // it has all: members that it does not have are gone
	Interest uint64 // the number of what the importer has asked for, of which it is
}

// Append appends the payload.
func (b Begin) Append(dst []byte) []byte {
	return binary.AppendUvarint(appendBool(binary.AppendUvarint(dst, b.Sequence), b.State), b.Interest)
}

// ParseBegin is the reverse of Append.
func ParseBegin(p []byte) (b Begin, err error) {
	f := fields{p: p}
	b = Begin{Sequence: f.uint(), State: f.bool(), Interest: f.uint()}
	return b, f.end()
}

// Member begins what a batch has of a member.
type Member struct {
	Name string
	Full bool   // all of it: scopes that it does not have are gone
	JSON []byte // what is known of it, where that changed; else none
}

// Append appends the payload.
func (m Member) Append(dst []byte) []byte {
	return appendText(appendBool(appendText(dst, m.Name), m.Full), m.JSON)
}

// ParseMember is the reverse of Append. JSON is part of p.
func ParseMember(p []byte) (m Member, err error) {
	f := fields{p: p}
	m = Member{Name: string(f.bytes()), Full: f.bool(), JSON: f.bytes()}
	if err := f.end(); err != nil {
		return m, err
	}
	if m.Name == "" {
		return m, errors.New("it has no name")
	}
	return m, nil
}

// AppendName is the payload of TypeGone and TypeNoScope.
func AppendName[T ~string](dst []byte, name T) []byte { return append(dst, name...) }

// MemberJSON is what is told of a member. Its name is not in it, nor what only its process can use.
func MemberJSON(m aggregate.Member) []byte {
	m.Name, m.Discovery, m.Role = "", "", 0
	return appendJSON(nil, m)
}

// ParseMemberJSON is the reverse of MemberJSON.
func ParseMemberJSON(name string, text []byte) (m aggregate.Member, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("what it says of the member: %w", err)
	}
	m.Name, m.Discovery, m.Role = name, "", 0
	return m, nil
}

// Scope begins what a batch has of a scope.
type Scope struct {
	Kind              aggregate.Kind
	Version, Resource string
	Status            aggregate.Status
	Replace           bool // records follow that are all that there are
}

// Append appends the payload.
func (s Scope) Append(dst []byte) []byte {
	dst = appendText(appendText(appendText(dst, s.Kind), s.Version), s.Resource)
	dst = appendText(appendText(dst, s.Status.State.String()), s.Status.Reason)
	return appendBool(appendBool(dst, s.Status.Unread), s.Replace)
}

// ScopeHash is the hash of what is said of a scope in a payload: not whether all is replaced.
func ScopeHash(payload []byte) uint64 { return Hash(payload[:len(payload)-1]) }

// ParseScope is the reverse of Append.
func ParseScope(p []byte) (s Scope, err error) {
	f := fields{p: p}
	s = Scope{Kind: aggregate.Kind(f.bytes()), Version: string(f.bytes()), Resource: string(f.bytes())}
	state := f.bytes()
	s.Status.Reason = string(f.bytes())
	s.Status.Unread, s.Replace = f.bool(), f.bool()
	if err := f.end(); err != nil {
		return s, err
	}
	if s.Kind == "" {
		return s, errors.New("it has no kind")
	}
	return s, s.Status.State.UnmarshalText(state)
}

// AppendRecord appends the payload of TypeRecord.
func AppendRecord(dst []byte, r *aggregate.Record) []byte {
	dst = appendText(appendText(appendText(appendText(dst, r.ResourceVersion), r.Namespace), r.Name), r.UID)
	dst = binary.AppendUvarint(dst, uint64(len(r.Labels)))
	for _, l := range r.Labels {
		dst = appendText(appendText(dst, l.Key), l.Value)
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Owners)))
	for _, o := range r.Owners {
		dst = appendText(appendText(appendText(appendText(dst, o.APIVersion), o.Kind), o.Name), o.UID)
		dst = appendBool(dst, o.Controller)
	}
	return append(dst, r.Body...)
}

// ParseRecord is the reverse of AppendRecord. The record's body is part of p, and its slices are used again.
func ParseRecord(p []byte, r *aggregate.Record) error {
	f := fields{p: p}
	r.ResourceVersion, r.Namespace = string(f.bytes()), string(f.bytes())
	r.Name, r.UID = string(f.bytes()), string(f.bytes())
	r.Labels, r.Owners, r.Update = r.Labels[:0], r.Owners[:0], false
	for range f.count(2) {
		r.Labels = append(r.Labels, aggregate.Label{Key: string(f.bytes()), Value: string(f.bytes())})
	}
	for range f.count(5) {
		r.Owners = append(r.Owners, aggregate.Owner{
			APIVersion: string(f.bytes()), Kind: string(f.bytes()), Name: string(f.bytes()), UID: string(f.bytes()), Controller: f.bool(),
		})
	}
	r.Body = f.p
	switch {
	case f.err != nil:
		return f.err
	case r.Name == "":
		return errors.New("it has no name")
	case len(r.Body) == 0 || r.Body[0] != '{':
		return errors.New("its body is no object")
	}
	for i := 1; i < len(r.Labels); i++ {
		if r.Labels[i-1].Key >= r.Labels[i].Key {
			return errors.New("its labels are not in order")
		}
	}
	return nil
}

// Delete is an object that is not exported any more.
type Delete struct{ Namespace, Name string }

// Append appends the payload.
func (d Delete) Append(dst []byte) []byte { return appendText(appendText(dst, d.Namespace), d.Name) }

// ParseDelete is the reverse of Append.
func ParseDelete(p []byte) (d Delete, err error) {
	f := fields{p: p}
	d = Delete{Namespace: string(f.bytes()), Name: string(f.bytes())}
	return d, f.end()
}

// End ends what a batch has of a member.
type End struct {
	Records int
	Digest  uint64
}

// Append appends the payload.
func (e End) Append(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(dst, uint64(e.Records)), e.Digest)
}

// ParseEnd is the reverse of Append.
func ParseEnd(p []byte) (e End, err error) {
	f := fields{p: p}
	n := f.uint()
	if n > math.MaxInt32 {
		return e, errors.New("it has too many records")
	}
	if f.err == nil && len(f.p) != 8 {
		return e, errShort
	}
	if f.err != nil {
		return e, f.err
	}
	return End{Records: int(n), Digest: binary.LittleEndian.Uint64(f.p)}, nil
}

// Frontier says that all up to a sequence was told.
type Frontier struct {
	Epoch    uint64
	Sequence uint64
	Revision aggregate.Revision // of the exporter
	Time     int64              // in milliseconds
	Interest uint64             // the number of what the importer has asked for, of which it has all
}

// Append appends the payload, to which a [Writer] adds a hash.
func (f Frontier) Append(dst []byte) []byte {
	for _, n := range []uint64{f.Epoch, f.Sequence, uint64(f.Revision), uint64(f.Time), f.Interest} {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

// ParseFrontier is the reverse of Append.
func ParseFrontier(p []byte) (Frontier, error) {
	f := fields{p: p}
	out := Frontier{Epoch: f.uint(), Sequence: f.uint(), Revision: aggregate.Revision(f.uint()), Time: int64(f.uint()), Interest: f.uint()}
	return out, f.end()
}

func appendText[T ~string | ~[]byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// fields reads the fields of a payload. After an error all are zero.
type fields struct {
	p   []byte
	err error
}

func (f *fields) uint() uint64 {
	n, size := binary.Uvarint(f.p)
	if size <= 0 {
		f.fail(errShort)
		return 0
	}
	f.p = f.p[size:]
	return n
}

func (f *fields) bytes() []byte {
	n := f.uint()
	if n > uint64(len(f.p)) {
		f.fail(errShort)
		return nil
	}
	b := f.p[:n:n]
	f.p = f.p[n:]
	return b
}

func (f *fields) bool() bool {
	if len(f.p) == 0 || f.p[0] > 1 {
		f.fail(errShort)
		return false
	}
	b := f.p[0] == 1
	f.p = f.p[1:]
	return b
}

// count is the number of what has at least so many bytes each.
func (f *fields) count(size int) int {
	n := f.uint()
	if n > uint64(len(f.p)/size) {
		f.fail(errShort)
		return 0
	}
	return int(n)
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
	f.p = nil
}

func (f *fields) end() error {
	if f.err == nil && len(f.p) > 0 {
		return errLong
	}
	return f.err
}

// RecordName returns the namespace and name in a payload of TypeRecord.
func RecordName(p []byte) (namespace, name string) {
	f := fields{p: p}
	f.bytes()
	return string(f.bytes()), string(f.bytes())
}

// RecordHash is the hash of an object in a payload of TypeRecord, but for its resourceVersion: that of an object of which
// nothing else is told has changed is not told.
func RecordHash(p []byte) uint64 {
	f := fields{p: p}
	f.bytes()
	return Hash(f.p)
}
