package hostile

import (
	"fmt"
	"slices"
)

// Classes are all kinds of attack of members.
func Classes() []Class {
	return slices.Concat(discoveryClasses, bodyClasses, objectClasses, costClasses, kindClasses, pageClasses, eventClasses, frameClasses)
}

// ConnectionClasses are those that attack connections.
func ConnectionClasses() []Class { return slices.Clone(frameClasses) }

// Select returns the classes of these names; all where there is none.
func Select(names []string) ([]Class, error) {
	all := Classes()
	if len(names) == 0 {
		return all, nil
	}
	var out []Class
	for _, name := range names {
		i := slices.IndexFunc(all, func(c Class) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no class %q", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}
