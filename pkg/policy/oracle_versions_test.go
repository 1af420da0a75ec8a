package policy_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// besideOracle evaluates two versions of policies: each with a set that has nothing but its version.
type besideOracle struct {
	set    *policy.Set
	active *oracle
	next   map[string]*oracle // by the name of a candidate's package
}

// versions evaluates bindings, and their next versions.
func (o *oracle) versions(ctx context.Context, s *aggregate.Snapshot, bindings []policy.Binding, now moment) (former, next map[string]textVerdict, err error) {
	if o.beside == nil {
		former, err = o.evaluateOne(ctx, s, bindings, now)
		return former, nil, err
	}
	var nexts []policy.Binding
	for _, b := range bindings {
		if b.Next != nil {
			nexts = append(nexts, b.Next.Binding)
		}
	}
	if former, err = o.beside.evaluate(ctx, s, bindings, now); err != nil {
		return nil, nil, err
	}
	next, err = o.beside.evaluate(ctx, s, nexts, now)
	return former, next, err
}

func (o *besideOracle) evaluate(ctx context.Context, s *aggregate.Snapshot, bindings []policy.Binding, now moment) (map[string]textVerdict, error) {
	by := map[*oracle][]policy.Binding{}
	for _, b := range bindings {
		of, pkg := o.active, b.Package
		if x, _, is := strings.Cut(pkg, "@"); is {
			of, b.Package = o.next[pkg], x
		}
		by[of] = append(by[of], b)
	}
	out := map[string]textVerdict{}
	for of, list := range by {
		some, err := of.evaluateOne(ctx, s, list, now)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, some)
	}
	return out, nil
}

// inEffect returns the verdicts of the versions that are in effect.
func inEffect(s *aggregate.Snapshot, bindings []policy.Binding, former, next map[string]textVerdict) map[string]textVerdict {
	out := map[string]textVerdict{}
	for isNext, of := range map[bool]map[string]textVerdict{false: former, true: next} {
		for at, v := range of {
			name, subject, _ := strings.Cut(at, " | ")
			i := slices.IndexFunc(bindings, func(b policy.Binding) bool { return b.Name == name })
			if takesPlace(s, bindings[i].Next, subject) == isNext {
				out[at] = v
			}
		}
	}
	return out
}

// takesPlace reports whether a next version has taken the place of another for a subject.
func takesPlace(s *aggregate.Snapshot, n *policy.Next, subject string) bool {
	if n == nil || n.Whole {
		return n != nil
	}
	if strings.HasPrefix(subject, `"`) {
		return false
	}
	name, _, _ := strings.Cut(subject, " ")
	m, ok := s.Member(name)
	return ok && slices.ContainsFunc(n.Members, func(sel policy.MemberSelector) bool { return selects(sel, m) })
}

// agreeOnVersions holds what a state says of the versions of policies to what the oracle says of them.
func agreeOnVersions(s *policy.State, bindings []policy.Binding, former, next map[string]textVerdict) error {
	for _, b := range bindings {
		got, ok := s.Compare(b.Name)
		if ok != (b.Next != nil) {
			return fmt.Errorf("%w: %s has two versions: %v", errDiffers, b.Name, ok)
		}
		if !ok {
			continue
		}
		if err := agreeOnComparison(s, b, got, former, next); err != nil {
			return err
		}
		for v := range s.Findings(b.Name, "") {
			want := s.Set().Version(b.Package)
			if takesPlace(s.Snapshot, b.Next, v.Subject.String()) {
				want = s.Set().Version(b.Next.Binding.Package)
			}
			if v.Version != want {
				return fmt.Errorf("%w: %s on %s is of version %s, not %s", errDiffers, b.Name, v.Subject, v.Version, want)
			}
		}
	}
	return nil
}

// since is when violations were first seen, by policy and subject, then message.
type since map[string]map[string]int64

