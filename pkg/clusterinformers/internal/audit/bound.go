package audit

import "errors"

// A list may have twice as many objects as are held, and some more: those that were lost. Where less is
// held on purpose it may have many more.
const (
	boundTimes  = 2
	boundSlack  = 10_000
	boundSubset = 1_000_000
)

// leanest is how many of the objects that a page may have it has, at least, unless it is the last:
// servers may have smaller pages than they are asked for, but a page without objects brings nothing.
const leanest = 10

// The errors of lists without an end.
var (
	ErrManyObjects = errors.New("the list has many more objects than are held")
	ErrManyPages   = errors.New("the list has many more pages than its objects need")
)

// Bound is how much a list that is compared may bring: its end is the member's to say, and a member
// that never says it would otherwise be listed for ever.
type Bound struct {
	most, objects, pages int
}

// BoundOf is the bound of a list of what so many objects are held of; subset says that less is held
// than is listed on purpose.
func BoundOf(held int, subset bool) Bound {
	most := boundTimes*held + boundSlack
	if subset {
		most += boundSubset
	}
	return Bound{most: most}
}

// Page takes note of a page with so many objects of those that it was asked for.
func (b *Bound) Page(objects int, limit int64) error {
	b.objects += objects
	b.pages += max(objects, int(limit/leanest), 1)
	switch {
	case b.objects > b.most:
		return ErrManyObjects
	case b.pages > b.most:
		return ErrManyPages
	}
	return nil
}
