package actions

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/election"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/hub"
)

const stopHelp = `Stop writes to members, of all replicas and within a second, until resume: all, or
those of one policy, to one member, or of all policies of one PolicySource.

Writes that are in flight complete. A stop is a ConfigMap in federator's namespace
(federator-stop, federator-stop-policy-NAME and so on), so that it holds for every
replica and across restarts, and it never expires; a federator that cannot read them
writes nothing. A ConfigMap that is named or labelled as a stop and makes no sense stops
everything.

  federator actions stop --reason "incident 4711"
  federator actions stop --policy replicas
  federator actions stop --member fleet/eu-1`

// stopFlags say what is stopped, and where federator is.
type stopFlags struct {
	namespace              string
	policy, member, source string
}

func (f *stopFlags) register(cmd *cobra.Command) {
	registerNamespace(cmd, &f.namespace)
	cmd.Flags().StringVar(&f.policy, "policy", "", "only this `FleetPolicy`")
	cmd.Flags().StringVar(&f.member, "member", "", "only this member, as `NAMESPACE/NAME`")
	cmd.Flags().StringVar(&f.source, "source", "", "only policies of this `PolicySource`")
	cmd.MarkFlagsMutuallyExclusive("policy", "member", "source")
}

// scope returns what the flags name.
func (f *stopFlags) scope(cmd *cobra.Command) (hub.StopScope, error) {
	var of hub.StopScope
	for scope, name := range map[string]string{hub.StopPolicy: f.policy, hub.StopMember: f.member, hub.StopSource: f.source} {
		if cmd.Flags().Changed(scope) { // an empty one is a mistake, and not everything
			of = hub.StopScope{Scope: scope, Name: name}
		}
	}
	if err := of.Validate(); err != nil {
		return of, exit.BadInput(err)
	}
	return of, nil
}

func stopCommand(f *hubFlags) *cobra.Command {
	var flags stopFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop all actions, or those of a policy, a member or a source",
		Long:  stopHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			of, err := flags.scope(cmd)
			if err != nil {
				return err
			}
			c, err := f.open()
			if err != nil {
				return err
			}
			return c.stop(cmd.Context(), flags.namespace, of, reason, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`reason` that is shown with it")
	flags.register(cmd)
	return cmd
}

func registerNamespace(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", config.DefaultNamespace, "federator's `namespace` on the hub: policies.namespace of its configuration")
}

func (c *hubClient) stop(ctx context.Context, namespace string, of hub.StopScope, reason string, out, stderr io.Writer) error {
	who, made, err := hub.CreateStop(ctx, c, namespace, of, c.me(ctx), reason)
	if err != nil {
		return fmt.Errorf("actions are not stopped: %w", err)
	}
	text := "are stopped"
	if !made {
		text = "were already stopped"
	}
	if _, err := fmt.Fprintf(out, "%s %s %s\n", of.Actions(), text, console.Printable(who)); err != nil {
		return err
	}
	// A stop in another namespace has no effect.
	_, err = c.CoordinationV1().Leases(namespace).Get(ctx, election.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = fmt.Fprintf(stderr, "warning: federator has no Lease %[2]s in namespace %[1]s: is --namespace right?\n", namespace, election.LeaseName)
		return err
	}
	return nil
}

func resumeCommand(f *hubFlags) *cobra.Command {
	var flags stopFlags
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Resume actions after a stop of the same scope",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			of, err := flags.scope(cmd)
			if err != nil {
				return err
			}
			c, err := f.open()
			if err != nil {
				return err
			}
			who, err := hub.DeleteStop(cmd.Context(), c, flags.namespace, of)
			if err != nil {
				return fmt.Errorf("actions are not resumed: %w", err)
			}
			subject := strings.TrimPrefix(of.Actions(), "all ")
			if who == "" {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), subject+" are not stopped")
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s are resumed; they were stopped %s\n", subject, console.Printable(who))
			}
			return err
		},
	}
	flags.register(cmd)
	return cmd
}
