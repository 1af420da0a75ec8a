package engine

import (
	"hash/maphash"

	"federator.dev/federator/pkg/policy/internal/instants"
)

// Sections of the keys that identify what an evaluation read.
const (
	readViewKey byte = iota
	readView
	readNamed      // by_name[kind][namespace][name], or a prefix
	readObject     // objects[kind][member][namespace][name], or a prefix
	readNames      // names
	readMembers    // members, whole, of a binding
	readMember     // members[name], whole or whether it is there, of a binding
	readAllScopes  // scopes, whole
	readScopes     // scopes[name]
	readScope      // scopes[name][kind]
	readMemberPart // members[name].labels, and so on; or one annotation, condition or field of a condition
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
	return h.Sum64() &^ instants.Bit
}

func viewKey(v *view, k string) uint64 { return readKey(readViewKey, viewName(v.ID), k) }

func wholeViewKey(v *view) uint64 { return readKey(readView, viewName(v.ID)) }

func viewName(id uint32) string {
	return string([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)}) // Its bytes.
}

func (ev *evaluation) record(k uint64) { ev.keys = append(ev.keys, k) }
