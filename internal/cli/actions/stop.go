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

const stopHelp = `Keep everybody from writing anything to members, within a second, until resume.

What is under way is not taken back. The stop is ConfigMap federator-stop in the
namespace of federator, so that it holds for every replica and after restarts; a
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
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for those who read it")
	registerNamespace(cmd, &namespace)
	return cmd
}

func registerNamespace(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", config.DefaultNamespace, "`namespace` of federator on the hub: policies.namespace of its configuration")
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
	if _, err := fmt.Fprintf(out, "%s %s\n", text, console.Printable(who)); err != nil {
		return err
	}
	// A stop where nobody looks stops nobody.
	_, err = c.CoordinationV1().Leases(namespace).Get(ctx, election.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = fmt.Fprintf(stderr, "warning: no federator has acted in namespace %s (there is no Lease %s): is --namespace right?\n", namespace, election.LeaseName)
		return err
	}
	return nil
}

func resumeCommand(f *hubFlags) *cobra.Command {
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
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "actions go on; they were stopped %s\n", console.Printable(who))
			}
			return err
		},
	}
	registerNamespace(cmd, &namespace)
	return cmd
}
