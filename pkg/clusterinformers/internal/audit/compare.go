package audit

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"
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

// Key is a hash of a namespace and name, whose length is the member's choice.
type Key uint64

// Digest is a hash of a uid and resourceVersion, for the same reason.
type Digest uint64

// AnyVersion is the Digest of an object of which any version will do.
const AnyVersion Digest = 0

// seed is one for all comparisons: what two of them say is compared.
var seed = maphash.MakeSeed()

// KeyOf returns the key of an object in this process.
func KeyOf(namespace, name string) Key {
	return Key(maphash.Comparable(seed, [2]string{namespace, name}))
}

// DigestOf returns the digest of a version of an object in this process.
func DigestOf(uid, resourceVersion string) Digest {
	return Digest(max(1, maphash.Comparable(seed, [2]string{uid, resourceVersion})))
}

// Difference is one object that differs. Its namespace and name are clipped where no object may have
// them, and its name says so where it is not known.
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
	// LeftOut are the versions of objects of the list that are not held because no API server would admit
	// them. They are judged as those that are held are. It must not change.
	LeftOut map[Key]Digest
	// Subset says that less is held than is listed on purpose, as of kinds without end: of what is not
	// held only what is newer than NewerThan is judged, the newest resourceVersion of what has left.
	Subset    bool
	NewerThan uint64
}

// Item is an object of a list. Its strings and Body may change after Add has returned.
type Item struct {
	Namespace, Name, UID, ResourceVersion string
	Body                                  []byte // as the index holds it; nil: it is not compared
}

// What is kept of the differences of a comparison, one by one, and with their names: these alone
// have a size that the member chooses.
const (
	maxDifferences = 10_000
	maxExamples    = 64
)

// Limits of API servers for what an object is called.
const (
	maxNamespace = 63
	maxName      = 1024 // the decoder's
)

// Comparison is a comparison under way.
type Comparison struct {
	part  Part
	found []Key // of what is listed, and held or left out
	most  int   // found, when those that were listed twice are dropped
	body  []byte
	out   Result
}

// Result is what a comparison has found.
type Result struct {
	Listed, Held int
	Bodies       int          // whose content was compared
	Differences  []Difference // at most 64 of them, sorted
	Counts       [causes]int  // of all
	InFlight     int          // how many may be in flight

	kept  []finding // at most 10,000, sorted
	named int       // of them
}

// finding is what is kept of a difference.
type finding struct {
	key      Key
	cause    Cause
	inFlight bool
	named    *Difference // of some
}

func (f finding) compare(o finding) int {
	return cmp.Or(cmp.Compare(f.key, o.key), cmp.Compare(f.cause, o.cause))
}

// Total is the number of differences.
func (r *Result) Total() (n int) {
	for _, c := range r.Counts {
		n += c
	}
	return n
}

func (r *Result) add(f finding) {
	r.Counts[f.cause]++
	if f.inFlight {
		r.InFlight++
	}
	if len(r.kept) < maxDifferences {
		r.kept = append(r.kept, f)
	}
}

// addNamed adds a difference with its name, if there are not enough already.
func (r *Result) addNamed(f finding, namespace, name string) {
	if r.named < maxExamples {
		r.named++
		f.named = &Difference{clip(namespace, maxNamespace), clip(name, maxName), f.cause, f.inFlight}
	}
	r.add(f)
}

// show sets the differences that are named.
func (r *Result) show() {
	r.Differences = nil
	for _, f := range r.kept {
		if f.named != nil && len(r.Differences) < maxExamples {
			r.Differences = append(r.Differences, *f.named)
		}
	}
	if r.Differences == nil && len(r.kept) > 0 {
		f := r.kept[0]
		r.Differences = []Difference{{Name: "(not kept)", Cause: f.cause, InFlight: f.inFlight}}
	}
	slices.SortFunc(r.Differences, Difference.compare)
}

func clip(s string, size int) string { return strings.Clone(s[:min(len(s), size)]) }

// Compare begins a comparison.
func Compare(p Part) *Comparison {
	c := &Comparison{part: p}
	c.most = 2*(c.held()+len(p.LeftOut)) + 1024
	return c
}

