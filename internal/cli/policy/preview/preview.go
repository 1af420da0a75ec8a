package preview

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/strictyaml"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
)

const help = `Judge the policies of a directory, or of a commit of the repository here, on the live fleet beside the
active ones: violations that would appear, vanish or change, corrections that would be called for, and
what evaluating takes. Nothing becomes active, and nothing is written.

With --source the files replace those of that PolicySource, so that policies which they do not have are
removed; without it they replace packages of the same names. You see what you are allowed to read: a policy
that reads more is withheld, and named. It takes the verb preview on policysources.federator.dev of the hub.
One preview runs at a time, and gives way to the verdicts of the active policies.

  federator policy preview policies/ --source fleet-policies
  federator policy preview HEAD --path policies --source fleet-policies -o markdown
  federator policy preview policies/ --bindings bindings.yaml --exit-code`

// options are the flags of the command.
type options struct {
	client               queryclient.Flags
	source, path, output string
	repository, bindings string
	fail                 bool
	isDir                bool // the policies are of a directory, not of a commit
}

// Command returns `federator policy preview`.
func Command(version string) *cobra.Command {
	o := options{client: queryclient.Flags{Version: version}}
	cmd := &cobra.Command{
		Use: "preview DIR|COMMIT", Short: "Judge policies on the live fleet before they are active", Long: help,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.client.RegisterServer(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.source, "source", "", "`name` of the PolicySource whose files these are")
	fs.StringVar(&o.repository, "repository", ".", "`directory` of the git repository that a commit is of")
	fs.StringVar(&o.path, "path", "", "`directory` of the policies within a commit")
	fs.StringVar(&o.bindings, "bindings", "", "`file` of bindings, which replace active ones of the same names")
	fs.StringVarP(&o.output, "output", "o", "table", "table, json, markdown or sarif")
	fs.BoolVar(&o.fail, "exit-code", false, "exit with 1 if violations appear or evaluations fail, and with 3 if something is not known")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func (o *options) run(cmd *cobra.Command, of string) error {
	write := writers[o.output]
	if write == nil {
		return exit.BadInput(fmt.Errorf("--output %q is not %s", o.output, strings.Join(formats, ", ")))
	}
	candidate, err := o.candidate(cmd.Context(), of)
	if err != nil {
		return exit.BadInput(err)
	}
	client, err := o.client.Client()
	if err != nil {
		return exit.BadInput(err)
	}
	body, err := json.Marshal(candidate)
	if err != nil {
		return err
	}
	answer, err := client.Post(cmd.Context(), "/query/v1/preview", body)
	if err != nil {
		return err
	}
	if o.output == "json" {
		_, err = cmd.OutOrStdout().Write(answer)
	}
	r := &policyquery.PreviewReport{}
	if err := errors.Join(err, json.Unmarshal(answer, r)); err != nil {
		return err
	}
	o.locate(r, of, candidate)
	if err := write(cmd.OutOrStdout(), r, o.client.Version); err != nil {
		return err
	}
	return o.check(r)
}

// locate names the files of policies that were sent as they are here, or in the repository, instead of as in the
// source: a host of git shows what is said of a file beside it.
func (o *options) locate(r *policyquery.PreviewReport, of string, sent *policyquery.PreviewCandidate) {
	dir := o.path
	if o.isDir {
		dir = of
	}
	here := make(map[string]string, len(sent.Files))
	for _, f := range sent.Files {
		here[cmp.Or(sent.Source, policy.CandidateName)+"/"+f.Path] = path.Join(filepath.ToSlash(dir), f.Path)
	}
	for _, p := range r.Policies {
		p.File = cmp.Or(here[p.File], p.File)
	}
}

// check returns the error that an exit code follows from.
func (o *options) check(r *policyquery.PreviewReport) error {
	if !o.fail {
		return nil
	}
	appear, failed, unknown := 0, 0, 0
	for _, p := range r.Policies {
		appear, failed, unknown = appear+p.Appear, failed+p.Errors, unknown+p.Unknown
	}
	switch {
	case appear+failed > 0:
		return exit.Findings(console.Plural(appear, "verdict with violations appears", "verdicts with violations appear") + ", " +
			console.Plural(failed, "evaluation fails", "evaluations fail"))
	case !r.Complete:
		return exit.WithCode(errors.New("the preview is not complete: "+r.Ended), exit.CodeUnknown)
	case unknown > 0:
		return exit.WithCode(errors.New(console.Plural(unknown, "verdict is", "verdicts are")+" unknown"), exit.CodeUnknown)
	case len(r.Withheld) > 0:
		return exit.WithCode(errors.New("withheld: "+strings.Join(r.Withheld, ", ")), exit.CodeUnknown)
	}
	return nil
}

// candidate reads what is sent: policies of a directory that is there, else of a commit.
func (o *options) candidate(ctx context.Context, of string) (*policyquery.PreviewCandidate, error) {
	c := &policyquery.PreviewCandidate{Source: o.source}
	var err error
	if info, statErr := os.Stat(of); statErr == nil && info.IsDir() {
		if o.path != "" {
			return nil, errors.New("--path is for a commit")
		}
		o.isDir = true
		c.Files, err = filesOf(of)
	} else {
		c.Files, err = filesAt(ctx, o.repository, of, o.path)
	}
	if err == nil && len(c.Files) == 0 {
		err = fmt.Errorf("%s: there are no policies", of)
	}
	if err != nil {
		return nil, err
	}
	if o.bindings == "" {
		return c, nil
	}
	data, err := config.ReadFile(o.bindings)
	if err != nil {
		return nil, fmt.Errorf("bindings: %w", err)
	}
	var doc struct {
		Bindings []policy.Binding `json:"bindings"`
	}
	if _, problems := strictyaml.Decode(data, &doc); len(problems) > 0 {
		return nil, fmt.Errorf("%s:%d:%d: %s", o.bindings, problems[0].Line, problems[0].Col, problems[0].Message)
	}
	c.Bindings = doc.Bindings
	return c, nil
}

func filesOf(dir string) ([]policyquery.PreviewFile, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s, err := policy.ReadSource("", root.FS())
	if err != nil {
		return nil, err
	}
	var files []policyquery.PreviewFile
	for _, f := range s.Files {
		if policy.Reads(f.Path, f.Data) {
			files = append(files, policyquery.PreviewFile{Path: f.Path, Text: string(f.Data)})
		}
	}
	return files, nil
}

// formats are those of --output.
var formats = []string{"table", "json", "markdown", "sarif"}

var writers = map[string]func(io.Writer, *policyquery.PreviewReport, string) error{
	"table": table, "markdown": markdown, "sarif": asSARIF,
	"json": func(io.Writer, *policyquery.PreviewReport, string) error { return nil }, // as it was received
}
