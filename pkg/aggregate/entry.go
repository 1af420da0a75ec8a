package aggregate

import (
	"cmp"
	"encoding/hex"
	"strconv"
	"strings"
	"sync/atomic"
	"unique"
	"unsafe"
)

// identity is the indexed part of an object. It is immutable, and shared with the previous
// version unless it changes, so that a status heartbeat touches no secondary index.
type identity struct {
	namespace unique.Handle[string]
	name      string
	uid       [16]byte // zero: see odd
	labels    *attrSet // nil: none
	fields    *attrSet // nil: none declared, or none present
	owners    *ownerSet
}

// entry is one version of one object. It is immutable but for body, whose encoding (never
// its content) may be replaced by Train.
type entry struct {
	*identity
	rv       uint64 // the member's resourceVersion; oddRV: see odd
	revision Revision
	body     atomic.Pointer[body]
}

// oddRV marks a resourceVersion that is not the canonical decimal of a uint64.
const oddRV = ^uint64(0)

// taken is the revision of an entry that has been added to a scope and not published.
const taken Revision = 1

// fresh returns a copy of the entry that has not been added to a scope.
func (e *entry) fresh() *entry {
	f := &entry{identity: e.identity, rv: e.rv}
	f.body.Store(e.body.Load())
	return f
}

// body is one encoded object, together with its dictionary, which alone can decode it.
type body struct {
	dict *dictionary
	data string
}

func (id *identity) uidString() string {
	if id.owners != nil && id.owners.odd {
		return id.owners.uid
	}
	return formatUID(id.uid)
}

func (e *entry) rvString() string {
	if e.rv == oddRV {
		return e.owners.rv
	}
	return strconv.FormatUint(e.rv, 10)
}

func (id *identity) ownerList() []Owner {
	if id.owners == nil {
		return nil
	}
	return id.owners.owners
}

// sameVersion reports whether both entries are the same version of the same
// object, as the member numbers them.
func (e *entry) sameVersion(uid, rv string) bool {
	u, okUID := parseUID(uid)
	v, okRV := parseRV(rv)
	if okUID && okRV {
		return e.rv == v && e.uid == u && (e.owners == nil || !e.owners.odd)
	}
	return e.rvString() == rv && e.uidString() == uid && rv != ""
}

func sameUID(a, b *identity) bool {
	odd := func(id *identity) bool { return id.owners != nil && id.owners.odd }
	if odd(a) || odd(b) {
		return a.uidString() == b.uidString()
	}
	return a.uid == b.uid
}

// compareKeys orders identities by namespace, then name.
func compareKeys(a, b *identity) int {
	if a.namespace != b.namespace {
		if c := strings.Compare(a.namespace.Value(), b.namespace.Value()); c != 0 {
			return c
		}
	}
	return strings.Compare(a.name, b.name)
}

// compareBy orders identities by the number of their set, then by key.
func compareBy(x, y *attrSet, a, b *identity) int {
	if c := cmp.Compare(x.number(), y.number()); c != 0 {
		return c
	}
	return compareKeys(a, b)
}

func key(namespace, name string) *identity {
	return &identity{namespace: unique.Make(namespace), name: name}
}

// firstKey comes before every key.
var firstKey = key("", "")

const uidLen = 36

// parseUID packs a UID in the form of API servers: lower-case 8-4-4-4-12. Anything else is
// not packed, because it would not be restored unchanged.
func parseUID(s string) (u [16]byte, ok bool) {
	if len(s) != uidLen || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	j := 0
	for i := 0; i < uidLen; i += 2 {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			i++
		}
		hi, lo := unhex(s[i]), unhex(s[i+1])
		if hi > 15 || lo > 15 {
			return [16]byte{}, false
		}
		u[j] = hi<<4 | lo
		j++
	}
	return u, true
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

func formatUID(u [16]byte) string {
	var b [uidLen]byte
	hex.Encode(b[0:8], u[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], u[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], u[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], u[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], u[10:16])
	return string(b[:])
}

// parseRV packs a resourceVersion that is the canonical decimal of a uint64
// below oddRV.
func parseRV(s string) (uint64, bool) {
	if s == "" || len(s) > 20 || (s[0] == '0' && len(s) > 1) || s[0] == '+' {
		return oddRV, false
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil || v == oddRV {
		return oddRV, false
	}
	return v, true
}

// unsafeBytes returns the bytes of an immutable string without a copy, for the decoder,
// which only reads.
func unsafeBytes(s string) []byte {
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// unsafeString returns bytes as a string that is valid until they change, for lookups.
func unsafeString(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
