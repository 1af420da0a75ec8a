package aggregate

import "github.com/tidwall/btree"

// mergeSeq walks two ordered trees of pointers side by side and yields the
// pairs that differ, nil where one has no such item, until told to stop.
func mergeSeq[T any](before, after *btree.BTreeG[*T], less func(a, b *T) bool, yield func(before, after *T) bool) {
	old := before.Iter()
	defer old.Release()
	left := old.First()
	more := true
	after.Scan(func(item *T) bool {
		for more && left && less(old.Item(), item) {
			more = yield(old.Item(), nil)
			left = old.Next()
		}
		if !more {
			return false
		}
		var was *T
		if left && !less(item, old.Item()) {
			was = old.Item()
			left = old.Next()
		}
		if was != item {
			more = yield(was, item)
		}
		return more
	})
	for more && left {
		more = yield(old.Item(), nil)
		left = old.Next()
	}
}
