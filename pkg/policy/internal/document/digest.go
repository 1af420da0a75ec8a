package document

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"unsafe"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// Digest identifies what a mask reads of a body, in this process: bodies of which it reads the
// same have one. It is 128 bits of keyed hashes, so that no two others have.
type Digest [2]uint64

// Fan digests what several masks read of a body in one walk through it. It is immutable.
type Fan struct {
	parts []*fanNode // each for 64 masks
	masks int
}

// fanNode is a place in a body that masks of a part read.
type fanNode struct {
	here   uint64     // the masks that read something here
	whole  uint64     // of these, those that read all that is below
	fields []fanField // that the others name, in order
	elem   *fanNode   // of elements, and of fields without a name
}

type fanField struct {
	name string
	key  Digest
	node *fanNode
}

// NewFan returns the Fan of masks, none of which is nil.
func NewFan(masks []*mask.Mask) *Fan {
	f := &Fan{masks: len(masks)}
	for part := range slices.Chunk(masks, 64) {
		f.parts = append(f.parts, newFanNode(part))
	}
	return f
}

// newFanNode returns the node of what masks, nil where they read nothing, read at one place.
func newFanNode(masks []*mask.Mask) *fanNode {
	n := &fanNode{}
	var names []string
	below := make([]*mask.Mask, len(masks))
	for i, m := range masks {
		if m == nil {
			continue
		}
		n.here |= 1 << i
		if m.All {
			n.whole |= 1 << i
			continue
		}
		below[i] = m
		for name := range m.Fields {
			names = append(names, name)
		}
	}
	if n.here == 0 {
		return nil
	}
	at := func(child func(m *mask.Mask) *mask.Mask) *fanNode {
		list := make([]*mask.Mask, len(masks))
		for i, m := range below {
			list[i] = child(m)
		}
		return newFanNode(list)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		node := at(func(m *mask.Mask) *mask.Mask { return m.Child(name) })
		n.fields = append(n.fields, fanField{name, text([]byte(name)).as(1), node})
	}
	if n.whole != n.here {
		n.elem = at(func(m *mask.Mask) *mask.Mask { return m.Element() })
	}
	return n
}

// Digests sets out, which has one for each mask, to what the masks of which wanted has a bit
// read of a body; wanted is as long as [Fan.Words] says. Like Value it does not see what is
// malformed where nothing is read.
func (f *Fan) Digests(body []byte, wanted []uint64, out []Digest) error {
	if len(body) > MaxSize {
		return fmt.Errorf("%w: %d bytes", ErrSize, len(body))
	}
	for i, part := range f.parts {
		if wanted[i] == 0 {
			continue
		}
		own := out[64*i : min(64*(i+1), f.masks)]
		clear(own)
		d := digester{Reader: canonjson.NewReader(body), out: own, wanted: wanted[i]}
		if err := d.value(part, 0, true); err != nil {
			return err
		}
		err := d.Err()
		if !d.done {
			err = d.End()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Len is how many masks there are.
func (f *Fan) Len() int { return f.masks }

// Words is how many words have a bit for each mask.
func (f *Fan) Words() int { return len(f.parts) }

// digester walks through a body. Its methods leave malformed JSON to the Reader's own error.
type digester struct {
	canonjson.Reader
	out    []Digest
	wanted uint64
	done   bool // nothing is read of what follows
}

var (
	lanes = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

	openObject, openArray = text([]byte("{")).as(2), text([]byte("[")).as(2)
	closing               = text([]byte("}")).as(2)
)

// text is the digest of a scalar, or of a value as a whole, as it is written.
func text(raw []byte) Digest {
	return Digest{maphash.Bytes(lanes[0], raw), maphash.Bytes(lanes[1], raw)}
}

// as returns the digest of the same text as something else: 0 is a value, 1 a key, 2 a bracket.
func (d Digest) as(what uint64) Digest { return Digest{d[0]*spread + what, d[1]*spread + what} }

// spread is odd: what it multiplies stays distinct.
const spread = 0x9e3779b97f4a7c15

// add appends to what has been read under masks. Each step can be undone, so that only what is
// appended can make two sequences one.
func (d *digester) add(masks uint64, x Digest) {
	for ; masks != 0; masks &= masks - 1 {
		to := &d.out[bits.TrailingZeros64(masks)]
		for lane := range to {
			h := (to[lane] ^ x[lane]) * spread
			to[lane] = h ^ h>>32
		}
	}
}

// value reads the value that is next. last says that nothing is read behind it.
func (d *digester) value(n *fanNode, depth int, last bool) error {
	here := n.here & d.wanted
	parts := here &^ n.whole
	c := d.Peek()
	if parts == 0 || c != '{' && c != '[' {
		d.add(here, text(d.Value()))
		return nil
	}
	if depth++; depth > MaxDepth {
		return ErrDepth
	}
	if whole := here & n.whole; whole != 0 { // it is read once more
		ahead := d.Reader
		d.add(whole, text(ahead.Value()))
		if err := ahead.Err(); err != nil {
			return err
		}
	}
	var err error
	if c == '{' {
		d.add(parts, openObject)
		err = d.object(n, depth, last)
	} else {
		d.add(parts, openArray)
		err = d.array(n, depth)
	}
	d.add(parts, closing)
	return err
}

func (d *digester) object(n *fanNode, depth int, last bool) error {
	fields, elem := n.fields, n.elem
	if elem != nil && elem.here&d.wanted == 0 {
		elem = nil
	}
	if len(fields) == 0 && elem == nil {
		d.Skip()
		return nil
	}
	var keys canonjson.Keys
	for more := d.Open('{'); more; more = d.Next('}') {
		name, err := keys.Next(&d.Reader)
		if err != nil {
			return err
		}
		for len(fields) > 0 && fields[0].name < name {
			fields = fields[1:]
		}
		node, key := elem, Digest{}
		if len(fields) > 0 && fields[0].name == name {
			node, key = fields[0].node, fields[0].key
			fields = fields[1:]
		} else if node != nil {
			key = text(unsafe.Slice(unsafe.StringData(name), len(name))).as(1)
		}
		over := len(fields) == 0 && elem == nil
		if node == nil || node.here&d.wanted == 0 {
			d.Skip()
		} else {
			d.add(node.here&d.wanted, key)
			if err := d.value(node, depth, last && over); err != nil {
				return err
			}
		}
		if over {
			if d.done = last; !last {
				d.Leave()
			}
			break
		}
	}
	return nil
}

func (d *digester) array(n *fanNode, depth int) error {
	if n.elem == nil || n.elem.here&d.wanted == 0 {
		d.Skip()
		return nil
	}
	for more := d.Open('['); more; more = d.Next(']') {
		if err := d.value(n.elem, depth, false); err != nil {
			return err
		}
	}
	return nil
}
