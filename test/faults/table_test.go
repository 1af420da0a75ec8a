package faults

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// row is what came of a fault.
type row struct {
	name     string
	cannot   string // why it was not played here
	index    string
	verdicts string
	lists    map[string]int
	exact    time.Duration
	readers  string
	right    int
	wrong    []string
	note     string
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Millisecond)
}

func causes(lists map[string]int) string {
	var out []string
	for _, cause := range slices.Sorted(maps.Keys(lists)) {
		if lists[cause] > 0 {
			out = append(out, fmt.Sprintf("%d %s", lists[cause], cause))
		}
	}
	if len(out) == 0 {
		return "0"
	}
	return strings.Join(out, ", ")
}

func (w *row) String() string {
	if w.cannot != "" {
		return fmt.Sprintf("| %s | not played on this machine: %s | | | | | |", w.name, w.cannot)
	}
	name := w.name
	if w.note != "" {
		name += ": " + w.note
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %d right, %d wrong |", name, w.index, w.verdicts, causes(w.lists), round(w.exact), w.readers, w.right, len(w.wrong))
}

const head = `| fault | index | verdicts | lists | exact after | readers | writes |
|---|---|---|---|---|---|---|
`

const document = `# What breaks, and what comes of it

Written by ` + "`%s`" + `; what the columns say is in doc.go. %s.

%s
## Recovery

From the return of a link until every scope of a member has what was written to it meanwhile.

%s`

func table(rows []*row) string {
	var b strings.Builder
	b.WriteString(head)
	for _, w := range rows {
		fmt.Fprintln(&b, w)
	}
	return b.String()
}

// machine says on what was measured.
func machine() string {
	model := ""
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = " (" + strings.TrimSpace(value) + ")"
				break
			}
		}
	}
	commit := ""
	if text, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		commit = ", commit " + strings.TrimSpace(string(text))
	}
	return fmt.Sprintf("%d CPUs%s, %s/%s, %s%s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH, runtime.Version(), commit, time.Now().UTC().Format(time.DateOnly))
}
