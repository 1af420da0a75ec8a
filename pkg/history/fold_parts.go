package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// foldPart is a fold as other processes get it.
type foldPart struct {
	Items  map[string]*folded   `json:"items,omitempty"`
	Gaps   map[string]Record    `json:"gaps,omitempty"`
	Events map[string]Record    `json:"events,omitempty"`
	Begins map[string]time.Time `json:"begins,omitempty"`
	Held   []string             `json:"held,omitempty"`
}

// MarshalJSON implements json.Marshaler: what it returns can be merged.
func (f *Fold) MarshalJSON() ([]byte, error) {
	return json.Marshal(foldPart{f.items, f.gaps, f.events, f.begins, slices.Sorted(maps.Keys(f.held))})
}

// Merge merges what MarshalJSON has returned of the fold of another process, of the same span. What both have recorded counts once.
func (f *Fold) Merge(part []byte) error {
	var p foldPart
	if err := json.Unmarshal(part, &p); err != nil {
		return fmt.Errorf("history: a part of a fold: %w", err)
	}
	for id, x := range p.Items {
		if f.parts[id] = append(f.parts[id], x); len(f.parts[id]) == 1 && (x.Was || x.Is) {
			f.live++
		}
		for i := range x.Fields {
			x.fieldBytes += x.Fields[i].size()
		}
		f.size += x.weigh(id)
	}
	maps.Copy(f.gaps, p.Gaps)
	maps.Copy(f.events, p.Events)
	maps.Copy(f.begins, p.Begins)
	for _, uid := range p.Held {
		f.held[uid] = true
	}
	return f.bounds()
}

// combine makes one thing of what several processes have recorded of it.
func (f *Fold) combine() {
	for id, parts := range f.parts {
		slices.SortFunc(parts, func(a, b *folded) int { return a.First.compare(b.First) })
		x := parts[0]
		fields := map[string][]foldedField{}
		for _, o := range parts {
			for i := range o.Fields {
				fields[o.Fields[i].Path] = append(fields[o.Fields[i].Path], o.Fields[i])
			}
			if o != x {
				x.merge(o)
			}
		}
		x.Fields = x.Fields[:0]
		for _, path := range slices.Sorted(maps.Keys(fields)) {
			of := fields[path]
			slices.SortFunc(of, func(a, b foldedField) int { return cmp.Or(a.First.compare(b.First), -a.Last.compare(b.Last)) })
			for i := range of[1:] {
				x.Broken = !of[0].merge(&of[i+1]) || x.Broken
			}
			x.Fields = append(x.Fields, of[0])
		}
		f.items[id] = x
	}
	clear(f.parts)
}

// merge merges what another process has recorded of one thing, which begins later, without its fields.
func (x *folded) merge(o *folded) {
	x.Changed = x.Changed || o.Changed || !x.Was || !x.Is || !o.Was || !o.Is // if it is there at both ends, it was gone meanwhile
	x.Broken = x.Broken || o.Broken
	x.More, x.Count = max(x.More, o.More), max(x.Count, o.Count)
	is := x.Is || o.Is
	if o.Last.compare(x.Last) > 0 {
		x.Last, x.Is, x.Record = o.Last, o.Is, o.Record
	}
	if x.Record.Type == Member { // which moves from one to another
		x.Was, x.Is, x.Broken = x.Was || o.Was, is, false
	}
}

// foldDoubts say what is not known for certain.
type foldDoubts struct {
	all, verdicts bool            // all is in doubt, or all verdicts are
	of            map[string]bool // members, scopes and objects in doubt
	gone          map[string]bool // members and scopes that are not there at the end
	joined        map[string]bool // members that began to be read within: that their scopes are is no news
}

// verdictsGap is in the keys of gaps that are about verdicts only.
const verdictsGap = "verdicts"

func (f *Fold) doubts() *foldDoubts {
	d := &foldDoubts{of: map[string]bool{}, gone: map[string]bool{}, joined: map[string]bool{}}
	d.all = len(f.begins) > 0 && !f.since.IsZero()
	for _, at := range f.begins {
		d.all = d.all && at.After(f.since)
	}
	for key, r := range f.gaps {
		switch {
		case strings.HasPrefix(key, join("gap", verdictsGap)+"/"):
			d.verdicts = true
		case r.Member == "" && r.Kind == "":
			d.all = true
		default:
			d.of[doubted(&r)] = true
		}
	}
	moved := map[string]bool{} // members that one process may have taken over from another one
	for _, x := range f.items {
		r := &x.Record
		if r.Type != Member {
			continue
		}
		if f.held[r.MemberUID] { // by a process that has not taken it over
			x.Was, x.Is = true, true
			d.joined[r.MemberUID] = x.Changed
			continue
		}
		at := doubted(&Record{MemberUID: r.MemberUID})
		d.gone[at], d.joined[r.MemberUID], moved[r.MemberUID] = !x.Is, x.Is && x.Changed, x.Was && x.Is && x.Changed
		d.of[at] = d.of[at] || x.Broken && x.Was && x.Is
	}
	for _, x := range f.items {
		if r := &x.Record; r.Type == Scope && (x.Broken || moved[r.MemberUID] && x.isNew()) {
			at := doubted(&Record{MemberUID: r.MemberUID, Kind: r.Kind})
			d.gone[at], d.of[at] = r.Transition == Removed, true
		}
	}
	return d
}

// doubted is by what doubts about a member, scope or object are found.
func doubted(r *Record) string {
	return strings.Join([]string{r.MemberUID, string(r.Kind), r.Namespace, r.Name}, "\x00")
}

// isGone reports whether an object or a scope is gone with its member or its scope, which says so.
func (d *foldDoubts) isGone(r *Record) bool {
	return (r.Type == Object || r.Type == Scope) && d.gone[doubted(&Record{MemberUID: r.MemberUID})] ||
		r.Type == Object && d.gone[doubted(&Record{MemberUID: r.MemberUID, Kind: r.Kind})]
}

// about reports whether it is not certain how something differs.
func (d *foldDoubts) about(r *Record) bool {
	switch {
	case d.all, d.verdicts && r.Type == Verdict:
		return true
	case r.Type != Object && r.Type != Scope:
		return false
	}
	return d.of[doubted(&Record{MemberUID: r.MemberUID})] || r.Type == Object &&
		(d.of[doubted(&Record{Kind: r.Kind})] || d.of[doubted(&Record{MemberUID: r.MemberUID, Kind: r.Kind})] || d.of[doubted(r)])
}