// Add compares an item of the list. An error is of content that is held and cannot be read.
func (c *Comparison) Add(i Item) error {
	c.out.Listed++
	key := KeyOf(i.Namespace, i.Name)
	var o aggregate.Object
	held := len(i.Namespace) <= maxNamespace && len(i.Name) <= maxName // else the index cannot have it
	if held {
		o, held = c.part.Snapshot.Get(aggregate.Ref{Member: c.part.Member, Kind: c.part.Kind, Namespace: i.Namespace, Name: i.Name})
	}
	if !held {
		switch digest, left := c.part.LeftOut[key]; {
		case !left && c.part.Subset && !newer(i.ResourceVersion, c.part.NewerThan):
		case !left:
			c.differs(key, i, Missing)
		default:
			c.find(key)
			if digest != AnyVersion && digest != DigestOf(i.UID, i.ResourceVersion) {
				c.differs(key, i, Version)
			}
		}
		return nil
	}
	c.find(key)
	switch {
	case o.SameVersion(i.UID, i.ResourceVersion):
	case o.UID() != i.UID:
		c.differs(key, i, UID)
		return nil
	default:
		c.differs(key, i, Version)
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
		c.differs(key, i, Content)
	}
	return nil
}

// find takes note of what is held or left out. However often it is listed, it is kept twice at most.
func (c *Comparison) find(key Key) {
	if c.found = append(c.found, key); len(c.found) >= c.most {
		c.compact()
	}
}

func (c *Comparison) compact() {
	slices.Sort(c.found)
	c.found = slices.Compact(c.found)
}

// differs adds a difference of an item.
func (c *Comparison) differs(key Key, i Item, cause Cause) {
	f := finding{key: key, cause: cause, inFlight: c.part.At != "" && !older(i.ResourceVersion, c.part.At)}
	c.out.addNamed(f, i.Namespace, i.Name)
}

// older reports whether one resourceVersion is known to be older than another.
func older(rv, other string) bool {
	c, err := resourceversion.CompareResourceVersion(rv, other)
	return err == nil && c < 0
}

// newer reports whether a resourceVersion is known to be newer than another.
func newer(rv string, other uint64) bool {
	n, err := strconv.ParseUint(rv, 10, 64)
	return err == nil && n > other
}

// Result ends the comparison: the list is complete.
func (c *Comparison) Result() Result {
	c.compact()
	c.out.Held = c.held()
	if len(c.found) != c.out.Held+len(c.part.LeftOut) {
		c.extras()
	}
	slices.SortFunc(c.out.kept, finding.compare)
	c.out.show()
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

// extras adds what is held or left out and was not listed.
func (c *Comparison) extras() {
	objects, err := c.part.Snapshot.List(c.query())
	if err != nil {
		panic(err) // of queries by field
	}
	extra := func(key Key) (f finding, is bool) {
		_, listed := slices.BinarySearch(c.found, key)
		return finding{key: key, cause: Extra, inFlight: c.part.At != ""}, !listed
	}
	for o := range objects {
		if f, is := extra(KeyOf(o.Namespace(), o.Name())); is {
			c.out.addNamed(f, o.Namespace(), o.Name())
		}
	}
	for key := range c.part.LeftOut {
		if f, is := extra(key); is {
			c.out.addNamed(f, "", "(left out)")
		}
	}
}

// Confirm returns of the first of two comparisons with one snapshot what the second says, too; nothing
// where all of it may be in flight. Where something is not, the rest is most likely lost with it.
func Confirm(first, second Result) Result {
	out := first
	out.Differences, out.Counts, out.InFlight, out.kept = nil, [causes]int{}, 0, nil
	for _, f := range first.kept {
		if n, both := slices.BinarySearchFunc(second.kept, f, finding.compare); both {
			if f.named == nil {
				f.named = second.kept[n].named
			}
			out.add(f)
		}
	}
	switch {
	case out.Total() == out.InFlight:
		out.Counts, out.InFlight, out.kept = [causes]int{}, 0, nil
	case len(first.kept) == maxDifferences:
		for cause := range out.Counts { // of which some are not known one by one
			out.Counts[cause] = max(out.Counts[cause], min(first.Counts[cause], second.Counts[cause]))
		}
	}
	out.show()
	return out
}
