package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/explain"
)

const versionHead = "# METADATA\n# title: x\n# custom: {severity: low, kinds: [\"Deployment.apps\"]%s}\npackage %s\n\n"

func versionPolicy(pkg, more, rules string) string {
	return fmt.Sprintf(versionHead, more, pkg) + rules
}

// Policies of a source in two versions, and of another that reads a view of the first.
var (
	largeThree = versionPolicy("test.large", ", parameters: {type: object, properties: {word: {type: string, default: large}}}",
		`violation contains {"msg": input.parameters.word} if input.object.spec.replicas > 3`)
	largeTwo  = strings.ReplaceAll(largeThree, "> 3", "> 2")
	appsWhole = versionPolicy("test.apps", ", subject: view.apps", "view.apps[input.object.spec.app] contains input.object.spec.replicas\n\n"+
		`violation contains {"msg": sprintf("%d entries", [count(input.entries)])} if input.key`)
	appsFew = strings.ReplaceAll(appsWhole, "contains input.object.spec.replicas", "contains input.object.spec.replicas if input.object.spec.replicas > 2")
	reader  = versionPolicy("test.reader", "", `violation contains {"msg": sprintf("app of %d", [n])} if n := count(data.fleet.views["test.apps"].apps[input.object.spec.app])`)
	readers = strings.ReplaceAll(reader, "test.reader", "test.readers") // of the source of what it reads
)

