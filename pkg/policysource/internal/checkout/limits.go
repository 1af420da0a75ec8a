package checkout

import (
	"fmt"
	"time"
)

// Limits limit one fetch. The zero value of a field means its default.
type Limits struct {
	Timeout  time.Duration // of the complete fetch; 1 minute
	Refs     int64         // bytes of the remote's list of refs; 16 MiB
	Pack     int64         // bytes of the pack as sent; 32 MiB
	Unpacked int64         // bytes of the pack's objects; 128 MiB
	Objects  int           // of the pack; 50,000
	Files    int           // below the path, directories not counted; 2,000
	Dirs     int           // below the path; 2,000
	FileSize int64         // bytes of a file below the path; 1 MiB
	TreeSize int64         // bytes of all files below the path; 16 MiB
	Depth    int           // of directories below the path; 16
}

// Limits that are not configurable.
const (
	maxMetadata   = 1 << 20 // bytes of a commit or a tag
	maxTree       = 8 << 20 // bytes of a tree object
	maxNestedTags = 5       // tags of tags
)

// WithDefaults returns the limits with defaults for zero values, or an error for a negative
// one.
func (l Limits) WithDefaults() (Limits, error) {
	for _, x := range []struct {
		name  string
		value *int64
		or    int64
	}{
		{"refs", &l.Refs, 16 << 20},
		{"pack", &l.Pack, 32 << 20},
		{"unpacked", &l.Unpacked, 128 << 20},
		{"fileSize", &l.FileSize, 1 << 20},
		{"treeSize", &l.TreeSize, 16 << 20},
		{"timeout", (*int64)(&l.Timeout), int64(time.Minute)},
	} {
		if err := orDefault(x.name, x.value, x.or); err != nil {
			return l, err
		}
	}
	for _, x := range []struct {
		name  string
		value *int
		or    int
	}{{"objects", &l.Objects, 50_000}, {"files", &l.Files, 2000}, {"dirs", &l.Dirs, 2000}, {"depth", &l.Depth, 16}} {
		if err := orDefault(x.name, x.value, x.or); err != nil {
			return l, err
		}
	}
	return l, nil
}

func orDefault[T int | int64](name string, value *T, or T) error {
	switch {
	case *value < 0:
		return fmt.Errorf("limits: %s is negative", name)
	case *value == 0:
		*value = or
	}
	return nil
}
