package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
)

// view is a view of a package, materialised: what each object contributes. The
// engine's goroutine writes it; states hold frozen ones.
type view struct {
	id       uint32 // never used again
	pkg      *module.Package
	def      module.View
	query    query
	pins     map[aggregate.Kind]string
	entries  *sorted[entry]    // by key, then ref
	contribs *sorted[*contrib] // by ref
	failed   *sorted[*contrib] // those that failed
	bytes    int64             // of keys, values and contribs, those that are not held included
	held     int64             // of those that are
	dropped  int64             // of those that were, since the last state
	over     string            // why nothing is known of what the view shows
	blind    bool              // not all keys are held: none is taken out
	score    *overruns
	overran  map[aggregate.Ref]int // objects that overran the budget: how often
	frozen   *view                 // nil when the view has changed since
}

// entry is what one object contributes to one key.
type entry struct {
	key    string
	of     *contrib
	values string // a JSON array, sorted as Rego sorts, no value twice
}

// contrib is what one object contributes. Immutable.
type contrib struct {
	ref    aggregate.Ref
	keys   []string // sorted
	failed string   // why the object's contribution is not known
	size   int64    // of all that it contributes
	cut    bool     // its values are not held
	held   bool     // for a quarantine holds its evaluation back
}

// contribution is a contrib that has just been evaluated, with its values.
type contribution struct {
	*contrib
	values []string // by key
	over   bool     // the budget
}

// compareRefs orders refs as Rego orders {kind, member, name, namespace}.
func compareRefs(a, b *aggregate.Ref) int {
	return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Member, b.Member),
		strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
}

func lessEntry(a, b entry) bool {
	if n := strings.Compare(a.key, b.key); n != 0 {
		return n < 0
	}
	// A pivot without a contrib is before all of its key.
	if a.of == nil || b.of == nil {
		return a.of == nil && b.of != nil
	}
	return compareRefs(&a.of.ref, &b.of.ref) < 0
}

func lessContrib(a, b *contrib) bool { return compareRefs(&a.ref, &b.ref) < 0 }

func (v *view) name() string { return v.pkg.Name + "." + v.def.Name }

func (v *view) clear() {
	v.entries, v.contribs, v.failed = newSorted(lessEntry), newSorted(lessContrib), newSorted(lessContrib)
	v.dropped += v.held
	v.bytes, v.held, v.over, v.blind = 0, 0, "", false
	v.frozen, v.overran = nil, nil
}

// feeds reports whether objects of a kind contribute to the view.
func feeds(pkg *module.Package, kind aggregate.Kind) bool {
	return pkg.AnyKind || slices.ContainsFunc(pkg.Kinds, func(k module.KindRef) bool { return k.Kind == kind })
}

// contrib returns what an object contributes, nil when it is nothing.
func (v *view) contrib(ref aggregate.Ref) *contrib {
	c, _ := v.contribs.Get(&contrib{ref: ref})
	return c
}

// apply exchanges what an object contributes and yields the keys that change.
// failed says whether the view's failures have changed. What would make the view hold
// more than limit is kept as keys, for as much again.
func (v *view) apply(ref aggregate.Ref, next contribution, limit int64, changed func(key string)) (failed bool) {
	old := v.contrib(ref)
	v.cut(old, &next, limit)
	if next.contrib == nil && old == nil {
		return false
	}
	v.frozen = nil
	var oldKeys []string
	if old != nil {
		oldKeys = old.keys
		failed = old.failed != ""
	}
	now := next.contrib != nil && next.failed != ""
	failed = failed != now || now && old.failed != next.failed
	kept := next.contrib
	if old != nil && next.contrib != nil && slices.Equal(old.keys, next.keys) {
		kept = old // one contrib for all entries of an object
		if failed || old.size != next.size || old.cut != next.cut {
			kept = next.contrib
		}
	}
	for _, key := range oldKeys {
		if next.contrib == nil || !contains(next.keys, key) {
			if !v.blind {
				e, _ := v.entries.Delete(entry{key: key, of: old})
				v.held -= e.size()
				v.dropped += e.size()
			}
			changed(key)
		}
	}
	if next.contrib != nil {
		for i, key := range next.keys {
			e, had := v.entries.Set(entry{key: key, of: kept, values: next.values[i]})
			v.held += entry{key: key, values: next.values[i]}.size()
			if had {
				v.held -= e.size()
				v.dropped += e.size()
			}
			if !had || e.values != next.values[i] {
				changed(key)
			}
		}
		if kept != old {
			v.contribs.Set(kept)
			v.held += contribBytes
		}
	} else {
		v.contribs.Delete(old)
	}
	if old != nil && kept != old {
		v.held -= contribBytes
		v.dropped += contribBytes
	}
	if now {
		v.failed.Set(kept)
	} else if old != nil && old.failed != "" {
		v.failed.Delete(old)
	}
	return failed
}

