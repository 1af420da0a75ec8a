package intents_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// newFleet starts so many processes, each of which judges one member, m0 and so on. The first one leads.
func newFleet(t *testing.T, n int) *fleet {
	f := &fleet{t: t, rand: rand.New(rand.NewPCG(1, 1)), members: map[string]string{}, drift: map[string]map[string]int{}}
	for n := range n {
		id, m := fmt.Sprint("p", n), fmt.Sprint("m", n)
		f.processes = append(f.processes, &process{id: id})
		f.members[m], f.drift[m] = id, map[string]int{}
	}
	f.reveal()
	for _, p := range f.processes {
		f.start(p)
	}
	f.publish()
	f.processes[0].leads.Store(true)
	f.reveal()
	t.Cleanup(func() {
		for _, p := range f.processes {
			if p.alive {
				p.stop()
			}
		}
	})
	f.settle()
	return f
}

func (f *fleet) settle() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func (f *fleet) leader() *process { return f.processes[0] }

func (f *fleet) intentFor(target policy.Ref) (remediate.Intent, bool) {
	a := f.leader().actor
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.policies[thePolicy] == nil {
		return remediate.Intent{}, false
	}
	i, ok := a.policies[thePolicy].intents[target]
	return i, ok
}

// TestReceiver_AMemberThatMovesHasOneIntent: that of the process that is to judge it, whatever another one says.
func TestReceiver_AMemberThatMovesHasOneIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.drift["m1"]["o"] = 1
		f.say(f.processes[1])
		f.settle()
		if i, ok := f.intentFor(target("m1", "o")); !ok || i.ResourceVersion != "1" || f.leader().receiver.Incomplete(thePolicy) != "" {
			t.Fatalf("before: %v %v", i, ok)
		}
		f.members["m1"] = "p0"
		f.publish()
		f.settle()
		if i, ok := f.intentFor(target("m1", "o")); ok {
			t.Errorf("what is not to judge it says, and counts: %v", i)
		}
		if why := f.leader().receiver.Incomplete(thePolicy); !strings.Contains(why, "m1") {
			t.Errorf("while it moves: %q", why)
		}
		f.drift["m1"]["o"] = 2
		f.processes[0].judged["m1"] = true
		f.say(f.processes[0])
		f.settle()
		if i, ok := f.intentFor(target("m1", "o")); !ok || i.ResourceVersion != "2" {
			t.Errorf("of the new judge: %v %v", i, ok)
		}
		if why := f.leader().receiver.Incomplete(thePolicy); why == "" {
			t.Error("two judge it, and it is written")
		}
		f.processes[1].judged["m1"] = false
		f.say(f.processes[1])
		f.settle()
		if why := f.leader().receiver.Incomplete(thePolicy); why != "" {
			t.Errorf("it has moved: %q", why)
		}
	})
}

// TestReceiver_CombinesWhatSeveralSayOfOneTarget, as one process would: keys of views, and objects of other members, have targets anywhere.
func TestReceiver_CombinesWhatSeveralSayOfOneTarget(t *testing.T) {
	for _, test := range []struct {
		name          string
		first         []string // of a process that does not judge the target
		other         string
		patch, refuse string
	}{
		{"the same", []string{`{"spec":{"a":1}}`}, `{"spec":{"a":1}}`, `{"spec":{"a":1}}`, ""},
		{"another field", []string{`{"spec":{"a":1}}`}, `{"spec":{"b":1}}`, `{"spec":{"a":1,"b":1}}`, ""},
		{"a contradiction", []string{`{"spec":{"a":1}}`}, `{"spec":{"a":2}}`, "", "spec.a"},
		{"three", []string{`{"spec":{"a":1}}`, `{"spec":{"c":1}}`}, `{"spec":{"b":1}}`, `{"spec":{"a":1,"b":1,"c":1}}`, ""},
		{"a contradiction with what is left for later", []string{`[{"op":"add","path":"/spec/a","value":1}]`, `{"spec":{"b":1}}`}, `{"spec":{"b":2}}`, "", "spec.b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 2)
				at := target("m1", "o")
				say := func(p *process, patches ...string) {
					var parts []*remediate.Intent
					for n, patch := range patches {
						parts = append(parts, &remediate.Intent{
							Binding: thePolicy, Message: patch, Subject: policy.Subject{Key: fmt.Sprint(p.id, n)}, Remedy: policy.Remedy{Action: "patch", Target: at, Patch: []byte(patch)},
						})
					}
					i := enforce.Combine(parts)
					if i.Parts = parts; p.judged["m1"] {
						i.MemberUID, i.ResourceVersion = "uid-m1", "7"
					} else {
						i.Basis = "7"
					}
					if err := p.sender.SetIntents(thePolicy, f.spec(p), f.totals(p), []remediate.Intent{i}, true); err != nil {
						t.Fatal(err)
					}
				}
				say(f.processes[0], test.first...)
				say(f.processes[1], test.other)
				f.settle()
				if i, ok := f.intentFor(at); !ok || i.Unresolved == "" {
					t.Errorf("its judge knows it otherwise: %v %+v", ok, i)
				}
				f.drift["m1"]["o"] = 7
				f.reveal()
				f.settle()
				i, ok := f.intentFor(at)
				if !ok || i.Unresolved != "" || i.ResourceVersion != "7" || i.Basis != "" || i.Parts != nil {
					t.Errorf("its judge knows it: %v %+v", ok, i)
				}
				switch {
				case (i.Refused != "") != (test.refuse != ""):
					t.Errorf("refused %q", i.Refused)
				case test.refuse != "":
					if !strings.Contains(i.Refused, test.refuse) {
						t.Errorf("refused: %s", i.Refused)
					}
				case string(i.Remedy.Patch) != test.patch:
					t.Errorf("patch %s", i.Remedy.Patch)
				}
			})
		})
	}
}

