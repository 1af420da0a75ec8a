package verdict

import (
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Times are when each violation of a verdict was first seen, of most verdicts at the same time.
type Times struct {
	all  int64    // seconds since 1970; 0: not known
	each *[]int64 // where they differ; a pointer because most have none
}

// AllAt returns the times of violations that were all first seen at one time.
func AllAt(seconds int64) Times { return Times{all: seconds} }

// TimesOf returns the times of violations, by their position.
func TimesOf(seconds []int64) Times {
	if len(seconds) > 0 && !slices.ContainsFunc(seconds, func(s int64) bool { return s != seconds[0] }) {
		return AllAt(seconds[0])
	}
	return Times{each: &seconds}
}

// Seconds returns when violation i was first seen, in seconds since 1970; 0: not known.
func (t Times) Seconds(i int) int64 {
	if t.each != nil {
		return (*t.each)[i]
	}
	return t.all
}

// At returns when violation i was first seen; zero: not known.
func (t Times) At(i int) time.Time {
	if s := t.Seconds(i); s != 0 {
		return time.Unix(s, 0).UTC()
	}
	return time.Time{}
}

// Size estimates the bytes of the times that differ.
func (t Times) Size() int64 {
	if t.each == nil {
		return 0
	}
	return int64(24 + 8*len(*t.each))
}

// Digest identifies a subject, in every process.
func (s Subject) Digest() uint64 {
	var buf [256]byte
	b := buf[:0]
	for _, part := range [...]string{s.Ref.Member, string(s.Ref.Kind), s.Ref.Namespace, s.Ref.Name, s.Key} {
		b = append(append(b, part...), 0)
	}
	return xxhash.Sum64(b)
}

// Digest identifies a violation of a subject, in every process, by its message: details and remedy may change
// while it lasts.
func (v *Violation) Digest() uint64 { return xxhash.Sum64String(v.Msg) }
