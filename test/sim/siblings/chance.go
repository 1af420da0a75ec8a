package siblings

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a chance is drawn for, so that draws for equal ordinals differ.
const (
	forPod uint64 = iota + 1
	forGroup
	forNode
	forObject
)

// chance is the source of everything that follows from (seed, what, ordinal).
func chance(seed, what uint64, i int) *rand.Rand {
	return rand.New(rand.NewPCG(seed*0x9e3779b97f4a7c15+what, uint64(i)))
}

// alphabet is what Kubernetes makes name suffixes and hashes of.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

// suffix has five letters that no other i below 27⁵ has: the ordinal times a number
// without a factor 3, modulo 27⁵, is a permutation.
func suffix(i int, seed uint64) string {
	const all = 27 * 27 * 27 * 27 * 27
	v := (uint64(i)*7_654_321 + seed%all) % all
	var b [5]byte
	for j := range b {
		b[j] = alphabet[v%27]
		v /= 27
	}
	return string(b[:])
}

func templateHash(r *rand.Rand) string {
	var b [10]byte
	for j := range b {
		b[j] = alphabet[r.IntN(27)]
	}
	return string(b[:])
}

func uid(r *rand.Rand) types.UID {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], r.Uint64())
	binary.LittleEndian.PutUint64(b[8:], r.Uint64())
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // version 4
	out := make([]byte, 36)
	hex.Encode(out, b[:4])
	hex.Encode(out[9:], b[4:6])
	hex.Encode(out[14:], b[6:8])
	hex.Encode(out[19:], b[8:10])
	hex.Encode(out[24:], b[10:])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return types.UID(out)
}

// hexDigits are what container and machine IDs consist of.
func hexDigits(r *rand.Rand, n int) string {
	b := make([]byte, 0, n/2+8)
	for len(b) < n/2 {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return hex.EncodeToString(b[:n/2])
}

// podIP is in the /24 of its node, which is in 10.128.0.0/9.
func podIP(node, i int) string {
	return netip.AddrFrom4([4]byte{10, 128 | byte(node>>8), byte(node), byte(2 + i%253)}).String()
}

func nodeIP(node int) string {
	return netip.AddrFrom4([4]byte{172, 16 | byte(node>>16)&15, byte(node >> 8), byte(node)}).String()
}

// resourceVersion rises with the ordinal.
func resourceVersion(i int) string { return strconv.Itoa(100_000 + 7*i) }

// epoch is when the fleets of siblings were born.
var epoch = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// birth is within 90 days of the epoch.
func birth(r *rand.Rand) time.Time {
	return epoch.Add(time.Duration(r.Int64N(90*24*3600)) * time.Second)
}

// shift moves times so that the object is born when it should be.
type shift time.Duration

func shiftTo(birth time.Time, was metav1.Time) shift {
	if was.IsZero() {
		return 0
	}
	return shift(birth.Sub(was.Time))
}

func (s shift) move(t *metav1.Time) {
	if t != nil && !t.IsZero() {
		t.Time = t.Add(time.Duration(s))
	}
}
