package coordinator_test

import (
	"testing"
	"time"

	"federator.dev/federator/pkg/shards/internal/coordinator"
	"federator.dev/federator/pkg/shards/internal/shardmap"
)

// TestStep_StandbyTakesOver at once: from a judge that is gone, and from one that has started again and has to read first.
func TestStep_StandbyTakesOver(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	process := func(id string, epoch uint64) shardmap.Process {
		return shardmap.Process{ID: id, Epoch: epoch, Address: "127.0.0.1:1"}
	}
	report := func(epoch uint64, ready bool) *coordinator.Report {
		return &coordinator.Report{At: now, Epoch: epoch, Version: 5, Seen: 5, Holds: map[string]coordinator.Hold{"fleet/m": {UID: "u", Ready: ready}}}
	}
	was := &shardmap.Map{
		Version: 5, Processes: []shardmap.Process{process("a", 1), process("b", 1), process("c", 1)},
		Members: []shardmap.Member{{Name: "fleet/m", UID: "u", Judge: "a", Standby: "b"}},
		Keys:    shardmap.Keys{Now: []string{"a", "b", "c"}, Since: 1},
	}
	for name, of := range map[string]struct {
		live    []shardmap.Process
		reports map[string]*coordinator.Report
		want    shardmap.Member
	}{
		"gone": {
			[]shardmap.Process{process("b", 1), process("c", 1)},
			map[string]*coordinator.Report{"b": report(1, true)},
			shardmap.Member{Name: "fleet/m", UID: "u", Judge: "b", Standby: "c"},
		},
		"gone, and the standby has not read all": {
			[]shardmap.Process{process("b", 1), process("c", 1)},
			map[string]*coordinator.Report{"b": report(1, false)},
			shardmap.Member{Name: "fleet/m", UID: "u", Judge: "b", Standby: "c", Unready: true},
		},
		"started again": {
			[]shardmap.Process{process("a", 2), process("b", 1), process("c", 1)},
			map[string]*coordinator.Report{"a": report(1, true), "b": report(1, true)},
			shardmap.Member{Name: "fleet/m", UID: "u", Judge: "b", Standby: "a"},
		},
		"started again, and nobody has read all": {
			[]shardmap.Process{process("a", 2), process("b", 1), process("c", 1)},
			map[string]*coordinator.Report{"a": report(2, false), "b": report(1, false)},
			shardmap.Member{Name: "fleet/m", UID: "u", Judge: "a", Standby: "b", Unready: true},
		},
		"started again, and goes on where it was": {
			[]shardmap.Process{process("a", 2), process("b", 1), process("c", 1)},
			map[string]*coordinator.Report{"a": report(2, true), "b": report(1, true)},
			shardmap.Member{Name: "fleet/m", UID: "u", Judge: "a", Standby: "b"},
		},
	} {
		l := &coordinator.Leader{Replication: 2}
		d := l.Step(coordinator.Known{
			Now: now, Map: was, Hub: 5, Live: of.live, Reports: of.reports, Complete: true, Fleet: []coordinator.Described{{Name: "fleet/m", UID: "u"}},
		})
		if d.Map == nil || len(d.Map.Members) != 1 || d.Map.Members[0] != of.want || !d.Urgent || d.Map.Version != 6 {
			t.Errorf("%s: %+v", name, d.Map)
		}
	}
}

// TestStep_NothingIsGivenToWhoIsSilent: a process that is gone seems to live as long as its Lease does, and what it has said last,
// that it has read a member, seems to be so.
func TestStep_NothingIsGivenToWhoIsSilent(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	process := func(id string) shardmap.Process {
		return shardmap.Process{ID: id, Epoch: 1, Address: "127.0.0.1:1"}
	}
	live := []shardmap.Process{process("a"), process("b"), process("c")}
	describe := []coordinator.Described{{Name: "fleet/m", UID: "u"}, {Name: "fleet/n", UID: "v"}}
	step := func(of *coordinator.Report, was ...shardmap.Member) *shardmap.Map {
		m := &shardmap.Map{Version: 5, Processes: live, Members: was, Keys: shardmap.Keys{Now: []string{"a", "b", "c"}, Since: 1}}
		well := &coordinator.Report{At: now, Epoch: 1, Version: 5, Seen: 5, Holds: map[string]coordinator.Hold{"fleet/m": {UID: "u", Ready: true}, "fleet/n": {UID: "v", Ready: true}}}
		d := (&coordinator.Leader{Replication: 1}).Step(coordinator.Known{
			Now: now, Map: m, Hub: 5, Live: live, Complete: true, Fleet: describe,
			Reports: map[string]*coordinator.Report{"a": well, "b": of, "c": well},
		})
		if d.Map == nil {
			return m
		}
		return d.Map
	}
	moving := []shardmap.Member{{Name: "fleet/m", UID: "u", Judge: "a", Next: "b"}, {Name: "fleet/n", UID: "v", Judge: "c"}}
	for name, of := range map[string]struct {
		silent bool
		ago    time.Duration
		want   string
	}{"answers": {false, 0, "b"}, "did not answer": {true, 3 * time.Second, "a"}, "was not asked for a while": {false, 14 * time.Second, "a"}} {
		b := &coordinator.Report{At: now.Add(-of.ago), Epoch: 1, Version: 5, Seen: 5, Silent: of.silent, Holds: map[string]coordinator.Hold{"fleet/m": {UID: "u", Ready: true}}}
		if m, _ := step(b, moving...).Member("fleet/m"); m.Judge != of.want {
			t.Errorf("the next one %s: %+v", name, m)
		}
	}
	for range 20 { // new members go to the others, whatever hashes say
		describe = append(describe, coordinator.Described{Name: "fleet/x" + string(rune('a'+len(describe))), UID: "w"})
	}
	for _, m := range step(&coordinator.Report{At: now, Epoch: 1, Version: 5, Seen: 5, Silent: true}, moving...).Members {
		if m.Judge == "b" || m.Judge == "" {
			t.Errorf("a new member goes to who did not answer: %+v", m)
		}
	}
}