// cut leaves out of a contribution what the view has no room for, and counts it.
func (v *view) cut(old *contrib, next *contribution, limit int64) {
	var before, size, keys int64
	if old != nil {
		v.bytes -= old.size
		before = contribBytes
		for _, key := range old.keys {
			e, _ := v.entries.Get(entry{key: key, of: old})
			before += e.size()
		}
	}
	if next.contrib == nil {
		return
	}
	size, keys = contribBytes, contribBytes
	for i, key := range next.keys {
		e := entry{key: key, values: next.values[i]}
		size += e.size()
		e.values = ""
		keys += e.size()
	}
	next.size = size
	v.bytes += size
	if v.held-before+size <= limit {
		return
	}
	next.cut = true
	if v.held-before+keys <= 2*limit {
		next.values = make([]string, len(next.keys))
		return
	}
	v.blind, next.keys, next.values = true, nil, nil
	if old != nil {
		next.keys, next.values = old.keys, make([]string, len(old.keys))
	}
}

// What an entry costs beside its text, and what an object that contributes costs beside
// its entries, in bytes: their places in trees, and the contrib.
const (
	entryBytes   = 130
	contribBytes = 140
)

func (e entry) size() int64 { return int64(len(e.key)+len(e.values)) + entryBytes }

func contains(sorted []string, s string) bool {
	_, ok := slices.BinarySearch(sorted, s)
	return ok
}

// freeze returns a copy that later changes do not touch.
func (v *view) freeze() *view {
	if v.frozen == nil {
		v.frozen = &view{
			id: v.id, pkg: v.pkg, def: v.def, bytes: v.bytes, over: v.over,
			entries: v.entries.Copy(), failed: v.failed.Copy(),
		}
	}
	return v.frozen
}

// under yields the entries of a key, by ref.
func (v *view) under(key string) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		v.entries.Ascend(entry{key: key}, func(e entry) bool { return e.key == key && yield(e) })
	}
}

// keys yields the keys, in order.
func (v *view) keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		at, first := "", true
		v.entries.Scan(func(e entry) bool {
			if !first && e.key == at {
				return true
			}
			at, first = e.key, false
			return yield(e.key)
		})
	}
}

// excess returns why nothing is known of what the view shows, or "".
func (v *view) excess() string {
	if v.over == "" {
		return ""
	}
	return fmt.Sprintf("view %s: %s", v.name(), v.over)
}

// gaps yields the scopes of which an object could not contribute, by kind and member:
// each with the first of its objects.
func (v *view) gaps() iter.Seq[Gap] {
	return func(yield func(Gap) bool) {
		for pivot := (&contrib{}); pivot != nil; {
			from := pivot
			pivot = nil
			v.failed.Ascend(from, func(c *contrib) bool {
				if yield(Gap{Member: c.ref.Member, Kind: c.ref.Kind, State: aggregate.Partial, Failure: fmt.Sprintf("view %s: %s: %s", v.name(), c.ref, c.failed)}) {
					pivot = &contrib{ref: aggregate.Ref{Kind: c.ref.Kind, Member: c.ref.Member + "\x00"}} // after all of the member's
				}
				return false
			})
		}
	}
}

