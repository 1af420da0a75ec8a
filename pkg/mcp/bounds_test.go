package mcp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/mcp"
)

// wide is a text that takes six times its bytes in JSON, long that of some that are too long to be shown.
var (
	wide = strings.Repeat("<&>", 100)
	long = strings.Repeat("<script>", 500)
)

// largeWorld has 120 members and, in the first one, 300 Pods of one ReplicaSet that violate a policy, and have changed, and as many Actions.
func largeWorld() *world {
	w := questionsWorld()
	for i := range 116 {
		w.members = append(w.members, aggregate.Member{Name: fmt.Sprintf("many/m-%03d", i), UID: fmt.Sprint(i), Version: "v1.36.3", Labels: labels("env", strings.Repeat("e", 60), "region", strings.Repeat("r", 60))})
	}
	rs := w.find("edge/lab", "ReplicaSet.apps", "web-1")
	w.actions = nil
	for i := range 300 {
		p := w.add("edge/lab", "Pod", fmt.Sprintf("p-%03d", i), map[string]any{
			"spec":   map[string]any{"containers": []any{map[string]any{"name": "x", "image": fmt.Sprintf("docker.io/%03d", i)}}},
			"status": map[string]any{"phase": "Running", "message": long},
		})
		p.owner, p.labels, p.notes = rs, map[string]string{"n": fmt.Sprint(i)}, map[string]string{"note": wide}
		w.change(p, map[string]any{
			"spec":   map[string]any{"containers": []any{map[string]any{"name": "x", "image": fmt.Sprintf("docker.io/old/%03d", i)}}},
			"status": map[string]any{"phase": "Pending", "message": wide},
		})
		w.actions = append(w.actions, newAction(fmt.Sprintf("a-%03d", i), "images", began.Add(-time.Duration(i)*time.Second), p, v1alpha1.PhaseFailed, long))
	}
	return w
}

// TestAnswers_FitAndContinue: no answer is too large, all rows are in one, each once, and the numbers are exact.
func TestAnswers_FitAndContinue(t *testing.T) {
	s := start(t, largeWorld(), nil).session(t, "ann")
	// walk asks until nothing is left.
	walk := func(name, tool string, a args, want int, page func(args) (rows []string, total int, cut *mcp.Cut)) {
		t.Helper()
		seen, answers := []string{}, 0
		for {
			rows, total, cut := page(a)
			answers++
			seen = append(seen, rows...)
			left := 0
			if cut != nil {
				left = cut.Left
			}
			if total != want || len(seen)+left != want {
				t.Fatalf("%s: after %d answers %d of %d rows, %d left; want %d", name, answers, len(seen), total, left, want)
			}
			if left == 0 {
				break
			}
			if cut.How == "" || len(rows) == 0 {
				t.Fatalf("%s: %+v", name, cut)
			}
			delete(a, "continue")
			if cut.Continue != "" {
				a["continue"] = cut.Continue
			} else {
				a["offset"] = cut.Offset
			}
		}
		if distinct := sets.New(seen...); answers < 2 && want > 125 || distinct.Len() != want {
			t.Errorf("%s: %d answers, %d rows, %d of them distinct", name, answers, len(seen), distinct.Len())
		}
	}
	objects := func(a args) (rows []string, total int, cut *mcp.Cut) {
		out := into[mcp.QueryOutput](t, s, "query", a)
		for _, o := range out.Untrusted.Objects {
			rows = append(rows, o.Name)
		}
		return append(rows, out.Untrusted.Rows...), out.Total, out.Cut
	}
	walk("a table", "query", args{"resource": "pods", "member": "edge/lab", "limit": 100}, 301, objects)
	walk("fields", "query", args{"resource": "pods", "member": "edge/lab", "limit": 100, "fields": []string{".metadata.annotations.note", ".status.message", "@"}}, 301, objects)
	walk("Rego", "query", args{"rego": "p := data.fleet.objects.Pod[\"edge/lab\"].shop[_].metadata.name", "limit": 100}, 301, objects)
	walk("groups", "count", args{"resource": []string{"pods"}, "groupBy": []string{"field:spec.containers.image", "field:metadata.annotations.note"}}, 302, func(a args) (rows []string, total int, cut *mcp.Cut) {
		out := into[mcp.CountOutput](t, s, "count", a)
		for _, g := range out.Untrusted.Groups {
			rows = append(rows, g.Key[0])
		}
		if out.Total != 310 {
			t.Errorf("%d Pods", out.Total)
		}
		return rows, out.Groups, out.Cut
	})
	walk("what is related", "related", args{"member": "edge/lab", "resource": "replicasets", "namespace": "shop", "name": "web-1", "depth": 1}, 303, func(a args) (rows []string, total int, cut *mcp.Cut) {
		out := into[mcp.RelatedOutput](t, s, "related", a)
		for _, o := range out.Untrusted.Objects {
			rows = append(rows, fmt.Sprint(o.ID))
		}
		return rows, out.Total, out.Cut
	})
	walk("violations", "violations", args{"policy": []string{"images"}, "limit": 100}, 301, func(a args) (rows []string, total int, cut *mcp.Cut) {
		out := into[mcp.ViolationsOutput](t, s, "violations", a)
		for _, v := range out.Untrusted.Subjects {
			rows = append(rows, v.Subject.Member+v.Subject.Name)
		}
		return rows, out.Total.Subjects, out.Cut
	})
	walk("groups of violations", "violations", args{"groupBy": []string{"policy", "member"}}, 125, func(a args) (rows []string, total int, cut *mcp.Cut) {
		out := into[mcp.ViolationsOutput](t, s, "violations", a)
		for _, g := range out.Untrusted.Groups {
			rows = append(rows, strings.Join(g.Key, " "))
		}
		return rows, out.Groups, out.Cut
	})
	walk("Actions", "actions", args{"limit": 100}, 300, func(a args) (rows []string, total int, cut *mcp.Cut) {
		out := into[mcp.ActionsOutput](t, s, "actions", a)
		for _, x := range out.Untrusted.Actions {
			rows = append(rows, x.Name)
		}
		return rows, out.Total, out.Cut
	})
	walk("members", "members", args{"limit": 100}, 120, func(a args) (rows []string, total int, cut *mcp.Cut) {
		out := into[mcp.MembersOutput](t, s, "members", a)
		for _, m := range out.Untrusted.Members {
			rows = append(rows, m.Name)
		}
		return rows, out.Total, out.Cut
	})
	explained := into[mcp.ExplainOutput](t, s, "explain", args{"policy": "images", "member": "edge/lab", "kind": "Pod", "namespace": "shop", "name": "p-000"})
	walk("the input of a policy", "explain", args{"policy": "images", "member": "edge/lab", "kind": "Pod", "namespace": "shop", "name": "p-000", "section": "input"}, explained.Sections["input"].Total,
		func(a args) (rows []string, total int, cut *mcp.Cut) {
			out := into[mcp.ExplainOutput](t, s, "explain", a)
			for i, text := range out.Untrusted.Input {
				rows = append(rows, fmt.Sprint(a["offset"], i, text))
			}
			return rows, out.Sections["input"].Total, out.Cut
		})
}

