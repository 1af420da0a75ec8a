package shards

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/test/kube/tcpproxy"
)

// single is a policy about keys of a view: one process judges a name, and others the objects that it corrects.
const single = `# METADATA
# title: One member has a name alone
# description: Of ConfigMaps of a name that begins with fix-single- those of all members but the first have label fixed=yes.
# custom: {severity: low, kinds: [ConfigMap], subject: view.names, remedies: [{action: patch, kind: ConfigMap}]}
package single

view.names[input.object.metadata.name] contains object.get(input.object.metadata.labels, "fixed", "") if {
	startswith(input.object.metadata.name, "fix-single-")
}

violation contains {
	"msg": sprintf("%s has it, too", [e.ref.member]),
	"remedy": {"action": "patch", "target": e.ref, "patch": {"metadata": {"labels": {"fixed": "yes"}}}},
} if {
	some n, e in input.entries
	n > 0
	e.value != "yes"
}
`

const singled = `apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: single}
spec:
  package: single
  mode: Enforce
  limits: {maxAffected: {policy: {count: 10000}}}
  waves:
  - {name: early, members: {labels: {matchLabels: {wave: early}}}, soak: 1s}
  - {name: late}
`

// TestShards_CorrectElsewhere: remedies of keys of views are written in members that other processes judge, in the waves of these
// members, once; and not while the process of the target is cut off.
func TestShards_CorrectElsewhere(t *testing.T) {
	f := newFleet(t, setup{replication: 1, corrections: "{bounds: {writesPerSecond: 10}}"})
	client, err := hub.NewRESTClient(f.kube.Hub.DirectRESTConfig())
	f.do(err)
	c := &corrections{fleet: f, hub: client}
	for _, s := range f.processes {
		s.start()
	}
	f.do(f.kube.Hub.Apply(t.Context(), []byte(singled)))
	const names = 6 // so that hardly ever one process judges them all
	for n := range names {
		c.single(n)
	}
	c.until("all but those of the first member are corrected", func() error { return c.singled(0, names) })
	c.policy("its waves are done", "single", func(p *v1alpha1.FleetPolicy) error {
		if w := p.Status.Wave; w == nil || w.Phase != v1alpha1.WaveDone {
			return fmt.Errorf("the wave is %+v, conditions %+v", w, p.Status.Conditions)
		}
		return nil
	})
	var first, second []time.Time
	for i := range c.kube.Members {
		for _, w := range c.writes(i, "single") {
			if i < early() {
				first = append(first, w.completed)
			} else {
				second = append(second, w.received)
			}
		}
	}
	if len(first) != names*(early()-1) || len(second) != names*(size()-early()) || earliest(second).Before(latest(first)) {
		t.Errorf("written in the first wave at %v, in the second at %v", first, second)
	}

	cut := c.judgeOfTargets()
	theirs := c.judges(cut)
	f.do(cut.peers.Set(tcpproxy.Mode{State: tcpproxy.BlackHole}))
	before := c.written(theirs...)
	c.single(names)
	c.stays("its own members", before, intents.SilentAfter+time.Second, theirs...)
	before = c.written()
	c.single(names + 1)
	c.stays("all, once it is silent", before, 2*time.Second)
	f.do(cut.peers.Set(tcpproxy.Mode{}))
	c.until("all are corrected after "+cut.name+" is back", func() error { return c.singled(names, 2) })
	if n, want := c.written(), (names+2)*(size()-1); n != want {
		t.Errorf("%d writes, want %d", n, want)
	}
}

// stays checks that no more is written to some members than was before, all if none are named.
func (c *corrections) stays(what string, before int, during time.Duration, members ...string) {
	c.t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); {
		if now := c.written(members...); now != before {
			c.t.Fatalf("while a process is cut off: %s: %d writes after %d", what, now, before)
		}
		select {
		case <-c.t.Context().Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// judgeOfTargets is a process that judges a member with targets and does not lead.
func (c *corrections) judgeOfTargets() *shard {
	c.t.Helper()
	leader := c.leader()
	for _, s := range c.alive() {
		if s != leader && slices.ContainsFunc(c.judges(s), func(member string) bool { return member != memberName(0) }) {
			return s
		}
	}
	c.t.Fatal("the leader judges all members with targets")
	return nil
}

// single makes a ConfigMap of one name in each member.
func (c *corrections) single(n int) {
	c.t.Helper()
	for _, m := range c.kube.Members {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("fix-single-", n), Labels: map[string]string{"story": "single"}}}
		_, err := m.Client().CoreV1().ConfigMaps("default").Create(c.t.Context(), cm, metav1.CreateOptions{})
		c.do(err)
	}
}

// singled returns an error unless names are corrected in all members but the first, and in no other.
func (c *corrections) singled(from, names int) error {
	fixed := c.fixed("single")
	for n := from; n < from+names; n++ {
		for i := range c.kube.Members {
			at := fmt.Sprint(memberName(i), "/fix-single-", n)
			if slices.Contains(fixed, at) != (i > 0) {
				return fmt.Errorf("%s: corrected are %s", at, strings.Join(fixed, ", "))
			}
		}
	}
	return nil
}

// written returns how often some members were written to for the policy, all if none are named.
func (c *corrections) written(members ...string) (n int) {
	for i := range c.kube.Members {
		if len(members) == 0 || slices.Contains(members, memberName(i)) {
			n += len(c.writes(i, "single"))
		}
	}
	return n
}
