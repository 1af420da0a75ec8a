package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/test/git"
)

// graded is a policy by which ConfigMaps have a grade, and says more of some.
const graded = `# METADATA
# title: Graded
# description: A ConfigMap has the grade of these days.
# custom: {severity: low, kinds: [ConfigMap], remedies: [{action: patch, kind: ConfigMap}]}
package graded

violation contains {"msg": "of another grade", "remedy": {"action": "patch", "patch": {"metadata": {"labels": {"grade": "%s"}}}}} if {
	startswith(input.object.metadata.name, "fix-graded-")
	not input.object.metadata.labels.grade == "%[1]s"
}

violation contains {"msg": "odd"} if input.object.metadata.labels[%q]
`

// loose is a policy without a FleetPolicy.
const loose = `# METADATA
# title: Loose
# description: What nobody has bound is judged, too.
# custom: {severity: low, kinds: [ConfigMap]}
package loose

violation contains {"msg": "grade %s is due"} if startswith(input.object.metadata.name, "fix-graded-")
`

const gradedSource = `apiVersion: federator.dev/v1alpha1
kind: PolicySource
metadata: {name: grades}
spec:
  url: file://%s
  ref: {branch: main}
  path: policies
  interval: 1h
  ceiling: {maxMode: Enforce, actions: [{verbs: [patch], kinds: [ConfigMap]}]}
`

const gradedPolicy = `apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: graded}
spec:
  source: grades
  package: graded
  mode: Enforce
  match: {labels: {matchLabels: {story: graded}}}
  limits: {maxAffected: {policy: {count: 10000}}}
  waves:
  - {name: early, members: {labels: {matchLabels: {wave: early}}}, soak: 3s}
  - {name: late}
  rollout: {shadow: 1s, maxNew: %s}
`

// grades is a repository of a policy whose versions roll out.
type grades struct {
	*corrections

	repo *git.Repo
}

