package aggregate_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"federator.dev/federator/pkg/aggregate"
)

// obj is one version of one object in the model. Immutable; two versions are
// two pointers.
type obj struct {
	ref        aggregate.Ref
	uid, rv    string
	labels     []aggregate.Label
	owners     []aggregate.Owner
	body       []byte
	rev        aggregate.Revision
	apiVersion string
	by         *keptItem // that is in the scope, nil: another
}

type objKey struct{ namespace, name string }

func compareObjKeys(a, b objKey) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

type modelScope struct {
	version string
	status  aggregate.Status
	objects map[objKey]*obj
}

func (s *modelScope) clone() *modelScope {
	c := *s
	c.objects = maps.Clone(s.objects)
	return &c
}

func (s *modelScope) keys() []objKey {
	if s == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(s.objects), compareObjKeys)
}

type scopeKey struct {
	kind   aggregate.Kind
	member string
}

func compareScopeKeys(a, b scopeKey) int {
	return cmp.Or(strings.Compare(string(a.kind), string(b.kind)), strings.Compare(a.member, b.member))
}

// state is the model at one revision. Immutable once it is recorded.
type state struct {
	rev     aggregate.Revision
	members map[string]aggregate.Member
	scopes  map[scopeKey]*modelScope
}

func (s *state) next() *state {
	return &state{rev: s.rev, members: maps.Clone(s.members), scopes: maps.Clone(s.scopes)}
}

func (s *state) scopeKeys() []scopeKey {
	return slices.SortedFunc(maps.Keys(s.scopes), compareScopeKeys)
}

// modelChange is what Changes must give for one revision.
type modelChange struct {
	rev           aggregate.Revision
	before, after *obj
}

// canonicalRV reports whether a resourceVersion is one that two equal ones of
// which mean the same version.
func canonicalRV(rv string) bool {
	v, err := strconv.ParseUint(rv, 10, 64)
	return err == nil && v != 1<<64-1 && strconv.FormatUint(v, 10) == rv
}

// field is what a declared field of a body must be found by, per
// encoding/json.
func field(body []byte, path string) (string, bool) {
	raw := json.RawMessage(body)
	for step := range strings.SplitSeq(path, ".") {
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) != nil || m == nil {
			return "", false
		}
		if raw = m[step]; raw == nil {
			return "", false
		}
	}
	switch v := string(raw); v[0] {
	case '"':
		return v[1 : len(v)-1], !strings.Contains(v, `\`)
	case '{', '[', 'n':
		return "", false
	default:
		return v, true
	}
}

// listed reports whether a field's path leads to or through a list.
func listed(body []byte, path string) bool {
	raw := json.RawMessage(body)
	for step := range strings.SplitSeq(path, ".") {
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) != nil {
			break
		}
		if raw = m[step]; raw == nil {
			return false
		}
	}
	return len(raw) > 0 && raw[0] == '['
}

// query is what an aggregate.Query means, in the plainest words.
func (s *state) query(q aggregate.Query) []*obj {
	var out []*obj
	for _, k := range s.scopeKeys() {
		if k.kind != q.Kind || q.Members != nil && !slices.Contains(q.Members, k.member) {
			continue
		}
		sc := s.scopes[k]
		for _, ok := range sc.keys() {
			o := sc.objects[ok]
			if q.Namespace != "" && ok.namespace != q.Namespace {
				continue
			}
			if q.Name != "" && ok.name != q.Name || !strings.HasPrefix(ok.name, q.NamePrefix) {
				continue
			}
			if q.After != (aggregate.Position{}) {
				if cmp.Or(strings.Compare(k.member, q.After.Member),
					compareObjKeys(ok, objKey{q.After.Namespace, q.After.Name})) <= 0 {
					continue
				}
			}
			if q.Labels != nil && !q.Labels.Matches(labelMap(o.labels)) {
				continue
			}
			matches := true
			for name, want := range q.Fields {
				got, ok := field(o.body, name)
				matches = matches && ok && got == want
			}
			if matches {
				out = append(out, o)
			}
		}
	}
	return out
}

// diff returns the deltas that a cursor must give between two states.
func diff(before, after *state) []modelChange {
	keys := map[scopeKey]bool{}
	for k := range before.scopes {
		keys[k] = true
	}
	for k := range after.scopes {
		keys[k] = true
	}
	var out []modelChange
	for _, k := range slices.SortedFunc(maps.Keys(keys), compareScopeKeys) {
		b, a := before.scopes[k], after.scopes[k]
		if b == a {
			continue
		}
		all := append(b.keys(), a.keys()...)
		slices.SortFunc(all, compareObjKeys)
		for _, ok := range slices.Compact(all) {
			var was, is *obj
			if b != nil {
				was = b.objects[ok]
			}
			if a != nil {
				is = a.objects[ok]
			}
			switch {
			case was == is:
			case was != nil && is != nil && was.uid != is.uid:
				out = append(out, modelChange{before: was}, modelChange{after: is})
			default:
				out = append(out, modelChange{before: was, after: is})
			}
		}
	}
	return out
}