// follow holds when violations were first seen to when they were in the state before, and what changes say of that to
// the state.
func (was since) follow(s *policy.State, bindings []policy.Binding, seen map[string]map[policy.Seen]bool) error {
	now := since{}
	for _, b := range bindings {
		all := map[policy.Seen]bool{}
		for x := range s.Seen(b.Name) {
			all[x] = true
		}
		if !maps.Equal(all, seen[b.Name]) {
			return fmt.Errorf("%w: %s has seen %v, by its changes %v", errDiffers, b.Name, all, seen[b.Name])
		}
		for v := range s.Findings(b.Name, "") {
			m, _ := s.Snapshot.Member(v.Subject.Ref.Member)
			at := b.Name + " | " + v.Subject.String() + " of " + m.UID
			if o, is := s.Snapshot.Get(v.Subject.Ref); is {
				at += ", " + o.UID() // another of the name is another
			}
			now[at] = map[string]int64{}
			for i, x := range v.Violations {
				now[at][x.Msg] = v.FirstSeen.Seconds(i)
				if before, there := was[at][x.Msg]; there && before != now[at][x.Msg] {
					return fmt.Errorf("%w: %s: %q is there since %d, and was since %d", errDiffers, at, x.Msg, now[at][x.Msg], before)
				}
			}
		}
	}
	clear(was)
	maps.Copy(was, now)
	return nil
}

// record applies what changes say of when violations were first seen.
func record(seen map[string]map[policy.Seen]bool, changes *policy.Changes) {
	if changes.Rebuilt() {
		clear(seen)
		for b := range changes.After.Bindings() {
			seen[b.Name] = map[policy.Seen]bool{}
			for x := range changes.After.Seen(b.Name) {
				seen[b.Name][x] = true
			}
		}
		return
	}
	for x := range changes.Seen() {
		maps.DeleteFunc(seen[x.Binding], func(y policy.Seen, _ bool) bool { return y.Subject == x.Subject && y.Violation == x.Violation })
		if !x.Gone {
			seen[x.Binding][x.Seen] = true
		}
	}
}

// besideVersions are what policies have instead in their other versions, by source.
var besideVersions = map[string][]map[string]string{
	"one": {
		{
			"unique_host": oracleVariant["unique_host"], "pdb": oracleVariant["pdb"], "plain": strings.ReplaceAll(oraclePolicies["plain"], "too few", "fewer"),
			"budget": strings.ReplaceAll(oraclePolicies["budget"], "total > input", "total >= input"),
		},
		{
			"unique_host": strings.ReplaceAll(oraclePolicies["unique_host"], "claim.ref.member != input.ref.member", "claim.ref.member > input.ref.member"),
			"skew":        strings.ReplaceAll(oraclePolicies["skew"], "other.spec.image !=", "member != input.ref.member\n\tother.spec.image !="),
			"divide":      strings.ReplaceAll(oraclePolicies["divide"], "x > 3", "x > 2"), "members": strings.ReplaceAll(oraclePolicies["members"], "no shop", "without"),
			"keyed": strings.ReplaceAll(oraclePolicies["keyed"], "e.value.replicas > 1", "e.value.replicas > 2"), "odd": "", // gone
			"extra": strings.ReplaceAll(oraclePolicies["odd"], "oracle.odd", "oracle.extra"),
		},
	},
	"two": {
		{"crowded": oracleVariant["crowded"], "owned": strings.ReplaceAll(oraclePolicies["owned"], `"no owner"} if`, `"nobody's"} if`)},
		{
			"crowded": strings.ReplaceAll(oraclePolicies["crowded"], "n > input", "n + 1 > input"), "no_pdb": withoutViews(oraclePolicies["no_pdb"]),
			"broken": strings.ReplaceAll(oraclePolicies["broken"], "replicas == 2", "replicas == 1"),
		},
	},
}

// withoutViews returns a policy that asks no view: it knows where the other does not.
func withoutViews(text string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.Contains(line, "data.fleet.views") }), "\n")
}

var besideSources = []string{"one", "two"}

func besideSource(name string) string {
	switch name {
	case "crowded", "no_pdb", "alone", "owned", "broken", "regions":
		return "two"
	}
	return "one"
}

// versioning is which version of each source is active, and which is to be instead.
type versioning struct{ active, next [2]int }

