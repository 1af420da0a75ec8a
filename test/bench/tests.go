package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// tested runs a test that prints figures, and returns what it has printed. That it finds one of
// them too high is not what is asked here.
func (b *bench) tested(ctx context.Context, pkg, name string, env ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", pkg, "-run", name, "-v", "-count", "1", "-timeout", "0")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.progress("   %s %s: %v", pkg, name, err)
	}
	return string(out), ctx.Err()
}

// tail is the end of what a test has printed, for an error.
func tail(text string) string { return text[max(0, len(text)-2000):] }

// recoveryRow is a line of the table of test/faults: link, rounds, scopes, p50, p99, most and lists.
var recoveryRow = regexp.MustCompile(`(?m)^\s*\| (cut|reset) \| (\d+) \| (\d+) \| (\S+) \| (\S+) \| (\S+) \| (-?\d+) \|$`)

// recovery measures how long after the return of a member's link all of its scopes have what they missed.
func recovery(ctx context.Context, b *bench) (rows []row, err error) {
	text, err := b.tested(ctx, "./test/faults", "Faults", "FAULTS=all", "FAULTS_ROWS=recovery from (cut|reset)", fmt.Sprint("RECOVERIES=", b.n(100)))
	if err != nil {
		return nil, err
	}
	for _, m := range recoveryRow.FindAllStringSubmatch(text, -1) {
		took, err := time.ParseDuration(m[5])
		if err != nil {
			return rows, err
		}
		rows = append(rows, row{
			Name: "restart/recovery " + m[1], Unit: "ms", Value: took.Seconds() * 1000,
			Note: fmt.Sprintf("p99 of %s, until all %s scopes have what they missed; p50 %s, most %s, %s lists; goal 317 and none; by test/faults", m[2], m[3], m[4], m[6], m[7]),
		})
	}
	if len(rows) < 2 {
		return rows, fmt.Errorf("test/faults has printed no table:\n%s", tail(text))
	}
	return rows, nil
}

var auditCostLine = regexp.MustCompile(`an audit costs the API server (\S+) and (\d+) bytes; (\S+) a second, as of a member of 60 kinds, (\S+)% of a core \(idle it takes (\S+)%\)`)

// auditCostSmall is what the audits of a member of 60 kinds with few objects cost its API server.
func (b *bench) auditCostSmall(ctx context.Context) ([]row, error) {
	text, err := b.tested(ctx, "./test/audit", "InFlight")
	if err != nil {
		return nil, err
	}
	m := auditCostLine.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("test/audit does not say what an audit costs:\n%s", tail(text))
	}
	each, err := time.ParseDuration(m[1])
	if err != nil {
		return nil, err
	}
	share, err := strconv.ParseFloat(m[4], 64)
	if err != nil {
		return nil, err
	}
	note := strings.Join([]string{m[2] + " bytes", m[3] + " audits a second", "idle the server takes " + m[5] + " %"}, ", ")
	return []row{
		{Name: "audit/cost", Unit: "ms", Value: each.Seconds() * 1000, Note: "API-server CPU of an audit of a kind with few objects; by test/audit"},
		{Name: "audit/cost_share", Unit: "% of a core", Value: share, Note: "a member of 60 kinds with few objects, default intervals; " + note + "; goal 1"},
	}, nil
}
