package history

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// foldedField is how a field differs. Where items of a list have one name, it has several values, of which transitions say which came and went.
type foldedField struct {
	Path    string          `json:"p"`
	First   mark            `json:"a"`
	Last    mark            `json:"z"`
	Before  json.RawMessage `json:"b,omitempty"` // the first transition
	After   json.RawMessage `json:"c,omitempty"` // the last one
	Cut     bool            `json:"x,omitempty"` // a value was
	Came    bool            `json:"j,omitempty"` // with a member that joined: what was before is not known
	Several bool            `json:"s,omitempty"` // values, for certain
	Split   bool            `json:"d,omitempty"` // one transition did not follow from the one before it: Counts are kept
	Counts  []foldedValue   `json:"n,omitempty"`
}

// foldedValue is a value of which there are so many more at the end than at the beginning.
type foldedValue struct {
	Value json.RawMessage `json:"v"`
	More  int             `json:"n"`
}

// change takes a change of a field.
func (x *folded) change(r *Record, i int, at mark) {
	c := &r.Changes[i]
	at2 := at.final(r)
	several := i > 0 && r.Changes[i-1].Path == c.Path || i+1 < len(r.Changes) && r.Changes[i+1].Path == c.Path
	n, known := x.field(c.Path)
	if !known {
		f := foldedField{Path: c.Path, First: at, Last: at2, Before: c.Before, After: c.After, Cut: c.Cut, Several: several, Came: r.Transition == Joined}
		x.Fields = slices.Insert(x.Fields, n, f)
		x.fieldBytes += f.size()
		return
	}
	f := &x.Fields[n]
	x.fieldBytes -= f.size()
	before := c.Before
	if r.Transition == Joined {
		before = f.After
	}
	f.next(before, c.After)
	f.Last, f.Cut, f.Several = at2, f.Cut || c.Cut, f.Several || several
	x.fieldBytes += f.size()
}

// found takes all fields of an object that is there, as they are now. Where several have one path, it is not known which is which; and of an object
// that was there at the beginning, not what fields were then that no transition is of.
func (x *folded) found(r *Record, at mark) {
	for n := range x.Fields {
		f := &x.Fields[n]
		from, is := slices.BinarySearchFunc(r.Changes, f.Path, func(c Change, path string) int { return strings.Compare(c.Path, path) })
		if f.Several || !is && r.More > 0 || is && from+1 < len(r.Changes) && r.Changes[from+1].Path == f.Path {
			continue
		}
		var now Change
		if is {
			now = r.Changes[from]
		}
		x.fieldBytes -= f.size()
		f.next(f.After, now.After)
		f.Last, f.Cut = at, f.Cut || now.Cut
		x.fieldBytes += f.size()
	}
	taken := ""
	for i := range r.Changes {
		path := r.Changes[i].Path
		if _, known := x.field(path); !x.Was && (!known || path == taken) {
			x.change(r, i, at)
			taken = path
		}
	}
	x.More = max(x.More, r.More)
}

// came reports whether a field came with a member that joined.
func (x *folded) came(path string) bool {
	n, known := x.field(path)
	return known && x.Fields[n].Came
}

func (x *folded) field(path string) (n int, known bool) {
	return slices.BinarySearchFunc(x.Fields, path, func(f foldedField, path string) int { return strings.Compare(f.Path, path) })
}

func (f *foldedField) size() int {
	n := 100 + len(f.Path) + len(f.Before) + len(f.After)
	for i := range f.Counts {
		n += 50 + len(f.Counts[i].Value)
	}
	return n
}

// next takes the next change. One that does not follow the last is of another value, if there may be several; else something is missing between them.
func (f *foldedField) next(before, after json.RawMessage) {
	if !f.Split && strings.Contains(f.Path, "[") && !bytes.Equal(f.After, before) {
		f.split()
	}
	if f.Split {
		f.count(before, -1)
		f.count(after, 1)
	}
	f.After = after
}

func (f *foldedField) split() {
	f.Split = true
	f.count(f.Before, -1)
	f.count(f.After, 1)
}

func (f *foldedField) count(value json.RawMessage, n int) {
	if value == nil {
		return
	}
	for i := range f.Counts {
		if bytes.Equal(f.Counts[i].Value, value) {
			f.Counts[i].More += n
			if f.Counts[i].More == 0 && len(f.Counts) > 16 && !isLong(value) {
				f.Counts = slices.Delete(f.Counts, i, i+1)
			}
			return
		}
	}
	f.Counts = append(f.Counts, foldedValue{value, n})
}

// isLong reports whether a value may be only the beginning of one.
func isLong(value json.RawMessage) bool { return len(value) >= maxValue-4 }

// changes returns how the fields differ.
func (x *folded) changes() (out []Change) {
	for i := range x.Fields {
		f := &x.Fields[i]
		if !f.Split {
			cut := f.Cut && (isLong(f.Before) || isLong(f.After))
			if cut || !bytes.Equal(f.Before, f.After) {
				out = append(out, Change{Path: f.Path, Before: f.Before, After: f.After, Cut: cut})
			}
			continue
		}
		out = f.several(out)
	}
	return out
}

// several adds which of several values came and went.
func (f *foldedField) several(out []Change) []Change {
	var gone, came []json.RawMessage
	values := slices.Clone(f.Counts)
	slices.SortFunc(values, func(a, b foldedValue) int { return bytes.Compare(a.Value, b.Value) })
	for i := range values {
		v := &values[i]
		if v.More == 0 && f.Cut && isLong(v.Value) { // one came and one went, which may be unlike
			out = append(out, Change{Path: f.Path, Before: v.Value, After: v.Value, Cut: true})
		}
		for ; v.More < 0; v.More++ {
			gone = append(gone, v.Value)
		}
		for ; v.More > 0; v.More-- {
			came = append(came, v.Value)
		}
	}
	for i := range max(len(gone), len(came)) {
		c := Change{Path: f.Path}
		if i < len(gone) {
			c.Before = gone[i]
		}
		if i < len(came) {
			c.After = came[i]
		}
		c.Cut = f.Cut && (isLong(c.Before) || isLong(c.After))
		out = append(out, c)
	}
	return out
}

// merge takes what another process has recorded of a field, which begins later. It reports whether that fits together.
func (f *foldedField) merge(o *foldedField) (fits bool) {
	f.Cut, f.Several = f.Cut || o.Cut, f.Several || o.Several
	if f.Last.precedes(o.First) { // one went on with it
		switch {
		case o.Split:
			if !f.Split {
				f.split()
			}
			for i := range o.Counts {
				f.count(o.Counts[i].Value, o.Counts[i].More)
			}
		case o.Came:
			f.next(f.After, o.After)
		default:
			f.next(o.Before, o.After)
		}
		f.Last, f.After = o.Last, o.After
		return true
	}
	fits = !f.Split && !o.Split && !f.Several || f.First.same(o.First) && f.Last.same(o.Last) && f.hasValuesOf(o)
	if f.Last.precedes(o.Last) {
		f.Last, f.After = o.Last, o.After
	}
	if !fits && !f.Several { // each lacks what the other one has
		f.Split, f.Counts = false, nil
	}
	return fits
}

// hasValuesOf reports whether the same values came and went.
func (f *foldedField) hasValuesOf(o *foldedField) bool {
	var a, b []Change
	if f.Split {
		a = f.several(nil)
	}
	if o.Split {
		b = o.several(nil)
	}
	return slices.EqualFunc(a, b, func(x, y Change) bool { return bytes.Equal(x.Before, y.Before) && bytes.Equal(x.After, y.After) })
}
