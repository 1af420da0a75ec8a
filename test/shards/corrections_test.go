package shards

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
)

// fix is a policy with a remedy.
const fix = `# METADATA
# title: What is to be fixed is
# description: A ConfigMap whose name begins with fix- has label fixed=yes.
# custom: {severity: low, kinds: [ConfigMap], remedies: [{action: patch, kind: ConfigMap}]}
package fix

violation contains {"msg": "not fixed", "remedy": {"action": "patch", "patch": {"metadata": {"labels": {"fixed": "yes"}}}}} if {
	startswith(input.object.metadata.name, "fix-")
	not input.object.metadata.labels.fixed == "yes"
}
`

// waved is a FleetPolicy that corrects the early members first; it is suspended.
const waved = `apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: %[1]s}
spec:
  package: fix
  mode: Enforce
  suspend: true
  match: {labels: {matchLabels: {story: %[1]s}}}
  limits: {maxAffected: {policy: {count: 10000}}}
  waves:
  - {name: early, members: {labels: {matchLabels: {wave: early}}}, soak: 3s}
  - {name: late}
`

const soak = 3 * time.Second

// corrections are those of the hub's policies.
type corrections struct {
	*fleet

	hub rest.Interface // of federator's kinds
}

// TestShards_Correct: the leader corrects what all processes judge, in waves over members of all of them. Another
// one goes on when it is killed in the middle of a wave: no target is lost, and none is written twice.
func TestShards_Correct(t *testing.T) {
	f := newFleet(t, setup{replication: 1, corrections: "{bounds: {writesPerSecond: 2}}"})
	client, err := hub.NewRESTClient(f.kube.Hub.DirectRESTConfig())
	f.do(err)
	c := &corrections{fleet: f, hub: client}
	for _, s := range f.processes {
		s.start()
	}
	const each = 5 // targets of a member
	c.begin("calm", each)
	c.done("calm", each)
	c.asked("calm", "calm", each*size())
	c.corrected("calm", each*size())
	c.reported("calm is corrected", "calm", 0)

	c.begin("storm", each)
	c.policy("the first wave is written", "storm", func(*v1alpha1.FleetPolicy) error {
		if n := len(c.fixed("storm")); n == 0 {
			return errors.New("nothing is written yet")
		}
		return nil
	})
	leader := f.leader()
	leader.Kill()
	killed := time.Now()
	n := len(c.fixed("storm"))
	c.answersOnly("calm")
	if n >= each*early() {
		t.Errorf("%s was killed after the wave: %d are written", leader.name, n)
	}
	t.Logf("%s led, and was killed after %d of %d", leader.name, n, each*size())
	t.Logf("each process answers for the whole hub %s after that", c.asked("the leader is killed", "calm", each*size()).Round(100*time.Millisecond))
	c.done("storm", each)
	c.corrected("storm", each*size())
	c.reported("storm is corrected", "storm", 0)
	t.Logf("%s after that all were corrected by %s", time.Since(killed).Round(100*time.Millisecond), f.leader().name)
	c.once("calm", each)
}

// policy waits until a FleetPolicy is as it is to be.
func (c *corrections) policy(what, name string, check func(*v1alpha1.FleetPolicy) error) {
	c.t.Helper()
	c.until(what, func() error {
		p := &v1alpha1.FleetPolicy{}
		if err := c.hub.Get().Resource(v1alpha1.FleetPolicies).Name(name).Do(c.t.Context()).Into(p); err != nil {
			return err
		}
		return check(p)
	})
}

// begin makes targets for a policy in each member, waits until its status counts those of the whole fleet, and
// has it correct them.
func (c *corrections) begin(name string, each int) {
	c.t.Helper()
	for _, m := range c.kube.Members {
		for i := range each {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("fix-", name, "-", i), Labels: map[string]string{"story": name}}}
			_, err := m.Client().CoreV1().ConfigMaps("default").Create(c.t.Context(), cm, metav1.CreateOptions{})
			c.do(err)
		}
	}
	c.do(c.kube.Hub.Apply(c.t.Context(), fmt.Appendf(nil, waved, name)))
	c.totals("before "+name, name, each*size(), each*size())
	c.reported("before "+name, name, each)
	_, err := c.hub.Patch(types.MergePatchType).Resource(v1alpha1.FleetPolicies).Name(name).Body([]byte(`{"spec":{"suspend":false}}`)).DoRaw(c.t.Context())
	c.do(err)
}

// totals waits until a policy's status has the verdicts of the whole fleet.
func (c *corrections) totals(what, name string, subjects, violations int) {
	c.t.Helper()
	c.policy(what+": the status counts all members", name, func(p *v1alpha1.FleetPolicy) error {
		t := p.Status.Totals
		if t == nil || int(t.Subjects) != subjects || int(t.Violations) != violations || t.Unknown != 0 || t.Errors != 0 {
			return fmt.Errorf("totals are %+v, want %d subjects and %d violations; conditions: %+v", t, subjects, violations, p.Status.Conditions)
		}
		return nil
	})
}

