package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/export"
	"federator.dev/federator/internal/rows"
)

const help = `Write the objects of the fleet, a row each, to files that other programs read: Parquet or
NDJSON. All files are of one revision.

  federator export pods > pods.ndjson
  federator export pods deployments.apps nodes --directory fleet -o parquet
  federator export pods -n shop -l app=web --columns phase=.status.phase,images:list=.spec.containers[*].image
  federator export pods --columns pods/cpu:quantity=.spec.resources.requests.cpu,env=memberLabel:env -d fleet -o parquet
  duckdb -c "SELECT member, phase, count(*) FROM 'fleet/pods.parquet' GROUP BY ALL"

Columns are member, namespace, name, uid, created and labels, those of kubectl get -o wide, and
chosen ones: NAME[:TYPE]=.PATH, NAME=label:KEY or NAME=memberLabel:KEY, for one resource with
RESOURCE/ before. Types are string, int, number, bool, timestamp, quantity, list and json. A
path goes through lists to all of their elements.

Files appear once all are whole. What is not complete in all members is an error, unless
--allow-incomplete is set; then the footer of Parquet files, and export.json, say what is missing.`

// options are the flags of `federator export`.
type options struct {
	flags            queryclient.Flags
	format           string
	directory        string
	namespace        string
	labels, fields   string
	members          []string
	columns          []string
	printer          bool
	allow, overwrite bool
}

// Command returns `federator export`.
func Command(version string) *cobra.Command {
	o := options{flags: queryclient.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "export RESOURCE...",
		Short: "Write objects of the fleet to Parquet or NDJSON files",
		Long:  help,
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.flags.RegisterServer(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&o.format, "output", "o", "ndjson", "parquet or ndjson")
	fs.StringVarP(&o.directory, "directory", "d", "", "`directory` to write a file of each resource to (default: one resource, to standard output)")
	fs.StringVarP(&o.namespace, "namespace", "n", "", "only this `namespace`")
	fs.StringVarP(&o.labels, "selector", "l", "", "label `selector`; labels such as federator.dev/member=<namespace>.<name> select members")
	fs.StringVar(&o.fields, "field-selector", "", "field `selector`, on any path")
	fs.StringSliceVar(&o.members, "members", nil, "only these `members`, as namespace/name")
	fs.StringArrayVar(&o.columns, "columns", nil, "further `columns`: [RESOURCE/]NAME[:TYPE]=SOURCE, separated by commas")
	fs.BoolVar(&o.printer, "printer-columns", true, "the columns of kubectl get -o wide; without them, an export takes less time")
	fs.BoolVar(&o.allow, "allow-incomplete", false, "write what there is where members are not synced")
	fs.BoolVar(&o.overwrite, "overwrite", false, "replace files that exist")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return o.flags.CompleteKinds(cmd, nil, typed)
	}
	for name, complete := range map[string]cobra.CompletionFunc{
		"output":    cobra.FixedCompletions([]string{"parquet", "ndjson"}, cobra.ShellCompDirectiveNoFileComp),
		"namespace": o.flags.CompleteNamespaces, "members": o.flags.CompleteMembers,
	} {
		cobra.CheckErr(cmd.RegisterFlagCompletionFunc(name, complete))
	}
	return cmd
}

