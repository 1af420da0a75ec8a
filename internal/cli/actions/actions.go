package actions

import (
	"github.com/spf13/cobra"
)

const help = `See what federator has written to members, take it back, and stop it.

The hub is asked, as kubectl asks it: KUBECONFIG, else ~/.kube/config, or
--kubeconfig and --context. What you may do there, you may do here:

  list, show     get and list actions
  rollback       patch actions
  ack            get and patch fleetpolicies
  stop, resume   create, get and delete ConfigMap federator-stop

Without this command: kubectl get actions; kubectl label action NAME
federator.dev/rollback=true; kubectl create configmap federator-stop.`

func Command(version string) *cobra.Command {
	f := hubFlags{version: version}
	cmd := &cobra.Command{
		Use:   "actions",
		Short: "See what was written to members, take it back, and stop it",
		Long:  help,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.register(cmd.PersistentFlags())
	cmd.AddCommand(
		listCommand(&f), showCommand(&f), rollbackCommand(&f), ackCommand(&f),
		stopCommand(&f), resumeCommand(&f),
	)
	return cmd
}
