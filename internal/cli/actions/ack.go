package actions

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
)

func ackCommand(f *hubFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "ack POLICY [HALT]",
		Short: "Acknowledge the halt of a FleetPolicy and resume it",
		Long: `Acknowledge the halt of a FleetPolicy and resume it.

With HALT, the status.halted.id that you have reviewed, no other halt is
acknowledged. If a limit was exceeded, as many targets as were pending are allowed
for one window. Where approval is required, see approve.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.open()
			if err != nil {
				return err
			}
			return c.acknowledge(cmd.Context(), args[0], args[1:], cmd.OutOrStdout())
		},
	}
}

func (c *hubClient) acknowledge(ctx context.Context, name string, halt []string, out io.Writer) error {
	fp, err := c.Policy(ctx, name)
	if err != nil {
		return err
	}
	h := fp.Status.Halted
	switch {
	case h != nil && (fp.Spec.Approval != nil || fp.Status.Approval != nil):
		return fmt.Errorf("FleetPolicy %q requires approval, and an acknowledgement does nothing: federator actions approve %s --halt %s --reason TEXT", name, name, h.ID)
	case h == nil:
		return fmt.Errorf("FleetPolicy %q is not halted", name)
	case len(halt) > 0 && halt[0] != h.ID:
		return fmt.Errorf("FleetPolicy %q is halted, but not by %q: the halt is %s, %s: %s", name, halt[0], h.ID, h.Reason, console.Printable(h.Message))
	}
	// The resourceVersion makes sure that the printed halt is the one acknowledged.
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": fp.ResourceVersion, "annotations": map[string]any{api.AcknowledgeKey: h.ID},
	}})
	if err != nil {
		return err
	}
	r := c.Objects("PATCH", v1alpha1.FleetPolicies, name).SetHeader("Content-Type", string(types.MergePatchType)).Param("fieldManager", c.FieldManager(ctx)).Body(body)
	switch err := r.Do(ctx).Error(); {
	case apierrors.IsConflict(err):
		return fmt.Errorf("FleetPolicy %q has changed meanwhile: review it again", name)
	case err != nil:
		return fmt.Errorf("FleetPolicy %q: %w", name, err)
	}
	_, err = fmt.Fprintf(out, "acknowledged halt %s of %s, since %s: %s: %s\n%s\n", h.ID, name, h.Since.UTC().Format(time.RFC3339), h.Reason, console.Printable(h.Message), allowed(fp))
	return err
}

// allowed describes what acknowledging a policy's halt allows.
func allowed(fp *v1alpha1.FleetPolicy) string {
	h := fp.Status.Halted
	switch {
	case h.Reason == v1alpha1.OverLimit && h.Over != nil:
		window := "1h0m0s"
		if fp.Spec.Limits.Window != nil {
			window = fp.Spec.Limits.Window.Duration.String()
		}
		return fmt.Sprintf("allowed: %d targets within %s, where the limit is %d (of %d)", h.Over.Targets, window, h.Over.Allowed, h.Over.Denominator)
	case h.Reason == v1alpha1.Unhealthy:
		return "allowed: the next wave, regardless of the health of written objects"
	case h.Reason == v1alpha1.Fighting:
		return "allowed: correcting targets again that were reverted"
	}
	return "allowed: resuming"
}
