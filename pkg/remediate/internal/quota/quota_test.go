package quota_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"federator.dev/federator/pkg/remediate/internal/quota"
	"federator.dev/federator/test/seed"
)

// counted returns a Quota that knows of n Actions of 1 MiB each.
func counted(most quota.Usage, n int) *quota.Quota {
	q := quota.New(most)
	c := q.Begin()
	for range n {
		c.Add("", 1<<20)
	}
	c.End()
	return q
}

func reserve(t *testing.T, q *quota.Quota, bytes int64, want bool, what string) {
	t.Helper()
	got := q.Reserve(what, bytes, false)
	if got != want {
		t.Fatalf("%s: room: %v, want %v", what, got, want)
	}
	if got {
		q.Recorded(what, bytes)
	}
}

func TestQuota_BoundsActions(t *testing.T) {
	t.Parallel()
	q := counted(quota.Usage{Actions: 20}, 19)
	if q.Exhausted() {
		t.Error("19 of 20 exhaust it")
	}
	reserve(t, q, 1, true, "the last")
	if !q.Exhausted() {
		t.Error("20 of 20 do not exhaust it")
	}
	reserve(t, q, 1, false, "one more")
	if !q.Reserve("urgent", 1, true) {
		t.Error("there is no room for what is urgent")
	}
	q.Recorded("urgent", 1)
	q.Remove(1)
	q.Remove(1)
	reserve(t, q, 1, false, "19 of 20, and not enough is deleted")
	q.Remove(1)
	if q.Exhausted() {
		t.Error("exhausted though a tenth is free")
	}
	reserve(t, q, 1, true, "a tenth is free")
}

func TestQuota_BoundsBytes(t *testing.T) {
	t.Parallel()
	q := counted(quota.Usage{Bytes: quota.MinBytes}, 63)
	reserve(t, q, 2<<20, false, "more than the rest")
	if !q.Exhausted() {
		t.Error("it is not exhausted: what has no room would be tried again and again")
	}
	for range 6 {
		q.Remove(1 << 20)
	}
	reserve(t, q, 2<<20, true, "enough is deleted")
}

// TestQuota_IsUnknownBeforeTheFirstCount: then nothing has room that is bounded.
func TestQuota_IsUnknownBeforeTheFirstCount(t *testing.T) {
	t.Parallel()
	q := quota.New(quota.Usage{Actions: 20})
	reserve(t, q, 1, false, "before the count")
	if _, _, known := q.Used(); known {
		t.Error("the usage is known before anything was counted")
	}
	q.Begin().End()
	reserve(t, q, 1, true, "after the count")
	reserve(t, quota.New(quota.Usage{}), 1, true, "without bounds")
}

// TestQuota_ReleasedIsFree: what could not be recorded takes no room.
func TestQuota_ReleasedIsFree(t *testing.T) {
	t.Parallel()
	q := counted(quota.Usage{Actions: 20}, 0)
	if !q.Reserve("a", 1<<20, false) {
		t.Fatal("there is no room")
	}
	q.Release("a", 1<<20)
	if used, _, _ := q.Used(); used != (quota.Usage{}) {
		t.Errorf("used: %+v", used)
	}
}

// TestQuota_CountsOnceWhatIsRecordedMeanwhile: an Action that is listed while it is being
// recorded takes the room of one.
func TestQuota_CountsOnceWhatIsRecordedMeanwhile(t *testing.T) {
	t.Parallel()
	q := counted(quota.Usage{Actions: 2}, 0)
	q.Reserve("a", 1, false)
	c := q.Begin()
	c.Add("a", 1)
	q.Recorded("a", 1)
	c.End()
	if used, _, _ := q.Used(); used != (quota.Usage{Actions: 1, Bytes: 1}) || q.Exhausted() {
		t.Errorf("used: %+v, exhausted: %v", used, q.Exhausted())
	}
}

// TestQuota_CountsAnothersOfTheSameName: what was reserved did exist.
func TestQuota_CountsAnothersOfTheSameName(t *testing.T) {
	t.Parallel()
	q := counted(quota.Usage{Actions: 2}, 0)
	q.Reserve("a", 1, false)
	c := q.Begin()
	c.Add("a", 7)
	q.Release("a", 1)
	c.End()
	if used, _, _ := q.Used(); used != (quota.Usage{Actions: 1, Bytes: 7}) {
		t.Errorf("used: %+v", used)
	}
}

// history is a Quota and what is on the hub.
type history struct {
	*quota.Quota
	random    *rand.Rand
	hub       map[string]int64
	recording map[string]int64
	count     *quota.Count
	unlisted  []string // what the count has still to add
}

// TestQuota_CountsAreExact: over random histories, of records that are made while others are
// counted, the usage is what is on the hub or being recorded.
func TestQuota_CountsAreExact(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(seed.Of(t), 1)) // A test's.
	for range 2000 {
		h := &history{Quota: counted(quota.Usage{Actions: 1000}, 0), random: random, hub: map[string]int64{}, recording: map[string]int64{}}
		for range 80 {
			h.step()
			h.check(t)
		}
	}
}

// any returns a random name of those in m, "" if there is none.
func (h *history) any(m map[string]int64) string {
	names := slices.Sorted(maps.Keys(m))
	if len(names) == 0 {
		return ""
	}
	return names[h.random.IntN(len(names))]
}

func (h *history) step() {
	switch h.random.IntN(7) {
	case 0: // perhaps an attempt at what an earlier attempt has recorded
		name := strconv.Itoa(h.random.IntN(30))
		if !h.isRecording(name) {
			h.recording[name] = h.random.Int64N(100)
			h.Reserve(name, h.recording[name], false)
			if _, is := h.hub[name]; is {
				h.Release(name, h.recording[name])
				delete(h.recording, name)
			}
		}
	case 1: // the hub has recorded it, and its answer is on its way
		if name := h.any(h.recording); name != "" {
			h.hub[name] = h.recording[name]
		}
	case 2:
		name := h.any(h.recording)
		if name == "" {
			return
		}
		if _, is := h.hub[name]; is {
			h.Recorded(name, h.recording[name])
		} else {
			h.Release(name, h.recording[name])
		}
		delete(h.recording, name)
	case 3, 4:
		h.list()
	case 5: // as the collector does, between its lists
		if name := h.any(h.hub); name != "" && h.count == nil && !h.isRecording(name) {
			h.Remove(h.hub[name])
			delete(h.hub, name)
		}
	}
}

// list begins a count, adds the next of what the hub had then, or ends it.
func (h *history) list() {
	switch {
	case h.count == nil:
		h.count, h.unlisted = h.Begin(), slices.Sorted(maps.Keys(h.hub))
	case len(h.unlisted) > 0:
		h.count.Add(h.unlisted[0], h.hub[h.unlisted[0]])
		h.unlisted = h.unlisted[1:]
	default:
		h.count.End()
		h.count = nil
	}
}

func (h *history) isRecording(name string) bool {
	_, is := h.recording[name]
	return is
}

func (h *history) check(t *testing.T) {
	t.Helper()
	used, _, _ := h.Used()
	all := maps.Clone(h.hub)
	maps.Copy(all, h.recording)
	want := quota.Usage{Actions: len(all)}
	for _, n := range all {
		want.Bytes += n
	}
	if used != want {
		t.Fatalf("used %+v: on the hub or being recorded are %+v", used, want)
	}
}