// besideSets are all versionings, and besideAt is where each is among them.
var besideSets = sync.OnceValues(func() (*besideWorld, error) {
	w := &besideWorld{at: map[versioning]int{}}
	plain, oracles := map[[2]int]policySet{}, map[[2]int]*oracle{}
	for i := range 3 {
		for j := range 3 {
			at := [2]int{i, j}
			var err error
			if plain[at], err = besideSet(at); err != nil {
				return nil, err
			}
			if oracles[at], err = newOracle(plain[at]); err != nil {
				return nil, err
			}
		}
	}
	for active := range plain {
		for next := range plain {
			v := versioning{active, next}
			var candidates []policy.Candidate
			of := map[string]*oracle{}
			for i, source := range besideSources {
				if next[i] == active[i] {
					continue
				}
				at := active
				at[i] = next[i]
				candidates = append(candidates, policy.Candidate{Source: source, Set: plain[at].set})
				for _, p := range policy.Beside(plain[active].set, candidates[len(candidates)-1:]).Packages {
					if p.VersionOf() != "" {
						of[p.Name] = oracles[at]
					}
				}
			}
			set := policy.Beside(plain[active].set, candidates)
			o := &oracle{beside: &besideOracle{set, oracles[active], of}}
			w.at[v] = len(w.sets)
			w.sets, w.oracles = append(w.sets, policySet{set: set}), append(w.oracles, o)
		}
	}
	return w, nil
})

type besideWorld struct {
	sets    []policySet
	oracles []*oracle
	at      map[versioning]int
}

func (w *besideWorld) set(v versioning) *policy.Set { return w.sets[w.at[v]].set }

func besideSet(at [2]int) (policySet, error) {
	texts := maps.Clone(oraclePolicies)
	for i, source := range besideSources {
		if at[i] > 0 {
			maps.Copy(texts, besideVersions[source][at[i]-1])
		}
	}
	files := map[string][]policy.File{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if texts[name] == "" {
			delete(texts, name)
			continue
		}
		source := besideSource(name)
		files[source] = append(files[source], policy.File{Path: name + ".rego", Data: []byte(texts[name])})
	}
	set, err := policy.Load([]policy.Source{{Name: "one", Files: files["one"]}, {Name: "two", Files: files["two"]}}, policy.LoadOptions{})
	return policySet{set, texts}, err
}

// rollouts is how far the versions of policies of a history have come.
type rollouts struct {
	l      *land
	w      *besideWorld
	r      *rand.Rand
	v      versioning
	chosen []string
	base   map[string]policy.Binding
	next   map[string]*policy.Next // also of parameters alone
}

// pkg returns a package of a name, whatever version has it.
func (o *rollouts) pkg(name string) *policy.Package {
	for _, v := range []versioning{o.v, {o.v.next, o.v.next}, {}, {[2]int{2, 2}, [2]int{2, 2}}} {
		if p := o.w.set(v).Package(name); p != nil {
			return p
		}
	}
	return nil
}

// bindings bind the versions that there are.
func (o *rollouts) bindings() (out []policy.Binding) {
	set := o.w.set(o.v)
	for _, name := range o.chosen {
		b, candidate := o.base[name], set.Candidate(name)
		switch {
		case set.Package(name) == nil && candidate == "":
			continue
		case set.Package(name) == nil:
			b.Package = candidate
		case o.next[name] != nil:
			n := *o.next[name]
			if n.Binding.Package = name; candidate != "" {
				n.Binding.Package = candidate
			}
			b.Next = &n
		}
		out = append(out, b)
	}
	return out
}

// begin gives a policy a next version, in shadow.
func (o *rollouts) begin(name string) {
	n := &policy.Next{Binding: o.base[name]}
	if pkg := o.pkg(name); o.r.IntN(5) == 0 {
		n.Binding = o.l.binding(o.r, pkg)
	} else if pkg.Parameters != nil && o.r.IntN(2) == 0 {
		n.Binding.Parameters = o.l.parameters(o.r, pkg)
	}
	o.next[name] = n
}

