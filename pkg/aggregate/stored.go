package aggregate

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unique"
	"weak"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// DictionaryID identifies a dictionary by its content, in any process.
type DictionaryID [sha256.Size]byte

// Dictionary is what bodies are encoded with, as it was trained.
type Dictionary struct {
	id  DictionaryID
	raw []byte
	enc *encoder
}

// ID returns the dictionary's identity.
func (d *Dictionary) ID() DictionaryID { return d.id }

// Bytes returns the dictionary. They are shared and must not be changed.
func (d *Dictionary) Bytes() []byte { return d.raw }

// ErrCorrupt is returned for bytes that no Encoder has written.
var ErrCorrupt = errors.New("not what an index has written")

// Encoder writes objects of an index as bytes, bodies as the index holds them. What many
// objects share is written once, so a Decoder must read all that one Encoder has written, in
// its order. The zero value is ready.
type Encoder struct {
	namespaces   map[unique.Handle[string]]uint64
	attrs        map[*attrSet]uint64
	owners       map[*ownerSet]uint64
	dictionaries map[*Dictionary]uint64
}

// Reset begins anew, for another Decoder.
func (w *Encoder) Reset() {
	clear(w.namespaces)
	clear(w.attrs)
	clear(w.owners)
	clear(w.dictionaries)
}

// Dictionaries yields the dictionaries that a Decoder will need.
func (w *Encoder) Dictionaries(yield func(*Dictionary) bool) {
	for d := range w.dictionaries {
		if d != nil && !yield(d) {
			return
		}
	}
}

// What an encoded object has.
const (
	isOdd  byte = 1 << iota // UID and resourceVersion as text
	isFast                  // the body is encoded fast
)

// place appends the number of a value that may have been written before: 0 says that it follows.
func place[K comparable](dst []byte, seen *map[K]uint64, k K) (out []byte, again bool) {
	if n, ok := (*seen)[k]; ok {
		return binary.AppendUvarint(dst, n), true
	}
	if *seen == nil {
		*seen = map[K]uint64{}
	}
	(*seen)[k] = uint64(len(*seen)) + 1
	return append(dst, 0), false
}

// Append appends an object.
func (w *Encoder) Append(dst []byte, o Object) []byte {
	e, b := o.e, o.e.body.Load()
	flags := byte(0)
	odd := e.owners != nil && e.owners.odd
	if odd {
		flags |= isOdd
	}
	if b.dict.fast != nil {
		flags |= isFast
	}
	dst = append(dst, flags)
	var again bool
	if dst, again = place(dst, &w.namespaces, e.namespace); !again {
		dst = appendString(dst, e.namespace.Value())
	}
	dst = appendString(dst, e.name)
	dst = binary.AppendUvarint(dst, uint64(e.revision))
	if odd {
		dst = appendString(appendString(dst, e.uidString()), e.rvString())
	} else {
		dst = binary.AppendUvarint(append(dst, e.uid[:]...), e.rv)
	}
	dst = w.appendSet(dst, e.labels)
	dst = w.appendSet(dst, e.fields)
	dst = w.appendOwners(dst, e.owners)
	if dst, again = place(dst, &w.dictionaries, b.dict.of); !again && b.dict.of != nil {
		dst = append(append(dst, 1), b.dict.of.id[:]...)
	} else if !again {
		dst = append(dst, 0)
	}
	return appendString(dst, b.data)
}

func (w *Encoder) appendSet(dst []byte, s *attrSet) []byte {
	dst, again := place(dst, &w.attrs, s)
	if again {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.list())))
	for _, p := range s.list() {
		dst = appendString(appendString(dst, p.Key), p.Value)
	}
	return dst
}

func (w *Encoder) appendOwners(dst []byte, s *ownerSet) []byte {
	if s != nil && s.odd { // of this object alone
		return appendOwnerList(append(dst, 0), s.owners)
	}
	dst, again := place(dst, &w.owners, s)
	if again {
		return dst
	}
	if s == nil {
		return appendOwnerList(dst, nil)
	}
	return appendOwnerList(dst, s.owners)
}

func appendOwnerList(dst []byte, owners []Owner) []byte {
	return ownersText(binary.AppendUvarint(dst, uint64(len(owners))), owners)
}

// input is bytes to decode. The first error stays.
type input struct {
	rest []byte
	err  error
}

func (in *input) fail(what string) {
	if in.err == nil {
		in.err = fmt.Errorf("%s: %w", what, ErrCorrupt)
	}
	in.rest = nil
}

