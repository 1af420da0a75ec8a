package actions

import (
	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/hubclient"
)

const help = `List what federator has written to members and would write, roll it back, and stop
all writes.

All but plan talk to the hub with the kubeconfig that kubectl uses: KUBECONFIG, else
~/.kube/config, or --kubeconfig and --context. Permissions needed on the hub:

  list, show     get and list actions
  rollback       patch actions; with --policy get and list actions, get fleetpolicies,
                 get and create rollbacks, and rollback fleetpolicies
  ack            get and patch fleetpolicies
  plan           none on the hub: it asks the query API
  approve        get fleetpolicies, policysources and plans; get and create approvals;
                 and approve fleetpolicies or policysources
  stop, resume   create, get and delete ConfigMap federator-stop, and those of
                 policies (federator-stop-policy-NAME), members and sources

The same with kubectl:

  kubectl get actions
  kubectl label action NAME federator.dev/rollback=true
  kubectl -n federator create configmap federator-stop`

func Command(version string) *cobra.Command {
	f := hubFlags{hubclient.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "actions",
		Short: "List what was written to members or would be, roll it back, and stop all writes",
		Long:  help,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.Register(cmd.PersistentFlags())
	cmd.AddCommand(
		listCommand(&f), showCommand(&f), planCommand(version), rollbackCommand(&f), approveCommand(&f), ackCommand(&f),
		stopCommand(&f), resumeCommand(&f),
	)
	return cmd
}
