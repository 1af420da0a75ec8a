package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// The policies of which something must outlast processes. Each corrects the ConfigMaps of a
// namespace of its name.
const (
	haltBinding   = "halts"  // has a limit that halts it again and again
	waveBinding   = "waves"  // is rolled out in waves that soak, again and again
	budgetBinding = "budget" // has a limit over a window that is longer than the test
)

const (
	haltLimit   = 3
	budgetLimit = 4
	longWindow  = 720 * time.Hour
	soak        = 5 * time.Second
)

// wishes are what people want of these policies: in a ConfigMap on the hub, which every process
// watches.
type wishes struct {
	Acknowledge string // the halt that somebody acknowledges
	Round       int    // which rollout in waves
	Targets     int    // that each member has in it
	Budget      int    // generation of the policy with a budget
}

const wishesName = "wishes"

// setLasting gives the Dispatcher the policies of which something lasts, as people want them.
func (p *process) setLasting() error {
	wished, err := p.wishes.ConfigMaps(namespace).Get(wishesName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	var w wishes
	if err == nil {
		err = json.Unmarshal([]byte(wished.Data[wishesName]), &w)
	}
	if err != nil {
		return err
	}
	limits := func(n int) remediate.Limits {
		return remediate.Limits{Window: longWindow, Policy: remediate.Limit{Count: n}}
	}
	halts := remediate.RolloutSpec{Generation: generation(1), Limits: limits(haltLimit)}
	waves := remediate.RolloutSpec{Generation: generation(w.Round), Waves: []remediate.Wave{
		{Name: "canary", Members: map[string]bool{members[0]: true}, Soak: soak, Timeout: time.Hour, Require: v1alpha1.RequireHealthy},
		{Name: "rest", Members: map[string]bool{members[1]: true}, Timeout: time.Hour, Require: v1alpha1.RequireHealthy},
	}}
	budget := remediate.RolloutSpec{Generation: generation(w.Budget), Limits: limits(budgetLimit)}
	err = errors.Join(
		p.set(haltBinding, &halts, "", 0),
		p.set(waveBinding, &waves, roundPrefix(w.Round), w.Targets),
		p.set(budgetBinding, &budget, "", 0),
	)
	if st, ok := p.dispatcher.Status(haltBinding); ok && st.Halted != nil && st.Halted.ID == w.Acknowledge {
		if failed := p.dispatcher.Acknowledge(haltBinding, w.Acknowledge, "ann"); failed != nil && !errors.Is(failed, remediate.ErrNotNow) && !errors.Is(failed, remediate.ErrNoHalt) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// generation is a digest, as generations are.
func generation(n int) string { return fmt.Sprintf("%032x", n) }

// roundPrefix is how the names of the objects of a rollout begin.
func roundPrefix(round int) string { return fmt.Sprintf("round-%d-", round) }

// set sets the intents for the ConfigMaps whose names begin with a prefix. It waits for so many
// in each member that the rollout writes: what is to be written together is seen together.
func (p *process) set(name string, spec *remediate.RolloutSpec, prefix string, want int) error {
	digest := v1alpha1.Digest(strings.Repeat("0", 64))
	spec.Digests = v1alpha1.PlanDigests{Package: digest, Parameters: digest, Spec: digest, Targets: digest}
	ready := true
	totals := remediate.Totals{Members: map[string]int{}}
	var intents []remediate.Intent
	for _, of := range members {
		all, err := p.maps[of].ConfigMaps(name).List(labels.Everything())
		if err != nil {
			return err
		}
		seen := 0
		for _, m := range all {
			if !strings.HasPrefix(m.Name, prefix) {
				continue
			}
			seen++
			if m.Data["state"] != "good" {
				intents = append(intents, intentFor(name, of, m))
			}
		}
		ready = ready && seen >= want
		totals.Members[of] = seen
		totals.Fleet += seen
	}
	return p.dispatcher.SetIntents(name, *spec, totals, intents, ready)
}

func intentFor(name, of string, m *corev1.ConfigMap) remediate.Intent {
	target := policy.Ref{Member: of, Kind: "ConfigMap", Namespace: m.Namespace, Name: m.Name}
	return remediate.Intent{
		Binding: name, Package: "acme." + name, Message: "it is wrong", Revision: 1, Subject: policy.Subject{Ref: target},
		MemberUID: of, APIVersion: "v1", UID: string(m.UID), ResourceVersion: m.ResourceVersion,
		Remedy: policy.Remedy{Action: "patch", Target: target, Patch: json.RawMessage(`{"data":{"state":"good"}}`)},
	}
}

// health is that of a ConfigMap as this process sees it: not known before its watch has
// reached the write.
func (p *process) health(w remediate.Written) remediate.Health {
	m, err := p.maps[w.Target.Member].ConfigMaps(w.Target.Namespace).Get(w.Target.Name)
	if err != nil {
		return remediate.Health{Status: remediate.Unknown, Why: err.Error()}
	}
	if order, err := resourceversion.CompareResourceVersion(m.ResourceVersion, w.ResourceVersion); err != nil || order < 0 {
		return remediate.Health{Status: remediate.Unknown, Why: "the write is not seen yet"}
	}
	if m.Data["state"] != "good" {
		return remediate.Health{Status: remediate.Degraded, Why: "it is wrong"}
	}
	return remediate.Health{Status: remediate.Healthy}
}
