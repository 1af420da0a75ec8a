package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/test/kube"
)

var metric = regexp.MustCompile(`\b(?:federator|process|go)_[a-z_]+\b`)

// metricsExist compares the names in alerts and dashboard with an answer of /metrics.
// Metrics of actions and sources exist once there are any; those of kinds with something
// wrong, and of losses, are documented.
func metricsExist(t *testing.T, answer string) error {
	t.Helper()
	there := map[string]bool{}
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	must(t, err)
	for line := range strings.Lines(string(reference)) {
		if strings.Contains(line, "Only of kinds with something wrong") || strings.Contains(line, "Causes without any have no series") {
			answer += line
		}
	}
	for _, name := range metric.FindAllString(answer, -1) {
		there[name] = true
	}
	all := render(t, "--values", "testdata/full.yaml", "--set", "policies.hub=true,policies.bindings=null,notify.receivers[0].name=a,notify.receivers[0].url=https://a,notify.receivers[0].secretName=a")
	used, missing := 0, map[string]bool{}
	for _, u := range all {
		dashboard := u.GetKind() == "ConfigMap" && strings.HasSuffix(u.GetName(), "-dashboard")
		if u.GetKind() != "PrometheusRule" && !dashboard {
			continue
		}
		for _, expr := range expressions(t, u.Object) {
			for _, name := range metric.FindAllString(expr, -1) {
				used++
				if !there[name] {
					missing[u.GetKind()+": "+name] = true
				}
			}
		}
	}
	if used < 40 {
		t.Fatalf("only %d names were found", used)
	}
	if len(missing) > 0 {
		return fmt.Errorf("/metrics does not have %v", slices.Sorted(maps.Keys(missing)))
	}
	return nil
}

// expressions returns the queries of alerts, and of dashboards in ConfigMaps.
func expressions(t *testing.T, v any) []string {
	t.Helper()
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			switch text, ok := child.(string); {
			case ok && key == "expr":
				out = append(out, text)
			case ok && strings.HasSuffix(key, ".json"):
				var dashboard any
				must(t, json.Unmarshal([]byte(text), &dashboard))
				out = append(out, expressions(t, dashboard)...)
			default:
				out = append(out, expressions(t, child)...)
			}
		}
	case []any:
		for _, child := range v {
			out = append(out, expressions(t, child)...)
		}
	}
	return out
}

// scraper returns the token of an account that has the chart's role for metrics.
func scraper(t *testing.T, hub *kube.Hub) string {
	t.Helper()
	caller(t, hub, "prometheus")
	must(t, hub.Apply(t.Context(), []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scrape}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system-federator-metrics}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: default}]
`)))
	return tokenOf(t, hub, "prometheus", "")
}
