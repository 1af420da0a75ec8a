package policyquery_test

import (
	"errors"
	"fmt"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestShared_SaysWhatIsStillToBeRead: a process that has taken over a member without what it has knows no verdict on it, and the
// answers of all say so until it has read that: in lists, in watches and in counts of policies.
func TestShared_SaysWhatIsStillToBeRead(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings[1:])
	for _, p := range processes {
		p.put(p.judges[0], "web", 1, "")
	}
	settle(processes)
	s := processes[0].watch("", nil)
	for !s.mark.Synced {
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
	processes[1].index.RemoveMember("fleet/b")
	if err := processes[1].index.PutMember(aggregate.Member{Name: "fleet/b", UID: "fleet/b", Serves: []aggregate.Kind{"Deployment.apps"}}); err != nil {
		t.Fatal(err)
	}
	scope, err := processes[1].index.OpenScopeAs("fleet/b", "Deployment.apps", "apps/v1", "deployments")
	if err != nil {
		t.Fatal(err)
	}
	processes[1].awaitEvaluation()
	list, has := processes[0].list("")
	if list.Synced || fmt.Sprint(list.Absent) != "[fleet/b]" || len(has) != 1 {
		t.Errorf("before it is read: synced %t, absent %v, %v", list.Synced, list.Absent, has)
	}
	if groups, _ := processes[0].list("groupBy=policy"); groups.Synced || fmt.Sprint(groups.Absent) != "[fleet/b]" {
		t.Errorf("groups before it is read: synced %t, absent %v", groups.Synced, groups.Absent)
	}
	for s.mark.Synced {
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	processes[0].until(func() error {
		if list, _ := processes[0].list(""); !list.Synced || len(list.Absent) > 0 {
			return errors.New("it is read, and still said to be absent")
		}
		return nil
	})
	for !s.mark.Synced {
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
}
