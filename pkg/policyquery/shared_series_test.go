package policyquery_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// sampleAll samples at a step in all processes.
func sampleAll(processes []*sharer, step int64) {
	for _, p := range processes {
		p.sampleAt(step)
	}
}

// TestSharedSeries_AreThoseOfAllProcesses: sums of what each has counted, also of keys that both have some of, and none of it
// while one is away.
func TestSharedSeries_AreThoseOfAllProcesses(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings)
	for _, p := range processes {
		for _, member := range p.judges {
			for n := range 8 {
				p.put(member, fmt.Sprint("web-", n), 1, "")
			}
		}
	}
	tell(t, processes)
	processes[0].until(func() error {
		if found, _ := processes[0].list("policy=names&state=Known"); len(found.Items) != 8 {
			return fmt.Errorf("%d keys are judged", len(found.Items))
		}
		return nil
	})
	for step := range int64(4) {
		sampleAll(processes, 1000+step)
	}
	for _, p := range processes {
		list, got := p.seriesOf("metric=violations")
		if want := "[8 8 8 8]"; got["replicas fleet/a violations"] != want || got["replicas fleet/b violations"] != want || got["names violations"] != want {
			t.Errorf("%s: %v", p.id, got)
		}
		if fmt.Sprint(list.Known[8:]) != "[true true true true]" || list.Partial || len(list.Absent) > 0 {
			t.Errorf("%s: %+v", p.id, list)
		}
		_, got = p.seriesOf("metric=violations&groupBy=member&member=fleet/b")
		if len(got) != 1 || got["fleet/b violations"] != "[8 8 8 8]" {
			t.Errorf("%s, by member: %v", p.id, got)
		}
		p.fails("/query/v1/series?hours=99", 400)
	}
	processes[1].listener.Listener.Close()
	processes[1].listener.CloseClientConnections()
	list, got := processes[0].seriesOf("metric=violations")
	if got["replicas fleet/a violations"] != "[8 8 8 8]" || got["replicas fleet/b violations"] != "" || got["names violations"] != "[<nil> <nil> <nil> <nil>]" {
		t.Errorf("without a process: %v", got)
	}
	if fmt.Sprint(list.Absent) != "[fleet/b]" || fmt.Sprint(list.Known[8:]) != "[false false false false]" {
		t.Errorf("without a process: %+v", list)
	}
	if list, _ = processes[0].seriesOf("metric=violations&member=fleet/a"); len(list.Absent) > 0 || fmt.Sprint(list.Known[8:]) != "[true true true true]" {
		t.Errorf("of a member that is there: %+v", list)
	}
}

// TestSharedSeries_OfAMemberThatMovedAreNotKnownBefore: the process that judges it now has not counted it, which is not 0.
func TestSharedSeries_OfAMemberThatMovedAreNotKnownBefore(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings[1:])
	processes[0].put("fleet/a", "web", 1, "")
	processes[0].put("fleet/c", "web", 1, "")
	processes[1].put("fleet/b", "web", 1, "")
	tell(t, processes)
	sampleAll(processes, 1000)
	sampleAll(processes, 1001)
	processes[1].join("fleet/c")
	processes[1].put("fleet/c", "web", 1, "")
	if err := processes[0].index.PutMember(aggregate.Member{Name: "fleet/c", UID: "fleet/c", Role: aggregate.Standby}); err != nil {
		t.Fatal(err)
	}
	sampleAll(processes, 1002)
	sampleAll(processes, 1003)
	list, got := processes[0].seriesOf("metric=violations")
	if got["replicas fleet/c violations"] != "[<nil> <nil> 1 1]" || got["replicas fleet/a violations"] != "[1 1 1 1]" || got["replicas fleet/b violations"] != "[1 1 1 1]" {
		t.Errorf("%v", got)
	}
	if fmt.Sprint(list.Known[8:]) != "[false false true true]" {
		t.Errorf("known: %v", list.Known)
	}
}

// TestSharedSeries_OfAMemberThatIsStillToBeReadAreNotKnown: the process that has taken it over has no verdicts yet, which is not 0.
func TestSharedSeries_OfAMemberThatIsStillToBeReadAreNotKnown(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings[1:])
	processes[0].put("fleet/a", "web", 1, "")
	processes[0].put("fleet/c", "web", 1, "")
	processes[1].put("fleet/b", "web", 1, "")
	tell(t, processes)
	sampleAll(processes, 1000)
	sampleAll(processes, 1001)
	if err := processes[1].index.PutMember(aggregate.Member{Name: "fleet/c", UID: "fleet/c", Serves: []aggregate.Kind{"Deployment.apps"}}); err != nil {
		t.Fatal(err)
	}
	var err error
	if processes[1].scopes["fleet/c"], err = processes[1].index.OpenScopeAs("fleet/c", "Deployment.apps", "apps/v1", "deployments"); err != nil {
		t.Fatal(err)
	}
	processes[1].awaitEvaluation()
	if err := processes[0].index.PutMember(aggregate.Member{Name: "fleet/c", UID: "fleet/c", Role: aggregate.Standby}); err != nil {
		t.Fatal(err)
	}
	processes[0].awaitEvaluation()
	if list, got := processes[0].seriesOf("metric=violations"); fmt.Sprint(list.Known[8:]) != "[false false false false]" {
		t.Errorf("before a sample: %v, known: %v", got, list.Known)
	}
	sampleAll(processes, 1002)
	if list, got := processes[0].seriesOf("metric=violations"); fmt.Sprint(list.Known[8:]) != "[false false false false]" {
		t.Errorf("before it is read: %v, known: %v", got, list.Known)
	}
	processes[1].join("fleet/c")
	processes[1].put("fleet/c", "web", 1, "")
	sampleAll(processes, 1003)
	list, got := processes[0].seriesOf("metric=violations")
	if got["replicas fleet/c violations"] != "[<nil> <nil> <nil> 1]" || got["replicas fleet/a violations"] != "[1 1 1 1]" || got["replicas fleet/b violations"] != "[1 1 1 1]" {
		t.Errorf("%v", got)
	}
	if fmt.Sprint(list.Known[8:]) != "[false false false true]" {
		t.Errorf("known: %v", list.Known)
	}
}
