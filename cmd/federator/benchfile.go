package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"
)

// measured is one run of `federator policy bench`.
type measured struct {
	Version  string        `json:"version"` // of federator
	Taken    time.Time     `json:"taken"`
	Objects  int           `json:"objects"`
	Policies []measurement `json:"policies"` // by name
}

// measurement is what an evaluation of a policy costs on average.
type measurement struct {
	Policy      string  `json:"policy"` // by its binding
	Evaluations int     `json:"evaluations"`
	Nanoseconds float64 `json:"nsPerEvaluation"`
	Reads       float64 `json:"readsPerEvaluation"`
	Allocations float64 `json:"allocsPerEvaluation"`
	Bytes       float64 `json:"bytesPerEvaluation"` // allocated
}

// loadMeasured reads a run that was saved.
func loadMeasured(path string) (*measured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m measured
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: this is not a run of policy bench: %w", path, err)
	}
	return &m, nil
}

func (m *measured) save(path string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}

func (m *measured) policy(name string) (measurement, bool) {
	i := slices.IndexFunc(m.Policies, func(p measurement) bool { return p.Policy == name })
	if i < 0 {
		return measurement{}, false
	}
	return m.Policies[i], true
}

// slower names the policies that cost more than an earlier run by more than a
// factor: 1.2 allows a fifth more. Reads and allocations do not depend on the
// machine, time does.
func (m *measured) slower(before *measured, factor float64) []string {
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
				out = append(out, fmt.Sprintf("%s: %.1f %s an evaluation, %.1f before", now.Policy, c.now, c.what, c.was))
			}
		}
	}
	return out
}

// write writes the run as a table, beside an earlier one where there is one.
func (m *measured) write(w io.Writer, before *measured) error {
	header := []string{"POLICY", "EVALUATIONS", "NS", "READS", "ALLOCS", "BYTES"}
	if before != nil {
		header = append(header, "NS BEFORE", "CHANGE")
	}
	t := newTable(header...)
	for _, p := range m.Policies {
		row := []cell{
			{text: p.Policy},
			{text: strconv.Itoa(p.Evaluations), right: true},
			number(p.Nanoseconds, 0),
			number(p.Reads, 1), number(p.Allocations, 1), number(p.Bytes, 0),
		}
		if before != nil {
			was, ok := before.policy(p.Policy)
			if ok && was.Nanoseconds > 0 {
				row = append(row, number(was.Nanoseconds, 0), cell{text: fmt.Sprintf("%+.0f%%", 100*(p.Nanoseconds/was.Nanoseconds-1)), right: true})
			} else {
				row = append(row, cell{right: true}, cell{text: "new", right: true})
			}
		}
		t.row(row...)
	}
	_, err := w.Write(t.render(colored(w)))
	return err
}

func number(n float64, decimals int) cell {
	return cell{text: strconv.FormatFloat(n, 'f', decimals, 64), right: true}
}