// TestReceiver_TargetsOfOthersAreAskedAbout: what their judge says counts, as it says it now, and no other process's own word.
func TestReceiver_TargetsOfOthersAreAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		p := f.processes[0]
		say := func(basis string) {
			i := remediate.Intent{
				Binding: thePolicy, Subject: policy.Subject{Key: "key"}, UID: "of p0", ResourceVersion: "of p0", Basis: basis,
				Remedy: policy.Remedy{Action: "patch", Target: target("m1", "o"), Patch: []byte(`{}`)},
			}
			if err := p.sender.SetIntents(thePolicy, f.spec(p), f.totals(p), []remediate.Intent{i}, true); err != nil {
				t.Fatal(err)
			}
			f.settle()
		}
		expect := func(what, version, why string) {
			t.Helper()
			if i, ok := f.intentFor(target("m1", "o")); !ok || i.ResourceVersion != version && why == "" || !strings.Contains(i.Unresolved, why) || why == "" && i.Unresolved != "" {
				t.Errorf("%s: %v %+v", what, ok, i)
			}
		}
		say("")
		expect("it does not know that another one judges it", "", "does not know yet")
		say("1")
		expect("it is not there", "", "another one")
		f.drift["m1"]["o"] = 1
		f.reveal()
		f.settle()
		expect("it is there", "1", "")
		f.processes[1].judged["m1"] = false
		f.reveal()
		f.settle()
		expect("its judge lets go of it", "", "nobody says")
	})
}

// TestReceiver_WhatAJudgeSaysOfATargetIsOfOneVersion: its own remedy is not written to a later one, which it has not judged yet as far as is
// known, because another process's remedy rests on that.
func TestReceiver_WhatAJudgeSaysOfATargetIsOfOneVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		at := target("m1", "o")
		say := func(p *process, version string, patch string) {
			t.Helper()
			i := remediate.Intent{Binding: thePolicy, Subject: policy.Subject{Key: p.id}, Remedy: policy.Remedy{Action: "patch", Target: at, Patch: []byte(patch)}}
			if i.Basis = version; p.judged["m1"] {
				i.Basis, i.MemberUID, i.ResourceVersion = "", "uid-m1", version
			}
			if err := p.sender.SetIntents(thePolicy, f.spec(p), f.totals(p), []remediate.Intent{i}, true); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(what, version, why string) {
			t.Helper()
			f.settle()
			if i, ok := f.intentFor(at); !ok || i.ResourceVersion != version || why == "" && i.Unresolved != "" || !strings.Contains(i.Unresolved, why) {
				t.Errorf("%s: %v %+v", what, ok, i)
			}
		}
		is := func(version int) {
			f.drift["m1"]["o"] = version
			f.reveal()
		}
		is(1)
		say(f.processes[1], "1", `{"spec":{"a":1}}`)
		say(f.processes[0], "1", `{"spec":{"b":1}}`)
		expect("both know it", "1", "")
		is(2)
		say(f.processes[0], "2", `{"spec":{"b":1}}`)
		expect("its judge's remedy is of the version before", "", "another version")
		say(f.processes[1], "2", `{"spec":{"a":1}}`)
		expect("both know it again", "2", "")
	})
}

