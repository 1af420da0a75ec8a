package report

import (
	"io"

	"federator.dev/federator/internal/cli/report/junit"
)

// junit makes a suite of each policy and a case of each result; a policy without results
// has one case that passes.
func (r *Report) junit(w io.Writer) error {
	suites := junit.Suites{Name: "federator policy check"}
	for _, p := range r.Policies {
		suite := junit.Suite{Name: p.Name}
		for _, x := range r.Results {
			if x.Policy == p.Name {
				addCase(&suite, x)
			}
		}
		if len(suite.Cases) == 0 {
			suite.Tests, suite.Cases = 1, []junit.Case{{Name: "all subjects", Class: p.Name}}
		}
		suites.Tests += suite.Tests
		suites.Failures += suite.Failures
		suites.Errors += suite.Errors
		suites.Skipped += suite.Skipped
		suites.Suites = append(suites.Suites, suite)
	}
	return junit.Write(w, &suites)
}

// addCase adds a result to the suite of its policy.
func addCase(s *junit.Suite, x Result) {
	name := x.Subject.String()
	if x.Subject.Member != "" && x.Subject.Kind != "" {
		name = x.Subject.Member + " " + name
	}
	c := junit.Case{Name: junit.Text(name), Class: junit.Text(x.Policy)}
	m := &junit.Message{Message: junit.Text(x.Message), Type: x.Severity, Text: junit.Text(string(x.Details))}
	switch x.State {
	case Violation:
		c.Failure = m
		s.Failures++
	case Error:
		c.Error = m
		s.Errors++
	default:
		m.Message = x.State + ": " + m.Message
		m.Type = ""
		c.Skipped = m
		s.Skipped++
	}
	s.Tests++
	s.Cases = append(s.Cases, c)
}
