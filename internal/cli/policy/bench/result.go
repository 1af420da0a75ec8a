package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"federator.dev/federator/internal/cli/console"
)

// result is one run of `federator policy bench`.
type result struct {
	Version  string    `json:"version"` // of federator
	Taken    time.Time `json:"taken"`
	Objects  int       `json:"objects"`
	Policies []cost    `json:"policies"` // by name
}

// cost is what an evaluation of a policy costs on average.
type cost struct {
	Policy      string  `json:"policy"` // by its binding
	Evaluations int     `json:"evaluations"`
	Nanoseconds float64 `json:"nsPerEvaluation"`
	Reads       float64 `json:"readsPerEvaluation"`
	Allocations float64 `json:"allocsPerEvaluation"`
	Bytes       float64 `json:"bytesPerEvaluation"`    // allocated
	NotCompiled string  `json:"notCompiled,omitempty"` // the rule that OPA interprets, and why
}

// loadResult reads a saved run.
func loadResult(path string) (*result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m result
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: not a saved run of policy bench: %w", path, err)
	}
	return &m, nil
}

func (m *result) save(path string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}

func (m *result) policy(name string) (cost, bool) {
	i := slices.IndexFunc(m.Policies, func(p cost) bool { return p.Policy == name })
	if i < 0 {
		return cost{}, false
	}
	return m.Policies[i], true
}

// slower names the policies that cost more than an earlier run by more than a
// factor: 1.2 allows a fifth more. Reads and allocations do not depend on the
// machine, time does.
func (m *result) slower(before *result, factor float64) []string {
	var out []string
	for _, now := range m.Policies {
		was, ok := before.policy(now.Policy)
		if !ok {
			continue
		}
		for _, c := range []struct {
			what     string
			was, now float64
		}{
			{"ns", was.Nanoseconds, now.Nanoseconds}, {"reads", was.Reads, now.Reads}, {"allocations", was.Allocations, now.Allocations},
		} {
			if c.now > c.was*factor {
				out = append(out, fmt.Sprintf("%s: %.1f %s per evaluation, %.1f before", now.Policy, c.now, c.what, c.was))
			}
		}
	}
	return out
}

// write writes the run as a table, compared with an earlier one unless before is nil.
func (m *result) write(w io.Writer, before *result) error {
	header := []string{"POLICY", "EVALUATIONS", "NS", "READS", "ALLOCS", "BYTES"}
	if before != nil {
		header = append(header, "NS BEFORE", "CHANGE")
	}
	t := console.NewTable(header...)
	for _, p := range m.Policies {
		row := []console.Cell{
			{Text: p.Policy},
			{Text: strconv.Itoa(p.Evaluations), Right: true},
			number(p.Nanoseconds, 0),
			number(p.Reads, 1), number(p.Allocations, 1), number(p.Bytes, 0),
		}
		if before != nil {
			was, ok := before.policy(p.Policy)
			if ok && was.Nanoseconds > 0 {
				row = append(row, number(was.Nanoseconds, 0), console.Cell{Text: fmt.Sprintf("%+.0f%%", 100*(p.Nanoseconds/was.Nanoseconds-1)), Right: true})
			} else {
				row = append(row, console.Cell{Right: true}, console.Cell{Text: "new", Right: true})
			}
		}
		t.AddRow(row...)
	}
	if _, err := w.Write(t.Render(console.Colored(w))); err != nil {
		return err
	}
	for _, p := range m.Policies {
		if p.NotCompiled != "" {
			if _, err := fmt.Fprintf(w, "%s is interpreted: %s\n", p.Policy, p.NotCompiled); err != nil {
				return err
			}
		}
	}
	return nil
}

func number(n float64, decimals int) console.Cell {
	return console.Cell{Text: strconv.FormatFloat(n, 'f', decimals, 64), Right: true}
}
