package wire

import (
	"encoding/binary"
	"maps"

	"github.com/cespare/xxhash/v2"
)

// Hash is the hash of what is said of a member, a scope or an object. It is never 0.
func Hash(payload []byte) uint64 {
	if h := xxhash.Sum64(payload); h != 0 {
		return h
	}
	return 1
}

// Key is a hash of the name of an object in its scope.
func Key(namespace, name string) uint64 {
	var buf [160]byte
	b := append(buf[:0], namespace...)
	return xxhash.Sum64(append(append(b, 0), name...))
}

// Sum is what is known of the records of a scope.
type Sum struct {
	Records map[uint64]uint64 // the hash of each, by its key
	Total   uint64

	most int // records that there were since Records was made
}

// sparse is how many records there may have been for each that there is, and sparseMin how many of which it does not matter: a map
// keeps its memory.
const (
	sparse    = 4
	sparseMin = 1024
)

// Put sets the hash of a record, or deletes it if that is 0.
func (s *Sum) Put(key, hash uint64) {
	old := s.Records[key]
	s.Total += hash - old
	switch {
	case hash == 0:
		delete(s.Records, key)
		if s.most > sparseMin && len(s.Records) < s.most/sparse {
			less := make(map[uint64]uint64, len(s.Records)) // a clone is as large
			maps.Copy(less, s.Records)
			s.Records, s.most = less, len(less)
		}
	case s.Records == nil:
		s.Records = map[uint64]uint64{key: hash}
	default:
		s.Records[key] = hash
		s.most = max(s.most, len(s.Records))
	}
}

// Digest returns that of a scope of which info is the hash of what is said of it.
func Digest(info, total uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], info)
	binary.LittleEndian.PutUint64(b[8:], total)
	return xxhash.Sum64(b[:])
}
