package docs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/policyfiles"
)

const help = `Generate documentation of policies from their METADATA: titles, kinds, parameters.

Prints Markdown or JSON. --write puts the Markdown into DIR/README.md, between the
lines

  ` + beginMarker + `
  ` + endMarker + `

or at its end if these lines are missing. --check writes nothing and exits with 1 if
README.md is out of date.

  federator policy docs --write policies/
  federator policy docs -o json policies/`

const (
	beginMarker = "<!-- BEGIN federator policy docs -->"
	endMarker   = "<!-- END federator policy docs -->"
	readme      = "README.md"
)

func Command() *cobra.Command {
	var output string
	var write, check bool
	cmd := &cobra.Command{
		Use:   "docs DIR",
		Short: "Generate documentation of policies",
		Long:  help,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return exit.BadInput(run(cmd.OutOrStdout(), args[0], output, write, check))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "markdown", "markdown or json")
	cmd.Flags().BoolVar(&write, "write", false, "write the Markdown into README.md")
	cmd.Flags().BoolVar(&check, "check", false, "fail if README.md is out of date")
	cmd.MarkFlagsMutuallyExclusive("write", "check")
	return cmd
}

func run(w io.Writer, dir, output string, write, check bool) (err error) {
	switch {
	case output != "markdown" && output != "json":
		return fmt.Errorf("--output %q is not markdown or json", output)
	case output == "json" && (write || check):
		return fmt.Errorf("%s is Markdown: --output json cannot be used with --write or --check", readme)
	}
	tree, name, err := policyfiles.OpenDir(dir)
	if err != nil {
		return err
	}
	defer tree.Close()
	docs, err := readDocs(tree.FS(), name)
	if err != nil {
		return err
	}
	switch {
	case output == "json":
		return console.WriteJSON(w, docs)
	case !write && !check:
		_, err := w.Write(docs.markdown())
		return err
	}
	before, err := fs.ReadFile(tree.FS(), readme)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	after, err := replaceGenerated(before, docs.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path.Join(name, readme), err)
	}
	switch {
	case bytes.Equal(before, after):
		return nil
	case check:
		return exit.Findings(fmt.Sprintf("%s is out of date: run federator policy docs --write %s", path.Join(name, readme), dir))
	}
	if err := policyfiles.ReplaceFile(tree, readme, after); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, console.Printable(path.Join(name, readme)))
	return err
}

// replaceGenerated puts text between the markers of a file, or at its end.
func replaceGenerated(file, text []byte) ([]byte, error) {
	block := []byte(beginMarker + "\n\n" + string(text) + "\n" + endMarker + "\n")
	begin, end := bytes.Index(file, []byte(beginMarker)), bytes.Index(file, []byte(endMarker))
	switch {
	case begin < 0 && end < 0:
		if len(file) > 0 {
			file = append(bytes.TrimRight(file, "\n"), "\n\n"...)
		}
		return append(file, block...), nil
	case begin < 0 || end < begin || bytes.Count(file, []byte(beginMarker)) > 1 || bytes.Count(file, []byte(endMarker)) > 1:
		return nil, fmt.Errorf("the lines %s and %s must occur once, in this order", beginMarker, endMarker)
	}
	rest := bytes.TrimPrefix(file[end+len(endMarker):], []byte("\n"))
	return slices.Concat(file[:begin], block, rest), nil
}
