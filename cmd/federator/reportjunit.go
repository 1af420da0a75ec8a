package main

import (
	"encoding/xml"
	"io"
	"strings"
	"unicode/utf8"
)

// JUnit's XML, as CI systems read it. A policy is a suite; each result is a case
// of it, and a policy without any has one case that passes.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    string        `xml:"time,attr,omitempty"` // seconds
		Failure *junitMessage `xml:"failure,omitempty"`
		Error   *junitMessage `xml:"error,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"`

		SystemOut string `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

func (r *report) junit(w io.Writer) error {
	suites := junitSuites{Name: "federator policy check"}
	for _, p := range r.Policies {
		suite := junitSuite{Name: p.Name}
		for _, x := range r.Results {
			if x.Policy == p.Name {
				suite.add(x)
			}
		}
		if len(suite.Cases) == 0 {
			suite.Tests, suite.Cases = 1, []junitCase{{Name: "all subjects", Class: p.Name}}
		}
		suites.Tests += suite.Tests
		suites.Failures += suite.Failures
		suites.Errors += suite.Errors
		suites.Skipped += suite.Skipped
		suites.Suites = append(suites.Suites, suite)
	}
	return writeJUnit(w, &suites)
}

func writeJUnit(w io.Writer, suites *junitSuites) error {
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suites); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *junitSuite) add(x result) {
	name := x.Subject.String()
	if x.Subject.Member != "" && x.Subject.Kind != "" {
		name = x.Subject.Member + " " + name
	}
	c := junitCase{Name: xmlText(name), Class: xmlText(x.Policy)}
	m := &junitMessage{Message: xmlText(x.Message), Type: x.Severity, Text: xmlText(string(x.Details))}
	switch x.State {
	case violated:
		c.Failure = m
		s.Failures++
	case failed:
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

// xmlText leaves out what XML 1.0 cannot hold.
func xmlText(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' && c != '\n' || c == utf8.RuneError || c == 0xFFFE || c == 0xFFFF {
			return ' '
		}
		return c
	}, s)
}