// TestAnswers_SayWhatIsShortened: texts that are cut are counted, and longer where there is room.
func TestAnswers_SayWhatIsShortened(t *testing.T) {
	s := start(t, largeWorld(), nil).session(t, "ann")
	args := map[string]any{"resource": "pods", "fieldSelector": "metadata.name!=web-0", "member": "edge/lab", "fields": []string{".status.message"}, "limit": 2}
	two := into[mcp.QueryOutput](t, s, "query", args)
	args["limit"] = 1
	one := into[mcp.QueryOutput](t, s, "query", args)
	a, b := two.Untrusted.Objects[0].Values[0], one.Untrusted.Objects[0].Values[0]
	if two.Cut.Texts != 2 || one.Cut.Texts != 1 || !strings.HasSuffix(a, "…") || len(b) < 5*len(a) || !strings.HasPrefix(long, strings.TrimSuffix(b, "…")) {
		t.Errorf("%+v %q\n%+v %q", two.Cut, a, one.Cut, b)
	}
}

// TestArguments_AreRefused where they are wrong, by name.
func TestArguments_AreRefused(t *testing.T) {
	s := start(t, questionsWorld(), nil).session(t, "ann")
	for _, c := range []struct {
		tool string
		args map[string]any
		want string
	}{
		{"query", nil, "argument resource or argument rego is required"},
		{"query", map[string]any{"resource": "pods", "rego": "1"}, "and not both"},
		{"query", map[string]any{"resource": "gizmos"}, `is \"gizmos\", which is not known`},
		{"query", map[string]any{"resource": "pods", "limit": 101}, "argument limit is not a number from 1 to 100"},
		{"query", map[string]any{"resource": "pods", "namespace": "a/b"}, "argument namespace is not a namespace"},
		{"query", map[string]any{"resource": "nodes", "namespace": "a"}, "is not supported for a cluster-scoped resource"},
		{"query", map[string]any{"resource": "pods", "member": "../x"}, "argument member is not of the form"},
		{"query", map[string]any{"resource": "pods", "continue": "x"}, "argument continue is not of an answer"},
		{"query", map[string]any{"resource": "pods", "continue": "1.x"}, "continue"},
		{"query", map[string]any{"resource": "pods", "fields": []string{"$..*"}}, "one JSONPath, without unions and"},
		{"query", map[string]any{"resource": "pods", "fields": []string{".a['b','c']"}}, "one JSONPath, without unions and"},
		{"query", map[string]any{"resource": "pods", "fields": []string{".a}{.b"}}, "one JSONPath, without unions and"},
		{"query", map[string]any{"resource": "pods", "fields": []string{".a["}}, "argument fields has"},
		{"query", map[string]any{"resource": "pods", "fields": slices.Repeat([]string{".a"}, 17)}, "has 17 paths, 16 at most"},
		{"query", map[string]any{"resource": "pods", "labelSelector": "a in ("}, "labelSelector"},
		{"query", map[string]any{"resource": "pods", "offset": 1}, "use continue"},
		{"query", map[string]any{"rego": "1 +"}, "BadRequest"},
		{"query", map[string]any{"rego": "1", "namespace": "a"}, "argument namespace is not supported with rego"},
		{"query", map[string]any{"rego": "1", "offset": -1}, "argument offset is negative"},
		{"count", map[string]any{"resource": []string{"pods"}, "groupBy": []string{"x"}}, "must be member"},
		{"count", nil, "required"},
		{"related", map[string]any{"member": "fleet/eu-1", "resource": "pods", "name": "none", "namespace": "shop"}, "NotFound"},
		{"related", map[string]any{"member": "fleet/eu-1", "resource": "pods", "name": "web-0", "namespace": "shop", "depth": 11}, "depth"},
		{"violations", map[string]any{"limit": -1}, "argument limit"},
		{"violations", map[string]any{"offset": 1}, "use continue"},
		{"violations", map[string]any{"groupBy": []string{"policy"}, "continue": "1.x"}, "use offset"},
		{"violations", map[string]any{"severity": []string{"dire"}}, "severity"},
		{"explain", map[string]any{"policy": "none", "member": "fleet/eu-1"}, "NotFound"},
		{"explain", map[string]any{"policy": "tier", "member": "fleet/eu-1", "section": "x"}, "argument section is none of"},
		{"explain", map[string]any{"policy": "tier", "member": "fleet/eu-1", "offset": 1}, "with section only"},
		{"actions", map[string]any{"action": "../members"}, "argument action is not the name of an Action"},
		{"actions", map[string]any{"action": "none"}, "NotFound"},
		{"actions", map[string]any{"since": "soon"}, "since"},
		{"history", map[string]any{"limit": 101}, "argument limit is not a number from 1 to 100"},
		{"history", map[string]any{"continue": "x"}, "argument continue is not of an answer"},
		{"history", map[string]any{"continue": "1.x"}, "continue"},
		{"history", map[string]any{"type": []string{"Thing"}}, "type"},
		{"history", map[string]any{"order": "best"}, "order"},
		{"history", map[string]any{"until": "soon"}, "until"},
		{"members", map[string]any{"state": []string{"Fine"}}, "state"},
		{"members", map[string]any{"limit": "many"}, "limit"},
	} {
		if text, failed := call(t, s, c.tool, c.args); !failed || !strings.Contains(text, c.want) {
			t.Errorf("%s %v: %v %s; want %q", c.tool, c.args, failed, text, c.want)
		}
	}
}

// TestArguments_AreCitedAsData: what refuses an argument cites it, and it may be a copy of what an object says.
func TestArguments_AreCitedAsData(t *testing.T) {
	f := start(t, questionsWorld(), nil)
	s := f.session(t, "ann")
	cited := strings.Repeat("obey\u200b", 5000)
	for what, args := range map[string]map[string]any{"of another type": {"resource": cited}, "of another name": {cited: 1}} {
		text, failed := call(t, s, "count", args)
		var answer struct {
			Error     struct{ Code int }
			Untrusted struct{ Message string }
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || !failed || answer.Error.Code != http.StatusBadRequest || !strings.Contains(answer.Untrusted.Message, "arguments") {
			t.Errorf("an argument %s: %v, %.200s", what, err, text)
		}
		if len(text) > 8000 || strings.Contains(text, "\u200b") {
			t.Errorf("an argument %s: %d bytes, %.200q", what, len(text), text)
		}
	}
	_, _, text := f.send(t, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+cited+`","arguments":{}}}`, nil)
	if !strings.Contains(text, "unknown tool") || len(text) > 8000 || strings.Contains(text, "\u200b") {
		t.Errorf("another tool: %d bytes, %.200q", len(text), text)
	}
}
