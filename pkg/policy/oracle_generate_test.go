package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"federator.dev/federator/pkg/policy"
)

// generator writes random policies that load. They read views, objects, names,
// members and scopes, by keys and whole, with negation, aggregation and helpers.
type generator struct {
	r     *rand.Rand
	views []string // as they are read: data.fleet.views["pkg"].name
	n     int      // of variables
	used  []string // variables of the rule, for its details
	lines []string // of the rule's body
	help  []string // other rules
	self  string   // an expression of the subject's member
	plain bool     // rules read what objects have in common, and nothing of the fleet
	timed bool     // rules ask what has passed
	asks  bool     // rules read documents from outside
}

func (g *generator) fresh(letter string) string {
	g.n++
	return fmt.Sprintf("%s%d", letter, g.n)
}

func (g *generator) line(format string, args ...any) {
	g.lines = append(g.lines, fmt.Sprintf(format, args...))
}

func (g *generator) use(v string) string {
	g.used = append(g.used, v)
	return v
}

func (g *generator) kind() string { return fmt.Sprintf("%q", pick(g.r, worldKinds...)) }

// mayFail is an error of an object without replicas. It is evaluated after all
// conditions of a rule: OPA's rule index decides which of them come before others, so
// that an error among them may or may not be.
const mayFail = "12 / input.object.spec.replicas"

// own is a condition on the object.
func (g *generator) own() {
	n := g.r.IntN(8)
	if g.plain && n == 7 {
		n = g.r.IntN(7)
	}
	switch n {
	case 0:
		g.line("input.object.spec.replicas > %d", g.r.IntN(4))
	case 1:
		g.line("some %s in input.object.spec.hosts", g.use(g.fresh("h")))
	case 2:
		g.line("not input.object.spec.class")
	case 3:
		g.line(`input.object.metadata.labels.owner != %q`, pick(g.r, "shop", "pay"))
	case 4:
		g.line(`object.get(input.object, ["spec", "class"], "none") == %q`, pick(g.r, "nginx", "none"))
	case 5:
		g.line(`%s := input.object.spec[%q]`, g.use(g.fresh("f")), pick(g.r, "app", "image", "class", "replicas"))
	case 6:
		g.use(mayFail)
		g.line("input.object.spec.app")
	case 7:
		g.line(`input.ref.name == %q`, pick(g.r, "web", "db"))
	}
}

// key is an expression that may be a key of a view.
func (g *generator) key() string {
	return pick(g.r, `"shop"`, `"a.example"`, "input.ref.name", "input.object.spec.app", "input.object.spec.hosts[0]",
		`sprintf("%s/%s", [input.ref.namespace, input.object.spec.app])`, "input.ref.member", "input.object.metadata.labels.owner")
}

