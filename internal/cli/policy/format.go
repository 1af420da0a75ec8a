package policy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
	unified "github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/policy"
)

const formatHelp = `Format policies as "opa fmt" does, in place, and list the files that changed.

With --check or --diff nothing is written: --check lists the files that are not
formatted and exits with 1 if there are any, --diff shows what would change. If a file
cannot be parsed, no file is written, and the exit code is 2.

  federator policy fmt policies/
  federator policy fmt --check policies/`

func formatCommand() *cobra.Command {
	var check, diffs bool
	cmd := &cobra.Command{
		Use:   "fmt DIR...",
		Short: "Format policies",
		Long:  formatHelp,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return exit.BadInput(runFormat(cmd.OutOrStdout(), args, check, diffs))
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "list the files that are not formatted, write nothing, and fail if there are any")
	cmd.Flags().BoolVar(&diffs, "diff", false, "show what would change, and write nothing")
	return cmd
}

// unformatted is a file that formatting changes.
type unformatted struct {
	tree          *os.Root
	path, name    string // within the tree, and for messages
	before, after []byte
}

func runFormat(w io.Writer, dirs []string, check, diffs bool) (err error) {
	var found []unformatted
	var bad policy.LoadErrors
	for _, dir := range dirs {
		tree, name, err := policyfiles.OpenDir(dir)
		if err != nil {
			return err
		}
		defer tree.Close()
		if found, err = findUnformatted(found, &bad, tree, name); err != nil {
			return err
		}
	}
	if len(bad) > 0 {
		return bad
	}
	for _, f := range found {
		if !check && !diffs {
			if err := f.write(); err != nil {
				return err
			}
		}
		out := []byte(console.Printable(f.name) + "\n")
		if diffs {
			out = printableLines(unified.Diff(f.name, f.before, f.name+" (formatted)", f.after))
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
	if check && len(found) > 0 {
		return exit.Findings(console.Plural(len(found), "file is", "files are") + " not formatted")
	}
	return nil
}

// findUnformatted appends the files of a tree that formatting changes to found, and the
// errors of those that it cannot format to bad.
func findUnformatted(found []unformatted, bad *policy.LoadErrors, tree *os.Root, name string) ([]unformatted, error) {
	source, err := policy.ReadSource(name, tree.FS())
	if err != nil {
		return nil, err
	}
	for _, f := range source.Files {
		if !strings.HasSuffix(f.Path, ".rego") {
			continue
		}
		u := unformatted{tree: tree, path: f.Path, name: path.Join(name, f.Path), before: f.Data}
		var findings []policy.Finding
		if u.after, findings = formatRego(u.name, f.Data); findings != nil {
			*bad = append(*bad, findings...)
		} else if !bytes.Equal(u.before, u.after) {
			found = append(found, u)
		}
	}
	return found, nil
}

// formatRego formats a file, or says why it cannot.
func formatRego(name string, data []byte) ([]byte, []policy.Finding) {
	one := func(data []byte) ([]byte, error) {
		return format.SourceWithOpts(name, data, format.Opts{
			RegoVersion:   ast.RegoV1,
			ParserOptions: &ast.ParserOptions{RegoVersion: ast.RegoV1},
		})
	}
	out, err := one(data)
	if err == nil {
		var again []byte
		if again, err = one(out); err == nil && !bytes.Equal(out, again) {
			err = errors.New("formatting is not stable: a second pass changes the file again")
		}
	}
	if err == nil {
		return out, nil
	}
	finding := policy.Finding{Code: "parse", Severity: policy.SeverityError, File: name, Message: err.Error()}
	var list ast.Errors
	if !errors.As(err, &list) {
		return nil, []policy.Finding{finding}
	}
	var findings []policy.Finding
	for _, e := range list {
		f := finding
		f.Message = e.Message
		if e.Location != nil {
			f.Line, f.Col = e.Location.Row, e.Location.Col
		}
		findings = append(findings, f)
	}
	return nil, findings
}

// write replaces the file atomically: a reader sees the text before or after.
func (f *unformatted) write() error { return policyfiles.ReplaceFile(f.tree, f.path, f.after) }

// printableLines makes each line of a text printable and keeps its indentation.
func printableLines(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		s := strings.TrimRight(string(line), "\n")
		indent := len(s) - len(strings.TrimLeft(s, " \t+-"))
		b.WriteString(s[:indent] + console.Printable(s[indent:]) + "\n")
	}
	return b.Bytes()
}
