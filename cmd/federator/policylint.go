package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"federator.dev/federator/pkg/policy"
)

const policyLintHelp = `Say what is wrong with policies, and what is better not so, without evaluating them.

Errors are all for which the policies would not be loaded; warnings are about
those that would. Exits with 1 when there are errors, with --strict when there is
anything.

  federator policy lint policies/
  federator policy lint --strict -o sarif policies/ > lint.sarif`

// lintFormats are the forms that findings can be written in.
var lintFormats = []string{"table", "json", "sarif"}

func newPolicyLintCommand() *cobra.Command {
	var output string
	var strict bool
	cmd := &cobra.Command{
		Use:   "lint DIR...",
		Short: "Say what is wrong with policies",
		Long:  policyLintHelp,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return badInput(runPolicyLint(cmd.OutOrStdout(), args, output, strict))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or sarif")
	cmd.Flags().BoolVar(&strict, "strict", false, "fail for warnings, too")
	return cmd
}

func runPolicyLint(w io.Writer, dirs []string, output string, strict bool) error {
	if !slices.Contains(lintFormats, output) {
		return fmt.Errorf("--output %q is not %s", output, strings.Join(lintFormats, ", "))
	}
	set, err := readPolicies(dirs)
	l := lint{Findings: []policy.Finding{}}
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
	if err := l.write(w, output); err != nil {
		return err
	}
	if l.Errors > 0 || strict && l.Warnings > 0 {
		return &errFindings{text: l.summary()}
	}
	return nil
}

// lint is what was found in policies.
type lint struct {
	Errors   int              `json:"errors"`
	Warnings int              `json:"warnings"`
	Findings []policy.Finding `json:"findings"`
}

func (l *lint) summary() string {
	return plural(l.Errors, "error", "errors") + ", " + plural(l.Warnings, "warning", "warnings")
}

func (l *lint) write(w io.Writer, format string) error {
	switch format {
	case "json":
		return writeJSON(w, l)
	case "sarif":
		return writeJSON(w, l.sarif())
	}
	var b bytes.Buffer
	for _, f := range l.Findings { // as compilers do, for editors to find the place
		b.WriteString(printable(f.String()) + "\n")
	}
	b.WriteString(l.summary() + "\n")
	_, err := w.Write(b.Bytes())
	return err
}

// sarif gives findings as results of rules that are their codes.
func (l *lint) sarif() *sarifLog {
	log, run := newSarif()
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
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{ID: f.Code, DefaultConfiguration: sarifConfig{Level: level}})
		}
		out := sarifResult{RuleID: f.Code, RuleIndex: &i, Kind: "fail", Level: level, Message: sarifText{f.Message}, Locations: []sarifLocation{}}
		if f.File != "" {
			out.Locations = append(out.Locations, sarifLocation{Physical: physical(f.File, f.Line, f.Col)})
		}
		run.Results = append(run.Results, out)
	}
	run.Invocations = []sarifInvocation{{ExecutionSuccessful: true}}
	return log
}
