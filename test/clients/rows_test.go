package clients

import (
	"slices"
	"strings"
)

// rows is the table.
func rows() []*row {
	var out []*row
	for _, group := range []struct {
		name string
		rows []row
	}{
		{"kubectl get", getRows},
		{"kubectl, other reading", readRows},
		{"kubectl, writing", writeRows},
		{"client-go", clientRows},
		{"Informers and caches", informerRows},
		{"Helm", helmRows},
		{"Requests of k9s, Headlamp and others", wireRows},
	} {
		for _, w := range group.rows {
			w.group, w.command = group.name, strings.HasPrefix(group.name, "kubectl") || group.name == "Helm"
			out = append(out, &w)
		}
	}
	return slices.Clip(out)
}
