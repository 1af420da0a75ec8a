package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
)

const stopHelp = `Keep everybody from writing anything to members, within a second, until resume.

What is under way is not taken back. The stop is ConfigMap federator-stop in the
namespace of federator, so that it holds for every replica and after restarts; a
federator that cannot read it writes nothing.`

func newActionsStopCommand(f *hubFlags) *cobra.Command {
	var namespace, reason string
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop all actions of all policies",
		Long:  stopHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.open()
			if err != nil {
				return err
			}
			return c.stop(cmd.Context(), namespace, reason, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for those who read it")
	registerNamespace(cmd, &namespace)
	return cmd
}

func registerNamespace(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", defaultNamespace, "`namespace` of federator on the hub: policies.namespace of its configuration")
}

func (c *hubClient) stop(ctx context.Context, namespace, reason string, out, stderr io.Writer) error {
	who, made, err := hub.StopAll(ctx, c, namespace, c.me(ctx), reason)
	if err != nil {
		return fmt.Errorf("actions are not stopped: %w", err)
	}
	text := "all actions are stopped"
	if !made {
		text = "all actions have been stopped already"
	}
	if _, err := fmt.Fprintf(out, "%s %s\n", text, printable(who)); err != nil {
		return err
	}
	// A stop where nobody looks stops nobody.
	_, err = c.CoordinationV1().Leases(namespace).Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = fmt.Fprintf(stderr, "warning: no federator has acted in namespace %s (there is no Lease %s): is --namespace right?\n", namespace, leaseName)
		return err
	}
	return nil
}

func newActionsResumeCommand(f *hubFlags) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End a stop",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.open()
			if err != nil {
				return err
			}
			who, err := hub.ResumeAll(cmd.Context(), c, namespace)
			if err != nil {
				return fmt.Errorf("actions are not resumed: %w", err)
			}
			if who == "" {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "actions are not stopped")
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "actions go on; they were stopped %s\n", printable(who))
			}
			return err
		},
	}
	registerNamespace(cmd, &namespace)
	return cmd
}

func newActionsAckCommand(f *hubFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "ack POLICY [HALT]",
		Short: "Acknowledge what a FleetPolicy has halted for, and let it go on",
		Long: `Acknowledge what a FleetPolicy has halted for, and let it go on.

With HALT, the status.halted.id that you have looked at, nothing else is
acknowledged. What was over a limit is allowed as far as it was, for one window.`,
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
	fp, err := c.policy(ctx, name)
	if err != nil {
		return err
	}
	h := fp.Status.Halted
	switch {
	case h == nil:
		return fmt.Errorf("FleetPolicy %q is not halted: there is nothing to acknowledge", name)
	case len(halt) > 0 && halt[0] != h.ID:
		return fmt.Errorf("FleetPolicy %q is halted, but not for %q: it is for %s, %s: %s", name, halt[0], h.ID, h.Reason, printable(h.Message))
	}
	// With the resourceVersion: of no other halt than the one that is printed.
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": fp.ResourceVersion, "annotations": map[string]any{api.AcknowledgeKey: h.ID},
	}})
	if err != nil {
		return err
	}
	r := c.objects("PATCH", v1alpha1.FleetPolicies, name).SetHeader("Content-Type", string(types.MergePatchType)).Param("fieldManager", c.me(ctx)).Body(body)
	switch err := r.Do(ctx).Error(); {
	case apierrors.IsConflict(err):
		return fmt.Errorf("FleetPolicy %q has changed meanwhile: look again", name)
	case err != nil:
		return fmt.Errorf("FleetPolicy %q: %w", name, err)
	}
	_, err = fmt.Fprintf(out, "acknowledged halt %s of %s, since %s: %s: %s\n%s\n", h.ID, name, h.Since.UTC().Format(time.RFC3339), h.Reason, printable(h.Message), allowed(fp))
	return err
}

// allowed says what an acknowledgement of a policy's halt allows.
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
		return "allowed: the next wave, whatever the health of what has been written"
	case h.Reason == v1alpha1.Fighting:
		return "allowed: correcting anew what has violated again"
	}
	return "allowed: to go on"
}

const rollbackHelp = `Take an Action back: the target's content is again what it was before.

The process that acts does it, by the same guarded path as every correction, and
records it as an Action of its own. It is refused where the target has changed since,
unless forced; where the Action cannot be taken back; and while all actions are
stopped. Limits, windows, halts and suspension of the policy do not keep it from being
done. The policy judges on: what violates it is corrected again.`

