// Package matview holds views of packages materialised: what each object contributes to
// which key, bounded in bytes, and frozen for each state at the cost of what changed.
package matview

import (
	"fmt"
	"iter"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/sorted"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// View is a view of a package, materialised: what each object contributes. The
// engine's goroutine writes it; states hold frozen ones.
type View struct {
	ID       uint32 // never used again
	Pkg      *module.Package
	Def      module.View
	entries  *sorted.Tree[Entry]    // by key, then ref
	contribs *sorted.Tree[*contrib] // by ref
	failed   *sorted.Tree[*contrib] // those that failed
	bytes    int64                  // of keys, values and contribs, those that are not held included
	Held     int64                  // of those that are
	dropped  int64                  // of those that were, since the last state
	Over     string                 // why nothing is known of what the view shows
	Blind    bool                   // not all keys are held: none is taken out
	frozen   *View                  // nil when the view has changed since
}

// New returns an empty view.
func New(id uint32, pkg *module.Package, def module.View) View {
	v := View{ID: id, Pkg: pkg, Def: def}
	v.Clear()
	return v
}

// Of returns the view as one of another package, which contributes the same.
func (v *View) Of(pkg *module.Package, def module.View) View {
	return View{
		ID: v.ID, Pkg: pkg, Def: def, entries: v.entries, failed: v.failed, contribs: v.contribs,
		bytes: v.bytes, Held: v.Held, Over: v.Over, Blind: v.Blind,
	}
}

func (v *View) name() string { return v.Pkg.Name + "." + v.Def.Name }

func (v *View) Clear() {
	v.entries, v.contribs, v.failed = sorted.New(lessEntry), sorted.New(lessContrib), sorted.New(lessContrib)
	v.dropped += v.Held
	v.bytes, v.Held, v.Over, v.Blind = 0, 0, "", false
	v.frozen = nil
}

// contrib returns what an object contributes, nil when it is nothing.
func (v *View) contrib(ref aggregate.Ref) *contrib {
	c, _ := v.contribs.Get(&contrib{Ref: ref})
	return c
}

// Freeze returns a copy that later changes do not touch.
func (v *View) Freeze() *View {
	if v.frozen == nil {
		v.frozen = &View{
			ID: v.ID, Pkg: v.Pkg, Def: v.Def, bytes: v.bytes, Over: v.Over,
			entries: v.entries.Copy(), failed: v.failed.Copy(),
		}
	}
	return v.frozen
}

// Exceeded reports whether the view holds more than limit for the first time: nothing is
// known of it then.
func (v *View) Exceeded(limit int64) bool {
	if v.Over != "" || v.bytes <= limit {
		return false
	}
	// Not how many: that depends on when it was looked at.
	v.Over, v.frozen = fmt.Sprintf("objects contribute more than %d bytes", limit), nil
	return true
}

// Fits reports whether the view held more than limit and does not any more.
func (v *View) Fits(limit int64) bool { return v.Over != "" && v.bytes <= limit }

// Readmit has what the view shows be known again.
func (v *View) Readmit() { v.Over, v.frozen = "", nil }

// TakeDropped is about how many bytes were replaced or taken out since it was last asked.
func (v *View) TakeDropped() int64 {
	n := v.dropped + v.entries.Replaced() + v.contribs.Replaced()
	v.dropped = 0
	return n
}

// StandAs makes the view the one of a state.
func (v *View) StandAs(held *View) {
	v.ID, v.entries, v.failed, v.Over = held.ID, held.entries, held.failed, held.Over
}

// CutRefs yields the objects whose values are not held.
func (v *View) CutRefs() iter.Seq[aggregate.Ref] {
	return func(yield func(aggregate.Ref) bool) {
		v.contribs.Scan(func(c *contrib) bool { return !c.cut || yield(c.Ref) })
	}
}

// HeldBack yields the objects whose evaluation the quarantine of a member holds back.
func (v *View) HeldBack(members []string) iter.Seq[aggregate.Ref] {
	return func(yield func(aggregate.Ref) bool) {
		v.failed.Scan(func(c *contrib) bool {
			return !c.held || !slices.Contains(members, c.Ref.Member) || yield(c.Ref)
		})
	}
}

// KeysOf returns the keys to which an object contributes.
func (v *View) KeysOf(ref aggregate.Ref) []string {
	if c := v.contrib(ref); c != nil {
		return c.keys
	}
	return nil
}

// Under yields the entries of a key, by ref.
func (v *View) Under(key string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		v.entries.Ascend(Entry{key: key}, func(e Entry) bool { return e.key == key && yield(e) })
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

// Excess returns why nothing is known of what the view shows, or "".
func (v *View) Excess() string {
	if v.Over == "" {
		return ""
	}
	return fmt.Sprintf("view %s: %s", v.name(), v.Over)
}

// Gaps yields the scopes of which an object could not contribute, by kind and member:
// each with the first of its objects.
func (v *View) Gaps() iter.Seq[verdict.Gap] {
	return func(yield func(verdict.Gap) bool) {
		for pivot := (&contrib{}); pivot != nil; {
			from := pivot
			pivot = nil
			v.failed.Ascend(from, func(c *contrib) bool {
				if yield(verdict.Gap{Member: c.Ref.Member, Kind: c.Ref.Kind, State: aggregate.Partial, Failure: fmt.Sprintf("view %s: %s: %s", v.name(), c.Ref, c.failed)}) {
					pivot = &contrib{Ref: aggregate.Ref{Kind: c.Ref.Kind, Member: c.Ref.Member + "\x00"}} // after all of the member's
				}
				return false
			})
		}
	}
}
