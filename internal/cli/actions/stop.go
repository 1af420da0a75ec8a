package actions

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

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
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "federator's `namespace` on the hub (default where its Lease is, else "+config.DefaultNamespace+")")
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
			namespace, err := c.namespace(cmd.Context(), flags.namespace, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return c.stop(cmd.Context(), namespace, of, reason, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`reason` that is shown with it")
	flags.register(cmd)
	return cmd
}

// namespace returns the namespace that federator runs in: the one that is named, else where its
// Lease is, else where it is installed by default. A stop in another namespace has no effect.
func (c *hubClient) namespace(ctx context.Context, named string, stderr io.Writer) (string, error) {
	namespaces, err := c.leases(ctx, named)
	switch {
	case apierrors.IsForbidden(err):
		return cmp.Or(named, config.DefaultNamespace), nil // whether federator is there is not for this user to see
	case err != nil:
		return "", fmt.Errorf("finding federator's namespace: %w", err)
	case len(namespaces) == 1:
		return namespaces[0], nil
	case len(namespaces) > 1:
		return "", exit.BadInput(fmt.Errorf("Leases %s are in the namespaces %s: say with --namespace which is federator's", election.LeaseName, strings.Join(namespaces, ", ")))
	}
	named = cmp.Or(named, config.DefaultNamespace)
	_, err = fmt.Fprintf(stderr, "warning: federator has no Lease %[2]s in namespace %[1]s: is --namespace right?\n", named, election.LeaseName)
	return named, err
}

// leases returns the namespaces that have federator's Lease: all that there are, or the named one.
func (c *hubClient) leases(ctx context.Context, named string) ([]string, error) {
	list, err := c.CoordinationV1().Leases(named).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", election.LeaseName).String()})
	if err != nil {
		return nil, err
	}
	var namespaces []string
	for n := range list.Items {
		namespaces = append(namespaces, list.Items[n].Namespace)
	}
	return namespaces, nil
}

func (c *hubClient) stop(ctx context.Context, namespace string, of hub.StopScope, reason string, out io.Writer) error {
	who, made, err := hub.CreateStop(ctx, c, namespace, of, c.FieldManager(ctx), reason)
	if err != nil {
		return fmt.Errorf("actions are not stopped: %w", err)
	}
	text := "are stopped"
	if !made {
		text = "were already stopped"
	}
	_, err = fmt.Fprintf(out, "%s %s %s\n", of.Actions(), text, console.Printable(who))
	return err
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
			namespace, err := c.namespace(cmd.Context(), flags.namespace, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			who, err := hub.DeleteStop(cmd.Context(), c, namespace, of)
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
