package clients

import "slices"

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
	} {
		for _, w := range group.rows {
			w.group = group.name
			out = append(out, &w)
		}
	}
	return slices.Clip(out)
}
