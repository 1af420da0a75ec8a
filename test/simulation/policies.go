package simulation

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// packages are compiled once: schedules share them.
var packages = sync.OnceValue(func() *policy.Set {
	set, err := policy.Load([]policy.Source{{Name: "git", Files: []policy.File{
		{Path: "replicas.rego", Data: []byte(replicas)}, {Path: "tier.rego", Data: []byte(tier)}, {Path: "thrift.rego", Data: []byte(thrift)},
	}}}, policy.LoadOptions{})
	if err != nil {
		panic(err)
	}
	return set
})

// bindings bind each package to all members.
var bindings = []policy.Binding{{Name: "replicas", Package: "replicas"}, {Name: "tier", Package: "tier"}, {Name: "thrift", Package: "thrift"}}

const replicas = `# METADATA
# title: Two replicas
# custom: {severity: high, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package replicas

violation contains {"msg": "too few", "remedy": {"action": "patch", "patch": {"spec": {"replicas": 2}}}} if input.object.spec.replicas < 2
`

const tier = `# METADATA
# title: A tier
# custom: {severity: high, kinds: ["Deployment.apps"], remedies: [{action: apply, kind: Deployment.apps}]}
package tier

violation contains {"msg": "no tier", "remedy": {"action": "apply", "object": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"tier": "gold"}}}}} if {
	object.get(input.object.metadata, ["labels", "tier"], "") != "gold"
}
`

// thrift undoes what replicas does, where both are enforced.
const thrift = `# METADATA
# title: One replica
# custom: {severity: high, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package thrift

violation contains {"msg": "too many", "remedy": {"action": "patch", "patch": {"spec": {"replicas": 1}}}} if input.object.spec.replicas > 1
`

// wish is what people want of a policy: its FleetPolicy.
type wish struct {
	policy     string
	enforced   bool
	suspended  bool
	gone       bool // its FleetPolicy is deleted
	generation int  // counts what has been wanted of it; people may return to an earlier one
	version    int  // counts its edits but suspensions
	window     time.Duration
	perPolicy  int // limits, in targets; 0: none
	perMember  int
	percent    float64 // of the subjects that there are, beside the counts
	percentIn  float64 // of a member's
	fleet      int     // of all policies together, within the window
	waves      bool    // the first member before the others
	soak       time.Duration
	approvals  int // by how many people a generation must be approved; 0: none
	above      int // beyond how many percent of the subjects; 0: always
	opens      opening
	replaces   *rolling // what it takes the place of, wave by wave; nil: nothing
}

// opening is when a policy may write: for a time from each full period of a clock's day.
type opening struct{ every, open time.Duration }

// openings are what people want. The zero one is always open.
var openings = []opening{{}, {10 * time.Minute, 4 * time.Minute}, {}, {3 * time.Minute, time.Minute}}

// windows are the openings as the hub's controllers read them, made once.
var windows = sync.OnceValue(func() map[opening]*remediate.Window {
	all := map[opening]*remediate.Window{}
	for _, o := range openings {
		if o.every == 0 {
			continue
		}
		w, err := remediate.NewWindow(fmt.Sprintf("*/%d * * * *", o.every/time.Minute), o.open, "UTC")
		if err != nil {
			panic(err)
		}
		all[o] = w
	}
	return all
})

func (x *wish) String() string {
	if x.replaces != nil {
		plain := *x
		plain.replaces = nil
		return fmt.Sprintf("%v, %v", &plain, x.replaces)
	}
	return fmt.Sprintf("%s (version %d): gone %t, enforced %t, suspended %t, at most %d and %d per member, %v%% and %v%%, %d of all policies, in %v, waves %t, soak %v, approval by %d above %d%%, open %v", x.key(), x.version, x.gone, x.enforced, x.suspended, x.perPolicy, x.perMember, x.percent, x.percentIn, x.fleet, x.window, x.waves, x.soak, x.approvals, x.above, x.opens)
}

// key names what is rolled out.
func (x *wish) key() string { return fmt.Sprintf("%s-%d", x.policy, x.generation) }

// edition names it, and how often the policy had been edited.
func (x *wish) edition() string { return fmt.Sprintf("%s/%d", x.key(), x.version) }

// violates reports whether a policy has something to correct on an object, and may: tin is
// another manager's, whose fields are not taken over.
func violates(policy string, o map[string]any) bool {
	replicas := o["spec"].(map[string]any)["replicas"].(int64)
	switch policy {
	case "replicas":
		return replicas < 2
	case "thrift":
		return replicas > 1
	}
	return tierOf(o) != "gold" && tierOf(o) != "tin"
}

func nameOf(o map[string]any) string { return o["metadata"].(map[string]any)["name"].(string) }

func tierOf(o map[string]any) any {
	labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
	return labels["tier"]
}

// spec is the wish as the hub's controllers read it.
func (x *wish) spec(w *world) enforce.EnforcementSpec {
	s := enforce.EnforcementSpec{
		Mode: policy.Observe, Suspend: x.suspended, Source: "git", Generation: x.key(),
		Window: windows()[x.opens],
		Limits: remediate.Limits{Window: x.window, Policy: remediate.Limit{Count: x.perPolicy, Percent: x.percent}, Member: remediate.Limit{Count: x.perMember, Percent: x.percentIn}, Fleet: remediate.Limit{Count: x.fleet}},
	}
	s.Rollout = x.replaces.spec()
	if x.enforced {
		s.Mode = policy.Enforce
	}
	s.Approval = remediate.ApprovalTerms{UID: "u-" + x.policy, Version: int64(x.version) + 1, AuthorsProven: true}
	d := v1alpha1.Digest(fmt.Sprintf("%x", sha256.Sum256([]byte(x.key()))))
	s.Digests = v1alpha1.PlanDigests{Package: d, Parameters: d, Spec: d}
	if x.approvals > 0 {
		r := v1alpha1.ApprovalRequirement{Required: int32(x.approvals)}
		if above := int32(x.above); above > 0 {
			r.Above = &above
		}
		s.Approval.Required = []v1alpha1.ApprovalRequirement{r}
	}
	s.Ceiling = w.ceiling.spec(w)
	if x.waves {
		s.Waves = []enforce.Wave{
			{Name: "canary", Members: policy.MemberSelector{Names: []string{w.members[0].name}}, Soak: x.soak, Timeout: time.Hour},
			{Name: "rest", Soak: x.soak, Timeout: time.Hour},
		}
	}
	return s
}