func loadSourcesOf(t testing.TB, one []string, two ...string) *policy.Set {
	t.Helper()
	var sources []policy.Source
	for name, texts := range map[string][]string{"one": one, "two": two} {
		s := policy.Source{Name: name}
		for i, text := range texts {
			s.Files = append(s.Files, policy.File{Path: fmt.Sprintf("p%d.rego", i), Data: []byte(text)})
		}
		sources = append(sources, s)
	}
	slices.SortFunc(sources, func(a, b policy.Source) int { return strings.Compare(a.Name, b.Name) })
	set, err := policy.Load(sources, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// versionWorld is a fleet of three members, each with one Deployment of the same app, of 3, 4 and 2 replicas.
func versionWorld(t testing.TB) *world {
	t.Helper()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range worldMembers {
		mustDo(t, w, op{Do: "join", Member: m}, op{Do: "reopen", Member: m, Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced},
			deployment(m, "web", map[string]any{"app": "shop", "replicas": []int{3, 4, 2}[i]}))
	}
	return w
}

func in(members ...string) []policy.MemberSelector {
	if len(members) == 0 {
		return nil
	}
	return []policy.MemberSelector{{Names: members}}
}

func nextOf(set *policy.Set, name string, members []policy.MemberSelector, whole bool) policy.Binding {
	return policy.Binding{Name: name, Package: name, Next: &policy.Next{
		Binding: policy.Binding{Name: name, Package: set.Candidate(name)}, Members: members, Whole: whole,
	}}
}

// TestVersions_TakeEachOthersPlaceWithoutEvaluation follows one policy through the phases of a rollout.
func TestVersions_TakeEachOthersPlaceWithoutEvaluation(t *testing.T) {
	t.Parallel()
	was, is := loadSourcesOf(t, []string{largeThree, appsWhole}), loadSourcesOf(t, []string{largeTwo, appsWhole})
	beside := policy.Beside(was, []policy.Candidate{{Source: "one", Set: is}})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	opts := policy.EngineOptions{Set: was, Bindings: []policy.Binding{{Name: "test.large", Package: "test.large"}}, Clock: func() time.Time { return now }}
	e, _ := engineOn(t, versionWorld(t), opts)
	// evaluations are all those of the versions that there are then.
	configure := func(set *policy.Set, evaluations int64, b policy.Binding) *policy.Changes {
		t.Helper()
		now = now.Add(time.Minute)
		changes, err := e.Configure(t.Context(), set, []policy.Binding{b})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Stats().Evaluations; got != evaluations {
			t.Errorf("%d evaluations, want %d", got, evaluations)
		}
		return changes
	}
	differ := func(changes *policy.Changes, want int) {
		t.Helper()
		n := 0
		for range changes.All() {
			n++
		}
		if n != want {
			t.Errorf("%d changes, want %d", n, want)
		}
	}
	found := func(want ...string) {
		t.Helper()
		wantMessages(t, e.State(), "test.large", want...)
	}
	found("fleet/b|shop|web|large")
	differ(configure(beside, 6, nextOf(beside, "test.large", nil, false)), 0) // in shadow
	found("fleet/b|shop|web|large")
	c, ok := e.State().Compare("test.large")
	if want := beside.Version(beside.Candidate("test.large")); !ok || c.Version != want || c.Subjects != 3 || c.New != 1 || c.Gone != 0 || c.Errors != 0 || !c.Complete || c.Next.Evaluations != 3 {
		t.Errorf("it compares %+v", c)
	}
	differ(configure(beside, 6, nextOf(beside, "test.large", in("fleet/a", "fleet/b"), false)), 1)
	found("fleet/a|shop|web|large", "fleet/b|shop|web|large")
	for v := range e.State().Findings("test.large", "") {
		at := map[string]int{"fleet/a": 1, "fleet/b": 0}[v.Subject.Ref.Member] // in shadow, and before
		if got := v.FirstSeen.At(0); got.Minute() != at {
			t.Errorf("the violation of %s is there since %v", v.Subject, got)
		}
		if v.Version != c.Version {
			t.Errorf("the verdict on %s is of version %s", v.Subject, v.Version)
		}
	}
	differ(configure(beside, 6, nextOf(beside, "test.large", in("fleet/b"), false)), 1)
	found("fleet/b|shop|web|large")
	differ(configure(beside, 6, nextOf(beside, "test.large", nil, true)), 1)
	differ(configure(is, 3, policy.Binding{Name: "test.large", Package: "test.large"}), 0) // promoted
	found("fleet/a|shop|web|large", "fleet/b|shop|web|large")
	if _, ok := e.State().Compare("test.large"); ok {
		t.Error("there still are two versions")
	}
	// Back again, with a former version of more, which then goes away.
	back := policy.Beside(is, []policy.Candidate{{Source: "one", Set: was}})
	b := nextOf(back, "test.large", in("fleet/a"), false)
	b.Next.Binding.Parameters = map[string]any{"word": "big"}
	differ(configure(back, 6, b), 1)
	differ(configure(is, 3, policy.Binding{Name: "test.large", Package: "test.large"}), 1)
}

// TestVersions_ViewsSpanAllMembers lets a candidate have another view: its own package reads it of all members,
// whichever it is in effect in; other sources read the active one; and keys go with the whole only.
func TestVersions_ViewsSpanAllMembers(t *testing.T) {
	t.Parallel()
	was := loadSourcesOf(t, []string{appsWhole, readers}, reader)
	is := loadSourcesOf(t, []string{appsFew, readers}, reader)
	set := policy.Beside(was, []policy.Candidate{{Source: "one", Set: is}})
	bindings := func(members []policy.MemberSelector, whole bool) []policy.Binding {
		return []policy.Binding{nextOf(set, "test.apps", members, whole), nextOf(set, "test.readers", members, whole), {Name: "test.reader", Package: "test.reader"}}
	}
	w := versionWorld(t)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings(in("fleet/a", "fleet/c"), false)})
	active := []string{"fleet/a|shop|web|app of 3", "fleet/b|shop|web|app of 3", "fleet/c|shop|web|app of 3"}
	wantMessages(t, e.State(), "test.reader", active...)
	wantMessages(t, e.State(), "test.readers", "fleet/a|shop|web|app of 2", "fleet/b|shop|web|app of 3", "fleet/c|shop|web|app of 2")
	wantMessages(t, e.State(), "test.apps", "|||3 entries")
	mustDo(t, w, deployment("fleet/b", "web", map[string]any{"app": "shop", "replicas": 1})) // of a member that has the former version
	apply(t, e, cursor)
	wantMessages(t, e.State(), "test.readers", "fleet/a|shop|web|app of 1", "fleet/b|shop|web|app of 3", "fleet/c|shop|web|app of 1")
	if _, err := e.Configure(t.Context(), set, bindings(nil, true)); err != nil {
		t.Fatal(err)
	}
	wantMessages(t, e.State(), "test.apps", "|||1 entries")
	wantMessages(t, e.State(), "test.reader", active...)
	for pkg := range e.State().Views().Names() {
		if strings.Contains(pkg, "@") {
			t.Errorf("queries are offered the view of %s", pkg)
		}
	}
	before, evaluated := e.Stats(), map[string]int64{}
	for _, name := range []string{"test.apps", "test.readers"} {
		c, _ := e.State().Compare(name)
		evaluated[name] = c.Next.Evaluations
	}
	if _, err := e.Configure(t.Context(), is, bindingsOf(is)); err != nil {
		t.Fatal(err)
	}
	// What reads the view in another source is evaluated, and nothing else.
	for name, n := range evaluated {
		if h, _ := e.State().Health(name); h.Evaluations != n {
			t.Errorf("%s has %d evaluations, and had %d", name, h.Evaluations, n)
		}
	}
	if after := e.Stats(); after.ViewEvaluations != before.ViewEvaluations {
		t.Errorf("the view was evaluated %d times", after.ViewEvaluations-before.ViewEvaluations)
	}
	wantMessages(t, e.State(), "test.reader", "fleet/a|shop|web|app of 1", "fleet/b|shop|web|app of 1", "fleet/c|shop|web|app of 1")
	mustDo(t, w, deployment("fleet/b", "web", map[string]any{"app": "shop", "replicas": 5}))
	apply(t, e, cursor)
	wantMessages(t, e.State(), "test.readers", "fleet/a|shop|web|app of 2", "fleet/b|shop|web|app of 2", "fleet/c|shop|web|app of 2")
	wantMessages(t, e.State(), "test.apps", "|||2 entries")
}

