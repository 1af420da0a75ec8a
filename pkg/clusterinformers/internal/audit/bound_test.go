package audit_test

import (
	"errors"
	"testing"

	"federator.dev/federator/pkg/clusterinformers/internal/audit"
)

// TestBound_IsOfWhatIsHeld: lists that are larger than what is held are read, and those without an end are not.
func TestBound_IsOfWhatIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		held    int
		subset  bool
		objects int // of each page
		limit   int64
		pages   int
		want    error
	}{
		"what is held":                  {100_000, false, 500, 500, 200, nil},
		"smaller pages than asked for":  {100_000, false, 50, 500, 2000, nil},
		"one object a page":             {1000, false, 1, 1, 1000, nil},
		"nothing is held":               {0, false, 500, 500, 20, nil},
		"nothing is held of many":       {0, true, 500, 500, 2000, nil},
		"many more than are held":       {1000, false, 500, 500, 25, audit.ErrManyObjects},
		"pages without objects":         {9, false, 0, 500, 201, audit.ErrManyPages},
		"tiny pages without objects":    {9, false, 0, 1, 10_019, audit.ErrManyPages},
		"pages without objects of many": {9, true, 0, 500, 20_201, audit.ErrManyPages},
	} {
		b, err := audit.BoundOf(c.held, c.subset), error(nil)
		n := 0
		for ; n < c.pages && err == nil; n++ {
			err = b.Page(c.objects, c.limit)
		}
		if !errors.Is(err, c.want) || n != c.pages {
			t.Errorf("%s: after %d pages: %v, want %v after %d", name, n, err, c.want, c.pages)
		}
	}
}
