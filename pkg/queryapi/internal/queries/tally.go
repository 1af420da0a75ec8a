package queries

import (
	"context"
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// keySource is what a key is taken from. Those up to byNamespace need no objects.
type keySource int

const (
	_ keySource = iota
	byMember
	byMemberLabel
	byKind
	byNamespace
	byLabel
	byField
)

// groupKey is one part of a group's key.
type groupKey struct {
	source keySource
	label  string
	field  *selection.Field
}

// tally has the groups of a count. The key of a group is its parts, each prefixed with
// its length.
type tally struct {
	snapshot  *aggregate.Snapshot
	maxGroups int // groups

	mu        sync.Mutex
	total     int
	other     int // in groups beyond maxGroups
	truncated bool
	counts    map[string]int
}

// add counts objects of one member. rows are by group; total is that of the
// objects, which may be in several groups each.
func (t *tally) add(rows map[string]*int, total, other int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += total
	t.other += other
	t.truncated = t.truncated || other > 0
	for k, n := range rows {
		if _, ok := t.counts[k]; !ok && len(t.counts) >= t.maxGroups {
			t.other += *n
			t.truncated = true
			continue
		}
		t.counts[k] += *n
	}
}

func (t *tally) groups() []Group {
	out := make([]Group, 0, len(t.counts))
	for k, n := range t.counts {
		g := Group{Count: n}
		for rest := []byte(k); len(rest) > 0; {
			size, width := binary.Uvarint(rest)
			g.Key = append(g.Key, string(rest[width:width+int(size)]))
			rest = rest[width+int(size):]
		}
		out = append(out, g)
	}
	slices.SortFunc(out, compareGroups)
	return out
}

// countPlan counts one kind.
type countPlan struct {
	kind     aggregate.Kind
	selector *selection.Selector
	keys     []groupKey
	find     selection.Listing
}

// addTo adds to a tally, members concurrently.
func (c *countPlan) addTo(ctx context.Context, t *tally) error {
	members := c.find.Visible()
	g, ctx := panicgroup.WithContext(ctx, runtime.GOMAXPROCS(0))
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), len(members)) {
		g.Go(func() error {
			w := worker{countPlan: c}
			for {
				i := int(next.Add(1)) - 1
				if i >= len(members) {
					return nil
				}
				if err := w.countMember(ctx, members[i], t); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// worker counts members one after the other, on one goroutine.
type worker struct {
	*countPlan
	scratch    selection.Scratch
	buf        []byte   // the group key of an object in one group
	prefix     []string // the group keys of an object in several
	nextPrefix []string
	valueBuf   []string

	// Of the member at hand:
	member    aggregate.Member
	maxGroups int
	rows      map[string]*int
	total     int
	other     int
}

func (w *worker) countMember(ctx context.Context, name string, t *tally) error {
	w.member, _ = w.find.Snapshot.Member(name)
	w.rows, w.total, w.other, w.maxGroups = map[string]*int{}, 0, 0, t.maxGroups
	find := w.find
	find.Members = []string{name}
	if err := w.count(ctx, &find); err != nil {
		return err
	}
	t.add(w.rows, w.total, w.other)
	return nil
}

func (w *worker) count(ctx context.Context, find *selection.Listing) error {
	widest := keySource(0)
	for _, k := range w.keys {
		widest = max(widest, k.source)
	}
	if widest < byNamespace {
		n, err := find.Count(ctx)
		if n > 0 {
			w.addNamespace("", n)
		}
		return err
	}
	if widest == byNamespace {
		if counts, ok := find.Namespaces(); ok {
			for namespace, n := range counts {
				w.addNamespace(namespace, n)
			}
			return nil
		}
	}
	seen := 0
	for o, err := range find.List(ctx) {
		if err != nil {
			return err
		}
		if seen++; seen%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := w.addObject(o); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// addNamespace counts n objects of a namespace whose group needs no more than that.
func (w *worker) addNamespace(namespace string, n int) {
	b := []byte{}
	for _, k := range w.keys {
		b = appendKeyPart(b, w.memberValue(k, namespace))
	}
	w.total += n
	w.add(b, n)
}

// memberValue returns a key's part that needs no object.
func (w *worker) memberValue(k groupKey, namespace string) string {
	switch k.source {
	case byMember:
		return w.member.Name
	case byKind:
		return string(w.kind)
	case byNamespace:
		return namespace
	case byMemberLabel:
		for _, l := range w.member.Labels {
			if l.Key == k.label {
				return l.Value
			}
		}
	}
	return ""
}

func appendKeyPart(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

func (w *worker) add(group []byte, n int) {
	switch count := w.rows[string(group)]; {
	case count != nil:
		*count += n
	case len(w.rows) >= w.maxGroups:
		w.other += n
	default:
		w.rows[string(group)] = &n
	}
}

// maxGroupsPerObject bounds the groups of one object: with several fields that have many
// values these multiply.
const maxGroupsPerObject = 1024

// addObject counts one object in each of its groups.
func (w *worker) addObject(o aggregate.Object) error {
	w.total++
	if w.addIndexed(o) {
		return nil
	}
	w.prefix = append(w.prefix[:0], "")
	for _, k := range w.keys {
		values, err := w.values(k, o)
		if err != nil {
			return err
		}
		if len(w.prefix)*len(values) > maxGroupsPerObject {
			w.other++
			return nil
		}
		w.nextPrefix = w.nextPrefix[:0]
		for _, prefix := range w.prefix {
			for _, v := range values {
				w.nextPrefix = append(w.nextPrefix, string(appendKeyPart([]byte(prefix), v)))
			}
		}
		w.prefix, w.nextPrefix = w.nextPrefix, w.prefix
	}
	for _, group := range w.prefix {
		w.add([]byte(group), 1)
	}
	return nil
}

// addIndexed counts an object whose values the index has, one for each key; it returns false
// for others.
func (w *worker) addIndexed(o aggregate.Object) bool {
	w.buf = w.buf[:0]
	for _, k := range w.keys {
		var value string
		switch k.source {
		case byLabel:
			value, _ = o.Label(k.label)
		case byField:
			name := k.field.IndexedField()
			if name == "" {
				return false
			}
			var ok bool
			if value, ok = o.Field(name); !ok {
				return false
			}
		default:
			value = w.memberValue(k, o.Namespace())
		}
		w.buf = appendKeyPart(w.buf, value)
	}
	w.add(w.buf, 1)
	return true
}

// values returns the object's values for a key, each once.
func (w *worker) values(k groupKey, o aggregate.Object) ([]string, error) {
	w.valueBuf = w.valueBuf[:0]
	switch k.source {
	case byLabel:
		v, _ := o.Label(k.label)
		w.valueBuf = append(w.valueBuf, v)
		return w.valueBuf, nil
	case byField:
		var err error
		if w.valueBuf, err = k.field.Append(w.valueBuf, o, &w.scratch); err != nil {
			return nil, err
		}
		slices.Sort(w.valueBuf)
		w.valueBuf = slices.Compact(w.valueBuf)
		return w.valueBuf, nil
	}
	w.valueBuf = append(w.valueBuf, w.memberValue(k, o.Namespace()))
	return w.valueBuf, nil
}