// happens changes the versions, or where they are in effect.
func (o *rollouts) happens() {
	i := o.r.IntN(2)
	switch o.r.IntN(9) {
	case 0, 1, 2: // a candidate comes, or is replaced, or goes away
		o.v.next[i] = o.r.IntN(3)
		set := o.w.set(o.v)
		for _, name := range o.chosen {
			if candidate := set.Candidate(name); candidate == "" {
				delete(o.next, name)
			} else {
				o.begin(name)
			}
		}
	case 3: // it is promoted
		set := o.w.set(o.v)
		for _, name := range o.chosen {
			p := set.Package(set.Candidate(name))
			if p != nil && p.Source == besideSources[i] && o.next[name] != nil {
				o.base[name] = o.next[name].Binding
				delete(o.next, name)
			}
		}
		o.v.active[i] = o.v.next[i]
	case 4: // parameters alone
		o.begin(pick(o.r, o.chosen...))
	case 5: // the policy itself
		name := pick(o.r, o.chosen...)
		o.base[name] = o.l.binding(o.r, o.pkg(name))
	default: // members grow, or shrink
		for _, name := range slices.Sorted(maps.Keys(o.next)) {
			o.route(o.next[name])
		}
	}
}

func (o *rollouts) route(n *policy.Next) {
	n.Whole = o.r.IntN(4) == 0
	switch o.r.IntN(6) {
	case 0:
		n.Members = nil
	case 1:
		n.Members = []policy.MemberSelector{{Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"region": pick(o.r, "eu", "us")}}}}
	case 2:
		n.Members = []policy.MemberSelector{{}}
	default:
		n.Members = append(slices.Clone(n.Members), policy.MemberSelector{Names: []string{pick(o.r, worldMembers...)}})
	}
}

// rolling is a land in which versions of policies roll out.
func rolling(w *besideWorld) *land {
	l := *small
	l.write = func(seed uint64) *history {
		r := rand.New(rand.NewPCG(seed, 3))
		o := &rollouts{l: &l, w: w, r: r, base: map[string]policy.Binding{}, next: map[string]*policy.Next{}}
		o.v.active = [2]int{r.IntN(3), r.IntN(3)}
		o.v.next = o.v.active
		varied := []string{"unique_host", "pdb", "plain", "budget", "skew", "divide", "members", "keyed", "odd", "extra", "crowded", "owned", "no_pdb", "broken"}
		others := []string{"busiest", "home", "anywhere", "clusters", "regions", "alone", pick(r, varied...)}
		list := []string{pick(r, varied...), pick(r, varied...), pick(r, others...)}
		knows := r.IntN(4) == 0 // begin with a candidate that knows where the former version does not
		if knows {
			list[0], o.v.active[1], o.v.next[1] = "no_pdb", 0, 2
		}
		for _, name := range list {
			if name = "oracle." + name; !slices.Contains(o.chosen, name) {
				o.chosen = append(o.chosen, name)
				o.base[name] = l.binding(r, o.pkg(name))
			}
		}
		ops := l.populate(r)
		if knows {
			o.begin("oracle.no_pdb")
			m, of := pick(r, worldMembers...), map[string]any{"app": "shop", "replicas": 2}
			ops = append(ops, deployment(m, "web", of),
				op{Do: "put", Member: m, Kind: "PodDisruptionBudget.policy", NS: "shop", Name: "web", Object: map[string]any{"spec": of}},
				op{Do: "status", Member: pick(r, worldMembers...), Kind: "PodDisruptionBudget.policy", State: aggregate.Stale})
		}
		h := &history{Seed: seed, Start: worldStart}
		h.Steps = append(h.Steps, step{Ops: ops, Configure: true, Set: w.at[o.v], Bindings: o.bindings()})
		for range 3 + r.IntN(3) {
			s := step{Passes: int64(r.IntN(3))}
			for range r.IntN(3) {
				s.Ops = append(s.Ops, l.happening(r)...)
			}
			switch n := r.IntN(16); {
			case n < 9:
				o.happens()
				s.Configure, s.Set, s.Bindings = true, w.at[o.v], o.bindings()
			case n == 9:
				s.Reset = true
			}
			h.Steps = append(h.Steps, s)
		}
		return h
	}
	return &l
}

// TestEngine_EqualsFullEvaluationOfVersions plays histories in which candidates of two sources come, are replaced, take
// the place of what is active member by member, are promoted or go away.
func TestEngine_EqualsFullEvaluationOfVersions(t *testing.T) {
	t.Parallel()
	w, err := besideSets()
	if err != nil {
		t.Fatal(err)
	}
	rolling(w).playAll(t, 400, func(uint64) ([]policySet, []*oracle) { return w.sets, w.oracles })
}