// TestVersions_ReadScopeIsOfBoth asks what verdicts may reveal: neither version's that is not shown is left out.
func TestVersions_ReadScopeIsOfBoth(t *testing.T) {
	t.Parallel()
	fleet := versionPolicy("test.large", "", `violation contains {"msg": "x"} if data.fleet.by_name["Namespace"][""]["shop"]`)
	set := policy.Beside(loadSourcesOf(t, []string{largeThree}), []policy.Candidate{{Source: "one", Set: loadSourcesOf(t, []string{fleet})}})
	b := nextOf(set, "test.large", nil, false)
	b.Next.Binding.Visibility = policy.MemberSelector{Names: []string{"fleet/b"}}
	w := versionWorld(t)
	e, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{b}})
	got := e.State().ReadScope("test.large")
	if !got.Fleet || !slices.Equal(got.Kinds.Kinds, []policy.Kind{"Namespace"}) || got.Kinds.IsOpen() || !slices.Equal(got.Members, []string{"fleet/b"}) {
		t.Errorf("it may reveal %+v", got)
	}
	// Nobody waits for the Namespaces that only the version in shadow reads.
	if !e.State().BindingSynced("test.large") || e.State().Unread("test.large") != nil {
		t.Error("the policy waits for its version in shadow")
	}
	if c, _ := e.State().Compare("test.large"); c.Complete {
		t.Error("the comparison does not wait")
	}
}

