package aggregate

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"weak"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

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
