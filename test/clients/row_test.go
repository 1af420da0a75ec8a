package clients

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// row is one act of a client, and what it gets.
type row struct {
	group   string // of the table
	command bool   // the client is one, as kubectl is
	act     string // in Markdown
	user    string // administrator, unless set
	alone   bool   // no other row is played meanwhile
	do      act

	real                 string // what the client says it got at a real API server
	fleet, flat, members expect
	why                  string // what differs, if anything does, and why
}

// act does something at a target, and returns what came of it. Errors are the test's;
// what the server refuses is an answer.
type act func(ctx context.Context, t *target) (answer, error)

// answer is what came of an act.
type answer struct {
	text  string   // in short, as in the table
	lines []string // one per object, without what no two servers have in common
	table bool     // the lines are of a Table: at /fleet their first cell is CLUSTER
}

// expect is what is expected at a target other than a real API server.
type expect struct {
	text  string // the answer in short; empty for that of the real API server
	lines lines
}

// lines says which lines an answer must have.
type lines int

const (
	anyLines  lines = iota
	homeLines       // those of the home site's real API server
	allLines        // those of all sites' real API servers together
)

// same is the real API server's answer.
var same = expect{lines: homeLines}

// all are the answers of all real API servers together, which is to be in short…
func all(text string) expect { return expect{text: text, lines: allLines} }

// says is another answer.
func says(text string) expect { return expect{text: text} }

// cell returns how the table shows it.
func (e expect) cell() string {
	switch {
	case e == same:
		return "same"
	case e.lines == allLines:
		return e.text + ", all members' exactly"
	}
	return e.text
}

// at returns what is expected at a place.
func (r *row) at(p place) expect {
	switch p {
	case fleet:
		return r.fleet
	case flat:
		return r.flat
	case members:
		return r.members
	default:
		return expect{text: r.real}
	}
}

// reason returns why answers differ.
func (r *row) reason() string {
	texts := r.fleet.text + r.members.text
	switch {
	case r.why != "":
		return r.why
	case strings.Contains(texts, "is ambiguous"):
		return "three members have one of that name"
	case strings.Contains(texts, "serves no subresources"):
		return "what kubelets and controllers answer is not held"
	case strings.Contains(texts, "read-only"):
		return "nothing is written through federator"
	case strings.Contains(r.fleet.text, "CLUSTER"):
		return "rows of /fleet name the member"
	}
	return ""
}

// check compares what came of it at a target with what is expected. truth are the
// answers of the real API servers, by site.
func (r *row) check(at place, got answer, truth map[string]answer) error {
	want := r.at(at)
	text := want.text
	if text == "" {
		text = truth[home].text
	}
	have := got.text
	if at == flat && want.lines == homeLines {
		have = strings.ReplaceAll(have, flatPrefix(home), "")
	}
	if have != text {
		return fmt.Errorf("got  %s\nwant %s", have, text)
	}
	var wanted []string
	switch want.lines {
	case anyLines:
		return nil
	case homeLines:
		wanted = slices.Clone(truth[home].lines)
	case allLines:
		named := at == fleet && got.table || at == flat && slices.ContainsFunc(got.lines, flatName.MatchString)
		for _, site := range sites {
			for _, l := range truth[site].lines {
				wanted = append(wanted, of(site, named, l))
			}
		}
	}
	lines := slices.Clone(got.lines)
	for i, l := range lines {
		switch {
		case at == flat && want.lines == allLines:
			lines[i] = unflattened(l)
		case at == flat:
			lines[i] = strings.ReplaceAll(l, flatPrefix(home), "")
		}
	}
	slices.Sort(wanted)
	slices.Sort(lines)
	return differ(lines, wanted)
}

// of returns a line that says of which site it is, if it is to.
func of(site string, named bool, line string) string {
	if !named {
		return line
	}
	return namespace + "/" + site + cellEnd + line
}

var flatName = regexp.MustCompile(namespace + `\.(eu-1|us-1|ap_1)\.`)

// unflattened returns a line of /flat as the member it is of would have it, after the
// member's name: what it says of others stays and is a difference.
func unflattened(line string) string {
	m := flatName.FindStringSubmatch(line)
	if m == nil {
		return line
	}
	return of(strings.ReplaceAll(m[1], "_", "."), true, strings.ReplaceAll(line, m[0], ""))
}

// differ returns how two sorted lists of lines differ.
func differ(got, want []string) error {
	var extra, missing []string
	i, j := 0, 0
	for i < len(got) || j < len(want) {
		switch {
		case j == len(want) || i < len(got) && got[i] < want[j]:
			extra = append(extra, got[i])
			i++
		case i == len(got) || got[i] > want[j]:
			missing = append(missing, want[j])
			j++
		default:
			i, j = i+1, j+1
		}
	}
	if extra == nil && missing == nil {
		return nil
	}
	const most = 6
	return fmt.Errorf("%d lines too many:\n  %s\n%d lines missing:\n  %s",
		len(extra), strings.Join(extra[:min(most, len(extra))], "\n  "), len(missing), strings.Join(missing[:min(most, len(missing))], "\n  "))
}
