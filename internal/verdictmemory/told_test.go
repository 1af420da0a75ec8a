package verdictmemory

import (
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

func (p *process) known(member string) []Record {
	if list := p.memory.Known(member); list != nil {
		return slices.Collect(list)
	}
	return nil
}

// TestMemory_SaysNothingBeforeItKnows: what a process that was just started says of a member that it has not read would take the place
// of what its standby knows.
func TestMemory_SaysNothingBeforeItKnows(t *testing.T) {
	clock, _ := newClock()
	a, b := object{member: "fleet/a", name: "x"}, object{member: "fleet/b", name: "x"}
	p := start(t, t.TempDir(), nil, clock, twins, []string{"fleet/a"}, a, b)
	if p.memory.Known("fleet/a") != nil || p.memory.Known("fleet/c") != nil {
		t.Error("it knows of a member that it has not read, or has not")
	}
	if p.memory.Known("fleet/b") == nil || p.memory.Known("") == nil {
		t.Error("it does not know of a member that it has read, or of keys of views")
	}
	p.read(p.scopes["fleet/a"], "fleet/a", []object{a})
	p.evaluated()
	if got := p.known("fleet/a"); len(got) != 1 {
		t.Errorf("it has read it: %v", got)
	}
}

// TestMemory_ForgetsWhatOthersToldOnceItIsEvaluated: an object that comes under the name of one that was gone has new violations.
func TestMemory_ForgetsWhatOthersToldOnceItIsEvaluated(t *testing.T) {
	clock, set := newClock()
	a, b, c := object{member: "fleet/a", name: "x"}, object{member: "fleet/b", name: "x"}, object{member: "fleet/a", name: "y"}
	handed := start(t, t.TempDir(), nil, clock, twins, nil, a, b).known("fleet/a")
	set(10, 0)
	p := start(t, t.TempDir(), nil, clock, twins, []string{""})
	p.memory.Learn(Source{Member: "fleet/a"}, handed)
	p.join([]string{"fleet/a"}, []object{b})
	p.evaluated()
	set(10, 30) // it takes its time
	p.read(p.scopes["fleet/a"], "fleet/a", []object{c})
	p.evaluated()
	p.put(a)
	p.wants(a, "twin since 10:30")
}

// TestMemory_ForgetsWhatOthersToldOfAnotherMember of the name.
func TestMemory_ForgetsWhatOthersToldOfAnotherMember(t *testing.T) {
	clock, set := newClock()
	a, b := object{member: "fleet/a", name: "x"}, object{member: "fleet/b", name: "x"}
	handed := start(t, t.TempDir(), nil, clock, twins, nil, a, b).known("fleet/a")
	for uid, want := range map[string]string{"u": "twin since 09:00", "v": "twin since 10:00", "": "twin since 09:00"} {
		set(10, 0)
		p := start(t, t.TempDir(), nil, clock, twins, []string{""})
		p.memory.Learn(Source{Member: "fleet/a", UID: "u"}, handed)
		p.memory.Joins("fleet/a", uid)
		p.join(nil, []object{a, b})
		p.evaluated()
		p.wants(a, want)
	}
}

// allowed is twins with an exception, which is another kind that was not read before.
const allowed = `# METADATA
# title: Twins
# custom: {severity: high, kinds: ["Deployment.apps"]}
package replicas

violation contains {"msg": "twin"} if {
	some member, _ in data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name]
	member != input.ref.member
	count(data.fleet.by_name["ConfigMap"][input.ref.namespace][input.ref.name]) > 0
}
`

// TestMemory_KeepsWhatAnotherVersionDoubts: a policy that changes, and reads what is still to be read, does not say that what it had
// found is gone.
func TestMemory_KeepsWhatAnotherVersionDoubts(t *testing.T) {
	clock, set := newClock()
	a, b := object{member: "fleet/a", name: "x"}, object{member: "fleet/b", name: "x"}
	p := start(t, t.TempDir(), nil, clock, twins, nil, a, b)
	p.wants(a, "twin since 09:00")
	var exceptions []*aggregate.Scope
	for _, member := range []string{"fleet/a", "fleet/b"} {
		scope, err := p.index.OpenScope(member, "ConfigMap", "v1")
		if err != nil {
			t.Fatal(err)
		}
		exceptions = append(exceptions, scope)
	}
	set(10, 0)
	next := load(t, allowed)
	bindings, _ := policy.DefaultBindings(next, nil)
	if err := p.loop.Configure(t.Context(), next, bindings); err != nil {
		t.Fatal(err)
	}
	p.wants(a, "")
	for _, scope := range exceptions {
		item := scope.Item(&aggregate.Record{Namespace: "shop", Name: "x", UID: "u", ResourceVersion: "1", Body: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"shop"}}`)})
		if _, err := scope.Replace([]aggregate.Item{item}, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
	}
	p.evaluated()
	p.wants(a, "twin since 09:00")
}
