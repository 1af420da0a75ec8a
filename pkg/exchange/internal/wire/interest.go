package wire

import (
	"encoding/binary"

	"federator.dev/federator/pkg/interest"
)

// Interest is what an importer asks for.
type Interest struct {
	Number uint64 // greater than the one before; 0: nothing was asked for yet
	More   bool   // besides what it asked for before; else it is all
	Set    *interest.Set
}

// Append appends the payload.
func (i Interest) Append(dst []byte) ([]byte, error) {
	return i.Set.Append(appendBool(binary.AppendUvarint(dst, i.Number), i.More))
}

// ParseInterest is the reverse of Append. It keeps nothing of p.
func ParseInterest(p []byte) (i Interest, err error) {
	f := fields{p: p}
	i = Interest{Number: f.uint(), More: f.bool()}
	if f.err != nil {
		return i, f.err
	}
	i.Set, err = interest.Decode(f.p)
	return i, err
}
