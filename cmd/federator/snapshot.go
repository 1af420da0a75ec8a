package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/offline"
)

const snapshotHelp = `Save the objects of clusters to a directory, for use without them.

Members are followed for as long as it takes until each has synced or been given
up on. Values of Secrets and ConfigMaps are not kept. Policies and queries read
the directory with --snapshot.

  federator snapshot --contexts dev,staging -o fleet-before
  federator policy check --snapshot fleet-before`

func newSnapshotCommand() *cobra.Command {
	var source sourceFlags
	var output string
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save the objects of clusters to a directory",
		Long:  snapshotHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "" {
				return fmt.Errorf("--output is required: the directory to write")
			}
			o, err := source.open(cmd.Context(), cmd.Flags(), wanted{every: true}, cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := offline.SaveSnapshot(output, o.Snapshot, o.asOf); err != nil {
				return err
			}
			if err := o.warnIncomplete(cmd.ErrOrStderr(), wanted{every: true}); err != nil {
				return err
			}
			return savedTable(cmd.OutOrStdout(), o.Snapshot)
		},
	}
	source.register(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "`directory` to write, which must be empty or not there")
	return cmd
}

func savedTable(w io.Writer, s *aggregate.Snapshot) error {
	t := newTable("MEMBER", "KINDS", "OBJECTS", "INCOMPLETE")
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
		c := cell{text: strconv.Itoa(incomplete), right: true}
		if incomplete > 0 {
			c.color = yellow
		}
		t.row(cell{text: m.Name}, cell{text: strconv.Itoa(kinds), right: true}, cell{text: strconv.Itoa(objects), right: true}, c)
	}
	_, err := w.Write(t.render(colored(w)))
	return err
}