// done waits until all that begin has made is corrected, and checks how that came about.
func (c *corrections) done(name string, each int) {
	c.t.Helper()
	c.policy(name+": all is corrected", name, func(p *v1alpha1.FleetPolicy) error {
		if n := len(c.fixed(name)); n != each*size() {
			return fmt.Errorf("%d of %d are corrected; wave %+v, halted %+v, conditions: %+v", n, each*size(), p.Status.Wave, p.Status.Halted, p.Status.Conditions)
		}
		return nil
	})
	c.totals("after "+name, name, each*size(), 0)
	c.policy(name+": its waves are done", name, func(p *v1alpha1.FleetPolicy) error {
		if w := p.Status.Wave; w == nil || w.Name != "late" || w.Phase != v1alpha1.WaveDone {
			return fmt.Errorf("the wave is %+v", w)
		}
		if a := p.Status.Actions; a == nil || int(a.Succeeded) != each*size() {
			return fmt.Errorf("actions are %+v", a)
		}
		return nil
	})
	c.once(name, each)
	var first, second []time.Time
	for i := range c.kube.Members {
		for _, w := range c.writes(i, name) {
			if i < early() {
				first = append(first, w.completed)
			} else {
				second = append(second, w.received)
			}
		}
	}
	written, begun := latest(first), earliest(second)
	if begun.Sub(written) < soak {
		c.t.Errorf("%s: the second wave began %s after the first was written, which is to soak for %s", name, begun.Sub(written), soak)
	}
	c.t.Logf("%s: the second wave began %s after the first was written", name, begun.Sub(written).Round(time.Millisecond))
}

// once checks that each target has one Action, which has succeeded, and was written once.
func (c *corrections) once(name string, each int) {
	c.t.Helper()
	var list v1alpha1.ActionList
	c.do(c.hub.Get().Resource(v1alpha1.Actions).Do(c.t.Context()).Into(&list))
	actions := map[string][]string{}
	for i := range list.Items {
		if a := &list.Items[i]; a.Spec.Binding == name {
			key := a.Spec.Target.Member + "/" + a.Spec.Target.Name
			actions[key] = append(actions[key], fmt.Sprint(a.Name, " ", a.Status.Phase))
			if a.Status.Phase != "Succeeded" {
				c.t.Errorf("%s: Action %s of %s is %s: %s", name, a.Name, key, a.Status.Phase, a.Status.Message)
			}
		}
	}
	if len(actions) != each*size() {
		c.t.Errorf("%s: %d targets have Actions, want %d", name, len(actions), each*size())
	}
	for key, list := range actions {
		if len(list) != 1 {
			c.t.Errorf("%s: %s has %d Actions: %v", name, key, len(list), list)
		}
	}
	for i := range c.kube.Members {
		written := map[string]int{}
		for _, w := range c.writes(i, name) {
			written[w.target]++
		}
		for n := range each {
			if target := fmt.Sprint("fix-", name, "-", n); written[target] != 1 {
				c.t.Errorf("%s: %s of %s was written %d times", name, target, memberName(i), written[target])
			}
		}
	}
}

// fixed are the targets of a policy that are corrected.
func (c *corrections) fixed(name string) (out []string) {
	c.t.Helper()
	for i, m := range c.kube.Members {
		list, err := m.Client().CoreV1().ConfigMaps("default").List(c.t.Context(), metav1.ListOptions{LabelSelector: "fixed=yes,story=" + name})
		c.do(err)
		for _, cm := range list.Items {
			out = append(out, memberName(i)+"/"+cm.Name)
		}
	}
	return out
}

type write struct {
	target              string
	received, completed time.Time
}

// writes are what a member has carried out of a policy's corrections.
func (c *corrections) writes(member int, name string) (out []write) {
	c.t.Helper()
	events, err := c.kube.Members[member].Audit()
	c.do(err)
	for _, e := range events {
		if e.ObjectRef.Resource != "configmaps" || e.Verb != "patch" && e.Verb != "update" || strings.Contains(e.RequestURI, "dryRun") || e.ResponseStatus.Code >= 300 {
			continue
		}
		if strings.HasPrefix(e.ObjectRef.Name, "fix-"+name+"-") {
			out = append(out, write{e.ObjectRef.Name, e.Received, e.Completed})
		}
	}
	return out
}

func latest(list []time.Time) (out time.Time) {
	for _, t := range list {
		if t.After(out) {
			out = t
		}
	}
	return out
}

func earliest(list []time.Time) (out time.Time) {
	for _, t := range list {
		if out.IsZero() || t.Before(out) {
			out = t
		}
	}
	return out
}
