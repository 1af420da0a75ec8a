// Package matview materialises views: what each object contributes to which key, bounded
// in bytes, and copied for each state at the cost of what changed.
package matview

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/sorted"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// View is a materialised view of a package. The engine's goroutine writes it; states
// hold frozen copies.
type View struct {
	ID          uint32 // unique, never reused
	Pkg         *module.Package
	Def         module.View
	entries     *sorted.Tree[Entry]          // by key, then ref
	objects     *sorted.Tree[*objectEntries] // by ref
	failed      *sorted.Tree[*objectEntries] // those whose contribution failed
	bytes       int64                        // of all contributions, including what is not held
	Held        int64                        // of what is held
	superseded  int64                        // no longer held, since the last state
	OverLimit   string                       // why the content of the view is unknown; "" within its limit
	KeysDropped bool                         // not all keys are held: none is deleted
	ByObject    bool                         // its frozen copies have KeysFor and ValuesOf
	frozen      *View                        // nil when the view has changed since
}

// New returns an empty view.
func New(id uint32, pkg *module.Package, def module.View) View {
	v := View{ID: id, Pkg: pkg, Def: def}
	v.Clear()
	return v
}

// WithPackage returns the view for another version of its package with the same rules.
func (v *View) WithPackage(pkg *module.Package, def module.View) View {
	return View{
		ID: v.ID, Pkg: pkg, Def: def, entries: v.entries, failed: v.failed, objects: v.objects,
		bytes: v.bytes, Held: v.Held, OverLimit: v.OverLimit, KeysDropped: v.KeysDropped, ByObject: v.ByObject,
	}
}

func (v *View) name() string { return v.Pkg.Name + "." + v.Def.Name }

func (v *View) Clear() {
	v.entries, v.objects, v.failed = sorted.New(lessEntry), sorted.New(lessObject), sorted.New(lessObject)
	v.superseded += v.Held
	v.bytes, v.Held, v.OverLimit, v.KeysDropped = 0, 0, "", false
	v.frozen = nil
}

// objectEntries returns the contribution of an object, nil when there is none.
func (v *View) objectEntries(ref aggregate.Ref) *objectEntries {
	c, _ := v.objects.Get(&objectEntries{Ref: ref})
	return c
}

// Freeze returns a copy that later changes do not touch.
func (v *View) Freeze() *View {
	if v.frozen == nil {
		v.frozen = &View{
			ID: v.ID, Pkg: v.Pkg, Def: v.Def, bytes: v.bytes, OverLimit: v.OverLimit,
			entries: v.entries.Copy(), failed: v.failed.Copy(),
		}
		if v.ByObject {
			v.frozen.objects = v.objects.Copy()
		}
	}
	return v.frozen
}

// KeysFor returns the keys to which an object contributes, or why what it contributes is not known, or not held.
func (v *View) KeysFor(ref aggregate.Ref) (keys []string, unknown string) {
	c := v.objectEntries(ref)
	switch {
	case c == nil:
		return nil, ""
	case c.failed != "":
		return nil, c.failed
	case c.truncated:
		return nil, cmp.Or(v.LimitMessage(), fmt.Sprintf("view %s holds no more than it may", v.name()))
	}
	return c.keys, ""
}

// ValuesOf returns what an object contributes to a key, as JSON.
func (v *View) ValuesOf(ref aggregate.Ref, key string) string {
	e, _ := v.entries.Get(Entry{key: key, Object: &objectEntries{Ref: ref}})
	return e.Values
}

// CheckLimit reports whether the view exceeds its limit for the first time: its content
// is unknown then.
func (v *View) CheckLimit(limit int64) bool {
	if v.OverLimit != "" || v.bytes <= limit {
		return false
	}
	// Not how many bytes: that depends on the batches.
	v.OverLimit, v.frozen = fmt.Sprintf("objects contribute more than %d bytes", limit), nil
	return true
}

