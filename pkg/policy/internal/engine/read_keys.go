package engine

import (
	"hash/maphash"
)

// Sections of the keys that identify what an evaluation read.
const (
	readViewKey byte = iota
	readView
	readNamed      // by_name[kind][namespace][name], or a prefix
	readObject     // objects[kind][member][namespace][name], or a prefix
	readNames      // names
	readMembers    // members, whole
	readMember     // members[name], whole or whether it is there
	readAllScopes  // scopes, whole
	readScopes     // scopes[name]
	readScope      // scopes[name][kind]
	readMemberPart // members[name].labels, and so on; or one annotation or condition
	readIndex      // of a template: one key in a member
	readExists     // whether a kind has objects in a member
)

var keySeed = maphash.MakeSeed()

// readKey returns the hash that identifies a read other than of an instant.
func readKey(section byte, parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(keySeed)
	_ = h.WriteByte(section)
	for _, p := range parts {
		_, _ = h.WriteString(p)
		_ = h.WriteByte(0)
	}
	return h.Sum64() &^ instantBit
}

// A key that names an instant has this bit, and the instant in the others: which instants there are is found
// among the keys. They are mixed, since tables of keys take them as they are, and instants are often whole days.
const (
	instantBit  = 1 << 63
	instantBits = 1<<62 - 1
	mixing      = 0x9E3779B97F4A7C15
	unmixing    = 0xF1DE83E19937733D // mixing * unmixing is 1, modulo 2^64
)

// instantKey returns the key of an instant after 1970.
func instantKey(at int64) uint64 {
	x := uint64(at) // It is not negative.
	for range 2 {
		x = x * mixing & instantBits
		x ^= x >> 31
	}
	return instantBit | x
}

// instantOf returns the instant that a key names, if it names one.
func instantOf(key uint64) (int64, bool) {
	if key&instantBit == 0 {
		return 0, false
	}
	x := key & instantBits
	for range 2 {
		x ^= x >> 31
		x = x * unmixing & instantBits
	}
	return int64(x), true // It is what instantKey took.
}

func viewKey(v *view, k string) uint64 { return readKey(readViewKey, viewName(v.ID), k) }

func wholeViewKey(v *view) uint64 { return readKey(readView, viewName(v.ID)) }

func viewName(id uint32) string {
	return string([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)}) // Its bytes.
}

func (ev *evaluation) record(k uint64) { ev.keys = append(ev.keys, k) }
