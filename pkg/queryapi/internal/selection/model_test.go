package selection_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
	"federator.dev/federator/test/seed"
)

// term is a field selector's term before it is written.
type term struct {
	path  []string
	op    string
	value string
}

var escapeValue = strings.NewReplacer(`\`, `\\`, `,`, `\,`, `=`, `\=`)

func (q term) String() string {
	var b strings.Builder
	for i, step := range q.path {
		if step == "" || strings.ContainsFunc(step, func(r rune) bool { return strings.ContainsRune(".,=![]()<>'\"\\ \t\n", r) || r < ' ' || r == 0x7f }) {
			b.WriteString(`['` + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(step) + `']`)
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(step)
	}
	return b.String() + q.op + escapeValue.Replace(q.value)
}

// values is what a path leads to, in the plainest words.
func values(v any, path []string) []string {
	switch v := v.(type) {
	case []any:
		var out []string
		for _, e := range v {
			out = append(out, values(e, path)...)
		}
		return out
	case object:
		if len(path) == 0 {
			return nil
		}
		return values(v[path[0]], path[1:])
	case nil:
		return nil
	default:
		if len(path) > 0 {
			return nil
		}
		return []string{fmt.Sprint(v)}
	}
}

func (q term) holds(kind aggregate.Kind, o object) bool {
	absent := absents[string(kind)+" "+strings.Join(q.path, ".")]
	got := values(o, q.path)
	if kind == "Event" && slices.Equal(q.path, []string{"source"}) {
		// An API server reads it as the component, and else as the reporter.
		if got = values(o, []string{"source", "component"}); len(got) == 0 || got[0] == "" {
			got = values(o, []string{"reportingComponent"})
		}
	}
	if len(got) == 0 {
		got = []string{absent}
	}
	return slices.Contains(got, q.value) == (q.op != "!=")
}

// somePath returns a path into an object, at random, that ends at a scalar more
// often than not.
func somePath(rng *rand.Rand, v any) []string {
	var path []string
	for len(path) < 30 {
		switch o := v.(type) {
		case object:
			keys := slices.Sorted(maps.Keys(o))
			if len(keys) == 0 || rng.IntN(40) == 0 {
				return path
			}
			k := keys[rng.IntN(len(keys))]
			path, v = append(path, k), o[k]
			continue
		case []any:
			if len(o) == 0 {
				return path
			}
			v = o[rng.IntN(len(o))]
			continue
		}
		break
	}
	return path
}

func someTerm(rng *rand.Rand, objects []object) (term, bool) {
	from := objects[rng.IntN(len(objects))]
	q := term{path: somePath(rng, from), op: []string{"=", "==", "!="}[rng.IntN(3)]}
	if len(q.path) == 0 || slices.Equal(q.path, []string{"metadata", "resourceVersion"}) {
		return q, false
	}
	if rng.IntN(10) == 0 {
		q.path[len(q.path)-1] += "x"
	}
	if rng.IntN(8) > 0 {
		other := objects[rng.IntN(len(objects))]
		if rng.IntN(3) > 0 {
			other = from
		}
		if vs := values(other, q.path); len(vs) > 0 {
			q.value = vs[rng.IntN(len(vs))]
		}
	}
	if len(q.value) > 2000 {
		return q, false
	}
	return q, true
}

// absents are the values of absent fields that are not "".
var absents = map[string]string{
	"Pod spec.hostNetwork": "false", "Node spec.unschedulable": "false", "ReplicaSet.apps status.replicas": "0", "ReplicationController status.replicas": "0",
}

// TestSelector_MatchesAsAnEvaluationOverMaps compares what random selectors find within
// random grants with a naive evaluation over decoded objects.
func TestSelector_MatchesAsAnEvaluationOverMaps(t *testing.T) {
	all := realObjects(t)
	// The first seeds failed once.
	for _, start := range []uint64{7314854524242962304, 17306479452485639569, seed.Of(t)} {
		t.Run(strconv.FormatUint(start, 10), func(t *testing.T) { matchesAsAnEvaluationOverMaps(t, all, rand.New(rand.NewPCG(start, 0))) })
	}
}

func matchesAsAnEvaluationOverMaps(t *testing.T, all map[aggregate.Kind][][]byte, rng *rand.Rand) {
	f := newFleet(t, map[aggregate.Kind][]string{
		"Pod": {"spec.nodeName", "status.phase", "spec.containers.image", "spec.hostNetwork"}, "Service": {"spec.type", "spec.ports.port"},
		"Deployment.apps": {"spec.replicas"}, "Node": {"spec.unschedulable"},
	})
	members := []string{"a/one", "a/two.x", "b/one"}
	f.join(members[0], "env", "prod", "x.io/tier", "1")
	f.join(members[1], "env", "test")
	f.join(members[2])
	memberLabels := map[string]map[string]string{members[0]: {"env": "prod", "x.io/tier": "1"}, members[1]: {"env": "test"}, members[2]: {}}

	type held struct {
		member string
		o      object
	}
	kinds, version := map[aggregate.Kind][]held{}, 0
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		byKey := map[string]held{}
		for _, b := range all[kind] {
			o := decode(t, b)
			if sub(o, "metadata") == nil || str(sub(o, "metadata")["name"]) == "" {
				continue
			}
			member := members[rng.IntN(len(members))]
			// One version of a kind in a scope.
			o["apiVersion"] = str(decode(t, all[kind][0])["apiVersion"])
			meta := sub(o, "metadata")
			version++ // the corpus has contents that differ in one version
			meta["resourceVersion"] = strconv.Itoa(version)
			f.put(member, o)
			byKey[member+"\x00"+str(meta["namespace"])+"\x00"+str(meta["name"])] = held{member, o}
		}
		for _, k := range slices.Sorted(maps.Keys(byKey)) {
			kinds[kind] = append(kinds[kind], byKey[k])
		}
	}
	snap := f.commit()
	names := slices.Sorted(maps.Keys(kinds))
	found, rounds := 0, 1500
	if testing.Short() {
		rounds = 500
	}
	for range rounds {
		kind := names[rng.IntN(len(names))]
		if rng.IntN(2) == 0 {
			kind = []aggregate.Kind{"Pod", "Service", "Deployment.apps", "Node", "ReplicaSet.apps"}[rng.IntN(5)]
		}
		var objects []object
		for _, h := range kinds[kind] {
			objects = append(objects, h.o)
		}
		if len(objects) == 0 {
			continue
		}
		var terms []term
		var words []string
		for range rng.IntN(4) {
			if q, ok := someTerm(rng, objects); ok {
				terms, words = append(terms, q), append(words, q.String())
			}
		}
		labelSelector := someLabels(rng, objects)
		fieldSelector := strings.Join(words, ",")
		sel, err := selection.Compile(labelSelector, fieldSelector, kind)
		if err != nil {
			t.Fatalf("%s -l %q --field-selector %q: %v", kind, labelSelector, fieldSelector, err)
		}
		parsed := labels.Everything()
		if labelSelector != "" {
			if parsed, err = labels.Parse(labelSelector); err != nil {
				t.Fatal(err)
			}
		}
		grants, reach := someGrants(rng, members, objects)
		namespace := ""
		if rng.IntN(4) == 0 {
			namespace = str(sub(objects[rng.IntN(len(objects))], "metadata")["namespace"])
		}
		want := []string{}
		for _, h := range kinds[kind] {
			meta := sub(h.o, "metadata")
			ns := str(meta["namespace"])
			set := labels.Set{}
			for k, v := range sub(meta, "labels") {
				set[k] = str(v)
			}
			in, name, _ := strings.Cut(h.member, "/")
			set["federator.dev/member"], set["federator.dev/member-namespace"], set["federator.dev/member-name"] = in+"."+name, in, name
			for k, v := range memberLabels[h.member] {
				if p, n, ok := strings.Cut(k, "/"); ok {
					set[p+".member.federator.dev/"+n] = v
				} else {
					set["member.federator.dev/"+k] = v
				}
			}
			ok := reach(h.member, ns) && (namespace == "" || namespace == ns) && parsed.Matches(set)
			for _, q := range terms {
				ok = ok && q.holds(kind, h.o)
			}
			if ok {
				want = append(want, h.member+" "+ns+"/"+str(meta["name"]))
			}
		}
		find := &selection.Listing{Snapshot: snap, Selector: sel, Grants: grants, Namespace: namespace}
		got := []string{}
		matcher := sel.Matcher()
		var scratch selection.Scratch
		for o, err := range find.List(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, o.Member()+" "+o.Namespace()+"/"+o.Name())
			m, _ := snap.Member(o.Member())
			if ok, err := matcher.Matches(m, o, &scratch); err != nil || !ok {
				t.Fatalf("%s -l %q --field-selector %q lists %s, which a watch would not show (%v)", kind, labelSelector, fieldSelector, o.Ref(), err)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s -l %q --field-selector %q in %q gave\n%q, want\n%q", kind, labelSelector, fieldSelector, namespace, got, want)
		}
		if n, err := find.Count(t.Context()); err != nil || n != len(want) {
			t.Fatalf("%s -l %q --field-selector %q counts %d (%v), want %d", kind, labelSelector, fieldSelector, n, err, len(want))
		}
		found += len(want)
	}
	if found < rounds/4 {
		t.Errorf("only %d objects were found in %d rounds", found, rounds)
	}
}

func someLabels(rng *rand.Rand, objects []object) string {
	virtual := []string{
		"federator.dev/member=a.one", "federator.dev/member in (a.two.x,b.one)", "federator.dev/member-namespace!=a", "federator.dev/member-name notin (one)",
		"member.federator.dev/env", "!member.federator.dev/env", "x.io.member.federator.dev/tier=1", "x.io.member.federator.dev/tier > 0", "member.federator.dev/env!=prod",
	}
	var out []string
	for range rng.IntN(3) {
		if rng.IntN(3) == 0 {
			out = append(out, virtual[rng.IntN(len(virtual))])
			continue
		}
		set := sub(objects[rng.IntN(len(objects))], "metadata", "labels")
		keys := slices.Sorted(maps.Keys(set))
		if len(keys) == 0 {
			continue
		}
		key := keys[rng.IntN(len(keys))]
		value := str(set[key])
		word := []string{key + "=" + value, key + "!=" + value, key, "!" + key, key + " in (" + value + ",other)", key + " notin (" + value + ")"}[rng.IntN(6)]
		if _, err := labels.Parse(word); err == nil {
			out = append(out, word)
		}
	}
	return strings.Join(out, ",")
}

// someGrants returns grants, and what they mean.
func someGrants(rng *rand.Rand, members []string, objects []object) (*authz.Grants, func(member, namespace string) bool) {
	if rng.IntN(3) == 0 {
		return authz.Everything(time.Time{}), func(string, string) bool { return true }
	}
	reaches := map[string]authz.MemberGrant{}
	for _, m := range members {
		switch rng.IntN(3) {
		case 0:
			reaches[m] = authz.MemberGrant{All: true}
		case 1:
			var r authz.MemberGrant
			for range rng.IntN(4) {
				r.Namespaces = append(r.Namespaces, str(sub(objects[rng.IntN(len(objects))], "metadata")["namespace"]))
			}
			reaches[m] = r
		}
	}
	return authz.NewGrants(reaches, time.Time{}), func(member, namespace string) bool {
		r := reaches[member]
		return r.All || slices.Contains(r.Namespaces, namespace)
	}
}

// TestSelector_FieldsReadAsTheMatcherDoes shows that what a field's values are is the
// same for grouping and for selecting.
func TestSelector_FieldsReadAsTheMatcherDoes(t *testing.T) {
	f := newFleet(t, nil)
	f.join("a/one")
	f.put("a/one", decode(t, []byte(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e","namespace":"n","annotations":{"a.b/c":"q\"uote"}},
		"source":{"component":""},"reportingComponent":"sched","count":3,"list":[{"x":"1"},{"x":null},{"y":2},[{"x":true}]]}`)))
	snap := f.commit()
	o, ok := snap.Get(aggregate.Ref{Member: "a/one", Kind: "Event", Namespace: "n", Name: "e"})
	if !ok {
		t.Fatal("not there")
	}
	var scratch selection.Scratch
	for path, want := range map[string][]string{
		"source": {"sched"}, "count": {"3"}, "list.x": {"1", "true"}, "list.z": {""}, "metadata.name": {"e"},
		"metadata.annotations['a.b/c']": {`q"uote`}, "metadata['annotations'][\"a.b/c\"]": {`q"uote`},
		"metadata.annotations['federator.dev/member']": {"a/one"},
		"metadata.resourceVersion":                     {fmt.Sprint(uint64(o.Revision()))}, "metadata": {""},
	} {
		field, err := selection.CompileField(path, "Event")
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got, err := field.Append(nil, o, &scratch); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is %q (%v), want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", ".", "a.", "a..b", "a[0]", "a['x", "a['x'", "a b", "metadata.managedFields", "metadata.managedFields.manager", "a=b"} {
		if _, err := selection.CompileField(path, "Event"); err == nil {
			t.Errorf("%q is taken for a path", path)
		}
	}
	if _, err := json.Marshal(selection.Freshness(snap, "Event", nil, nil, time.Time{})); err != nil {
		t.Error(err)
	}
}
