package members

import (
	"strings"
	"testing"
	"time"

	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

func TestMembersTable_ShowsEachMember(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fresh, ago := 1500*time.Millisecond, now.Add(-90*time.Minute)
	status := fleet.Status{Time: now, Members: []clusterinformers.MemberStatus{
		{
			Name: "fleet/eu-1", State: connection.Connected, Version: "v1.36.3", Objects: 12345, Bytes: 3 << 20, Freshness: &fresh,
			Scopes: map[aggregate.State]int{aggregate.Synced: 40, aggregate.Forbidden: 2, aggregate.NotServed: 0},
			Error:  "watch broke", ErrorAt: &ago, LastError: "watch broke", LastErrorAt: &ago,
		},
		{
			Name: "fleet/us", State: connection.Refused, Reason: connection.ExecPlugin, Bytes: 0,
			Message: "user \x1b[31m\"a\"\nruns a program",
		},
	}}
	want := strings.Join([]string{
		"NAME         STATE       VERSION   SCOPES                   OBJECTS   MEMORY   FRESHNESS   REASON",
		"fleet/eu-1   Connected   v1.36.3   40 Synced, 2 Forbidden     12345   3.0MiB   1s          watch broke (90m ago)",
		`fleet/us     Refused     -         -                              0       0B   -           ExecPlugin: user  [31m"a" runs a program`,
		"",
	}, "\n")
	if got := string(membersTable(status, false, false)); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	colored := string(membersTable(status, false, true))
	if !strings.Contains(colored, "\x1b[32mConnected\x1b[0m   v1.36.3") || !strings.Contains(colored, "\x1b[31mRefused\x1b[0m     -") {
		t.Errorf("coloured:\n%q", colored)
	}
}

func TestSize_UsesBinaryUnits(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1.0KiB", 1536: "1.5KiB", 5 << 30: "5.0GiB", 1<<63 - 1: "8.0EiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestMemberText_SaysHowWellItIsProved(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	proved := now.Add(-5 * time.Minute)
	m := clusterinformers.MemberStatus{
		Name: "fleet/eu-1", State: connection.Connected,
		Audit: &clusterinformers.AuditStatus{
			Oldest: 20 * time.Minute, OldestFirstTier: 90 * time.Second, Behind: true, Unaudited: 2, Lost: 3,
			Last: &clusterinformers.Loss{Kind: "Pod", Example: "missing shop/web", Time: proved},
		},
		Details: []clusterinformers.ScopeStatus{{Kind: "Pod", State: aggregate.Synced, Proved: &proved}},
	}
	got := string(memberText(m, now, false))
	for _, want := range []string{
		"every kind was proved within 20m, the first tier within 90s (longer than configured); 2 scopes that were loaded have not been audited yet; " +
			"3 objects have differed, the last of kind Pod (missing shop/web) at 2026-01-02T02:59:05Z",
		"PROVED", "5m",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in:\n%s", want, got)
		}
	}
}