// TestShards_RollOut: versions of a policy are judged by all processes, and how the fleet differs decides. What only another
// process than the leader finds takes a version back. Another one takes effect in waves over members of all of them, and
// goes on when the leader is killed amid the first wave.
func TestShards_RollOut(t *testing.T) {
	f := newFleet(t, setup{replication: 1, corrections: "{bounds: {writesPerSecond: 2}}, allowFile: true"})
	client, err := hub.NewRESTClient(f.kube.Hub.DirectRESTConfig())
	f.do(err)
	g := &grades{corrections: &corrections{fleet: f, hub: client}}
	g.repo, err = git.Init(t.TempDir())
	f.do(err)
	const each = 4 // targets of a member
	for i := range f.kube.Members {
		for n := range each {
			g.make(i, fmt.Sprint("fix-graded-", n), nil)
		}
	}
	first := g.commit("one", "nobody")
	for _, s := range f.processes {
		s.start()
	}
	t.Cleanup(func() { // other tests have no repository
		for resource, name := range map[string]string{v1alpha1.PolicySources: "grades", v1alpha1.FleetPolicies: "graded"} {
			f.do(client.Delete().Resource(resource).Name(name).Do(context.WithoutCancel(t.Context())).Error())
		}
	})
	f.do(f.kube.Hub.Apply(t.Context(), fmt.Appendf(nil, gradedSource, g.repo.Dir)))
	f.do(f.kube.Hub.Apply(t.Context(), fmt.Appendf(nil, gradedPolicy, "0")))
	began := time.Now()
	lap := func(what string) {
		t.Logf("%s after %s", what, time.Since(began).Round(100*time.Millisecond))
	}
	g.source("the first commit is active", func(ps *v1alpha1.PolicySource) error {
		if a := ps.Status.ActiveCommit; a == nil || string(a.Hash) != first {
			return fmt.Errorf("commit %+v is active; conditions %+v", a, ps.Status.Conditions)
		}
		return nil
	})
	f.until("each process judges a member", func() error {
		for _, s := range f.processes {
			if len(f.judges(s)) == 0 {
				return fmt.Errorf("%s judges none", s.name)
			}
		}
		return nil
	})
	lap("each process judges a member")
	leader := f.leader()
	odd := slices.Index([]string{memberName(0), memberName(1), memberName(2)}, f.judges(f.follower())[0])
	g.make(odd, "fix-odd", map[string]string{"odd": "yes"})
	g.totals("before any version rolls out", "graded", each*size()+1, 0)

	lap("all is counted")
	bad := g.commit("one", "odd")
	g.sync("bad")
	g.policy("a version is taken back by what one other process finds", "graded", func(p *v1alpha1.FleetPolicy) error {
		c, err := candidate(p, v1alpha1.RolloutTakenBack)
		if err != nil {
			return err
		}
		if e := c.Evidence; e == nil || !e.Complete || e.New != 1 || int(e.Subjects) != each*size()+1 || !strings.Contains(c.Message, "it finds 1 violations on") {
			return fmt.Errorf("it was taken back by %+v: %s", e, c.Message)
		}
		return nil
	})
	g.source("the whole commit is", func(ps *v1alpha1.PolicySource) error { return rolledOut(ps, bad, v1alpha1.RolloutTakenBack) })
	lap("one version is taken back")
	if now := f.leader(); now != leader || slices.Contains(f.judges(leader), memberName(odd)) {
		t.Errorf("%s leads, and led before; it judges %v", now.name, f.judges(leader))
	}

	f.do(f.kube.Hub.Apply(t.Context(), fmt.Appendf(nil, gradedPolicy, "100%")))
	good := g.commit("two", "nobody")
	g.sync("good")
	g.policy("the first wave is written", "graded", func(p *v1alpha1.FleetPolicy) error {
		c, err := candidate(p, v1alpha1.RolloutWaves)
		if err != nil {
			return err
		}
		if e := c.Evidence; c.Waves != 1 || e == nil || int(e.New) != each*size() || int(e.Subjects) != each*size()+1 {
			return fmt.Errorf("it is in its waves by %+v", c)
		}
		if len(g.atGrade("two")) == 0 {
			return errors.New("nothing is written yet")
		}
		return nil
	})
	lap("another is in its first wave")
	g.source("what has no FleetPolicy is judged by all", func(ps *v1alpha1.PolicySource) error {
		if r := ps.Status.Rollout; r == nil || r.Evidence == nil || !r.Evidence.Complete || int(r.Evidence.New) != each*size() || r.Evidence.New != r.Evidence.Gone {
			return fmt.Errorf("the rollout is %+v", r)
		}
		return nil
	})
	leader.Kill()
	killed := time.Now()
	if n := len(g.atGrade("two")); n >= each*early() {
		t.Errorf("%s was killed after the wave: %d are written", leader.name, n)
	}
	g.policy("the version is promoted", "graded", func(p *v1alpha1.FleetPolicy) error {
		if n := len(g.atGrade("two")); n != each*size() {
			return fmt.Errorf("%d of %d are written; %+v, conditions %+v", n, each*size(), p.Status.Rollout, p.Status.Conditions)
		}
		if r := p.Status.Rollout; r == nil || r.Candidate != nil || r.Effective == nil {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	g.source("its commit is active", func(ps *v1alpha1.PolicySource) error {
		if a := ps.Status.ActiveCommit; a == nil || string(a.Hash) != good {
			return fmt.Errorf("commit %+v is active; %+v", a, ps.Status.Rollout)
		}
		return nil
	})
	t.Logf("promoted by %s %s after %s was killed", f.leader().name, time.Since(killed).Round(100*time.Millisecond), leader.name)
	var waves [2][]time.Time
	for i := range f.kube.Members {
		written := map[string]int{}
		for _, w := range g.writes(i, "graded") {
			if written[w.target]++; i < early() {
				waves[0] = append(waves[0], w.completed)
			} else {
				waves[1] = append(waves[1], w.received)
			}
		}
		for n := range each {
			if target := fmt.Sprint("fix-graded-", n); written[target] != 1 {
				t.Errorf("%s of %s was written %d times", target, memberName(i), written[target])
			}
		}
	}
	if after := earliest(waves[1]).Sub(latest(waves[0])); after < soak {
		t.Errorf("the second wave began %s after the first was written, which is to soak for %s", after, soak)
	}
}

// candidate returns the candidate of a policy, or an error if it is not in a phase.
func candidate(p *v1alpha1.FleetPolicy, phase v1alpha1.RolloutPhase) (*v1alpha1.CandidateVersion, error) {
	r := p.Status.Rollout
	if r == nil || r.Candidate == nil || r.Candidate.Phase != phase {
		return nil, fmt.Errorf("the rollout is %+v, conditions %+v", r, p.Status.Conditions)
	}
	return r.Candidate, nil
}

// rolledOut returns an error unless a commit has come to a phase.
func rolledOut(ps *v1alpha1.PolicySource, commit string, phase v1alpha1.RolloutPhase) error {
	if r := ps.Status.Rollout; r == nil || string(r.Commit) != commit || r.Phase != phase {
		return fmt.Errorf("the rollout is %+v, conditions: %+v", r, meta.FindStatusCondition(ps.Status.Conditions, v1alpha1.Ready))
	}
	return nil
}

// make creates a ConfigMap of the story in a member.
func (g *grades) make(member int, name string, labels map[string]string) {
	g.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"story": "graded", "grade": "one"}}}
	for key, value := range labels {
		cm.Labels[key] = value
	}
	_, err := g.kube.Members[member].Client().CoreV1().ConfigMaps("default").Create(g.t.Context(), cm, metav1.CreateOptions{})
	g.do(err)
}

// commit commits a version of the policy: the grade, and the label that is odd.
func (g *grades) commit(grade, odd string) (hash string) {
	g.t.Helper()
	hash, err := g.repo.Commit(map[string]string{"policies/graded.rego": fmt.Sprintf(graded, grade, odd), "policies/loose.rego": fmt.Sprintf(loose, grade)})
	g.do(err)
	return hash
}

// sync asks for a look at the repository.
func (g *grades) sync(value string) {
	g.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, api.SyncKey, value)
	_, err := g.hub.Patch(types.MergePatchType).Resource(v1alpha1.PolicySources).Name("grades").Body(patch).DoRaw(g.t.Context())
	g.do(err)
}

// source waits until the PolicySource is as it is to be.
func (g *grades) source(what string, check func(*v1alpha1.PolicySource) error) {
	g.t.Helper()
	g.until(what, func() error {
		ps := &v1alpha1.PolicySource{}
		if err := g.hub.Get().Resource(v1alpha1.PolicySources).Name("grades").Do(g.t.Context()).Into(ps); err != nil {
			return err
		}
		return check(ps)
	})
}

// atGrade are the targets that have a grade.
func (g *grades) atGrade(grade string) (out []string) {
	g.t.Helper()
	for i, m := range g.kube.Members {
		list, err := m.Client().CoreV1().ConfigMaps("default").List(g.t.Context(), metav1.ListOptions{LabelSelector: "story=graded,grade=" + grade})
		g.do(err)
		for _, cm := range list.Items {
			out = append(out, memberName(i)+"/"+cm.Name)
		}
	}
	return out
}
