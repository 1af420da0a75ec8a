package quota_test

import (
	"math/rand/v2"
	"testing"

	"federator.dev/federator/pkg/remediate/internal/quota"
	"federator.dev/federator/test/seed"
)

// counted returns a Quota that knows of n Actions of 1 MiB each.
func counted(most quota.Usage, n int) *quota.Quota {
	q := quota.New(most)
	c := q.Begin()
	for range n {
		c.Add(1 << 20)
	}
	c.End()
	return q
}

func reserve(t *testing.T, q *quota.Quota, bytes int64, want bool, what string) {
	t.Helper()
	got := q.Reserve(bytes, false)
	if got != want {
		t.Fatalf("%s: room: %v, want %v", what, got, want)
	}
	if got {
		q.Recorded(bytes)
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
	if !q.Reserve(1, true) {
		t.Error("there is no room for what is urgent")
	}
	q.Recorded(1)
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
	if !q.Reserve(1<<20, false) {
		t.Fatal("there is no room")
	}
	q.Release(1 << 20)
	if used, _, _ := q.Used(); used != (quota.Usage{}) {
		t.Errorf("used: %+v", used)
	}
}

// TestQuota_CountsAreNeverTooSmall: over random histories, of records that are made while others
// are counted, the usage is at least what is on the hub, and exactly that after a count during
// which nothing happens.
func TestQuota_CountsAreNeverTooSmall(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(seed.Of(t), 1)) // A test's.
	for range 2000 {
		q := counted(quota.Usage{Actions: 1000}, 0)
		hub := map[int]int64{} // by number
		recording := map[int]int64{}
		var count *quota.Count
		check := func() {
			used, _, _ := q.Used()
			var bytes int64
			for _, n := range hub {
				bytes += n
			}
			if used.Actions < len(hub) || used.Bytes < bytes {
				t.Fatalf("used %+v: the hub has %d Actions of %d bytes", used, len(hub), bytes)
			}
		}
		for n := range 60 {
			switch random.IntN(6) {
			case 0:
				recording[n] = random.Int64N(100)
				q.Reserve(recording[n], false)
			case 1: // the hub has recorded it, and its answer is on its way
				for m, bytes := range recording {
					hub[m] = bytes
					break
				}
			case 2:
				for m, bytes := range recording {
					if _, is := hub[m]; is {
						q.Recorded(bytes)
					} else {
						q.Release(bytes)
					}
					delete(recording, m)
					break
				}
			case 3:
				if count == nil { // what the hub has then is what it lists
					count = q.Begin()
					for _, bytes := range hub {
						count.Add(bytes)
					}
				} else {
					count.End()
					count = nil
				}
			case 4:
				for m, bytes := range hub { // as the collector does, between its lists
					if _, is := recording[m]; !is && count == nil {
						delete(hub, m)
						q.Remove(bytes)
						break
					}
				}
			}
			check()
		}
		for m, bytes := range recording {
			hub[m] = bytes
			q.Recorded(bytes)
		}
		count = q.Begin()
		var want quota.Usage
		for _, bytes := range hub {
			count.Add(bytes)
			want.Actions++
			want.Bytes += bytes
		}
		count.End()
		if used, _, _ := q.Used(); used != want {
			t.Fatalf("used %+v after a count, want %+v", used, want)
		}
	}
}
