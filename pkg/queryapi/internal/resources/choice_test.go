package resources_test

import (
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/flat"
)

var (
	memberNames = []string{"a/east", "a/west", "b/east", "b/north", "c/x"}
	namespaces  = []string{"blue", "green", "red"}
	envs        = []string{"prod", "test"}
)

// podSelection is a selection as the API's parameters, and the same as a function.
type podSelection struct {
	path   string
	query  url.Values
	caller caller
	grants map[string]authz.MemberGrant // nil: everything
	tests  []func(f *fleet, o testObject) bool
}

func (c *podSelection) selects(f *fleet, o testObject) bool {
	if c.grants != nil {
		reach := c.grants[o.member]
		if !reach.All && !slices.Contains(reach.Namespaces, o.namespace) {
			return false
		}
	}
	for _, test := range c.tests {
		if !test(f, o) {
			return false
		}
	}
	return true
}

// expected are the selected pods of the fleet, in the order of lists.
func (c *podSelection) expected(f *fleet) []testObject {
	var out []testObject
	for _, o := range f.objects[pods] {
		if c.selects(f, o) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b testObject) int {
		for _, n := range []int{strings.Compare(a.member, b.member), strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name)} {
			if n != 0 {
				return n
			}
		}
		return 0
	})
	return out
}

// term is a term of a selector, and the same as a function.
type term struct {
	text string
	test func(f *fleet, o testObject) bool
}

// termOf returns a random requirement of a label selector on a value that may be absent.
func termOf(rng *rand.Rand, key string, options []string, get func(f *fleet, o testObject) (string, bool)) term {
	v := pick(rng, options...)
	some := options[:1+rng.IntN(len(options))]
	return pick(rng,
		term{key + "=" + v, func(f *fleet, o testObject) bool { got, _ := get(f, o); return got == v && v != "" }},
		term{key + "!=" + v, func(f *fleet, o testObject) bool { got, _ := get(f, o); return got != v }},
		term{key + " in (" + strings.Join(some, ",") + ")", func(f *fleet, o testObject) bool {
			got, have := get(f, o)
			return have && slices.Contains(some, got)
		}},
		term{key + " notin (" + strings.Join(some, ",") + ")", func(f *fleet, o testObject) bool {
			got, have := get(f, o)
			return !have || !slices.Contains(some, got)
		}},
		term{key, func(f *fleet, o testObject) bool { _, have := get(f, o); return have }},
		term{"!" + key, func(f *fleet, o testObject) bool { _, have := get(f, o); return !have }},
	)
}

func labelTerm(rng *rand.Rand) term {
	own := func(key string) func(*fleet, testObject) (string, bool) {
		return func(_ *fleet, o testObject) (string, bool) { v, have := o.labels[key]; return v, have }
	}
	switch rng.IntN(6) {
	case 0:
		return termOf(rng, "tier", []string{"back", "front"}, own("tier"))
	case 1:
		return termOf(rng, "member.federator.dev/env", envs, func(f *fleet, o testObject) (string, bool) {
			v, have := f.members[o.member]["env"]
			return v, have
		})
	case 2:
		return termOf(rng, "federator.dev/member-namespace", []string{"a", "b"}, func(_ *fleet, o testObject) (string, bool) { return o.member[:1], true })
	}
	return termOf(rng, "app", []string{"shop", "web"}, own("app"))
}

// fieldTerm selects by what is shown, which is flat below /flat.
func fieldTerm(rng *rand.Rand, isFlat bool) term {
	var key string
	var options []string
	var get func(o testObject) string
	field := rng.IntN(4)
	if isFlat && field%3 > 0 {
		key, options, get = "metadata.namespace", flatNames(namespaces...), func(o testObject) string { return flat.Join(o.member, o.namespace) }
		if field == 2 {
			key, options, get = "spec.nodeName", flatNames("n0", "n1"), func(o testObject) string { return flat.Join(o.member, o.node) }
		}
		field = -1
	}
	switch field {
	case -1:
	case 0:
		key, options, get = "metadata.name", []string{"p0", "p1"}, func(o testObject) string { return o.name }
	case 1:
		key, options, get = "metadata.namespace", namespaces, func(o testObject) string { return o.namespace }
	case 2:
		key, options, get = "spec.nodeName", []string{"n0", "n1"}, func(o testObject) string { return o.node }
	default:
		key, options, get = "status.phase", []string{"Running", "Pending"}, func(o testObject) string { return o.phase }
	}
	v := pick(rng, options...)
	if rng.IntN(3) == 0 {
		return term{key + "!=" + v, func(_ *fleet, o testObject) bool { return get(o) != v }}
	}
	return term{key + "=" + v, func(_ *fleet, o testObject) bool { return get(o) == v }}
}

// flatNames are flat names in all members, and one that is none.
func flatNames(of ...string) []string {
	out := slices.Clone(of[:1])
	for _, m := range memberNames {
		for _, name := range of {
			out = append(out, flat.Join(m, name))
		}
	}
	return out
}

