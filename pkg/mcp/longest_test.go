package mcp_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/mcp"
)

// answers is a query API elsewhere, whose answers are by path.
type answers map[string]any

func (a answers) Get(_ context.Context, path string, _ url.Values, _ string) ([]byte, error) {
	return json.Marshal(a[path])
}

// TestExplain_LongestRemedyFits, of an object with names as long as Kubernetes has them, in members that are not fresh.
func TestExplain_LongestRemedyFits(t *testing.T) {
	type m = map[string]any
	member, name := strings.Repeat("m", 63)+"/"+strings.Repeat("n", 189), strings.Repeat("w", 253)
	subject := m{"member": member, "kind": "Deployment.apps", "namespace": strings.Repeat("s", 63), "name": name}
	change := m{"path": strings.Repeat("p", 317), "before": strings.Repeat("b", 400), "after": strings.Repeat("a", 400)}
	stale := m{"member": member, "kind": "Deployment.apps", "state": "Stale", "age": "1m"}
	s := sessionOf(t, answers{"/query/v1/explain": m{
		"package": "labels", "title": strings.Repeat("t", 300), "severity": "high", "finding": m{"state": "Unknown", "subject": subject, "message": strings.Repeat("x", 400)},
		"commit": m{"source": "platform", "hash": strings.Repeat("f", 64), "author": strings.Repeat("u", 300)}, "freshness": []m{stale, stale, stale},
		"remedies": []m{{"action": "patch", "target": subject, "problem": strings.Repeat("y", 400), "changes": []m{change, change, change, change, change, change}}},
	}}, time.Minute)
	out := into[mcp.ExplainOutput](t, s, "explain", map[string]any{"policy": "labels", "member": member, "section": "remedies"})
	if r := out.Untrusted.Remedies; len(r) != 1 || len(r[0].Changes) == 0 || len(r[0].Changes)+r[0].More != 6 {
		t.Errorf("%+v", r)
	}
}

// TestMembers_LabelsAreCounted, also where their keys begin alike, and are too long to be shown.
func TestMembers_LabelsAreCounted(t *testing.T) {
	type m = map[string]any
	prefix := strings.Repeat("a", 200) + "/"
	s := sessionOf(t, answers{"/query/v1/members": m{
		"summary": m{"members": 1, "synced": 1, "scopes": m{"Synced": 1}, "objects": 1},
		"items":   []m{{"name": "fleet/eu", "labels": m{prefix + "x": "1", prefix + "y": "2", "env": "prod"}}},
	}}, time.Minute)
	out := into[mcp.MembersOutput](t, s, "members", nil)
	if r := out.Untrusted.Members[0]; len(r.Labels) != 2 || r.MoreLabels != 1 || out.Cut == nil || out.Cut.Texts != 2 {
		t.Errorf("%+v, %+v", r, out.Cut)
	}
}
