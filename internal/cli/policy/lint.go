package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/report/sarif"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/policy"
)

const lintHelp = `Report errors and questionable constructs in policies, without evaluating them.

Errors prevent the policies from being loaded; warnings do not. Exits with 1 if there
are errors or, with --strict, warnings.

  federator policy lint policies/
  federator policy lint --strict -o sarif policies/ > lint.sarif`

// lintFormats are the output formats of findings.
var lintFormats = []string{"table", "json", "sarif"}

func lintCommand(version string) *cobra.Command {
	var output string
	var strict bool
	cmd := &cobra.Command{
		Use:   "lint DIR...",
		Short: "Report errors and warnings in policies",
		Long:  lintHelp,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return exit.BadInput(runLint(cmd.OutOrStdout(), args, output, version, strict))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or sarif")
	cmd.Flags().BoolVar(&strict, "strict", false, "fail for warnings as well")
	return cmd
}

func runLint(w io.Writer, dirs []string, output, version string, strict bool) error {
	if !slices.Contains(lintFormats, output) {
		return fmt.Errorf("--output %q is not %s", output, strings.Join(lintFormats, ", "))
	}
	set, err := policyfiles.Load(dirs)
	l := lintResult{Findings: []policy.Finding{}}
	var bad policy.LoadErrors
	switch {
	case errors.As(err, &bad):
		l.Findings = append(l.Findings, bad...)
	case err != nil:
		return err
	default:
		l.Findings = append(l.Findings, policy.Lint(set)...)
	}
	for _, f := range l.Findings {
		if f.Severity == policy.SeverityError {
			l.Errors++
		} else {
			l.Warnings++
		}
	}
	if err := l.write(w, output, version); err != nil {
		return err
	}
	if l.Errors > 0 || strict && l.Warnings > 0 {
		return exit.Findings(l.summary())
	}
	return nil
}

// lintResult is the findings in policies.
type lintResult struct {
	Errors   int              `json:"errors"`
	Warnings int              `json:"warnings"`
	Findings []policy.Finding `json:"findings"`
}

func (l *lintResult) summary() string {
	return console.Plural(l.Errors, "error", "errors") + ", " + console.Plural(l.Warnings, "warning", "warnings")
}

func (l *lintResult) write(w io.Writer, format, version string) error {
	switch format {
	case "json":
		return console.WriteJSON(w, l)
	case "sarif":
		return console.WriteJSON(w, l.sarif(version))
	}
	var b bytes.Buffer
	for _, f := range l.Findings { // as compilers do, so that editors can jump to the location
		b.WriteString(console.Printable(f.String()) + "\n")
	}
	b.WriteString(l.summary() + "\n")
	_, err := w.Write(b.Bytes())
	return err
}

// sarif converts findings to results; their codes are the rules.
func (l *lintResult) sarif(version string) *sarif.Log {
	log, run := sarif.New(version)
	index := map[string]int{}
	for _, f := range l.Findings {
		level := "warning"
		if f.Severity == policy.SeverityError {
			level = "error"
		}
		i, ok := index[f.Code]
		if !ok {
			i = len(run.Tool.Driver.Rules)
			index[f.Code] = i
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarif.Rule{ID: f.Code, DefaultConfiguration: sarif.Configuration{Level: level}})
		}
		out := sarif.Result{RuleID: f.Code, RuleIndex: &i, Kind: "fail", Level: level, Message: sarif.Text{Text: f.Message}, Locations: []sarif.Location{}}
		if f.File != "" {
			out.Locations = append(out.Locations, sarif.Location{Physical: sarif.File(f.File, f.Line, f.Col)})
		}
		run.Results = append(run.Results, out)
	}
	run.Invocations = []sarif.Invocation{{ExecutionSuccessful: true}}
	return log
}
