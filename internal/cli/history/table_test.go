package history

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policyquery"
)

func text(s string) json.RawMessage { return json.RawMessage(`"` + s + `"`) }

// TestPrintItems_SaysHowTwoInstantsDiffer, and of what that is not known.
func TestPrintItems_SaysHowTwoInstantsDiffer(t *testing.T) {
	first := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	last := first.Add(time.Hour)
	net := &history.Net{First: first, Transitions: 3}
	all := &policyquery.HistoryList{Span: &policyquery.HistorySpan{}, Items: []history.Record{
		{
			Type: history.Object, Transition: history.Changed, Time: last, Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web", ResourceVersion: "7", Net: net,
			Changes: []history.Change{{Path: "spec.replicas", Before: json.RawMessage("1"), After: json.RawMessage("3")}, {Path: "status.phase", Before: text("Failed")}}, More: 2,
		},
		{Type: history.Scope, Transition: "Stale", Time: last, Member: "fleet/a", Kind: "Pod", Was: "Synced", Net: &history.Net{First: first, Transitions: 1, Incomplete: true}},
		{Type: history.Gap, Transition: "Gap", Time: last, Member: "fleet/b", Message: "it is Stale", From: &first, To: &last},
	}}
	for wide, want := range map[bool]string{
		false: `MEMBER    SUBJECT                    DIFFERENCE   WHAT
fleet/a   Deployment.apps shop/web   Changed      spec.replicas=1 -> 3; status.phase=Failed is gone; and 2 more
fleet/a   Pod                        Stale?       was Synced
fleet/b                              Gap          it is Stale from 2026-01-02T03:04:05Z to 2026-01-02T04:04:05Z
`,
		true: `MEMBER    SUBJECT                    DIFFERENCE   WHAT                                                            FIRST                      LAST                       TRANSITIONS   RESOURCE VERSION
fleet/a   Deployment.apps shop/web   Changed      spec.replicas=1 -> 3; status.phase=Failed is gone; and 2 more   2026-01-02T03:04:05.000Z   2026-01-02T04:04:05.000Z   3             7
fleet/a   Pod                        Stale?       was Synced                                                      2026-01-02T03:04:05.000Z   2026-01-02T04:04:05.000Z   1             
fleet/b                              Gap          it is Stale from 2026-01-02T03:04:05Z to 2026-01-02T04:04:05Z   2026-01-02T04:04:05.000Z   2026-01-02T04:04:05.000Z   1             
`,
	} {
		out, errors := printed(t, all, wide)
		if out != want {
			t.Errorf("wide %t, got:\n%s\nwant:\n%s", wide, out, want)
		}
		if !strings.Contains(errors, "a question mark may differ") {
			t.Errorf("besides: %q", errors)
		}
	}
	all.Items = nil
	if out, errors := printed(t, all, false); out != "" || errors != "Nothing that is recorded differs.\n" {
		t.Errorf("of nothing: %q, %q", out, errors)
	}
}

func printed(t *testing.T, all *policyquery.HistoryList, wide bool) (out, errors string) {
	t.Helper()
	var o, e bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	if err := printItems(cmd, all, wide, netColumns(), netCells); err != nil {
		t.Fatal(err)
	}
	return o.String(), e.String()
}

// TestCommand_RefusesWhatDoesNotGoWithNet before it asks anybody.
func TestCommand_RefusesWhatDoesNotGoWithNet(t *testing.T) {
	for _, flag := range []string{"--watch", "--limit=3"} {
		cmd := Command("test")
		cmd.SetArgs([]string{"--net", flag})
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "none of the others can be") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
