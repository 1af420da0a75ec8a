package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/input"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/policy"
)

const help = `Evaluate a Rego query over data.fleet: the objects of all members at one revision.

  data.fleet.objects[kind][member][namespace][name]   one object
  data.fleet.by_name[kind][namespace][name]           member -> object
  data.fleet.members[member].{labels, version, apis}
  data.fleet.members[member].{annotations, paused, conditions, topology}   of its Cluster
  data.fleet.names                                    names of the members
  data.fleet.scopes[member][kind]                     state of a kind in a member
  data.fleet.passed["2026-01-02T15:04:05Z"]           true if that time has passed
  data.fleet.external[source][key]                    what --external has

Kinds are written as kubectl does, with the group: Pod, "Deployment.apps".
The namespace of cluster-scoped objects is "". The query only reads.

  federator query --contexts dev,staging 'data.fleet.names'
  federator query --snapshot fleet-before 'image := data.fleet.objects.Pod[member][_][_].spec.containers[_].image'
  federator query -f manifests/ 'some m; count(data.fleet.objects["Ingress.networking.k8s.io"][m]) > 3'`

// options are the flags of `federator query`.
type options struct {
	source  input.Flags
	output  string
	timeout time.Duration
	maxRead int64
	maxRows int

	external string // a file
}

func Command(version string) *cobra.Command {
	opts := options{source: input.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "query REGO",
		Short: "Evaluate a Rego query over the objects of all members",
		Long:  help,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return exit.BadInput(run(cmd, &opts, args[0]))
		},
	}
	opts.source.Register(cmd.Flags())
	opts.source.RegisterAsOf(cmd.Flags())
	cmd.Flags().StringVarP(&opts.output, "output", "o", "table", "table, json or yaml")
	cmd.Flags().StringVar(&opts.external, "external", "", "`file` of data.fleet.external: YAML or JSON of source, key and document")
	cmd.Flags().DurationVar(&opts.timeout, "timeout", time.Minute, "how long the evaluation may take")
	cmd.Flags().Int64Var(&opts.maxRead, "max-read", 1<<30, "how many `bytes` of objects may be read")
	cmd.Flags().IntVar(&opts.maxRows, "max-rows", 100_000, "how many rows may be returned")
	return cmd
}

func run(cmd *cobra.Command, opts *options, query string) error {
	switch opts.output {
	case "table", "json", "yaml":
	default:
		return fmt.Errorf("--output %q is not table, json or yaml", opts.output)
	}
	if opts.timeout <= 0 || opts.maxRead <= 0 || opts.maxRows <= 0 {
		return errors.New("--timeout, --max-read and --max-rows must be positive")
	}
	fleet, err := opts.source.Open(cmd.Context(), cmd.Flags(), input.Everything(), cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if err := fleet.WarnIncomplete(cmd.ErrOrStderr(), input.Everything()); err != nil {
		return err
	}
	external, err := policyfiles.ReadExternal(opts.external)
	if err != nil {
		return err
	}
	answer, err := policy.Query(cmd.Context(), policy.QueryOptions{
		External: external, Snapshot: fleet.Snapshot, AsOf: fleet.AsOf, Reader: policy.Everything{},
		Timeout: opts.timeout, MaxRead: opts.maxRead, MaxRows: opts.maxRows,
	}, query)
	if err != nil {
		return err
	}
	answer.Revision = fleet.SourceRevision
	return writeAnswer(cmd.OutOrStdout(), answer, opts.output)
}

func writeAnswer(w io.Writer, answer *policy.Answer, format string) error {
	switch format {
	case "json":
		return console.WriteJSON(w, answer)
	case "yaml":
		b, err := yaml.Marshal(answer)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	}
	if len(answer.Rows) == 0 {
		_, err := fmt.Fprintln(w, "undefined")
		return err
	}
	names := map[string]bool{}
	for _, r := range answer.Rows {
		for name := range r.Bindings {
			names[name] = true
		}
	}
	header := slices.Sorted(maps.Keys(names))
	if len(header) == 0 {
		return writeValues(w, answer.Rows)
	}
	t := console.NewTable(header...)
	for _, r := range answer.Rows {
		row := make([]console.Cell, 0, len(header))
		for _, name := range header {
			text, err := compact(r.Bindings[name])
			if err != nil {
				return err
			}
			row = append(row, console.Cell{Text: text})
		}
		t.AddRow(row...)
	}
	_, err := w.Write(t.Render(console.Colored(w)))
	return err
}

// writeValues writes the values of a query without variables, as JSON.
func writeValues(w io.Writer, rows []policy.Row) error {
	for _, r := range rows {
		for _, v := range r.Values {
			if err := console.WriteJSON(w, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// compact writes a value in one line: a string as it is, anything else as JSON.
func compact(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return string(bytes.TrimSpace(b.Bytes())), nil
}
