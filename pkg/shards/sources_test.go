package shards_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/shards"
)

// decides writes maps, in the place of a leader.
type decides struct {
	*world

	version int64
}

func (d *decides) write(members ...shards.Member) {
	d.t.Helper()
	d.version++
	m := &shards.Map{Version: d.version, Processes: []shards.Process{{ID: "a", Address: "127.0.0.1:1"}, {ID: "b", Address: "127.0.0.1:1"}}}
	m.Keys.Now = []string{"a", "b"}
	m.Members = slices.SortedFunc(slices.Values(members), func(a, b shards.Member) int { return strings.Compare(a.Name, b.Name) })
	data, err := m.Encode()
	must(d.t, err)
	configMaps := d.client.CoreV1().ConfigMaps(d.namespace)
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: shards.DefaultConfigMap}, BinaryData: map[string][]byte{"map.json.gz": data}}
	if _, err = configMaps.Update(d.t.Context(), c, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		_, err = configMaps.Create(d.t.Context(), c, metav1.CreateOptions{})
	}
	must(d.t, err)
}

func member(name, uid, judge, standby, next string) shards.Member {
	return shards.Member{Name: "fleet/" + name, UID: uid, Judge: judge, Standby: standby, Next: next}
}

// has waits until the index has these members with these roles, and no others.
func (p *process) has(want map[string]aggregate.Role) {
	p.w.t.Helper()
	until(p.w.t, func() error {
		if got := p.roles(); !maps.Equal(got, want) {
			return fmt.Errorf("%s has %v, want %v", p.id, got, want)
		}
		return nil
	})
}

type roles = map[string]aggregate.Role

const (
	m0, m1, m2 = "fleet/member-0", "fleet/member-1", "fleet/member-2"
)

