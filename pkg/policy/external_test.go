package policy_test

import (
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
)

// ownersText asks a document of a constant name for a field, and one of a dynamic name.
const ownersText = `# METADATA
# title: Owners
# custom: {severity: low, kinds: ["Deployment.apps"]}
package owners

violation contains {"msg": "nobody owns it"} if not data.fleet.external.cmdb.owners[input.object.spec.app]

violation contains {"msg": sprintf("of %s", [data.fleet.external.cmdb[input.object.spec.list].name])}
`

// externalEngine is an engine with documents that a test sets.
type externalEngine struct{ *timedEngine }

func newExternal(t *testing.T, text string, documents *policy.External, ops ...op) externalEngine {
	t.Helper()
	return externalEngine{newTimed(t, text, policy.EngineOptions{External: documents}, ops...)}
}

// set sets documents of source cmdb, and returns how many evaluations that costs.
func (x externalEngine) set(documents map[string]policy.ExternalDocument) int64 {
	x.t.Helper()
	all, err := policy.NewExternal(map[string]map[string]policy.ExternalDocument{"cmdb": documents})
	if err != nil {
		x.t.Fatal(err)
	}
	return x.setAll(all)
}

func (x externalEngine) setAll(all *policy.External) int64 {
	x.t.Helper()
	before := x.Stats().Evaluations
	if _, err := x.SetExternal(x.t.Context(), all); err != nil {
		x.t.Fatal(err)
	}
	return x.Stats().Evaluations - before
}

func is(json string) policy.ExternalDocument { return policy.ExternalDocument{JSON: []byte(json)} }

func app(name, app string) op {
	return deployment("fleet/a", name, map[string]any{"app": app, "list": name + "-list"})
}

func (x externalEngine) wantFound(found string) {
	x.t.Helper()
	if got := x.found(); got != found {
		x.t.Errorf("found %q, want %q", got, found)
	}
}

// TestEngine_ExternalDocumentsConcernTheirReaders: a field that changes is evaluated for who has read it, and missed it.
func TestEngine_ExternalDocumentsConcernTheirReaders(t *testing.T) {
	t.Parallel()
	var ops []op
	for _, name := range []string{"a", "b", "c", "d"} {
		ops = append(ops, app(name, name))
	}
	x := newExternal(t, ownersText, nil, ops...)
	x.wantFound("a Unknown nobody owns it; b Unknown nobody owns it; c Unknown nobody owns it; d Unknown nobody owns it")
	if x.State().Synced || x.State().BindingSynced("owners") {
		t.Error("what nothing is known of yet is not waited for")
	}
	// What appears was missed by all.
	if n := x.set(map[string]policy.ExternalDocument{"owners": is(`{"a":"x","b":"x"}`)}); n != 4 {
		t.Errorf("%d evaluations", n)
	}
	x.wantFound("c Known nobody owns it; d Known nobody owns it")
	if !x.State().BindingSynced("owners") || !x.State().Synced {
		t.Error("what is known is waited for")
	}
	for _, step := range []struct {
		what        string
		documents   map[string]policy.ExternalDocument
		evaluations int64
		found       string
	}{
		{"the same", map[string]policy.ExternalDocument{"owners": is(`{"a":"x","b":"x"}`)}, 0, "c Known nobody owns it; d Known nobody owns it"},
		{"a field that was missed", map[string]policy.ExternalDocument{"owners": is(`{"a":"x","b":"x","c":"x"}`)}, 1, "d Known nobody owns it"},
		{"a field that is gone", map[string]policy.ExternalDocument{"owners": is(`{"a":"x","c":"x"}`)}, 1, "b Known nobody owns it; d Known nobody owns it"},
		{"one that nobody reads", map[string]policy.ExternalDocument{"owners": is(`{"a":"x","c":"x"}`), "other": is(`1`)}, 0, "b Known nobody owns it; d Known nobody owns it"},
		{"one of a dynamic name", map[string]policy.ExternalDocument{"owners": is(`{"a":"x","c":"x"}`), "c-list": is(`{"name":"ann"}`)}, 1, "b Known nobody owns it; c Known of ann; d Known nobody owns it"},
		{"one that is about to be read", map[string]policy.ExternalDocument{"owners": is(`{"a":"x","c":"x"}`), "c-list": is(`{"name":"ann"}`), "b-list": {Problem: "not read yet", Pending: true}}, 1, "b Unknown nobody owns it; c Known of ann; d Known nobody owns it"},
		{"it is not known any more", map[string]policy.ExternalDocument{"owners": is(`{"a":"x","c":"x"}`), "c-list": {JSON: []byte(`{"name":"ann"}`), Problem: "too old"}}, 1, "b Known nobody owns it; c Unknown of ann; d Known nobody owns it"},
		{"nor is the other", map[string]policy.ExternalDocument{"owners": {JSON: []byte(`{"a":"x","c":"x"}`), Problem: "too old"}, "c-list": {JSON: []byte(`{"name":"ann"}`), Problem: "too old"}}, 0, "a Unknown; b Unknown nobody owns it; c Unknown of ann; d Unknown nobody owns it"},
		{"no object", map[string]policy.ExternalDocument{"owners": is(`["a"]`)}, 4, "a Known nobody owns it; b Known nobody owns it; c Known nobody owns it; d Known nobody owns it"},
	} {
		if n := x.set(step.documents); n != step.evaluations {
			t.Errorf("%s: %d evaluations, want %d", step.what, n, step.evaluations)
		}
		if got := x.found(); got != step.found {
			t.Errorf("%s: %q, want %q", step.what, got, step.found)
		}
	}
	// A source that is gone is not one without documents.
	x.setAll(policy.NoExternal())
	x.wantFound("a Unknown nobody owns it; b Unknown nobody owns it; c Unknown nobody owns it; d Unknown nobody owns it")
	v, _ := x.State().Get("owners", policy.Subject{Ref: policy.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "a"}})
	if len(v.Gaps) != 1 || v.Gaps[0].String() != `data.fleet.external["cmdb"]: there is no source of that name with external documents` {
		t.Errorf("gaps %v", v.Gaps)
	}
}

