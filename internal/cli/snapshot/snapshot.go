package snapshot

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/input"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/offline"
)

const help = `Save the objects of clusters to a directory, for offline use.

The command waits until each member has synced or --give-up-after has passed. Values of
Secrets and ConfigMaps are not saved. Policies and queries read the directory with
--snapshot.

  federator snapshot --contexts dev,staging -o fleet-before
  federator policy check --snapshot fleet-before`

func Command(version string) *cobra.Command {
	source := input.Flags{Version: version}
	var output string
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save the objects of clusters to a directory",
		Long:  help,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "" {
				return fmt.Errorf("--output is required: the directory to write to")
			}
			o, err := source.Open(cmd.Context(), cmd.Flags(), input.Everything(), cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := offline.SaveSnapshot(output, o.Snapshot, o.AsOf); err != nil {
				return err
			}
			if err := o.WarnIncomplete(cmd.ErrOrStderr(), input.Everything()); err != nil {
				return err
			}
			return savedTable(cmd.OutOrStdout(), o.Snapshot)
		},
	}
	source.Register(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "`directory` to write, which must be empty or not exist")
	return cmd
}

func savedTable(w io.Writer, s *aggregate.Snapshot) error {
	t := console.NewTable("MEMBER", "KINDS", "OBJECTS", "INCOMPLETE")
	for m := range s.Members() {
		kinds, objects, incomplete := 0, 0, 0
		for scope := range s.Scopes(m.Name) {
			objects += scope.Objects
			if scope.Objects > 0 {
				kinds++
			}
			if !scope.Status.State.Complete() {
				incomplete++
			}
		}
		c := console.Cell{Text: strconv.Itoa(incomplete), Right: true}
		if incomplete > 0 {
			c.Color = console.Yellow
		}
		t.AddRow(console.Cell{Text: m.Name}, console.Cell{Text: strconv.Itoa(kinds), Right: true}, console.Cell{Text: strconv.Itoa(objects), Right: true}, c)
	}
	_, err := w.Write(t.Render(console.Colored(w)))
	return err
}
