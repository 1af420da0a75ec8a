package matview

import (
	"slices"

	"federator.dev/federator/pkg/aggregate"
)

// Apply replaces an object's contribution and calls changed for the keys that change. It
// reports whether the view's failures have changed. Beyond limit, only keys are held, for
// as many bytes again.
func (v *View) Apply(ref aggregate.Ref, next Contribution, limit int64, changed func(key string)) (failed bool) {
	old := v.objectEntries(ref)
	v.truncate(old, &next, limit)
	if next.objectEntries == nil && old == nil {
		return false
	}
	v.frozen = nil
	var oldKeys []string
	if old != nil {
		oldKeys = old.keys
		failed = old.failed != ""
	}
	now := next.objectEntries != nil && next.failed != ""
	failed = failed != now || now && old.failed != next.failed
	kept := next.objectEntries
	if old != nil && next.objectEntries != nil && slices.Equal(old.keys, next.keys) {
		kept = old // one value for all entries of an object
		if failed || old.size != next.size || old.truncated != next.truncated {
			kept = next.objectEntries
		}
	}
	for _, key := range oldKeys {
		if next.objectEntries == nil || !contains(next.keys, key) {
			if !v.KeysDropped {
				e, _ := v.entries.Delete(Entry{key: key, Object: old})
				v.Held -= e.Size()
				v.superseded += e.Size()
			}
			changed(key)
		}
	}
	if next.objectEntries != nil {
		for i, key := range next.keys {
			e, had := v.entries.Set(Entry{key: key, Object: kept, Values: next.values[i]})
			v.Held += Entry{key: key, Values: next.values[i]}.Size()
			if had {
				v.Held -= e.Size()
				v.superseded += e.Size()
			}
			if !had || e.Values != next.values[i] {
				changed(key)
			}
		}
		if kept != old {
			v.objects.Set(kept)
			v.Held += objectBytes
		}
	} else {
		v.objects.Delete(old)
	}
	if old != nil && kept != old {
		v.Held -= objectBytes
		v.superseded += objectBytes
	}
	if now {
		v.failed.Set(kept)
	} else if old != nil && old.failed != "" {
		v.failed.Delete(old)
	}
	return failed
}

// truncate drops the values of a contribution for which the view has no room, but
// counts them.
func (v *View) truncate(old *objectEntries, next *Contribution, limit int64) {
	var before, size, keys int64
	if old != nil {
		v.bytes -= old.size
		before = objectBytes
		for _, key := range old.keys {
			e, _ := v.entries.Get(Entry{key: key, Object: old})
			before += e.Size()
		}
	}
	if next.objectEntries == nil {
		return
	}
	size, keys = objectBytes, objectBytes
	for i, key := range next.keys {
		e := Entry{key: key, Values: next.values[i]}
		size += e.Size()
		e.Values = ""
		keys += e.Size()
	}
	next.size = size
	v.bytes += size
	if v.Held-before+size <= limit {
		return
	}
	next.truncated = true
	if v.Held-before+keys <= 2*limit {
		next.values = make([]string, len(next.keys))
		return
	}
	v.KeysDropped, next.keys, next.values = true, nil, nil
	if old != nil {
		next.keys, next.values = old.keys, make([]string, len(old.keys))
	}
}

func contains(sorted []string, s string) bool {
	_, ok := slices.BinarySearch(sorted, s)
	return ok
}