// TestEngine_ExternalSourceReadWhole: who reads all documents of a source is concerned by each.
func TestEngine_ExternalSourceReadWhole(t *testing.T) {
	t.Parallel()
	x := newExternal(t, `# METADATA
# title: Whole
# custom: {severity: low, kinds: ["Deployment.apps"]}
package whole

violation contains {"msg": sprintf("%s by %s", [key, doc])} if some key, doc in data.fleet.external.cmdb
`, policy.NoExternal(), app("a", "a"))
	x.wantFound("a Unknown")
	for _, step := range []struct {
		documents map[string]policy.ExternalDocument
		n         int64
		found     string
	}{
		{map[string]policy.ExternalDocument{"k": is(`"x"`)}, 1, "a Known k by x"},
		{map[string]policy.ExternalDocument{"k": is(`"x"`), "l": {Problem: "never read"}}, 1, "a Unknown k by x"},
		{map[string]policy.ExternalDocument{"k": is(`"y"`), "l": {Problem: "never read"}}, 1, "a Unknown k by y"},
	} {
		if n := x.set(step.documents); n != step.n {
			t.Errorf("%d evaluations, want %d", n, step.n)
		}
		x.wantFound(step.found)
	}
}

func TestEngine_ExternalDigestIsThatOfSources(t *testing.T) {
	t.Parallel()
	x := newExternal(t, ownersText, nil, app("a", "a"))
	seen := map[string]string{}
	note := func(what string) {
		d := x.State().ExternalDigest("owners")
		if other, twice := seen[d]; twice || d == "" {
			t.Errorf("%s has digest %q, as has %s", what, d, other)
		}
		seen[d] = what
	}
	note("nothing")
	x.setAll(policy.NoExternal())
	note("no source")
	x.set(nil)
	note("no documents")
	x.set(map[string]policy.ExternalDocument{"owners": is(`{"a":1}`)})
	note("one")
	before := x.State().ExternalDigest("owners")
	x.set(map[string]policy.ExternalDocument{"owners": {JSON: []byte(`{"a":1}`), Problem: "too old"}})
	note("an old one")
	x.set(map[string]policy.ExternalDocument{"owners": {JSON: []byte(`{"a":1}`), From: "elsewhere"}})
	if got := x.State().ExternalDigest("owners"); got != before {
		t.Errorf("where a document comes from makes a difference")
	}
}

