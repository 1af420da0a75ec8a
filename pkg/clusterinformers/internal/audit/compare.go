package audit

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"federator.dev/federator/pkg/aggregate"
)

// Cause is in what way an object that is held differs from the member's.
type Cause uint8

// The causes.
const (
	Missing Cause = iota // the member has it
	Extra                // the member does not have it
	Version              // the member has another version of it
	UID                  // the member has another object of that name
	Content              // at the same version its content is another
	causes
)

// Causes are the names of all causes, in their order.
var Causes = [causes]string{"missing", "extra", "version", "uid", "content"}

func (c Cause) String() string { return Causes[c] }

// Difference is one object that differs.
type Difference struct {
	Namespace, Name string
	Cause           Cause
	InFlight        bool // it may be: see Part.At
}

func (d Difference) compare(o Difference) int {
	return cmp.Or(strings.Compare(d.Namespace, o.Namespace), strings.Compare(d.Name, o.Name), cmp.Compare(d.Cause, o.Cause))
}

// Part is what a list is compared with: the objects of a kind of a member, or of one namespace of
// it, in a snapshot.
type Part struct {
	Snapshot  *aggregate.Snapshot
	Member    string
	Kind      aggregate.Kind
	Namespace string // "" for all

	// At is the resourceVersion of the list where not all events up to it may have come: those at it may
	// be in flight, as where one transaction of etcd deletes several objects. "" where all have come.
	At string
	// LeftOut reports whether an object is not held because no API server would admit it; nil: none
	// is. Uncounted is how many more may be left out that are not known by name.
	LeftOut   func(namespace, name string) bool
	Uncounted int
	// Subset says that less is held than is listed on purpose, as of kinds without end: only what is
	// held is judged.
	Subset bool
}

// Item is an object of a list. Its strings and Body may change after Add has returned.
type Item struct {
	Namespace, Name, UID, ResourceVersion string
	Body                                  []byte // as the index holds it; nil: it is not compared
}

// maxDifferences bounds the differences of a comparison that are kept one by one.
const maxDifferences = 10_000

// Comparison is a comparison under way.
type Comparison struct {
	part    Part
	seed    maphash.Seed
	found   []uint64 // hashes of the keys of what is listed and held
	body    []byte
	missing []Difference
	out     Result
}

// Result is what a comparison has found.
type Result struct {
	Listed, Held int
	Bodies       int // whose content was compared
	// Unjudged is how many objects are listed and not held without a difference, because they may
	// be among those that are left out.
	Unjudged    int
	Differences []Difference // at most 10,000, sorted
	Counts      [causes]int  // of all
	InFlight    int          // how many may be in flight
}

// Total is the number of differences.
func (r *Result) Total() (n int) {
	for _, c := range r.Counts {
		n += c
	}
	return n
}

func (r *Result) add(d Difference) {
	r.Counts[d.Cause]++
	if d.InFlight {
		r.InFlight++
	}
	if len(r.Differences) < maxDifferences {
		r.Differences = append(r.Differences, d)
	}
}

// Compare begins a comparison.
func Compare(p Part) *Comparison { return &Comparison{part: p, seed: maphash.MakeSeed()} }

func (c *Comparison) hash(namespace, name string) uint64 {
	return maphash.Comparable(c.seed, [2]string{namespace, name})
}

// Add compares an item of the list. An error is of content that is held and cannot be read.
func (c *Comparison) Add(i Item) error {
	c.out.Listed++
	o, held := c.part.Snapshot.Get(aggregate.Ref{Member: c.part.Member, Kind: c.part.Kind, Namespace: i.Namespace, Name: i.Name})
	if !held {
		if c.part.Subset || c.part.LeftOut != nil && c.part.LeftOut(i.Namespace, i.Name) {
			return nil
		}
		if d := c.difference(i, Missing); len(c.missing) < maxDifferences {
			c.missing = append(c.missing, d)
		} else {
			c.out.Counts[Missing]++
		}
		return nil
	}
	c.found = append(c.found, c.hash(i.Namespace, i.Name))
	switch {
	case o.SameVersion(i.UID, i.ResourceVersion):
	case o.UID() != i.UID:
		c.out.add(c.difference(i, UID))
		return nil
	default:
		c.out.add(c.difference(i, Version))
		return nil
	}
	if i.Body == nil {
		return nil
	}
	c.out.Bodies++
	var err error
	if c.body, err = o.AppendBody(c.body[:0]); err != nil {
		return err
	}
	if !bytes.Equal(c.body, i.Body) {
		c.out.add(c.difference(i, Content))
	}
	return nil
}

func (c *Comparison) difference(i Item, cause Cause) Difference {
	return Difference{strings.Clone(i.Namespace), strings.Clone(i.Name), cause, c.part.At != "" && !older(i.ResourceVersion, c.part.At)}
}

// older reports whether one resourceVersion is known to be older than another.
func older(rv, other string) bool {
	c, err := resourceversion.CompareResourceVersion(rv, other)
	return err == nil && c < 0
}

// Result ends the comparison: the list is complete.
func (c *Comparison) Result() Result {
	if n := len(c.missing) + c.out.Counts[Missing]; n <= c.part.Uncounted {
		c.out.Unjudged, c.out.Counts[Missing] = n, 0
	} else {
		for _, d := range c.missing {
			c.out.add(d)
		}
	}
	c.missing = nil
	slices.Sort(c.found)
	c.found = slices.Compact(c.found)
	c.out.Held = c.held()
	if len(c.found) != c.out.Held {
		c.extras()
	}
	slices.SortFunc(c.out.Differences, Difference.compare)
	return c.out
}

func (c *Comparison) query() aggregate.Query {
	return aggregate.Query{Kind: c.part.Kind, Members: []string{c.part.Member}, Namespace: c.part.Namespace}
}

// held counts the objects that are held.
func (c *Comparison) held() int {
	n, err := c.part.Snapshot.Count(c.query())
	if err != nil {
		panic(err) // of queries by field
	}
	return n
}

// extras adds what is held and was not listed.
func (c *Comparison) extras() {
	objects, err := c.part.Snapshot.List(c.query())
	if err != nil {
		panic(err) // of queries by field
	}
	for o := range objects {
		if _, listed := slices.BinarySearch(c.found, c.hash(o.Namespace(), o.Name())); !listed {
			c.out.add(Difference{o.Namespace(), o.Name(), Extra, c.part.At != ""})
		}
	}
}

// Confirm returns of the first of two comparisons with one snapshot what the second says, too; nothing
// where all of it may be in flight. Where something is not, the rest is most likely lost with it.
func Confirm(first, second Result) Result {
	out := first
	out.Differences, out.Counts, out.InFlight = nil, [causes]int{}, 0
	for _, d := range first.Differences {
		if _, both := slices.BinarySearchFunc(second.Differences, d, Difference.compare); both {
			out.add(d)
		}
	}
	switch {
	case out.Total() == out.InFlight:
		out.Differences, out.Counts, out.InFlight = nil, [causes]int{}, 0
	case len(first.Differences) == maxDifferences:
		for cause := range out.Counts { // of which some are not known one by one
			out.Counts[cause] = max(out.Counts[cause], min(first.Counts[cause], second.Counts[cause]))
		}
	}
	return out
}