// rollback are the flags of `federator actions rollback`.
type rollback struct {
	force   bool
	reason  string
	timeout time.Duration
}

func newActionsRollbackCommand(f *hubFlags) *cobra.Command {
	var r rollback
	cmd := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Take an Action back",
		Long:  rollbackHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.timeout <= 0 {
				return badInput(fmt.Errorf("--timeout %s must be above 0", r.timeout))
			}
			c, err := f.open()
			if err != nil {
				return err
			}
			return r.run(cmd.Context(), c, actionName(args[0]), cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&r.force, "force", false, "even where the target has changed since, and others own its fields")
	cmd.Flags().StringVar(&r.reason, "reason", "", "`why`, for those who read it")
	cmd.Flags().DurationVar(&r.timeout, "timeout", 30*time.Second, "how long to wait for an answer; then the request is withdrawn")
	return cmd
}

func (r *rollback) run(ctx context.Context, c *hubClient, name string, out io.Writer) error {
	a, err := c.action(ctx, name)
	if err != nil {
		return err
	}
	if a.Status.Phase == v1alpha1.PhaseRolledBack {
		return fmt.Errorf("action %q has been taken back already, %s", name, printable(a.Status.Message))
	}
	how := api.RollbackValue
	if r.force {
		how = api.RollbackForce
	}
	notes := map[string]any{api.RollbackOutcomeKey: nil, api.RollbackReasonKey: nil}
	if r.reason != "" {
		notes[api.RollbackReasonKey] = printable(r.reason)
	}
	if err := c.relabel(ctx, a.Name, c.me(ctx), how, notes); err != nil {
		return err
	}
	outcome, err := c.outcome(ctx, a.Name, r.timeout)
	if err != nil {
		return err
	}
	word, message, _ := strings.Cut(outcome, " ")
	if word != hub.RollbackSucceeded {
		return fmt.Errorf("action %q is not taken back: %s: %s", name, word, printable(message))
	}
	if _, err := fmt.Fprintf(out, "%s is taken back %s\n", name, printable(message)); err != nil {
		return err
	}
	return c.hint(ctx, a, out)
}

// relabel asks for a rollback, or withdraws that with nil.
func (c *hubClient) relabel(ctx context.Context, name, by string, how any, notes map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{api.RollbackKey: how}, "annotations": notes}})
	if err != nil {
		return err
	}
	err = c.objects("PATCH", v1alpha1.Actions, name).SetHeader("Content-Type", string(types.MergePatchType)).
		Param("fieldManager", by).Body(body).Do(ctx).Error()
	if err != nil {
		return c.explain(err, "action", name)
	}
	return nil
}

// outcome waits for the answer to a request, and withdraws it when time is up.
func (c *hubClient) outcome(ctx context.Context, name string, timeout time.Duration) (string, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, timeout, errTimeUp)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := c.action(waiting, name)
		if err == nil {
			if text := a.Annotations[api.RollbackOutcomeKey]; text != "" {
				return text, nil
			}
			if a.Labels[api.RollbackKey] == "" {
				return "", fmt.Errorf("action %q: somebody else has withdrawn the request", name)
			}
		}
		if waiting.Err() == nil {
			select {
			case <-waiting.Done():
			case <-tick.C:
				continue // after an error, too: the request must not stay
			}
		}
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		cause := fmt.Errorf("action %q: %w", name, context.Cause(waiting))
		if err := c.relabel(late, name, "federator-actions", nil, map[string]any{api.RollbackReasonKey: nil}); err != nil {
			return "", errors.Join(cause, fmt.Errorf("the request cannot be withdrawn: %w", err))
		}
		return "", fmt.Errorf("%w; the request is withdrawn (does a federator run, with policies.hub?)", cause)
	}
}

// hint says whether the policy would do it again.
func (c *hubClient) hint(ctx context.Context, a *v1alpha1.Action, out io.Writer) error {
	fp, err := c.policy(ctx, a.Spec.Binding)
	if err != nil || fp.Spec.Mode != v1alpha1.Enforce || fp.Spec.Suspend || a.Spec.RollbackOf != "" {
		return nil //nolint:nilerr // It is a hint.
	}
	_, err = fmt.Fprintf(out, `FleetPolicy %s still enforces: if the target violates it again, it is corrected again.
To keep it as it is, suspend the policy, exempt the target in it, or protect the target on the member:
  kubectl patch fleetpolicy %s --type merge -p '{"spec":{"suspend":true}}'
`, fp.Name, fp.Name)
	return err
}