// TestSources_PassOnWhatThisProcessHolds, with its roles, and let go of what another one has, when that has it.
func TestSources_PassOnWhatThisProcessHolds(t *testing.T) {
	t.Parallel()
	d := &decides{world: newWorld(t, "passes", 3)}
	var letGo atomic.Bool
	source := newFixed(d.specs()...)
	p := d.start("a", 1, func(o *shards.Options) { o.LetGo = func(string) bool { return letGo.Load() } }, source)
	if ready, waiting := p.manager.Ready(); ready || !slices.Equal(waiting, []string{"member sources"}) || p.manager.Known() {
		t.Errorf("without a map it is ready (%t), waiting for %v", ready, waiting)
	}
	d.write(member("member-0", "uid-member-0", "a", "", ""), member("member-1", "uid-member-1", "b", "a", ""), member("member-2", "uid-member-2", "b", "", "a"))
	p.has(roles{m0: aggregate.Judge, m1: aggregate.Standby, m2: aggregate.Joining})
	until(t, func() error {
		if !p.ready(m0) || !p.ready(m1) || !p.ready(m2) {
			return errors.New("not all are read")
		}
		return nil
	})
	lists := d.fleet.Members()[2].Requests().Verb("list")
	d.write(member("member-0", "uid-member-0", "a", "", ""), member("member-1", "uid-member-1", "a", "", ""), member("member-2", "uid-member-2", "a", "", ""))
	p.has(roles{m0: aggregate.Judge, m1: aggregate.Judge, m2: aggregate.Judge})
	if got := d.fleet.Members()[2].Requests().Verb("list"); got != lists {
		t.Errorf("another role has cost %d lists", got-lists)
	}

	// One is with another process now; its new judge has not read it, then it has, and then what this process knows otherwise is as good.
	moved := member("member-1", "uid-member-1", "b", "", "")
	moved.Unready = true
	d.write(member("member-0", "uid-member-0", "a", "", ""), moved, member("member-2", "uid-member-2", "a", "", ""))
	p.has(roles{m0: aggregate.Judge, m1: aggregate.Standby, m2: aggregate.Judge})
	moved.Unready = false
	d.write(member("member-0", "uid-member-0", "a", "", ""), moved, member("member-2", "uid-member-2", "a", "", ""))
	until(t, func() error {
		if m, _ := p.Map(); m.Version != d.version {
			return errors.New("the map is not there")
		}
		return nil
	})
	p.has(roles{m0: aggregate.Judge, m1: aggregate.Standby, m2: aggregate.Judge})
	letGo.Store(true)
	p.has(roles{m0: aggregate.Judge, m2: aggregate.Judge})
	letGo.Store(false)

	// What is gone leaves at once, by whom it may be judged; another one of its name is nobody's yet.
	specs := d.specs()
	specs[2].UID = "uid-of-another"
	source.set(clusterinformers.View{Members: specs[1:]})
	p.has(roles{})
	d.write(member("member-1", "uid-member-1", "b", "", ""), member("member-2", "uid-of-another", "a", "", ""))
	p.has(roles{m2: aggregate.Judge})
	until(t, func() error {
		if f := p.fleet.Load(); len(f.Members) != 2 || f.Members[0].Judge != "b" || f.Members[0].Held || !f.Members[1].Held || !f.Known {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
}

// TestSources_OfAPart: a source that knows a part of its members says of none that it has gone, and what another process judges
// leaves all the same.
func TestSources_OfAPart(t *testing.T) {
	t.Parallel()
	d := &decides{world: newWorld(t, "partial", 3)}
	source := newFixed()
	specs := d.specs()
	source.set(clusterinformers.View{Members: specs, Partial: true})
	p := d.start("a", 1, nil, source)
	all := func(judge string) {
		d.write(member("member-0", "uid-member-0", "a", "", ""), member("member-1", "uid-member-1", judge, "", ""), member("member-2", "uid-member-2", judge, "", ""))
	}
	all("a")
	p.has(roles{m0: aggregate.Judge, m1: aggregate.Judge, m2: aggregate.Judge})
	source.set(clusterinformers.View{Members: specs[2:], Partial: true})
	until(t, func() error {
		if f := p.fleet.Load(); len(f.Members) != 3 || f.Members[0].Judge != "a" || !f.Members[0].Held {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
	p.has(roles{m0: aggregate.Judge, m1: aggregate.Judge, m2: aggregate.Judge})
	all("b")
	p.has(roles{m0: aggregate.Judge})
	all("a")
	p.has(roles{m0: aggregate.Judge, m2: aggregate.Judge})
	source.set(clusterinformers.View{Members: specs})
	p.has(roles{m0: aggregate.Judge, m1: aggregate.Judge, m2: aggregate.Judge})
	source.set(clusterinformers.View{Members: specs[1:]})
	p.has(roles{m1: aggregate.Judge, m2: aggregate.Judge})
}

// TestSources_FirstHasTheMember: where two sources describe a member the first has it, also where another process holds that one.
func TestSources_FirstHasTheMember(t *testing.T) {
	t.Parallel()
	d := &decides{world: newWorld(t, "first", 2)}
	specs := d.specs()
	squatter := clusterinformers.Spec{Name: m0, UID: "", Object: &corev1.ObjectReference{Kind: "Secret", Name: "squatter"}, Refused: connection.Refuse(connection.NoKubeconfig, "none")}
	first, second := newFixed(specs[0]), newFixed(squatter, specs[1])
	p := d.start("a", 1, nil, first, second)
	d.write(member("member-0", "uid-member-0", "a", "", ""), member("member-1", "uid-member-1", "a", "", ""))
	p.has(roles{m0: aggregate.Judge, m1: aggregate.Judge})
	d.write(member("member-0", "uid-member-0", "b", "", ""), member("member-1", "uid-member-1", "a", "", ""))
	p.has(roles{m1: aggregate.Judge})
	if _, is := p.manager.Member(m0); is {
		t.Error("the second source's member is read, since the first's is with another process")
	}
	first.set(clusterinformers.View{})
	until(t, func() error {
		if f := p.fleet.Load(); len(f.Members) != 2 || f.Members[0].UID != "" {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
	d.write(member("member-0", "", "a", "", ""), member("member-1", "uid-member-1", "a", "", ""))
	until(t, func() error {
		if o := p.manager.Describes(m0); o == nil || o.Name != "squatter" {
			return fmt.Errorf("described by %v", o)
		}
		return nil
	})
}