func (in *input) uvarint(what string) uint64 {
	n, size := binary.Uvarint(in.rest)
	if size <= 0 {
		in.fail(what)
		return 0
	}
	in.rest = in.rest[size:]
	return n
}

// count returns a number of things of at least a byte each.
func (in *input) count(what string) int { return in.countOf(1, what) }

// countOf returns a number of things of at least so many bytes each.
func (in *input) countOf(least int, what string) int {
	n := in.uvarint(what)
	if n > uint64(len(in.rest)/least) {
		in.fail(what)
		return 0
	}
	return int(n)
}

func (in *input) bytes(n int, what string) []byte {
	if n < 0 || n > len(in.rest) {
		in.fail(what)
		return nil
	}
	b := in.rest[:n]
	in.rest = in.rest[n:]
	return b
}

// text returns a string that is the input's own memory.
func (in *input) text(what string) string { return unsafeString(in.bytes(in.count(what), what)) }

// seen is what an Encoder has numbered.
type seen[T any] []T

// at returns what a number stands for, and false where it follows.
func (s seen[T]) at(in *input, what string) (v T, again bool) {
	n := in.uvarint(what)
	switch {
	case in.err != nil:
		return v, true
	case n == 0:
		return v, false
	case n > uint64(len(s)):
		in.fail(what)
		return v, true
	}
	return s[n-1], true
}

// decoding is what has come of one Encoder's bytes, for one scope.
type decoding struct {
	scope      *Scope
	dictionary func(Kind, DictionaryID) *Dictionary // nil for one that is not known

	namespaces seen[unique.Handle[string]]
	sets       seen[*storedSet]
	owners     seen[*ownerSet]
	known      seen[*Dictionary]

	key []byte
}

// storedSet is a set of pairs, which may be one of labels and one of fields.
type storedSet struct {
	pairs []Label
	as    [2]*attrSet
}

// next decodes an object.
func (d *decoding) next(in *input) *entry {
	flags := in.bytes(1, "an object's flags")
	if in.err != nil {
		return nil
	}
	id := &identity{}
	e := &entry{identity: id}
	namespace, again := d.namespaces.at(in, "an object's namespace")
	if !again {
		namespace = unique.Make(in.text("a namespace"))
		d.namespaces = append(d.namespaces, namespace)
	}
	id.namespace, id.name = namespace, strings.Clone(in.text("a name"))
	e.revision = Revision(in.uvarint("a revision"))
	var uid, rv string
	odd := flags[0]&isOdd != 0
	if odd {
		uid, rv = in.text("a UID"), in.text("a resourceVersion")
	} else {
		copy(id.uid[:], in.bytes(len(id.uid), "a UID"))
		e.rv = in.uvarint("a resourceVersion")
	}
	id.labels = d.set(in, labelSpace)
	id.fields = d.set(in, fieldSpace)
	owners := d.ownerSet(in, odd, uid, rv)
	if id.owners = owners; odd && in.err == nil {
		id.uid, _ = parseUID(uid)
		e.rv, _ = parseRV(rv)
	}
	b := d.body(in, flags[0]&isFast != 0)
	if in.err != nil {
		return nil
	}
	e.body.Store(b)
	return e
}

func (d *decoding) set(in *input, space byte) *attrSet {
	s, again := d.sets.at(in, "a set")
	if !again {
		s = &storedSet{pairs: make([]Label, in.countOf(2, "the size of a set"))}
		for i := range s.pairs {
			s.pairs[i].Key, s.pairs[i].Value = in.text("a key"), in.text("a value")
		}
		d.sets = append(d.sets, s)
	}
	if in.err != nil || len(s.pairs) == 0 {
		return nil
	}
	if s.as[space] == nil {
		s.as[space], _ = d.scope.interner().set(&d.key, space, s.pairs)
	}
	return s.as[space]
}

func (d *decoding) ownerSet(in *input, odd bool, uid, rv string) *ownerSet {
	s, again := d.owners.at(in, "owners")
	if again && odd {
		in.fail("owners of an object with an unusual version")
	}
	if again {
		return s
	}
	owners := make([]Owner, in.countOf(5, "the number of owners"))
	for i := range owners {
		o := &owners[i]
		o.UID, o.Kind, o.Name, o.APIVersion = in.text("an owner"), in.text("an owner"), in.text("an owner"), in.text("an owner")
		if c := in.bytes(1, "an owner"); in.err == nil {
			o.Controller = c[0] != 0
		}
	}
	switch {
	case in.err != nil:
		return nil
	case odd:
		return oddOwners(owners, uid, rv)
	case len(owners) > 0:
		s, _ = d.scope.interner().ownerSet(&d.key, owners)
	}
	d.owners = append(d.owners, s)
	return s
}