// fleet is a condition on the fleet.
func (g *generator) fleet(key func() string) {
	view := ""
	if len(g.views) > 0 {
		view = pick(g.r, g.views...)
	}
	place := pick(g.r, "[input.ref.namespace][input.ref.name]", `["shop"]["web"]`, `[""]["shop"]`)
	if g.self != "input.ref.member" {
		place = `["shop"]["web"]`
	}
	switch n := g.r.IntN(18); {
	case n < 5 && view == "":
		g.line("count(data.fleet.names) > %d", g.r.IntN(3))
	case n == 0:
		e := g.fresh("e")
		g.line("some %s in %s[%s]", e, view, key())
		g.line("%s.ref.member != %s", e, g.self)
		g.use(e)
	case n == 1:
		g.line("not %s[%s]", view, key())
	case n == 2:
		c := g.fresh("c")
		g.line("%s := count([e | some e in %s[%s]])", c, view, key())
		g.line("%s > %d", g.use(c), g.r.IntN(3))
	case n == 3:
		k, es := g.fresh("k"), g.fresh("e")
		g.line("some %s, %s in %s", k, es, view)
		g.line("count(%s) > %d", es, g.r.IntN(3))
		g.use(k)
	case n == 4:
		m := g.fresh("m")
		g.line("%s := {e.ref.member | some e in %s[%s]}", m, view, key())
		g.line("count(%s) == %d", g.use(m), g.r.IntN(3))
	case n == 5:
		m, o := g.fresh("m"), g.fresh("o")
		g.line("some %s, %s in data.fleet.by_name[%s]%s", m, o, g.kind(), place)
		g.line("%s.spec.replicas != %d", o, g.r.IntN(4))
		g.use(m)
	case n == 6:
		g.line("not data.fleet.by_name[%s]%s", g.kind(), place)
	case n == 7:
		g.line("%s := data.fleet.by_name[%s]%s[%q].spec", g.use(g.fresh("s")), g.kind(), place, pick(g.r, worldMembers...))
	case n == 8:
		g.line("not data.fleet.objects[%s][%s]%s.spec.class", g.kind(), g.self, place)
	case n == 9:
		name, o := g.fresh("n"), g.fresh("o")
		g.line(`some %s, %s in data.fleet.objects[%s][%s]["shop"]`, name, o, g.kind(), g.self)
		g.line("%s.spec.app == %q", o, pick(g.r, "shop", "pay"))
		g.use(name)
	case n == 10:
		m, facts := g.fresh("m"), g.fresh("x")
		g.line("some %s, %s in data.fleet.members", m, facts)
		g.line("%s.labels.region == %q", facts, pick(g.r, "eu", "us"))
		g.use(m)
	case n == 13 && view != "":
		g.line("%s[%s]", view, key())
	case n == 14:
		g.line("data.fleet.by_name[%s]%s", g.kind(), place)
	case n == 15 && g.self != "input.entries[0].ref.member":
		g.line("not input.member.%s", pick(g.r, "paused", "annotations.tier", "topology", `conditions.Ready.reason`))
	case n == 16:
		g.line("some %s in data.fleet.members[%s].conditions", g.use(g.fresh("c")), g.self)
	case n == 17 && g.self != "input.entries[0].ref.member":
		g.line("%s := input.member.%s", g.use(g.fresh("f")), pick(g.r, "conditions", "version", "annotations.owner", "topology.version"))
	case n == 11:
		g.line("%s := data.fleet.scopes[%s][%s]", g.use(g.fresh("s")), g.self, g.kind())
	default:
		g.line("%s := data.fleet.members[%s].%s", g.use(g.fresh("l")), g.self, pick(g.r, "labels", "version", "labels.region", "apis",
			"paused", "topology.class", "annotations.owner", "annotations", "conditions.Ready.status", "conditions", "topology"))
	}
}

// helper makes what the body says so far a rule of its own, and negates it.
func (g *generator) helper() {
	name := g.fresh("helper")
	rule := name + " if {\n\t" + strings.Join(g.lines, "\n\t")
	if len(g.used) > 0 {
		rule += "\n\tcount([" + strings.Join(g.used, ", ") + "]) > 0"
	}
	g.help = append(g.help, rule+"\n}\n")
	g.lines, g.used = []string{"not " + name}, nil
}

func (g *generator) rule(object bool, key func() string) string {
	g.lines, g.used = nil, nil
	for i := range 1 + g.r.IntN(3) {
		if g.timed && g.r.IntN(2) == 0 {
			g.time(object)
		} else if g.asks && g.r.IntN(2) == 0 {
			g.external(object, key)
		} else if object && (g.plain || g.r.IntN(2) == 0) {
			g.own()
		} else {
			g.fleet(key)
		}
		if i == 0 && g.r.IntN(5) == 0 && !slices.Contains(g.used, mayFail) {
			g.helper()
		}
	}
	details := ""
	if len(g.used) > 0 {
		details = fmt.Sprintf(`, "details": [%s]`, strings.Join(g.used, ", "))
	}
	return fmt.Sprintf("violation contains {\"msg\": \"found %d\"%s} if {\n\t%s\n}\n", g.r.IntN(3), details, strings.Join(g.lines, "\n\t"))
}

func (g *generator) view(name string) string {
	key := pick(g.r, "input.object.spec.app", "input.ref.name", "host", "host", "input.object.metadata.labels.owner",
		`sprintf("%s/%s", [input.ref.namespace, input.object.spec.app])`)
	if g.r.IntN(12) == 0 {
		key = "input.object.spec.class[_]" // of a string: nothing
	}
	if g.timed && g.r.IntN(3) == 0 {
		key = "input.object.spec.until"
	}
	if g.r.IntN(12) == 0 {
		key = "[input.object.spec.class]" // no string: an error
	}
	body := "input.object.spec"
	if key == "host" {
		body = "some host in input.object.spec.hosts"
	}
	value := pick(g.r, "true", `{"replicas": input.object.spec.replicas}`, "input.ref.name", `{"b", input.ref.kind}`, "input.object.spec.hosts[_]", "1")
	return fmt.Sprintf("view.%s[key] contains value if {\n\t%s\n\tkey := %s\n\tvalue := %s\n}\n", name, body, key, value)
}