// TestPreview_ReadsExternalDocuments: a candidate reads the state's documents, or others, which make a difference by themselves.
func TestPreview_ReadsExternalDocuments(t *testing.T) {
	t.Parallel()
	x := newExternal(t, ownersText, nil, app("a", "a"))
	x.set(map[string]policy.ExternalDocument{"owners": is(`{"a":1}`)})
	bindings, _ := policy.DefaultBindings(x.State().Set(), nil)
	others, err := policy.NewExternal(map[string]map[string]policy.ExternalDocument{"cmdb": {"owners": is(`{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	for want, documents := range map[int]*policy.External{0: nil, 1: others} {
		changes, err := policy.Compare(t.Context(), x.State(), policy.EngineOptions{Set: x.State().Set(), Bindings: bindings, External: documents})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range changes.All() {
			n++
		}
		if n != want {
			t.Errorf("%d changes, want %d", n, want)
		}
	}
	s, err := policy.Evaluate(t.Context(), policy.EngineOptions{Set: x.State().Set(), Bindings: bindings, External: others}, x.State().Snapshot)
	if err != nil || s.Total("owners").Violations != 1 || s.ExternalDigest("owners") == x.State().ExternalDigest("owners") {
		t.Errorf("%v, %+v", err, s.Total("owners"))
	}
}

// TestQuery_ExternalDocuments: those of a source exist for who may read them.
func TestQuery_ExternalDocuments(t *testing.T) {
	t.Parallel()
	x := newExternal(t, ownersText, nil, app("a", "a"))
	all, err := policy.NewExternal(map[string]map[string]policy.ExternalDocument{
		"cmdb": {"owners": is(`{"a":{"b":[1,2]}}`), "old": {JSON: []byte(`1`), Problem: "too old"}, "none": {Problem: "never read"}}, "secret": {"owners": is(`2`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	may := grants{{Member: "cmdb", Kind: "external"}: true}
	for query, want := range map[string]int{
		`data.fleet.external[s][k]`:                         2,
		`data.fleet.external.cmdb.owners.a.b[1] == 2`:       1,
		`data.fleet.external.cmdb[k]`:                       2,
		`data.fleet.external.secret`:                        0,
		`data.fleet.external.secret.owners`:                 0,
		`not data.fleet.external.secret`:                    1,
		`count(data.fleet.external) == 1`:                   1,
		`data.fleet.external.cmdb.none`:                     0,
		`object.get(data.fleet.external, "secret", 7) == 7`: 1,
	} {
		a, err := policy.Query(t.Context(), policy.QueryOptions{Snapshot: x.State().Snapshot, Reader: may, External: all}, query)
		if err != nil || len(a.Rows) != want {
			t.Errorf("%s: %+v, %v, want %d rows", query, a, err, want)
		}
	}
	a, err := policy.Query(t.Context(), policy.QueryOptions{Snapshot: x.State().Snapshot, Reader: may, External: all}, `data.fleet.external.cmdb`)
	if err != nil || len(a.External) != 3 || a.External[0] != (policy.ReadDocument{Source: "cmdb", Key: "none", Problem: "never read"}) || a.External[1].Known || !a.External[2].Known || a.External[2].Digest == "" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := policy.Query(t.Context(), policy.QueryOptions{Snapshot: x.State().Snapshot, Reader: policy.Everything{}}, `count(data.fleet.external) == 0`); err != nil {
		t.Error(err)
	}
	if _, err := policy.NewExternal(map[string]map[string]policy.ExternalDocument{"cmdb": {"owners": is(`{`)}}); err == nil || !strings.Contains(err.Error(), "owners") {
		t.Errorf("error %v", err)
	}
}
