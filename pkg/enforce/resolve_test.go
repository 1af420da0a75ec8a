package enforce_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// oneHost corrects all objects that have one host, and an object of another name in the other member.
const oneHost = `# METADATA
# title: One host, one member
# custom: {severity: high, kinds: ["Ingress.networking.k8s.io"], subject: view.hosts, remedies: [{action: patch, kind: Ingress.networking.k8s.io}]}
package hosts

view.hosts[input.object.spec.host] contains input.ref.name if input.object.spec.host

violation contains {"msg": e.ref.member, "remedy": {"action": "patch", "target": e.ref, "patch": {"spec": {"host": e.ref.member}}}} if {
	count(input.entries) > 1
	some e in input.entries
}

violation contains {"msg": "the default", "remedy": {"action": "patch", "target": target, "patch": {"spec": {"default": true}}}} if {
	count(input.entries) > 1
	target := {"member": "fleet/b", "kind": "Ingress.networking.k8s.io", "namespace": "shop", "name": "default"}
}

violation contains {"msg": "of the system", "remedy": {"action": "patch", "target": target, "patch": {"spec": {"default": true}}}} if {
	count(input.entries) > 1
	target := {"member": "fleet/b", "kind": "Ingress.networking.k8s.io", "namespace": "kube-system", "name": "default"}
}
`

// correcting is one of two processes that share a fleet, with its corrector.
type correcting struct {
	*sharing
	actor     *fakeActor
	corrector *enforce.Corrector
}

// newCorrecting judges all keys if it is fleet/a.
func newCorrecting(t *testing.T, member, other string, spec enforce.EnforcementSpec) *correcting {
	t.Helper()
	p := &correcting{sharing: newSharing(t, member, other), actor: &fakeActor{policies: map[string]actorState{}}}
	p.corrector = enforce.NewCorrector(p.actor, nil)
	if err := p.corrector.SetSpecs(map[string]enforce.EnforcementSpec{"hosts": spec}); err != nil {
		t.Fatal(err)
	}
	p.loop = startLoop(t, enforce.Options{
		Index: p.index, Peers: p.peers, Exports: true, Set: loadText(t, oneHost), Bindings: []policy.Binding{{Name: "hosts", Package: "hosts"}},
		KeyOwner: policy.KeyOwner{Self: member, Now: []string{"fleet/a"}}, Changed: p.corrector.Changed,
	})
	return p
}

// put puts an Ingress into the member that a process judges; no body deletes it.
func (p *correcting) put(t *testing.T, member, name, uid, version, body string) {
	t.Helper()
	scope, err := p.index.OpenScope(member, "Ingress.networking.k8s.io", "networking.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	defer scope.Close()
	scope.SetStatus(aggregate.Status{State: aggregate.Synced})
	if body == "" {
		scope.Delete("shop", name)
	} else {
		scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: name, UID: uid, ResourceVersion: version, Body: []byte(body)}))
	}
	if _, err := scope.Commit(); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// intentFor returns the intent for an object of member fleet/b.
func (p *correcting) intentFor(name string) *remediate.Intent {
	synctest.Wait()
	p.actor.mu.Lock()
	defer p.actor.mu.Unlock()
	for _, i := range p.actor.policies["hosts"].intents {
		if i.Remedy.Target.Member == "fleet/b" && i.Remedy.Target.Namespace == "shop" && i.Remedy.Target.Name == name {
			return &i
		}
	}
	return nil
}

// startBoth starts a, which judges all keys, and b, and has each told what the other one exports.
func startBoth(t *testing.T, spec enforce.EnforcementSpec) (a, b *correcting) {
	t.Helper()
	a, b = newCorrecting(t, "fleet/a", "fleet/b", spec), newCorrecting(t, "fleet/b", "fleet/a", spec)
	synctest.Wait()
	a.tell(t, b.loop.State().Export())
	b.tell(t, a.loop.State().Export())
	synctest.Wait()
	return a, b
}