// contributed turns what a view's rules gave for one object into what is kept.
func contributed(ref aggregate.Ref, v ast.Value, limit int) contribution {
	fail := func(format string, args ...any) contribution {
		return contribution{contrib: &contrib{ref: ref, failed: fmt.Sprintf(format, args...)}}
	}
	if v == nil {
		return contribution{}
	}
	o, ok := v.(ast.Object)
	if !ok {
		return fail("a view is written view.%s[key] contains value", "name")
	}
	if o.Len() == 0 {
		return contribution{}
	}
	c := contribution{contrib: &contrib{ref: ref}}
	size := 0
	ki := o.KeysIterator()
	for k, more := ki.Next(); more; k, more = ki.Next() {
		key, ok := k.Value.(ast.String)
		if !ok {
			return fail("key %s is not a string", clip(k.String()))
		}
		set, ok := o.Get(k).Value.(ast.Set)
		if !ok {
			return fail("key %q: not a set of values", clip(string(key)))
		}
		text, err := setJSON(set)
		if err != nil {
			return fail("key %q: %v", clip(string(key)), err)
		}
		if size += len(key) + len(text); size > limit {
			return fail("it contributes more than %d bytes", limit)
		}
		if set.Len() > 0 {
			c.keys = append(c.keys, strings.Clone(string(key))) // it may be a part of a longer text
			c.values = append(c.values, text)
		}
	}
	if len(c.keys) == 0 {
		return contribution{}
	}
	return c
}

// clip bounds what a message quotes.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// setJSON writes a set as an array, sorted as Rego sorts what JSON has: sets within
// are arrays, which may make values equal.
func setJSON(set ast.Set) (string, error) {
	values := set.Slice()
	if slices.ContainsFunc(values, hasSet) {
		text, err := marshal(set)
		if err != nil {
			return "", err
		}
		plain, err := document.Value(text, mask.Whole())
		if err != nil {
			return "", err
		}
		array := plain.(*ast.Array) //nolint:forcetypeassert // A set is written as an array.
		values = make([]*ast.Term, 0, array.Len())
		array.Foreach(func(t *ast.Term) { values = append(values, t) })
		slices.SortFunc(values, ast.TermValueCompare)
		values = slices.CompactFunc(values, func(a, b *ast.Term) bool { return a.Equal(b) })
	}
	text, err := marshal(ast.NewArray(values...))
	return string(text), err
}

func hasSet(t *ast.Term) bool {
	found := false
	ast.WalkTerms(t, func(t *ast.Term) bool {
		_, set := t.Value.(ast.Set)
		found = found || set
		return found
	})
	return found
}

// marshal writes a value as JSON, keys sorted.
func marshal(v ast.Value) ([]byte, error) {
	x, err := ast.JSONWithOpt(v, ast.JSONOpt{SortSets: true})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(x); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// parse reads the values of an entry.
func (e entry) parse() (*ast.Array, error) {
	v, err := document.Value([]byte(e.values), mask.Whole())
	if err != nil {
		return nil, fmt.Errorf("view entry %q of %s: %w", e.key, e.of.ref, err)
	}
	return v.(*ast.Array), nil //nolint:forcetypeassert // setJSON wrote it.
}

// refTerm is a ref as policies see it.
func refTerm(r *aggregate.Ref) *ast.Term {
	return ast.ObjectTerm(
		ast.Item(refKeys.kind, ast.StringTerm(string(r.Kind))),
		ast.Item(refKeys.member, ast.StringTerm(r.Member)),
		ast.Item(refKeys.name, ast.StringTerm(r.Name)),
		ast.Item(refKeys.namespace, ast.StringTerm(r.Namespace)),
	)
}
