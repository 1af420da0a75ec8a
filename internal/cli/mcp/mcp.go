package mcp

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/mcp"
)

const help = `Serve tools that read the fleet to an assistant on this machine, which starts this
command: the Model Context Protocol on standard input and output.

The tools ask the query API of the kubeconfig, as its user, and only read. What they
show goes to the assistant, and so to those who run its model.

  {"mcpServers": {"federator": {"command": "federator", "args": ["mcp"]}}}

A server with query.mcp: true serves the same tools at /mcp, to assistants elsewhere.`

func Command(version string) *cobra.Command {
	flags := queryclient.Flags{Version: version}
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve tools that read the fleet to an assistant (Model Context Protocol)",
		Long:  help,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.Client()
			if err != nil {
				return err
			}
			server, err := mcp.New(mcp.Options{Version: version, Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))})
			if err != nil {
				return err
			}
			return server.Run(cmd.Context(), client, io.NopCloser(cmd.InOrStdin()), unclosed{cmd.OutOrStdout()})
		},
	}
	flags.RegisterServer(cmd)
	return cmd
}

var _ mcp.API = (*queryclient.Client)(nil)

// unclosed is standard output, which the process closes.
type unclosed struct{ io.Writer }

// Close implements io.Closer.
func (unclosed) Close() error { return nil }