// TestCorrector_ResolvesTargetsOfOthers: the process that judges a target says what it is, as long as the other one, which has the remedy,
// knows it as it is.
func TestCorrector_ResolvesTargetsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := startBoth(t, enforce.EnforcementSpec{Mode: policy.Enforce})
		wants := true
		resolve := func(of *correcting, name string) string {
			t.Helper()
			i := a.intentFor(name)
			if i == nil {
				return "none"
			}
			if i.UID+i.ResourceVersion+i.MemberUID != "" || i.Basis == "" {
				t.Fatalf("it knows of a target of another process: %+v", i)
			}
			is := of.corrector.Resolve([]enforce.Claim{{Policy: "hosts", Target: i.Remedy.Target, Verb: "patch", Bases: []enforce.KnownBy{{Process: "a", Basis: i.Basis}}}},
				func(process string, _ *interest.Keys) bool { return process == "a" && wants })
			if is[0].Why != "" {
				return "unresolved"
			}
			return fmt.Sprintf("%s %s@%s of %s", is[0].APIVersion, is[0].UID, is[0].ResourceVersion, is[0].MemberUID)
		}
		expect := func(what, name, want string) {
			t.Helper()
			if got := resolve(b, name); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		const web = `{"spec":{"host":"a.example"}}`
		told := func() { a.tell(t, b.loop.State().Export()); synctest.Wait() }
		expect("as it is", "web", "networking.k8s.io/v1 fleet/b@1 of fleet/b")
		expect("that is not there", "default", " @ of fleet/b")
		if got := resolve(a, "web"); got != "unresolved" {
			t.Errorf("a process that does not judge it says %s", got)
		}
		b.put(t, "fleet/b", "web", "fleet/b", "2", `{"spec":{"host":"a.example"},"status":{"beat":1}}`)
		expect("another version, of which nobody reads what differs", "web", "networking.k8s.io/v1 fleet/b@2 of fleet/b")
		b.put(t, "fleet/b", "web", "new", "3", web)
		expect("another object, that is not told", "web", "unresolved")
		told()
		expect("that is told", "web", "networking.k8s.io/v1 new@3 of fleet/b")
		b.put(t, "fleet/b", "web", "new", "4", `{"spec":{"host":"b.example"}}`)
		expect("other content", "web", "unresolved")
		b.put(t, "fleet/b", "web", "new", "5", web)
		expect("the content that was", "web", "networking.k8s.io/v1 new@5 of fleet/b")
		b.put(t, "fleet/b", "web", "", "", "")
		expect("that is gone", "web", "unresolved")
		told()
		expect("and told to be", "web", "none")
		b.put(t, "fleet/b", "web", "newer", "6", web)
		told()
		b.put(t, "fleet/b", "default", "default", "7", `{"spec":{}}`)
		expect("that contributes nothing", "default", "networking.k8s.io/v1 default@7 of fleet/b")
		b.put(t, "fleet/b", "default", "default", "8", `{"spec":{"host":"c.example"}}`)
		expect("of which it will be told", "default", "unresolved")
		wants = false
		expect("of which it asks for nothing", "default", "networking.k8s.io/v1 default@8 of fleet/b")
		wants = true
		told()
		expect("and is told", "default", "networking.k8s.io/v1 default@8 of fleet/b")
		if n := a.corrector.Status("hosts").Protected["fleet/b"]; n != 1 {
			t.Errorf("%d corrections of protected targets, want 1", n)
		}
	})
}

// TestCorrector_ResolvesNothingForAnotherClusterOfAName: what is not there in either is not the same.
func TestCorrector_ResolvesNothingForAnotherClusterOfAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := startBoth(t, enforce.EnforcementSpec{Mode: policy.Enforce})
		resolve := func() enforce.Resolution {
			t.Helper()
			i := a.intentFor("default")
			if i == nil {
				t.Fatal("it has no remedy for what is not there")
			}
			claim := enforce.Claim{Policy: "hosts", Target: i.Remedy.Target, Verb: "patch", Bases: []enforce.KnownBy{{Process: "a", Basis: i.Basis}}}
			return b.corrector.Resolve([]enforce.Claim{claim}, func(string, *interest.Keys) bool { return true })[0]
		}
		if is := resolve(); is.Why != "" || is.MemberUID != "fleet/b" {
			t.Errorf("both know the cluster: %+v", is)
		}
		put := func(of *aggregate.Index) {
			t.Helper()
			of.RemoveMember("fleet/b")
			if err := of.PutMember(aggregate.Member{Name: "fleet/b", UID: "another"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		put(b.index)
		b.put(t, "fleet/b", "web", "another", "1", `{"spec":{"host":"a.example"}}`)
		if is := resolve(); is.Why == "" {
			t.Errorf("what is known of the cluster before counts for the one that has its name now: %+v", is)
		}
		put(a.peers)
		a.tell(t, b.loop.State().Export())
		if is := resolve(); is.Why != "" || is.MemberUID != "another" {
			t.Errorf("both know the other cluster: %+v", is)
		}
	})
}