// TestReceiver_ResolvesTargetsOfTheMemberThatThereIs: what was said of another cluster of its name is not so any more.
func TestReceiver_ResolvesTargetsOfTheMemberThatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.drift["m1"]["o"] = 1
		f.reveal()
		p := f.processes[0]
		i := remediate.Intent{
			Binding: thePolicy, Subject: policy.Subject{Key: "key"}, Basis: "1", Remedy: policy.Remedy{Action: "patch", Target: target("m1", "o"), Patch: []byte(`{}`)},
		}
		if err := p.sender.SetIntents(thePolicy, f.spec(p), f.totals(p), []remediate.Intent{i}, true); err != nil {
			t.Fatal(err)
		}
		f.settle()
		if i, ok := f.intentFor(target("m1", "o")); !ok || i.Unresolved != "" || i.MemberUID != "uid-m1" {
			t.Fatalf("%v %+v", ok, i)
		}
		now := *f.now.Load()
		now.Members = maps.Clone(now.Members)
		now.Members["m1"] = intents.Member{UID: "another", Judge: "p1"}
		f.now.Store(&now)
		p.receiver.FleetChanged()
		synctest.Wait()
		if i, ok := f.intentFor(target("m1", "o")); !ok || !strings.Contains(i.Unresolved, "another one") || i.MemberUID != "another" {
			t.Errorf("its member is another one: %v %+v", ok, i)
		}
	})
}

// TestReceiver_ManyTargetsTakeTheirTurn: those that were not asked about yet count, and are not written.
func TestReceiver_ManyTargetsTakeTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const targets = 10_500
		f := newFleet(t, 2)
		p := f.processes[0]
		var list []remediate.Intent
		for n := range targets {
			at := target("m1", fmt.Sprint("o", n))
			f.drift["m1"][at.Name] = 1
			list = append(list, remediate.Intent{Binding: thePolicy, Subject: policy.Subject{Key: at.Name}, Basis: "1", Remedy: policy.Remedy{Action: "delete", Target: at}})
		}
		f.reveal()
		if err := p.sender.SetIntents(thePolicy, f.spec(p), f.totals(p), list, true); err != nil {
			t.Fatal(err)
		}
		count := func() (all, unresolved int) {
			synctest.Wait()
			p.actor.mu.Lock()
			defer p.actor.mu.Unlock()
			for _, i := range p.actor.policies[thePolicy].intents {
				all++
				if strings.Contains(i.Unresolved, "has not been asked") {
					unresolved++
				}
			}
			return all, unresolved
		}
		if all, unresolved := count(); all != targets || unresolved != targets-10_000 {
			t.Errorf("of %d are %d not asked about", all, unresolved)
		}
		f.settle()
		if all, unresolved := count(); all != targets || unresolved != 0 {
			t.Errorf("a moment later, of %d are %d not asked about", all, unresolved)
		}
	})
}

// TestReceiver_KeepsWhatALostProcessHasSaid_AndWritesNothing, and a new leader begins with nothing.
func TestReceiver_KeepsWhatALostProcessHasSaid_AndWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.drift["m1"]["o"] = 1
		f.say(f.processes[1])
		f.settle()
		f.processes[1].stop()
		synctest.Wait()
		if why := f.leader().receiver.Incomplete(thePolicy); why != "" {
			t.Errorf("a moment after: %q", why)
		}
		time.Sleep(5*time.Second + time.Millisecond)
		if why := f.leader().receiver.Incomplete(thePolicy); !strings.Contains(why, "p1") { // at once, not when the Receiver looks
			t.Errorf("silent: %q", why)
		}
		f.settle()
		if _, ok := f.intentFor(target("m1", "o")); !ok || f.leader().actor.policies[thePolicy].ready {
			t.Error("what was planned is not held")
		}
		f.processes[0].leads.Store(false)
		f.processes[2].leads.Store(true)
		f.settle()
		next := f.processes[2]
		if p := next.actor.policies[thePolicy]; p == nil || p.ready || len(p.intents) > 0 || next.receiver.Incomplete(thePolicy) == "" {
			t.Errorf("the new leader has %v", p)
		}
		if _, has := f.intentFor(target("m1", "o")); has {
			t.Error("who leads no more has intents")
		}
		f.start(f.processes[1])
		f.settle()
		f.settle()
		if p := next.actor.policies[thePolicy]; !p.ready || len(p.intents) != 1 {
			t.Errorf("the new leader, after all have spoken: %v, %s", p, next.receiver.Incomplete(thePolicy))
		}
	})
}
