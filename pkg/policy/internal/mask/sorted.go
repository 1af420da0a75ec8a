package mask

import (
	"slices"
	"strings"
)

// Field is a named field of which a mask reads something.
type Field struct {
	Name string
	Mask *Mask // not nil
}

// Sorted returns the named fields of which m reads something, by name: what reads canonical JSON
// meets keys in that order, and is done after the last one. The mask must not be changed any
// more, nor the fields.
func (m *Mask) Sorted() []Field {
	if p := m.sorted.Load(); p != nil {
		return *p
	}
	list := make([]Field, 0, len(m.Fields))
	for name, child := range m.Fields {
		if child != nil {
			list = append(list, Field{name, child})
		}
	}
	slices.SortFunc(list, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	m.sorted.Store(&list)
	return list
}
