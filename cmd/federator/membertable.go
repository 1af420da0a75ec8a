package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// membersTable writes one line per member.
func membersTable(answer membersAnswer, wide, color bool) []byte {
	if len(answer.Members) == 0 {
		return []byte("No members.\n")
	}
	t := newTable("NAME", "STATE", "VERSION", "SCOPES", "OBJECTS", "MEMORY", "FRESHNESS")
	if wide {
		t.head("UID", "SINCE", "ACCESS", "SYNCED")
	}
	t.head("REASON")
	for _, m := range answer.Members {
		row := []cell{
			{text: m.Name},
			stateCell(m.State),
			{text: m.Version},
			{text: scopeCounts(m.Scopes)},
			{text: fmt.Sprint(m.Objects), right: true},
			{text: size(m.Bytes), right: true},
			{text: freshness(m.Freshness)},
		}
		if wide {
			row = append(row, cell{text: m.UID}, cell{text: age(answer.Time, &m.Since)}, cell{text: access(m)}, cell{text: fmt.Sprint(m.Synced)})
		}
		t.row(append(row, cell{text: reason(m, answer.Time)})...)
	}
	return t.render(color)
}

// memberText writes one member with its scopes.
func memberText(m clusterinformers.MemberStatus, now time.Time, color bool) []byte {
	head := newTable()
	for _, line := range [][2]string{
		{"Name", m.Name},
		{"UID", m.UID},
		{"State", strings.TrimSpace(fmt.Sprintf("%s for %s", m.State, age(now, &m.Since)))},
		{"Reason", string(m.Reason)},
		{"Message", m.Message},
		{"Version", m.Version},
		{"Access", access(m)},
		{"Objects", fmt.Sprintf("%d in %s", m.Objects, size(m.Bytes))},
		{"Freshness", freshness(m.Freshness)},
		{"Last error", ago(m.LastError, m.LastAt, now)},
	} {
		if line[1] != "" {
			head.row(cell{text: line[0] + ":"}, cell{text: line[1]})
		}
	}
	out := append(head.render(color), '\n')
	t := newTable("KIND", "VERSION", "STATE", "OBJECTS", "MEMORY", "APPLIED", "HEARD", "RELISTS", "RESTARTS", "ENCODING", "REASON")
	for _, s := range m.Details {
		t.row(
			cell{text: string(s.Kind)}, cell{text: s.Version}, scopeCell(s.State),
			cell{text: fmt.Sprint(s.Objects), right: true}, cell{text: size(s.Bytes), right: true},
			cell{text: s.Applied}, cell{text: age(now, s.Heard)}, cell{text: relists(s.Relists)},
			cell{text: fmt.Sprint(s.Restarts), right: true}, cell{text: s.Encoding}, cell{text: s.Reason},
		)
	}
	return append(out, t.render(color)...)
}

// access says "read-only" of a member that is never written to.
func access(m clusterinformers.MemberStatus) string {
	if m.ReadOnly {
		return "read-only"
	}
	return ""
}

func stateCell(c connection.State) cell {
	cl := cell{text: string(c)}
	switch c {
	case connection.Connected:
		cl.color = green
	case connection.Disconnected:
		cl.color = yellow
	case connection.Refused:
		cl.color = red
	}
	return cl
}

func scopeCell(s aggregate.State) cell {
	c := cell{text: s.String()}
	switch s {
	case aggregate.Synced:
		c.color = green
	case aggregate.Forbidden, aggregate.OverBudget:
		c.color = red
	case aggregate.Stale, aggregate.Syncing, aggregate.Partial, aggregate.Unknown:
		c.color = yellow
	case aggregate.NotServed:
	}
	return c
}

// scopeCounts writes the scopes by state, the most frequent first.
func scopeCounts(scopes map[aggregate.State]int) string {
	states := slices.SortedFunc(maps.Keys(scopes), func(a, b aggregate.State) int {
		return cmp.Or(cmp.Compare(scopes[b], scopes[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, s := range states {
		if scopes[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", scopes[s], s))
		}
	}
	return strings.Join(parts, ", ")
}

// relists writes the counts of relists by their cause.
func relists(causes map[string]int) string {
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		parts = append(parts, fmt.Sprintf("%d %s", causes[cause], cause))
	}
	return strings.Join(parts, ", ")
}

// reason says why a member is not followed or, when it is, what is wrong at the moment.
func reason(m clusterinformers.MemberStatus, now time.Time) string {
	switch {
	case m.Reason != "" && m.Message != "":
		return string(m.Reason) + ": " + m.Message
	case m.Reason != "":
		return string(m.Reason)
	default:
		return ago(m.Error, m.ErrorAt, now)
	}
}

// ago says since when there is an error.
func ago(text string, at *time.Time, now time.Time) string {
	if text == "" || at == nil {
		return text
	}
	return fmt.Sprintf("%s (%s ago)", text, age(now, at))
}

// age writes the time since t as kubectl does, "" when there is none.
func age(now time.Time, t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(*t))
}

func freshness(d *time.Duration) string {
	if d == nil {
		return ""
	}
	return duration.HumanDuration(*d)
}

// size writes a number of bytes with a binary unit.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%dB", n)
	}
	v, i := float64(n)/(1<<10), 0
	for v >= 1<<10 && i < len(units)-1 {
		v, i = v/(1<<10), i+1
	}
	return fmt.Sprintf("%.1f%ciB", v, units[i])
}
