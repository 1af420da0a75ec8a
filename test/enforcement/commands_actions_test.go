package enforcement

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
)

// actionCommands are commands about Actions, and about time.
var actionCommands = map[string]command{
	// set sets a variable to the output of the last command.
	"set": {"VARIABLE", func(_ context.Context, _ *story, ts *testscript.TestScript, args []string) error {
		ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
		return nil
	}},
	// later sets a variable to a time from now, as RFC 3339 has it, in microseconds. A negative
	// duration is of a time before.
	"later": {"VARIABLE DURATION", func(_ context.Context, _ *story, ts *testscript.TestScript, args []string) error {
		d, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		ts.Setenv(args[0], time.Now().Add(d).UTC().Format(metav1.RFC3339Micro))
		return nil
	}},
	// hour sets a variable to the hour of the day, UTC, after a duration.
	"hour": {"VARIABLE DURATION", func(_ context.Context, _ *story, ts *testscript.TestScript, args []string) error {
		d, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		ts.Setenv(args[0], fmt.Sprint(time.Now().Add(d).UTC().Hour()))
		return nil
	}},
	// overtake gives a ConfigMap in namespace shop another tier, and changes it once more,
	// around the proxy, when the correction is recorded and on its way; again, until it
	// overtakes the correction.
	"overtake": {"NAME CONFIGMAP TIER", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		for range maxRaces {
			if lost, err := s.overtake(ctx, args[0], args[1], args[2]); err != nil || !lost {
				return err
			}
		}
		return fmt.Errorf("%d corrections came first", maxRaces)
	}},
}

// maxRaces is below the reversions that halt a policy.
const maxRaces = 3

func (s *story) overtake(ctx context.Context, member, name, tier string) (lost bool, err error) {
	c, err := s.cluster(ctx, member)
	if err != nil {
		return false, err
	}
	known, err := s.actions(ctx)
	if err != nil {
		return false, err
	}
	before := ""
	patch := func(body string) error {
		_, err := c.Client().CoreV1().ConfigMaps("shop").Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	phase := func(ok func(v1alpha1.ActionPhase) bool) error {
		return kube.Until(ctx, timeout, func() error {
			all, err := s.actions(ctx)
			if err != nil {
				return err
			}
			for action, phase := range all {
				if _, old := known[action]; !old && (before == "" || before == action) && ok(phase) {
					before = action
					return nil
				}
			}
			return fmt.Errorf("there are %v", all)
		})
	}
	if err := patch(fmt.Sprintf(`{"metadata":{"labels":{"tier":%q}}}`, tier)); err != nil {
		return false, err
	}
	if err := phase(func(v1alpha1.ActionPhase) bool { return true }); err != nil {
		return false, fmt.Errorf("no correction: %w", err)
	}
	if err := patch(`{"data":{"overtaken":"yes"}}`); err != nil {
		return false, err
	}
	err = phase(func(p v1alpha1.ActionPhase) bool {
		lost = p == v1alpha1.PhaseSucceeded
		return lost || p == v1alpha1.PhaseSuperseded
	})
	return lost, err
}

// actions returns the phases of the Actions on the hub, by name.
func (s *story) actions(ctx context.Context) (map[string]v1alpha1.ActionPhase, error) {
	var list v1alpha1.ActionList
	err := s.read(ctx, "hub", &list, "/apis/federator.dev/v1alpha1", v1alpha1.Actions)
	out := map[string]v1alpha1.ActionPhase{}
	for _, a := range list.Items {
		out[a.Name] = a.Status.Phase
	}
	return out, err
}