func (d *decoding) body(in *input, fast bool) *body {
	of, again := d.known.at(in, "a dictionary")
	if !again {
		if has := in.bytes(1, "a dictionary"); in.err == nil && has[0] != 0 {
			var id DictionaryID
			copy(id[:], in.bytes(len(id), "a dictionary"))
			if of = d.dictionary(d.scope.kind, id); of == nil && in.err == nil {
				in.err = fmt.Errorf("dictionary %x is missing: %w", id[:8], ErrCorrupt)
			}
		}
		d.known = append(d.known, of)
	}
	data := in.text("a body")
	if in.err != nil {
		return nil
	}
	b := &body{data: strings.Clone(data)}
	switch {
	case of == nil && fast, fast && of.enc.fast == nil:
		in.fail("a body that is encoded fast without a dictionary")
	case of == nil:
		b.dict = d.scope.index.codecs.plain.small
	case fast:
		b.dict = of.enc.fast
	default:
		b.dict = of.enc.small
	}
	return b
}

// Bounds of what comes from another process: API servers take much less.
const (
	maxReceivedBody       = 64 << 20
	maxReceivedDictionary = 1 << 20
	maxSizeless           = 512 // bytes of an encoded body that does not say how large it is: encoders say it from 256 on
)

// Receiver makes items of a scope from what an Encoder of another process's index has written of one. The scope's writer may go
// on meanwhile: nothing is added.
type Receiver struct{ decoding decoding }

// Receive returns a Receiver for all that one Encoder has written. The function returns the dictionaries of the other index,
// nil for one that is not known.
func (s *Scope) Receive(dictionary func(DictionaryID) *Dictionary) *Receiver {
	return &Receiver{decoding{scope: s, dictionary: func(_ Kind, id DictionaryID) *Dictionary { return dictionary(id) }}}
}

// Next decodes an object, and returns what comes after it. The item has no revision of the other index.
func (r *Receiver) Next(encoded []byte) (item Item, rest []byte, err error) {
	in := input{rest: encoded}
	d := &r.decoding
	e := d.next(&in)
	if in.err == nil {
		in.err = checkReceived(e.body.Load())
	}
	if in.err != nil {
		return Item{}, nil, fmt.Errorf("scope %s of member %q: %w", d.scope.kind, d.scope.member, in.err)
	}
	e.revision = 0
	if of := e.body.Load().dict.of; of != nil && of != d.scope.codec.current.Load().small.of {
		d.scope.foreign.Store(true)
	}
	return Item{e: e}, in.rest, nil
}

// checkReceived checks how large a body says that it is: decoders fail where it is larger.
func checkReceived(b *body) error {
	data, size := unsafeBytes(b.data), uint64(0)
	if b.dict.fast != nil {
		n, err := s2.DecodedLen(data)
		if err != nil {
			return errors.Join(ErrCorrupt, err)
		}
		size = uint64(n)
	} else {
		var h zstd.Header
		if err := h.Decode(data); err != nil {
			return errors.Join(ErrCorrupt, err)
		}
		switch {
		case h.HasFCS:
			size = h.FrameContentSize
		case len(data) > maxSizeless:
			return fmt.Errorf("a body of unknown size: %w", ErrCorrupt)
		}
	}
	if size > maxReceivedBody {
		return fmt.Errorf("a body of %d bytes: %w", size, ErrCorrupt)
	}
	return nil
}

// received are the dictionaries of other processes that bodies still have: each is there once, however many scopes come with it.
type received struct {
	mu  sync.Mutex
	all map[DictionaryID]weak.Pointer[Dictionary]
}

// ReceiveDictionary makes a dictionary of another process's index usable here, for as long as the caller or a body refers to
// it. Train encodes such bodies again.
func (x *Index) ReceiveDictionary(raw []byte) (*Dictionary, error) {
	if len(raw) > maxReceivedDictionary {
		return nil, fmt.Errorf("a dictionary of %d bytes: %w", len(raw), ErrCorrupt)
	}
	id := DictionaryID(sha256.Sum256(raw))
	t := &x.codecs.received
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.all[id].Value(); d != nil {
		return d, nil
	}
	e, err := newEncoder(slices.Clone(raw))
	if err != nil {
		return nil, errors.Join(ErrCorrupt, err)
	}
	for old, d := range t.all {
		if d.Value() == nil {
			delete(t.all, old)
		}
	}
	if t.all == nil {
		t.all = map[DictionaryID]weak.Pointer[Dictionary]{}
	}
	t.all[id] = weak.Make(e.small.of)
	return e.small.of, nil
}
