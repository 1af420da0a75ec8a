package junit

import (
	"encoding/xml"
	"io"
	"strings"
	"unicode/utf8"
)

// JUnit's XML, as CI systems read it.
type (
	Suites struct {
		XMLName  xml.Name `xml:"testsuites"`
		Name     string   `xml:"name,attr"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Errors   int      `xml:"errors,attr"`
		Skipped  int      `xml:"skipped,attr"`
		Suites   []Suite  `xml:"testsuite"`
	}
	Suite struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Cases    []Case `xml:"testcase"`
	}
	Case struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Time    string   `xml:"time,attr,omitempty"` // seconds
		Failure *Message `xml:"failure,omitempty"`
		Error   *Message `xml:"error,omitempty"`
		Skipped *Message `xml:"skipped,omitempty"`

		SystemOut string `xml:"system-out,omitempty"`
	}
	Message struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

func Write(w io.Writer, suites *Suites) error {
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

// Text replaces characters that XML 1.0 cannot represent.
func Text(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' && c != '\n' || c == utf8.RuneError || c == 0xFFFE || c == 0xFFFF {
			return ' '
		}
		return c
	}, s)
}