func (o *options) run(cmd *cobra.Command, kinds []string) error {
	write := export.Options{Format: export.Format(o.format), AllowIncomplete: o.allow, Overwrite: o.overwrite}
	out := cmd.OutOrStdout()
	switch {
	case write.Format != export.Parquet && write.Format != export.NDJSON:
		return exit.BadInput(fmt.Errorf("--output: %q is not parquet or ndjson", o.format))
	case o.directory == "" && len(kinds) > 1:
		return exit.BadInput(errors.New("--directory is required for more than one resource: each has a file of its own"))
	case o.directory == "" && write.Format == export.Parquet && console.IsTerminal(out):
		return exit.BadInput(errors.New("parquet is not for terminals: redirect it, or set --directory"))
	}
	source, err := o.source(kinds)
	if err != nil {
		return exit.BadInput(err)
	}
	if source.client, err = o.flags.Client(); err != nil {
		return err
	}
	if o.directory == "" {
		s, err := o.stream(cmd.Context(), out, write, source, kinds[0])
		if err != nil {
			return incomplete(err)
		}
		return report(cmd.ErrOrStderr(), s)
	}
	manifest, err := export.WriteDirectory(cmd.Context(), o.directory, write, source, kinds)
	if err != nil {
		return incomplete(err)
	}
	for _, f := range manifest.Files {
		if err := report(cmd.ErrOrStderr(), &f.Summary); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) stream(ctx context.Context, out io.Writer, write export.Options, source export.Source, kind string) (*export.Summary, error) {
	from, err := source.Open(ctx, kind)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return export.Write(ctx, out, write, from)
}

// incomplete gives an error the exit code for what is not known.
func incomplete(err error) error {
	if missing, ok := errors.AsType[*export.IncompleteError](err); ok {
		return exit.WithCode(fmt.Errorf("%s; --allow-incomplete exports what there is", console.Printable(missing.Error())), exit.CodeUnknown)
	}
	return err
}

// report says what was exported.
func report(w io.Writer, s *export.Summary) error {
	text := fmt.Sprintf("%s: %s of %s at revision %s", s.Kind, console.Plural(int(s.Rows), "row", "rows"), console.Plural(len(s.Members), "member", "members"), s.Revision)
	if len(s.NotSynced) > 0 {
		missing := export.IncompleteError{Kind: "it", NotSynced: s.NotSynced}
		text += "; " + missing.Error()
	}
	for _, counts := range []struct {
		of   map[string]int64
		what string
	}{{s.Redacted, "redacted"}, {s.Invalid, "not of the column's type"}} {
		for _, name := range sortedKeys(counts.of) {
			text += fmt.Sprintf("; %s: %d are null, because they are %s", name, counts.of[name], counts.what)
		}
	}
	_, err := fmt.Fprintln(w, console.Printable(text))
	return err
}

func sortedKeys(m map[string]int64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// source returns the source of what the flags select, without its client.
func (o *options) source(kinds []string) (*snapshot, error) {
	s := &snapshot{namespace: o.namespace, query: url.Values{}}
	selectors := []string{}
	if o.labels != "" {
		selectors = append(selectors, o.labels)
	}
	if len(o.members) > 0 {
		values := make([]string, len(o.members))
		for i, m := range o.members {
			namespace, name, ok := strings.Cut(m, "/")
			if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
				return nil, fmt.Errorf("--members: %q is not <namespace>/<name>", m)
			}
			values[i] = namespace + "." + name
		}
		selectors = append(selectors, "federator.dev/member in ("+strings.Join(values, ",")+")")
	}
	for name, value := range map[string]string{"labelSelector": strings.Join(selectors, ","), "fieldSelector": o.fields} {
		if value != "" {
			s.query.Set(name, value)
		}
	}
	if !o.printer {
		s.query.Set(rows.PrinterParameter, "false")
	}
	var err error
	s.chosen, err = o.chosen(kinds)
	return s, err
}

// chosen returns what returns the chosen columns of a resource, "" for none.
func (o *options) chosen(kinds []string) (func(resource string) string, error) {
	of := map[string][]rows.Chosen{} // by resource as it was written, "" for all
	for _, text := range o.columns {
		for _, part := range rows.SplitChosen(text) {
			resource, rest := "", part
			if before, after, ok := strings.Cut(part, "/"); ok && !strings.ContainsAny(before, "=:") {
				resource, rest = before, after
			}
			if resource != "" && !slices.Contains(kinds, resource) {
				return nil, fmt.Errorf("--columns: %q is for %q, which is not exported", part, resource)
			}
			c, err := rows.ParseChosen(rest)
			if err != nil {
				return nil, fmt.Errorf("--columns: %w", err)
			}
			of[resource] = append(of[resource], c...)
		}
	}
	return func(resource string) string {
		return rows.FormatChosen(slices.Concat(of[""], of[resource]))
	}, nil
}
