// Package series keeps numbers over the last hours in bounded memory: what changes, not what stays.
package series

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
)

// Key names a series.
type Key struct{ Policy, Member, Metric string }

// Options bound a Ring. 0 means the default.
type Options struct {
	Steps    int   // that are kept: 288
	MaxBytes int64 // 32 MiB, approximately
}

// Ring keeps a value of each series for each of the last steps. Series that have never had another value than 0
// cost nothing. Beyond the bound of its memory the series that have changed least are dropped. It is not safe for
// concurrent use.
type Ring struct {
	opts     Options
	recorded []int64 // steps, in order
	byKey    map[Key]*runs
	bytes    int64
	full     int64             // the last step at which series were dropped; 0: never
	forgot   map[subject]int64 // the last step before a policy or member was forgotten
	left     int               // series that are not 0 now and are not kept
}

// subject is a policy or a member.
type subject struct{ policy, member string }

// runs are the values of a series: each lasts until the next begins.
type runs struct {
	since int64 // the first step that is known
	list  []run
}

type run struct{ step, value int64 }

// Sizes of a run and of a series with the key's strings, approximately.
const (
	runBytes    = 16
	seriesBytes = 200
)

func (s *runs) bytes(k Key) int64 {
	return seriesBytes + int64(len(k.Policy)+len(k.Member)) + runBytes*int64(cap(s.list))
}

// New returns an empty Ring.
func New(opts Options) *Ring {
	return &Ring{opts: Options{cmp.Or(opts.Steps, 288), cmp.Or(opts.MaxBytes, 32<<20)}, byKey: map[Key]*runs{}, forgot: map[subject]int64{}}
}

// Record records the values at a step; all others are 0. A step that is not after the last one is ignored. What
// was between the two is not known.
func (r *Ring) Record(step int64, values map[Key]int64) {
	if n := len(r.recorded); n > 0 && step <= r.recorded[n-1] {
		return
	}
	r.recorded = append(r.recorded, step)
	r.expire(step - int64(r.opts.Steps))
	for k, s := range r.byKey {
		r.set(k, s, step, values[k])
	}
	for k, v := range values {
		if r.byKey[k] != nil || v == 0 {
			continue
		}
		s := &runs{since: r.sinceOf(k)}
		if r.full != 0 { // it may be one that was dropped
			s.since = step
		}
		r.byKey[k] = s
		r.bytes += s.bytes(k)
		r.set(k, s, step, v)
	}
	r.drop(step)
	r.left = 0
	for k, v := range values {
		if v != 0 && r.byKey[k] == nil {
			r.left++
		}
	}
}

// sinceOf returns the first step at which a series that is not kept is known to be 0.
func (r *Ring) sinceOf(k Key) int64 {
	since := max(r.forgot[subject{policy: k.Policy}], r.forgot[subject{member: k.Member}])
	if r.full != 0 {
		since = max(since, r.full)
	}
	return since + 1
}

// set sets the value of a series from a step on.
func (r *Ring) set(k Key, s *runs, step, value int64) {
	last := int64(0)
	if n := len(s.list); n > 0 {
		last = s.list[n-1].value
	}
	if value == last {
		return
	}
	r.bytes -= s.bytes(k)
	s.list = append(s.list, run{step, value})
	r.bytes += s.bytes(k)
}

// expire forgets the steps up to one.
func (r *Ring) expire(until int64) {
	i, _ := slices.BinarySearch(r.recorded, until+1)
	r.recorded = slices.Delete(r.recorded, 0, i)
	if r.full <= until {
		r.full = 0
	}
	maps.DeleteFunc(r.forgot, func(_ subject, at int64) bool { return at <= until })
	for k, s := range r.byKey {
		old := 0
		for old < len(s.list) && s.list[old].step <= until+1 {
			old++
		}
		if old--; old > 0 { // that run lasts
			r.bytes -= s.bytes(k)
			s.list = append([]run(nil), s.list[old:]...)
			r.bytes += s.bytes(k)
		}
		if len(s.list) == 1 && s.list[0].value == 0 && s.since <= until {
			r.remove(k, s)
		}
	}
}

func (r *Ring) remove(k Key, s *runs) {
	r.bytes -= s.bytes(k)
	delete(r.byKey, k)
}

// drop drops the series that have changed least, to nine tenths of the bound.
func (r *Ring) drop(step int64) {
	if r.bytes <= r.opts.MaxBytes {
		return
	}
	r.full = step
	type candidate struct {
		Key
		changes int
		lot     uint64 // decides between those that have changed as often, so that none is dropped each time
	}
	all := make([]candidate, 0, len(r.byKey))
	for k, s := range r.byKey {
		all = append(all, candidate{k, len(s.list), lot(k, step)})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.changes, b.changes), cmp.Compare(a.lot, b.lot), compare(a.Key, b.Key))
	})
	for _, c := range all {
		if r.bytes <= r.opts.MaxBytes/10*9 {
			return
		}
		r.remove(c.Key, r.byKey[c.Key])
	}
}

// lot returns a number that is another for a series at each step.
func lot(k Key, step int64) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, step, k.Policy, k.Member, k.Metric) // never fails
	return h.Sum64()
}

func compare(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Metric, b.Metric))
}

// ForgetPolicy forgets all series of a policy: what was before the next step is not known.
func (r *Ring) ForgetPolicy(name string) {
	r.forget(subject{policy: name}, func(k Key) bool { return k.Policy == name })
}

// ForgetMember is ForgetPolicy for a member.
func (r *Ring) ForgetMember(name string) {
	r.forget(subject{member: name}, func(k Key) bool { return k.Member == name })
}

func (r *Ring) forget(of subject, is func(Key) bool) {
	if len(r.recorded) == 0 {
		return
	}
	for k, s := range r.byKey {
		if is(k) {
			r.remove(k, s)
		}
	}
	r.forgot[of] = r.recorded[len(r.recorded)-1]
}

// Dropped returns how many series are not 0 now and are not kept, because there are too many.
func (r *Ring) Dropped() int { return r.left }

// Bytes estimates the memory.
func (r *Ring) Bytes() int64 { return r.bytes }

// Keys returns the series that are kept, in order.
func (r *Ring) Keys() []Key { return slices.SortedFunc(maps.Keys(r.byKey), compare) }

// Known returns of n steps from one on whether the values of all series of some policies and members are known.
func (r *Ring) Known(policies, members []string, from int64, n int) []bool {
	since := r.sinceOf(Key{})
	for _, name := range policies {
		since = max(since, r.sinceOf(Key{Policy: name}))
	}
	for _, name := range members {
		since = max(since, r.sinceOf(Key{Member: name}))
	}
	out := make([]bool, n)
	for _, step := range r.recorded {
		if i := step - from; i >= 0 && i < int64(n) && step >= since {
			out[i] = true
		}
	}
	return out
}

// Values returns the values of a series at n steps from one; nil: not known. Of a series that is not kept they are
// 0 where anything was recorded since series were dropped.
func (r *Ring) Values(k Key, from int64, n int) []*int64 {
	out := make([]*int64, n)
	s := r.byKey[k]
	if s == nil {
		s = &runs{since: r.sinceOf(k)}
	}
	at, value := 0, int64(0)
	for _, step := range r.recorded {
		for at < len(s.list) && s.list[at].step <= step {
			value = s.list[at].value
			at++
		}
		if i := step - from; i >= 0 && i < int64(n) && step >= s.since {
			v := value
			out[i] = &v
		}
	}
	return out
}
