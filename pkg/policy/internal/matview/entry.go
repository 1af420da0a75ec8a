package matview

import (
	"cmp"
	"fmt"
	"strings"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Entry is what one object contributes to one key.
type Entry struct {
	key    string
	Object *objectEntries
	Values string // a JSON array, sorted as Rego sorts, without duplicates
}

// objectEntries is the contribution of one object, without its values. Immutable.
type objectEntries struct {
	Ref       aggregate.Ref
	keys      []string // sorted
	failed    string   // why the contribution is unknown
	size      int64    // of the complete contribution
	truncated bool     // its values are not held
	withheld  bool     // by a quarantine
}

// Contribution is the result of evaluating a view for one object.
type Contribution struct {
	*objectEntries
	values     []string // by key
	OverBudget bool
}

// FailedContribution is an unknown contribution, and why it is unknown.
func FailedContribution(ref aggregate.Ref, why string) Contribution {
	return Contribution{objectEntries: &objectEntries{Ref: ref, failed: why}}
}

// Failed reports whether the contribution is unknown.
func (c Contribution) Failed() bool { return c.objectEntries != nil && c.failed != "" }

// WithheldContribution is one that is unknown because of a quarantine.
func WithheldContribution(ref aggregate.Ref, why string) Contribution {
	return Contribution{objectEntries: &objectEntries{Ref: ref, failed: why, withheld: true}}
}

// compareRefs orders refs as Rego orders {kind, member, name, namespace}.
func compareRefs(a, b *aggregate.Ref) int {
	return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Member, b.Member),
		strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
}

func lessEntry(a, b Entry) bool {
	if n := strings.Compare(a.key, b.key); n != 0 {
		return n < 0
	}
	// A pivot without an object is before all entries of its key.
	if a.Object == nil || b.Object == nil {
		return a.Object == nil && b.Object != nil
	}
	return compareRefs(&a.Object.Ref, &b.Object.Ref) < 0
}

func lessObject(a, b *objectEntries) bool { return compareRefs(&a.Ref, &b.Ref) < 0 }

// What an entry takes besides its strings, and what a contributing object takes besides
// its entries, in bytes: their slots in trees, and the objectEntries.
const (
	entryBytes  = 130
	objectBytes = 140
)

func (e Entry) Size() int64 { return int64(len(e.key)+len(e.Values)) + entryBytes }

// NewContribution converts the result of a view's rules for one object.
func NewContribution(ref aggregate.Ref, v value.Value, limit int) Contribution {
	fail := func(format string, args ...any) Contribution {
		return Contribution{objectEntries: &objectEntries{Ref: ref, failed: fmt.Sprintf(format, args...)}}
	}
	if !v.Defined() {
		return Contribution{}
	}
	if v.Kind() != value.Object {
		return fail("write a view as view.%s[key] contains value", "name")
	}
	c := Contribution{objectEntries: &objectEntries{Ref: ref}}
	size := 0
	pairs := v.Pairs()
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i].Kind() != value.String {
			return fail("key %s is not a string", verdict.Clip(pairs[i].Term().String()))
		}
		key, set := pairs[i].Str(), pairs[i+1]
		if set.Kind() != value.Set {
			return fail("key %q: not a set of values", verdict.Clip(key))
		}
		text, err := set.SetJSON()
		if err != nil {
			return fail("key %q: %v", verdict.Clip(key), err)
		}
		if size += len(key) + len(text); size > limit {
			return fail("it contributes more than %d bytes", limit)
		}
		if set.Len() > 0 {
			c.keys = append(c.keys, strings.Clone(key))
			c.values = append(c.values, text)
		}
	}
	if len(c.keys) == 0 {
		return Contribution{}
	}
	return c
}

// WrittenContribution is a contribution as another process has written it: sorted keys, and a JSON array for each.
func WrittenContribution(ref aggregate.Ref, keys, values []string, limit int) Contribution {
	size := 0
	for i := range keys {
		if size += len(keys[i]) + len(values[i]); size > limit {
			return FailedContribution(ref, fmt.Sprintf("it contributes more than %d bytes", limit))
		}
	}
	if len(keys) == 0 {
		return Contribution{}
	}
	return Contribution{objectEntries: &objectEntries{Ref: ref, keys: keys}, values: values}
}

// Parse reads the values of an entry.
func (e Entry) Parse(a *value.Arena) ([]value.Value, error) {
	v, err := value.Decode(a, []byte(e.Values), mask.Whole())
	if err != nil {
		return nil, fmt.Errorf("view entry %q of %s: %w", e.key, e.Object.Ref, err)
	}
	return v.Elems(), nil // document.SetJSON wrote it.
}