// pkg writes one package.
func (g *generator) pkg(name string) string {
	g.help = nil
	var rules []string
	var kinds []string
	for range 1 + g.r.IntN(2) {
		if k := g.kind(); len(kinds) == 0 || kinds[0] != k {
			kinds = append(kinds, k)
		}
	}
	if g.r.IntN(10) == 0 {
		kinds = pick(g.r, []string{`"*"`}, []string{`"*.apps"`}, []string{`"*.apps"`, `"Namespace"`})
	}
	custom := fmt.Sprintf("severity: low, kinds: [%s]", strings.Join(kinds, ", "))
	views := 0
	if g.r.IntN(2) == 0 {
		views = 1
		rules = append(rules, g.view("v"))
		g.views = append(g.views, fmt.Sprintf("data.fleet.views[%q].v", name))
	}
	g.self = "input.ref.member"
	object, key := true, g.key
	switch n := g.r.IntN(6); {
	case n == 0 && views > 0:
		custom += ", subject: view.v"
		object, key = false, func() string { return "input.key" }
		g.self = "input.entries[0].ref.member"
	case n == 1:
		custom += ", subject: member"
		if views == 0 {
			custom = "severity: low, subject: member"
		}
		object, key = false, func() string { return pick(g.r, `"shop"`, `"web"`, "input.member.name") }
		g.self = "input.member.name"
	}
	g.plain = object && g.r.IntN(3) == 0
	for range 1 + g.r.IntN(3) {
		rules = append(rules, g.rule(object, key))
	}
	return fmt.Sprintf("# METADATA\n# title: Generated\n# custom: {%s}\npackage %s\n\n%s", custom, name, strings.Join(append(rules, g.help...), "\n"))
}

// generate returns a set of random policies that loads.
func generate(seed uint64, timed bool) (policySet, error) {
	return (&generator{r: rand.New(rand.NewPCG(seed, 1)), timed: timed}).set()
}

func (g *generator) set() (policySet, error) {
	texts := map[string]string{}
	src := policy.Source{Name: "generated"}
	for i := range 4 {
		name := fmt.Sprintf("gen.p%d", i)
		text := g.pkg(name)
		texts[name] = text
		src.Files = append(src.Files, policy.File{Path: name + ".rego", Data: []byte(text)})
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		for name, text := range texts {
			err = fmt.Errorf("%w\n%s:\n%s", err, name, text)
		}
		return policySet{}, err
	}
	return policySet{set, texts}, nil
}

// perSet is how many histories share generated policies: loading them takes longer
// than a history does.
const perSet = 16

// TestEngine_EqualsFullEvaluationOfGeneratedPolicies plays histories of policies
// that nobody has written.
func TestEngine_EqualsFullEvaluationOfGeneratedPolicies(t *testing.T) {
	t.Parallel()
	small.playAll(t, 500, generated(t, func(seed uint64) (policySet, error) { return generate(seed, false) }))
}

// generated returns the policies of a history, for playAll.
func generated(t *testing.T, generate func(seed uint64) (policySet, error)) func(seed uint64) ([]policySet, []*oracle) {
	type made struct {
		sets    []policySet
		oracles []*oracle
	}
	var mu sync.Mutex
	known := map[uint64]made{}
	return func(seed uint64) ([]policySet, []*oracle) {
		mu.Lock()
		defer mu.Unlock()
		m, ok := known[seed/perSet]
		if !ok {
			set, err := generate(seed / perSet)
			if err != nil {
				t.Error(err)
				return nil, nil
			}
			o, err := newOracle(set)
			if err != nil {
				t.Error(err)
				return nil, nil
			}
			m = made{[]policySet{set}, []*oracle{o}}
			known[seed/perSet] = m
			delete(known, seed/perSet-2) // which hardly anybody asks for again
		}
		return m.sets, m.oracles
	}
}
