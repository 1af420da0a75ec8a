package policytest

import (
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
)

// Coverage is how much of the policies is evaluated, in lines that have rules or expressions: of
// packages by the Rego tests, of templates in Rego by the suites that name them. Test files do not
// count, nor does what fixtures evaluate.
type Coverage struct {
	Files   []FileCoverage `json:"files"` // by name
	Lines   int            `json:"lines"`
	Covered int            `json:"covered"`
	Percent float64        `json:"percent"`
}

// FileCoverage is the coverage of one file.
type FileCoverage struct {
	File    string  `json:"file"`
	Lines   int     `json:"lines"`
	Covered int     `json:"covered"`
	Percent float64 `json:"percent"`
	Missed  []int   `json:"missed,omitempty"` // rows
}

// coverage returns how much of modules, by file, was evaluated.
func coverage(lines *cover.Cover, modules map[string]*ast.Module) *Coverage {
	report := lines.Report(modules)
	c := &Coverage{}
	for _, file := range slices.Sorted(maps.Keys(modules)) {
		of := report.Files[file]
		f := FileCoverage{File: file, Lines: of.CoveredLines + of.NotCoveredLines, Covered: of.CoveredLines}
		f.Percent = percent(f.Covered, f.Lines)
		for _, r := range of.NotCovered {
			for row := r.Start.Row; row <= r.End.Row; row++ {
				f.Missed = append(f.Missed, row)
			}
		}
		slices.Sort(f.Missed)
		f.Missed = slices.Compact(f.Missed)
		c.Files = append(c.Files, f)
		c.Lines += f.Lines
		c.Covered += f.Covered
	}
	c.Percent = percent(c.Covered, c.Lines)
	return c
}

// Add adds the coverage of another tree.
func (c *Coverage) Add(o *Coverage) {
	c.Files = append(c.Files, o.Files...)
	c.Lines += o.Lines
	c.Covered += o.Covered
	c.Percent = percent(c.Covered, c.Lines)
}

// percent returns the percentage of a part; it is 100 of nothing.
func percent(part, whole int) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}
