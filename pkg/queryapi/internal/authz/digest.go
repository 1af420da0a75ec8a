package authz

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
)

// Digest is the same for grants that are Equal, and for no others.
func (g *Grants) Digest() [sha256.Size]byte { return sha256.Sum256(g.appendCanonical(nil)) }

func (g *Grants) appendCanonical(b []byte) []byte {
	if g.Empty() {
		return append(b, 0)
	}
	kind := byte(1)
	if g.everything {
		kind = 2
	}
	b = binary.AppendUvarint(append(b, kind), uint64(len(g.members)))
	for _, name := range slices.Sorted(maps.Keys(g.members)) {
		grant := g.members[name]
		all := byte(0)
		if grant.All {
			all = 1
		}
		b = append(appendText(b, name), all)
		b = binary.AppendUvarint(b, uint64(len(grant.Namespaces)))
		for _, ns := range grant.Namespaces {
			b = appendText(b, ns)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(g.resources)))
	for _, name := range slices.Sorted(maps.Keys(g.resources)) {
		b = g.resources[name].appendCanonical(appendText(b, name))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