// FitsAgain reports whether the view exceeded its limit and does not any more.
func (v *View) FitsAgain(limit int64) bool { return v.OverLimit != "" && v.bytes <= limit }

// Restore makes the content of the view known again.
func (v *View) Restore() { v.OverLimit, v.frozen = "", nil }

// TakeSuperseded estimates the bytes replaced or deleted since its last call.
func (v *View) TakeSuperseded() int64 {
	n := v.superseded + v.entries.ReplacedBytes() + v.objects.ReplacedBytes()
	v.superseded = 0
	return n
}

// Adopt takes over the content of a view of a state.
func (v *View) Adopt(held *View) {
	v.ID, v.entries, v.failed, v.OverLimit = held.ID, held.entries, held.failed, held.OverLimit
	// Copying a tree writes to it, and that of a state is everybody's.
	v.frozen = &View{ID: v.ID, Pkg: v.Pkg, Def: v.Def, bytes: held.bytes, OverLimit: v.OverLimit, entries: v.entries, failed: v.failed}
}

// Truncated yields the objects whose values are not held.
func (v *View) Truncated() iter.Seq[aggregate.Ref] {
	return func(yield func(aggregate.Ref) bool) {
		v.objects.Scan(func(c *objectEntries) bool { return !c.truncated || yield(c.Ref) })
	}
}

// Withheld yields the objects whose evaluation a quarantine of one of the members
// withheld.
func (v *View) Withheld(members []string) iter.Seq[aggregate.Ref] {
	return func(yield func(aggregate.Ref) bool) {
		v.failed.Scan(func(c *objectEntries) bool {
			return !c.withheld || !slices.Contains(members, c.Ref.Member) || yield(c.Ref)
		})
	}
}

// KeysOf returns the keys to which an object contributes.
func (v *View) KeysOf(ref aggregate.Ref) []string {
	if c := v.objectEntries(ref); c != nil {
		return c.keys
	}
	return nil
}

// Entries yields the entries of a key, by ref.
func (v *View) Entries(key string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		v.entries.Ascend(Entry{key: key}, func(e Entry) bool { return e.key == key && yield(e) })
	}
}

// EntriesIn yields the entries of a key that are of objects of a kind in a member, by ref.
func (v *View) EntriesIn(key string, kind aggregate.Kind, member string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		from := Entry{key: key, Object: &objectEntries{Ref: aggregate.Ref{Kind: kind, Member: member}}}
		v.entries.Ascend(from, func(e Entry) bool {
			return e.key == key && e.Object.Ref.Kind == kind && e.Object.Ref.Member == member && yield(e)
		})
	}
}

// Keys yields the keys, in order.
func (v *View) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		at, first := "", true
		v.entries.Scan(func(e Entry) bool {
			if !first && e.key == at {
				return true
			}
			at, first = e.key, false
			return yield(e.key)
		})
	}
}

// LimitMessage returns why the content of the view is unknown, or "".
func (v *View) LimitMessage() string {
	if v.OverLimit == "" {
		return ""
	}
	return fmt.Sprintf("view %s: %s", v.name(), v.OverLimit)
}

// Gaps yields the scopes with an object whose contribution failed, by kind and member,
// each with its first such object.
func (v *View) Gaps() iter.Seq[verdict.Gap] {
	return func(yield func(verdict.Gap) bool) {
		for pivot := (&objectEntries{}); pivot != nil; {
			from := pivot
			pivot = nil
			v.failed.Ascend(from, func(c *objectEntries) bool {
				if yield(verdict.Gap{Member: c.Ref.Member, Kind: c.Ref.Kind, State: aggregate.Partial, Failure: fmt.Sprintf("view %s: %s: %s", v.name(), c.Ref, c.failed)}) {
					pivot = &objectEntries{Ref: aggregate.Ref{Kind: c.Ref.Kind, Member: c.Ref.Member + "\x00"}} // after all objects of the member
				}
				return false
			})
		}
	}
}