// TestCorrector_KeepsToCeilingOfTargetsMember: the labels of the target's member count, as those who judge it know them.
func TestCorrector_KeepsToCeilingOfTargetsMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(member string) enforce.EnforcementSpec {
			return enforce.EnforcementSpec{Mode: policy.Enforce, Source: "git", Ceiling: &enforce.Ceiling{
				Mode: policy.Enforce, Actions: everything, Members: policy.MemberSelector{Names: []string{member}},
			}}
		}
		a, b := startBoth(t, of("fleet/b"))
		i := a.intentFor("web")
		if i == nil || a.corrector.Status("hosts").OverCeiling != 1 {
			t.Fatalf("the intent is %+v, status %+v", i, a.corrector.Status("hosts"))
		}
		claim := []enforce.Claim{{Policy: "hosts", Target: i.Remedy.Target, Verb: "patch", Bases: []enforce.KnownBy{{Process: "a", Basis: i.Basis}}}}
		wants := func(string, *interest.Keys) bool { return true }
		if is := b.corrector.Resolve(claim, wants)[0]; is.Why != "" || is.Beyond != "" || is.UID != "fleet/b" {
			t.Errorf("within the ceiling: %+v", is)
		}
		if err := b.corrector.SetSpecs(map[string]enforce.EnforcementSpec{"hosts": of("fleet/a")}); err != nil {
			t.Fatal(err)
		}
		if is := b.corrector.Resolve(claim, wants)[0]; !strings.Contains(is.Beyond, "may not write to fleet/b") || is.UID != "" {
			t.Errorf("beyond the ceiling of its judge: %+v", is)
		}
		if err := b.corrector.SetSpecs(nil); err != nil {
			t.Fatal(err)
		}
		if is := b.corrector.Resolve(claim, wants)[0]; !strings.Contains(is.Why, "policy") {
			t.Errorf("of a policy that is not known: %+v", is)
		}
	})
}

// TestCorrector_KnowsTargetsThatItReads, as another process does that judges them; and from when it judges them itself it asks nobody.
func TestCorrector_KnowsTargetsThatItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := startBoth(t, enforce.EnforcementSpec{Mode: policy.Enforce})
		told := a.intentFor("web").Basis
		role := func(r aggregate.Role) {
			t.Helper()
			if err := a.index.PutMember(aggregate.Member{Name: "fleet/b", UID: "fleet/b", Role: r}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		role(aggregate.Joining)
		a.put(t, "fleet/b", "web", "fleet/b", "9", `{"spec":{"host":"a.example"},"status":{"beat":7}}`)
		if i := a.intentFor("web"); i == nil || i.Basis != told {
			t.Errorf("while it begins to read it: %+v", i)
		}
		role(aggregate.Standby)
		if i := a.intentFor("web"); i == nil || i.Basis != told || i.UID != "" {
			t.Errorf("while it reads it for when the other one is lost: %+v, want basis %s", i, told)
		}
		a.put(t, "fleet/b", "web", "new", "10", `{"spec":{"host":"a.example"}}`)
		if i := a.intentFor("web"); i == nil || i.Basis == told {
			t.Errorf("another object: %+v", i)
		}
		role(aggregate.Judge)
		if i := a.intentFor("web"); i == nil || i.Basis != "" || i.UID != "new" || i.ResourceVersion != "10" || i.MemberUID != "fleet/b" {
			t.Errorf("from when it judges it: %+v", i)
		}
		if i := b.intentFor("web"); i != nil {
			t.Errorf("of a process that has no keys: %+v", i)
		}
	})
}

// TestCorrector_ManySubjectsOfOneTargetAreFewParts: other processes need what is written, and of whose subjects, not each of them.
func TestCorrector_ManySubjectsOfOneTargetAreFewParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := startBoth(t, enforce.EnforcementSpec{Mode: policy.Enforce})
		scope, err := a.index.OpenScope("fleet/a", "Ingress.networking.k8s.io", "networking.k8s.io/v1")
		if err != nil {
			t.Fatal(err)
		}
		for n := range 200 { // keys, each of which requires the same of the default
			for _, name := range []string{"x", "y"} {
				scope.Upsert(scope.Item(&aggregate.Record{
					Namespace: "shop", Name: fmt.Sprint(name, n), UID: fmt.Sprint(name, n), ResourceVersion: "1", Body: fmt.Appendf(nil, `{"spec":{"host":"h%d.example"}}`, n),
				}))
			}
		}
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
		scope.Close()
		i := a.intentFor("default")
		if i == nil || len(i.Parts) > 1 {
			t.Fatalf("one remedy of 201 keys has %d parts", len(i.Parts))
		}
	})
}