// TestVersions_Validate refuses what a next version may not be.
func TestVersions_Validate(t *testing.T) {
	t.Parallel()
	set := policy.Beside(loadSourcesOf(t, []string{largeThree, appsWhole}), []policy.Candidate{{Source: "one", Set: loadSourcesOf(t, []string{largeTwo, appsWhole})}})
	for want, change := range map[string]func(*policy.Next){
		"":                             func(*policy.Next) {},
		"it is named":                  func(n *policy.Next) { n.Binding.Name = "other" },
		"has a next version":           func(n *policy.Next) { n.Binding.Next = &policy.Next{} },
		"no package \"none\"":          func(n *policy.Next) { n.Binding.Package = "none" },
		"parameters: word: Invalid":    func(n *policy.Next) { n.Binding.Parameters = map[string]any{"word": 1} },
		"members[1].names[0]: \"a[\":": func(n *policy.Next) { n.Members = append(in("a"), in("a[")...) },
	} {
		b := nextOf(set, "test.large", nil, false)
		change(b.Next)
		out, err := policy.ValidateBindings(set, []policy.Binding{b})
		switch {
		case want == "" && err != nil:
			t.Error(err)
		case want == "" && (out[0].Next.Binding.Parameters["word"] != "large" || b.Next.Binding.Parameters != nil):
			t.Errorf("the next version has parameters %v", out[0].Next.Binding.Parameters)
		case want != "" && (err == nil || !strings.Contains(err.Error(), "the next version: ") || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", want, err)
		}
	}
	defaults, warnings := policy.DefaultBindings(set, nil)
	if len(defaults) != 2 || len(warnings) > 0 {
		t.Errorf("the defaults are %v, %v", defaults, warnings)
	}
}

// TestVersions_OnlyTheCandidateHas binds a package that is not active yet.
func TestVersions_OnlyTheCandidateHas(t *testing.T) {
	t.Parallel()
	set := policy.Beside(loadSourcesOf(t, []string{appsWhole}), []policy.Candidate{{Source: "one", Set: loadSourcesOf(t, []string{largeTwo, appsWhole})}})
	b := policy.Binding{Name: "test.large", Package: set.Candidate("test.large"), Version: "mine"}
	e, _ := engineOn(t, versionWorld(t), policy.EngineOptions{Set: set, Bindings: []policy.Binding{b}})
	wantMessages(t, e.State(), "test.large", "fleet/a|shop|web|large", "fleet/b|shop|web|large")
	for v := range e.State().Findings("test.large", "") {
		if v.Version != "mine" {
			t.Errorf("the version is %q", v.Version)
		}
	}
}

// TestVersions_ExplainTheOneInEffect explains the same of two members.
func TestVersions_ExplainTheOneInEffect(t *testing.T) {
	t.Parallel()
	was := loadSourcesOf(t, []string{appsWhole, readers})
	set := policy.Beside(was, []policy.Candidate{{Source: "one", Set: loadSourcesOf(t, []string{appsFew, readers})}})
	e, _ := engineOn(t, versionWorld(t), policy.EngineOptions{Set: set, Bindings: []policy.Binding{nextOf(set, "test.readers", in("fleet/a"), false)}})
	for member, want := range map[string]int{"fleet/a": 2, "fleet/b": 3} {
		subject := policy.Subject{Ref: aggregate.Ref{Member: member, Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}
		x, err := explain.Explain(t.Context(), policy.EngineOptions{Set: set}, e.State(), "test.readers", subject)
		if err != nil {
			t.Fatal(err)
		}
		if x.Reevaluated != nil || x.Package != "test.readers" || x.Verdict.Violations[0].Msg != fmt.Sprintf("app of %d", want) {
			t.Errorf("%s: %+v", member, x)
		}
		if i := slices.IndexFunc(x.Reads, func(r explain.Read) bool { return strings.Contains(r.Path, "views") }); i < 0 || len(x.Reads[i].Objects) != want {
			t.Errorf("%s: it reads %+v", member, x.Reads)
		}
	}
}

// TestVersions_OfTemplates lets a template, and a constraint of another, have versions.
func TestVersions_OfTemplates(t *testing.T) {
	t.Parallel()
	template := `{"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "KIND"}, "spec": {"crd": {"spec": {"names": {"kind": "Kind"},
		"validation": {"openAPIV3Schema": {"type": "object", "properties": {"word": {"type": "string"}}}}}},
		"targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": "package x\n\nviolation[{\"msg\": msg}] {\n  msg := sprintf(\"MESSAGE %v\", [input.parameters.word])\n}\n"}]}}`
	constraint := `{"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "Kind", "metadata": {"name": "all"}, "spec": {"match": {"kinds": [{"apiGroups": ["apps"], "kinds": ["Deployment"]}]}, "parameters": {"word": "WORD"}}}`
	files := func(word string, messages ...string) policy.Source {
		s := policy.Source{Name: "one"}
		for i, message := range messages {
			with := strings.NewReplacer("KIND", []string{"first", "second"}[i], "Kind", []string{"First", "Second"}[i], "MESSAGE", message, "WORD", word)
			s.Files = append(s.Files, policy.File{Path: fmt.Sprintf("t%d.yaml", i), Data: []byte(with.Replace(template))},
				policy.File{Path: fmt.Sprintf("c%d.yaml", i), Data: []byte(with.Replace(constraint))})
		}
		return s
	}
	load := func(s policy.Source) *policy.Set {
		set, err := policy.Load([]policy.Source{s}, policy.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	active := load(files("old", "one", "two"))
	set := policy.Beside(active, []policy.Candidate{{Source: "one", Set: load(files("new", "1", "two"))}})
	var bindings []policy.Binding
	for _, kind := range []string{"First", "Second"} {
		x, name := "gatekeeper."+strings.ToLower(kind), kind+"/all"
		bindings = append(bindings, policy.Binding{Name: name, Package: x, Constraint: name, Next: &policy.Next{
			Binding: policy.Binding{Name: name, Package: set.Candidate(x), Constraint: name}, Members: in("fleet/b"),
		}})
	}
	e, _ := engineOn(t, versionWorld(t), policy.EngineOptions{Set: set, Bindings: bindings})
	wantMessages(t, e.State(), "First/all", "fleet/a|shop|web|one old", "fleet/b|shop|web|1 new", "fleet/c|shop|web|one old")
	wantMessages(t, e.State(), "Second/all", "fleet/a|shop|web|two old", "fleet/b|shop|web|two new", "fleet/c|shop|web|two old")
	if defaults, _ := policy.DefaultBindings(set, nil); len(defaults) != 2 {
		t.Errorf("the defaults are %v", defaults)
	}
}

// TestVersions_KeepTheTimeOfWhatBothFind lets the candidate find later what the former version found before, and then
// lets them take each other's place.
func TestVersions_KeepTheTimeOfWhatBothFind(t *testing.T) {
	t.Parallel()
	is := loadSourcesOf(t, []string{strings.ReplaceAll(largeThree, "> 3", "> 4")})
	set := policy.Beside(loadSourcesOf(t, []string{largeThree}), []policy.Candidate{{Source: "one", Set: is}})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := versionWorld(t)
	e, cursor := engineOn(t, w, policy.EngineOptions{
		Set: set, Bindings: []policy.Binding{nextOf(set, "test.large", nil, false)}, Clock: func() time.Time { return now },
	})
	subject := policy.Subject{Ref: aggregate.Ref{Member: "fleet/b", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}
	since := func(minute int) {
		t.Helper()
		v, _ := e.State().Get("test.large", subject)
		if len(v.Violations) != 1 || v.FirstSeen.At(0).Minute() != minute {
			t.Errorf("it is %+v, want one violation since minute %d", v, minute)
		}
	}
	replicas := func(n int) {
		t.Helper()
		now = now.Add(time.Minute)
		mustDo(t, w, deployment("fleet/b", "web", map[string]any{"app": "shop", "replicas": n}))
		apply(t, e, cursor)
	}
	route := func(members ...string) *policy.Changes {
		t.Helper()
		now = now.Add(time.Minute)
		changes, err := e.Configure(t.Context(), set, []policy.Binding{nextOf(set, "test.large", in(members...), false)})
		if err != nil {
			t.Fatal(err)
		}
		return changes
	}
	since(0)
	replicas(5) // the candidate finds it in minute 1
	since(0)
	route("fleet/b")
	since(0)
	replicas(4) // the former goes on to find it
	if v, _ := e.State().Get("test.large", subject); len(v.Violations) > 0 {
		t.Errorf("it is %+v", v)
	}
	replicas(5)
	since(4)
	changes := route() // back
	since(4)
	if changes.Rebuilt() {
		t.Error("nothing was evaluated from nothing")
	}
	for x := range changes.All() {
		t.Errorf("%+v has changed", x)
	}
}

// TestVersions_HealthIsOfAllInEffect lets a view of the candidate be over its limit, in members in which it is in effect.
func TestVersions_HealthIsOfAllInEffect(t *testing.T) {
	t.Parallel()
	set := policy.Beside(loadSourcesOf(t, []string{largeThree, appsWhole}), []policy.Candidate{{Source: "one", Set: loadSourcesOf(t, []string{
		strings.ReplaceAll(largeThree, "input.object.spec.replicas > 3", `data.fleet.views["test.apps"].apps[input.object.spec.app]`),
		strings.ReplaceAll(appsWhole, "contains input.object.spec.replicas", `contains [input.ref, "0123456789012345678901234567890123456789012345678901234567890123456789"]`),
	})}})
	e, _ := engineOn(t, versionWorld(t), policy.EngineOptions{
		Set: set, Bindings: []policy.Binding{nextOf(set, "test.large", in(worldMembers...), false)}, Limits: policy.Limits{View: 256},
	})
	n := e.State().Total("test.large")
	if n.Errors != 3 {
		t.Fatalf("the verdicts are %+v", n)
	}
	if h, _ := e.State().Health("test.large"); h.Views == "" {
		t.Errorf("all %d verdicts are Errors because of a view, and the policy's health is %+v", n.Errors, h)
	}
}

// TestVersions_ShadowHoldsNobody lets a candidate read what is not read yet: the state waits for it once it is to be in effect anywhere,
// also in a member that has not joined.
func TestVersions_ShadowHoldsNobody(t *testing.T) {
	t.Parallel()
	more := strings.ReplaceAll(largeThree, "input.object.spec.replicas > 3", `data.fleet.by_name["Namespace"][""]["shop"]`)
	set := besideOf(t, largeThree, more)
	former, _ := engineOn(t, versionWorld(t), policy.EngineOptions{Set: set, Bindings: []policy.Binding{{Name: "test.large", Package: "test.large"}}})
	e, _ := engineOn(t, versionWorld(t), policy.EngineOptions{Set: set, Bindings: []policy.Binding{nextOf(set, "test.large", nil, false)}})
	if !former.State().Synced {
		t.Fatal("it is not synced without the candidate")
	}
	if s := e.State(); !s.BindingSynced("test.large") || !s.Synced {
		t.Errorf("BindingSynced is %t, and the state is Synced %t: corrections want both", s.BindingSynced("test.large"), s.Synced)
	}
	for name, b := range map[string]policy.Binding{
		"a member": nextOf(set, "test.large", in("fleet/a"), false), "one that is not there": nextOf(set, "test.large", in("fleet/z"), false), "all": nextOf(set, "test.large", nil, true),
	} {
		e, _ := engineOn(t, versionWorld(t), policy.EngineOptions{Set: set, Bindings: []policy.Binding{b}})
		if e.State().Synced {
			t.Errorf("in effect in %s it is not waited for", name)
		}
	}
	// Nobody waits for what only the former one reads, once the other has its place everywhere.
	back := besideOf(t, more, largeThree)
	e, _ = engineOn(t, versionWorld(t), policy.EngineOptions{Set: back, Bindings: []policy.Binding{nextOf(back, "test.large", nil, true)}})
	if s := e.State(); !s.BindingSynced("test.large") || !s.Synced {
		t.Errorf("the former version is waited for: BindingSynced is %t, and the state is Synced %t", s.BindingSynced("test.large"), s.Synced)
	}
}
