package verdictmemory

import "testing"

// twins reads what other members have.
const twins = `# METADATA
# title: Twins
# custom: {severity: high, kinds: ["Deployment.apps"]}
package replicas

violation contains {"msg": "twin"} if {
	some member, _ in data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name]
	member != input.ref.member
}
`

// TestMemory_KeepsWhatIsInDoubt: a verdict that is Unknown, as of a process that was just started, does not say that a violation is gone.
func TestMemory_KeepsWhatIsInDoubt(t *testing.T) {
	dir := t.TempDir()
	clock, set := newClock()
	a, b := object{member: "fleet/a", name: "x"}, object{member: "fleet/b", name: "x"}
	p := start(t, dir, nil, clock, twins, nil, a, b)
	p.wants(a, "twin since 09:00")
	p.kill()
	for i := range 2 { // the second one finds what the first has written
		set(10+i, 0)
		p = start(t, dir, nil, clock, twins, []string{"fleet/b"}, a)
		p.wants(a, "")
		a.replicas++
		p.put(a) // it is evaluated, and Unknown still
		p.wants(a, "")
		if i == 0 {
			p.kill()
		}
	}
	p.read(p.scopes["fleet/b"], "fleet/b", []object{b})
	p.evaluated()
	p.wants(a, "twin since 09:00")

	set(12, 0) // what it reads is not there any more, for a while
	if _, err := p.scopes["fleet/b"].Replace(nil, syncing); err != nil {
		t.Fatal(err)
	}
	p.evaluated()
	p.wants(a, "")
	p.kill()
	p = start(t, dir, nil, clock, twins, []string{"fleet/b"}, a)
	p.read(p.scopes["fleet/b"], "fleet/b", []object{b})
	p.evaluated()
	p.wants(a, "twin since 09:00")
	p.kill()

	set(13, 0)
	p = start(t, dir, nil, clock, twins, []string{"fleet/b"}, a)
	p.read(p.scopes["fleet/b"], "fleet/b", nil) // Known: it is gone
	p.evaluated()
	p.put(b)
	p.wants(a, "twin since 13:00")
	p.kill()
	set(14, 0)
	p = start(t, dir, nil, clock, twins, nil, a, b)
	p.wants(a, "twin since 13:00")
}

// TestMemory_DoubtsEnd with what they are of, and once they are settled.
func TestMemory_DoubtsEnd(t *testing.T) {
	dir := t.TempDir()
	clock, set := newClock()
	a, b := object{member: "fleet/a", name: "x"}, object{member: "fleet/b", name: "x"}
	start(t, dir, nil, clock, twins, nil, a, b).kill()
	set(10, 0)
	p := start(t, dir, nil, clock, twins, []string{"fleet/b"}, a)
	doubts := func() int {
		p.memory.mu.Lock()
		defer p.memory.mu.Unlock()
		return len(p.memory.doubts["fleet/a"])
	}
	if got := doubts(); got != 1 {
		t.Fatalf("%d doubts", got)
	}
	p.scopes["fleet/a"].Delete("shop", "x")
	if _, err := p.scopes["fleet/a"].Commit(); err != nil {
		t.Fatal(err)
	}
	p.evaluated()
	if got := doubts(); got != 0 {
		t.Errorf("%d doubts of what is not there", got)
	}
	p.read(p.scopes["fleet/b"], "fleet/b", []object{b})
	p.put(a)
	p.wants(a, "twin since 10:00")
}

// TestMemory_LearnsFromOthers: a process that comes to judge a member goes on with when its violations were first seen, and what it
// has not evaluated on all that it reads it hands on.
func TestMemory_LearnsFromOthers(t *testing.T) {
	clock, set := newClock()
	a, b := object{member: "fleet/a", name: "x"}, object{member: "fleet/b", name: "x"}
	p := start(t, t.TempDir(), nil, clock, twins, nil, a, b)
	known := func() (out []Record) {
		for r := range p.memory.Known("fleet/a") {
			out = append(out, r)
		}
		return out
	}
	handed := known()
	if len(handed) != 1 {
		t.Fatal(handed)
	}
	for i := range 2 { // from one to the next, and on
		set(10+i, 0)
		p = start(t, t.TempDir(), nil, clock, twins, []string{""})
		p.memory.Learn(Source{Member: "fleet/a"}, handed)
		p.join([]string{"fleet/b"}, []object{a})
		p.evaluated()
		p.wants(a, "")
		if got := known(); len(got) != 1 || got[0] != handed[0] {
			t.Errorf("%v, not %v", got, handed)
		}
	}
	p.read(p.scopes["fleet/b"], "fleet/b", []object{b})
	p.evaluated()
	p.wants(a, "twin since 09:00")
	p.read(p.scopes["fleet/b"], "fleet/b", nil)
	p.evaluated()
	p.put(b)
	p.wants(a, "twin since 11:00")
}
