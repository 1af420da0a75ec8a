package module

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Severities of findings.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// Finding is one error or warning at a position in a file.
type Finding struct {
	Code     string `json:"code"`     // in kebab case, for machines and suppressions
	Severity string `json:"severity"` // error or warning
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"` // from 1; 0: the whole file
	Col      int    `json:"col,omitempty"`  // from 1, in bytes
	Message  string `json:"message"`
}

func (f Finding) String() string {
	var at strings.Builder
	if f.File != "" {
		at.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&at, ":%d", f.Line)
			if f.Col > 0 {
				fmt.Fprintf(&at, ":%d", f.Col)
			}
		}
		at.WriteString(": ")
	}
	return fmt.Sprintf("%s%s: %s [%s]", at.String(), f.Severity, f.Message, f.Code)
}

// Errors are the findings for which nothing was loaded, by file, line and column.
type Errors []Finding

// maxMessages is how many findings an error message lists.
const maxMessages = 20

func (e Errors) Error() string {
	var b strings.Builder
	for i, f := range e {
		if i == maxMessages {
			fmt.Fprintf(&b, "\nand %d more", len(e)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(f.String())
	}
	return b.String()
}

// findings collects findings.
type findings struct{ list []Finding }

// maxFindings bounds what one load reports.
const maxFindings = 1000

func (f *findings) add(x Finding) {
	if len(f.list) < maxFindings {
		f.list = append(f.list, x)
	}
}

// fileError adds an error about a whole file.
func (f *findings) fileError(code, file, format string, args ...any) {
	f.add(Finding{Code: code, Severity: SeverityError, File: file, Message: fmt.Sprintf(format, args...)})
}

// errorAt adds an error at a location.
func (f *findings) errorAt(code string, loc *ast.Location, format string, args ...any) {
	f.add(newFinding(SeverityError, code, loc, format, args...))
}

func newFinding(severity, code string, loc *ast.Location, format string, args ...any) Finding {
	x := Finding{Code: code, Severity: severity, Message: fmt.Sprintf(format, args...)}
	if loc != nil {
		x.File, x.Line, x.Col = loc.File, loc.Row, loc.Col
	}
	return x
}

// askTheTime says how a policy asks what time it is.
const askTheTime = `undefined function time.now_ns: a verdict could not be kept up to date with a clock that it reads. ` +
	`Write import data.federator.lib.time, and time.older(created, "720h") or time.expires_within(t, "504h"); ` +
	`or ask data.fleet.passed["2026-01-02T15:04:05Z"], which is true from that instant on`

// opaErrors adds the errors of OPA's parser or compiler.
func (f *findings) opaErrors(code, file string, err error) {
	var list ast.Errors
	if one := (*ast.Error)(nil); errors.As(err, &one) {
		list = ast.Errors{one}
	} else if !errors.As(err, &list) {
		f.fileError(code, file, "%v", err)
		return
	}
	for _, e := range list {
		message := e.Message
		switch {
		case strings.HasPrefix(message, "undefined function internal."):
			message = "a variable named internal hides what \"in\" is compiled to: rename it"
		case strings.HasPrefix(message, "undefined function time.now_ns"):
			message = askTheTime
		}
		x := newFinding(SeverityError, code, e.Location, "%s", message)
		if x.File == "" {
			x.File = file
		}
		f.add(x)
	}
}

// sorted returns the findings in order, without duplicates.
func (f *findings) sorted() []Finding {
	slices.SortStableFunc(f.list, compareFindings)
	return slices.Compact(f.list)
}

func compareFindings(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col),
		cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
}
