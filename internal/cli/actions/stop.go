package actions

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/election"
	"federator.dev/federator/pkg/hub"
)

const stopHelp = `Stop all writes to members, of all replicas and within a second, until resume.

Writes that are in flight complete. The stop is the ConfigMap federator-stop in
federator's namespace, so that it holds for every replica and across restarts; a
federator that cannot read it writes nothing.`

func stopCommand(f *hubFlags) *cobra.Command {
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
	cmd.Flags().StringVar(&reason, "reason", "", "`reason` that is shown with it")
	registerNamespace(cmd, &namespace)
	return cmd
}

func registerNamespace(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", config.DefaultNamespace, "federator's `namespace` on the hub: policies.namespace of its configuration")
}

func (c *hubClient) stop(ctx context.Context, namespace, reason string, out, stderr io.Writer) error {
	who, made, err := hub.StopAll(ctx, c, namespace, c.me(ctx), reason)
	if err != nil {
		return fmt.Errorf("actions are not stopped: %w", err)
	}
	text := "all actions are stopped"
	if !made {
		text = "all actions were already stopped"
	}
	if _, err := fmt.Fprintf(out, "%s %s\n", text, console.Printable(who)); err != nil {
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
	var namespace string
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Resume actions after a stop",
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
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "actions are resumed; they were stopped %s\n", console.Printable(who))
			}
			return err
		},
	}
	registerNamespace(cmd, &namespace)
	return cmd
}