// randomSelection returns a random selection of pods.
func randomSelection(rng *rand.Rand) *podSelection {
	c := &podSelection{path: "/fleet", query: url.Values{}, caller: all}
	isFlat := false
	switch m := pick(rng, memberNames...); rng.IntN(6) {
	case 0:
		c.path = "/members/" + m
		c.tests = append(c.tests, func(_ *fleet, o testObject) bool { return o.member == m })
	case 1, 2:
		c.path, isFlat = "/flat", true
	}
	c.path += "/api/v1"
	switch ns := pick(rng, namespaces...); {
	case rng.IntN(4) > 0:
	case isFlat:
		ns = pick(rng, flatNames(namespaces...)...)
		c.path += "/namespaces/" + ns
		c.tests = append(c.tests, func(_ *fleet, o testObject) bool { return flat.Join(o.member, o.namespace) == ns })
	default:
		c.path += "/namespaces/" + ns
		c.tests = append(c.tests, func(_ *fleet, o testObject) bool { return o.namespace == ns })
	}
	c.path += "/pods"
	fieldTerm := func(rng *rand.Rand) term { return fieldTerm(rng, isFlat) }
	for name, of := range map[string]func(*rand.Rand) term{"labelSelector": labelTerm, "fieldSelector": fieldTerm} {
		var texts []string
		for range max(0, rng.IntN(4)-1) {
			t := of(rng)
			texts = append(texts, t.text)
			c.tests = append(c.tests, t.test)
		}
		if len(texts) > 0 {
			c.query.Set(name, strings.Join(texts, ","))
		}
	}
	if rng.IntN(2) == 0 {
		c.grants = randomGrants(rng)
		c.caller = granted(authz.NewGrants(c.grants, time.Time{}))
	}
	return c
}

// randomGrants are random grants, of one member at least.
func randomGrants(rng *rand.Rand) map[string]authz.MemberGrant {
	out := map[string]authz.MemberGrant{}
	for len(out) == 0 {
		for _, m := range memberNames {
			switch rng.IntN(3) {
			case 0:
				out[m] = authz.MemberGrant{All: true}
			case 1:
				out[m] = authz.MemberGrant{Namespaces: slices.Compact(slices.Sorted(slices.Values([]string{pick(rng, namespaces...), pick(rng, namespaces...)})))}
			}
		}
	}
	return out
}

// randomPod is a pod of a member of the fleet.
func (f *fleet) randomPod(rng *rand.Rand, member string) testObject {
	o := pod(member, pick(rng, namespaces...), "p"+string(rune('0'+rng.IntN(8))))
	o.node, o.phase = pick(rng, "n0", "n1", "n2"), pick(rng, "Running", "Pending", "Failed")
	if rng.IntN(3) > 0 {
		o.labels["app"] = pick(rng, "shop", "web", "mail")
	}
	if rng.IntN(3) == 0 {
		o.labels["tier"] = pick(rng, "back", "front")
	}
	return o
}

// step changes the fleet at random: one commit or a few.
func (f *fleet) step(rng *rand.Rand) {
	f.t.Helper()
	there := slices.Sorted(maps.Keys(f.members))
	if len(there) == 0 || rng.IntN(12) == 0 {
		f.join(pick(rng, memberNames...), pick(rng, nil, []string{"env", "prod"}, []string{"env", "test"})...)
		return
	}
	m := pick(rng, there...)
	switch n := rng.IntN(24); {
	case n == 0:
		f.leave(m)
		if rng.IntN(2) == 0 { // another of its name, before a watch can read
			f.join(m, "env", pick(rng, envs...))
		}
		return
	case n == 1:
		f.relist(rng, m)
		return
	case n < 6:
		mine := slices.Sorted(maps.Keys(f.objects[pods]))
		for range min(len(mine), 1+rng.IntN(4)) {
			if o, ok := f.objects[pods][pick(rng, mine...)]; ok {
				f.remove(o)
				if rng.IntN(3) == 0 {
					o.uid = ""
					f.put(o) // another of its name, in the same commit
				}
			}
		}
	default:
		for range 1 + rng.IntN(5) {
			f.put(f.randomPod(rng, m))
		}
	}
	f.commit()
}

// relist exchanges a member's pods in one commit.
func (f *fleet) relist(rng *rand.Rand, member string) {
	f.t.Helper()
	old := f.objects[pods]
	f.objects[pods] = map[string]testObject{}
	for k, o := range old {
		if o.member != member {
			f.objects[pods][k] = o
		}
	}
	s := f.scope(member, pods)
	var items []aggregate.Item
	byKey := map[string]testObject{}
	for range rng.IntN(10) {
		o := f.randomPod(rng, member)
		if held, ok := old[o.key()]; ok && rng.IntN(3) > 0 {
			o.uid = held.uid
		}
		byKey[o.key()] = o
	}
	for _, k := range slices.Sorted(maps.Keys(byKey)) {
		o := byKey[k]
		item := f.item(&o)
		f.record(o)
		items = append(items, item)
	}
	_, err := s.Replace(items, s.Status())
	ok(f.t, err)
}
