package members

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// membersTable writes one line per member.
func membersTable(status fleet.Status, wide, color bool) []byte {
	if len(status.Members) == 0 {
		return []byte("No members.\n")
	}
	t := console.NewTable(memberColumns(wide)...)
	for _, m := range status.Members {
		t.AddRow(memberRow(m, status.Time, wide)...)
	}
	return t.Render(color)
}

func memberColumns(wide bool) []string {
	columns := []string{"NAME", "STATE", "VERSION", "SCOPES", "OBJECTS", "MEMORY", "FRESHNESS"}
	if wide {
		columns = append(columns, "UID", "SINCE", "ACCESS", "WRITES-WITH", "SYNCED")
	}
	return append(columns, "REASON")
}

func memberRow(m clusterinformers.MemberStatus, now time.Time, wide bool) []console.Cell {
	row := []console.Cell{
		{Text: m.Name},
		stateCell(m.State),
		{Text: m.Version},
		{Text: scopeCounts(m.Scopes)},
		{Text: fmt.Sprint(m.Objects), Right: true},
		{Text: size(m.Bytes), Right: true},
		{Text: freshness(m.Freshness)},
	}
	if wide {
		row = append(row, console.Cell{Text: m.UID}, console.Cell{Text: console.Age(now, &m.Since)}, console.Cell{Text: access(m)}, console.Cell{Text: m.WritesWith}, console.Cell{Text: fmt.Sprint(m.Synced)})
	}
	return append(row, console.Cell{Text: reason(m, now)})
}

// audits says how long ago the member was proved and what was found.
func audits(a *clusterinformers.AuditStatus) string {
	if a == nil {
		return ""
	}
	text := fmt.Sprintf("every kind was proved within %s, the first tier within %s", duration.HumanDuration(a.Oldest), duration.HumanDuration(a.OldestFirstTier))
	if a.Behind {
		text += " (longer than configured)"
	}
	if a.Unaudited > 0 {
		text += fmt.Sprintf("; %d scopes that were loaded have not been audited yet", a.Unaudited)
	}
	if a.Lost > 0 && a.Last != nil {
		text += fmt.Sprintf("; %d objects have differed, the last of kind %s (%s) at %s", a.Lost, a.Last.Kind, a.Last.Example, a.Last.Time.UTC().Format(time.RFC3339))
	}
	return text
}

// transport says why a member is reached by net/http; empty where it is not.
func transport(why string) string {
	if why == "" {
		return ""
	}
	return "net/http, because of " + why
}

// memberText writes one member with its scopes.
func memberText(m clusterinformers.MemberStatus, now time.Time, color bool) []byte {
	head := console.NewTable()
	for _, line := range [][2]string{
		{"Name", m.Name},
		{"UID", m.UID},
		{"State", strings.TrimSpace(fmt.Sprintf("%s for %s", m.State, console.Age(now, &m.Since)))},
		{"Reason", string(m.Reason)},
		{"Message", m.Message},
		{"Version", m.Version},
		{"Labels", labels.FormatLabels(m.Labels)},
		{"Access", access(m)},
		{"Writes with", m.WritesWith},
		{"Writes held", m.Held},
		{"Objects", fmt.Sprintf("%d in %s", m.Objects, size(m.Bytes))},
		{"Freshness", freshness(m.Freshness)},
		{"Audits", audits(m.Audit)},
		{"Transport", transport(m.Transport)},
		{"Last error", ago(m.LastError, m.LastErrorAt, now)},
	} {
		if line[1] != "" {
			head.AddRow(console.Cell{Text: line[0] + ":"}, console.Cell{Text: line[1]})
		}
	}
	out := append(head.Render(color), '\n')
	t := console.NewTable(scopeColumns()...)
	for _, d := range m.Details {
		t.AddRow(scopeRow(d, now)...)
	}
	return append(out, t.Render(color)...)
}

func scopeColumns() []string {
	return []string{"KIND", "VERSION", "STATE", "OBJECTS", "MEMORY", "APPLIED", "LAST-CONTACT", "PROVED", "RELISTS", "RESTARTS", "ENCODING", "REASON"}
}

func scopeRow(d clusterinformers.ScopeStatus, now time.Time) []console.Cell {
	return []console.Cell{
		{Text: string(d.Kind)},
		{Text: d.Version},
		scopeCell(d.State),
		{Text: fmt.Sprint(d.Objects), Right: true},
		{Text: size(d.Bytes), Right: true},
		{Text: d.Applied},
		{Text: console.Age(now, d.LastContact)},
		{Text: console.Age(now, d.Proved)},
		{Text: relists(d.Relists)},
		{Text: fmt.Sprint(d.Restarts), Right: true},
		{Text: d.Encoding},
		{Text: d.Reason},
	}
}

// access is "read-only" for a member that is never written to, and "held" for one that is not
// at the moment.
func access(m clusterinformers.MemberStatus) string {
	switch {
	case m.ReadOnly:
		return "read-only"
	case m.Held != "":
		return "held"
	}
	return ""
}

func stateCell(c connection.State) console.Cell {
	cl := console.Cell{Text: string(c)}
	switch c {
	case connection.Connected:
		cl.Color = console.Green
	case connection.Disconnected:
		cl.Color = console.Yellow
	case connection.Refused:
		cl.Color = console.Red
	}
	return cl
}

func scopeCell(s aggregate.State) console.Cell {
	c := console.Cell{Text: s.String()}
	switch s {
	case aggregate.Synced:
		c.Color = console.Green
	case aggregate.Forbidden, aggregate.OverBudget:
		c.Color = console.Red
	case aggregate.Stale, aggregate.Syncing, aggregate.Partial, aggregate.Unknown:
		c.Color = console.Yellow
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

// reason says why a member is not connected or, if it is, its current error.
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
	return fmt.Sprintf("%s (%s ago)", text, console.Age(now, at))
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
