package compiled

import (
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/value"
)

// calls are what policies call often, as they call it.
var calls = []struct{ name, args string }{
	{"startswith", `["registry.example.com/team/app:1.2.3", "registry.example.com/"]`},
	{"contains", `["registry.example.com/team/app:1.2.3", ":latest"]`},
	{"count", `[{"a", "b", "c"}]`},
	{"internal.member_2", `["NET_ADMIN", ["CHOWN", "KILL", "NET_ADMIN", "SYS_TIME"]]`},
	{"equal", `[{"app": "web", "tier": "front"}, {"app": "web", "tier": "back"}]`},
	{"minus", `[{"app", "owner", "team"}, {"app", "tier"}]`},
	{"or", `[{"app", "owner", "team"}, {"app", "tier"}]`},
	{"plus", `[8080, 1]`},
	{"object.get", `[{"metadata": {"labels": {"app": "web"}}}, ["metadata", "labels", "app"], ""]`},
	{"object.keys", `[{"app": "web", "tier": "front", "team": "a"}]`},
	{"array.concat", `[["a", "b"], ["c", "d"]]`},
	{"concat", `[", ", ["a", "b", "c"]]`},
	{"split", `["registry.example.com/team/app:1.2.3", "/"]`},
	{"replace", `["500m", "m", ""]`},
	{"trim_suffix", `["app.example.com.", "."]`},
	{"lower", `["Registry.Example.com"]`},
	{"sprintf", `["container <%v> of %s has %d ports", ["web", "default/web-0", 3]]`},
	{"regex.match", `["^[a-z]+([.-][a-z0-9]+)*$", "registry.example.com"]`},
	{"glob.match", `["*.example.com", ["."], "registry.example.com"]`},
	{"to_number", `["500"]`},
	{"units.parse_bytes", `["512Mi"]`},
	{"units.parse", `["250m"]`},
	{"semver.compare", `["1.30.2", "1.29.0"]`},
	{"time.parse_rfc3339_ns", `["2024-01-02T03:04:05Z"]`},
	{"time.parse_duration_ns", `["720h"]`},
	{"time.format", `[[1704164645000000000, "UTC", "2006-01-02T15:04:05Z"]]`},
	{"net.cidr_contains", `["10.0.0.0/8", "10.1.2.3"]`},
	{"is_string", `["a"]`},
}

// BenchmarkNatives reports how often a native runs while OPA's implementation, with its
// guard, runs once: on terms, and with the conversions that it has to have otherwise.
func BenchmarkNatives(b *testing.B) {
	for _, c := range calls {
		args := value.Of(nil, ast.MustParseTerm(c.args).Value).Elems()
		b.Run(c.name, func(b *testing.B) {
			var m Machine
			own, opa := nativeOf(c.name), topdown.GetBuiltin(c.name)
			native := func() {
				if _, done := own(&m, args); !done {
					b.Fatal("left to OPA")
				}
				m.arena.Reset()
			}
			terms := termsOf(args)
			onTerms := func() {
				_ = opa(topdown.BuiltinContext{}, terms, func(*ast.Term) error { return nil })
			}
			converting := func() {
				_ = opa(topdown.BuiltinContext{}, termsOf(args), func(t *ast.Term) error {
					value.Of(&m.arena, t.Value)
					return nil
				})
				m.arena.Reset()
			}
			b.ReportAllocs()
			for b.Loop() {
				native()
			}
			least := fastest(native, onTerms, converting)
			b.ReportMetric(float64(least[1])/float64(least[0]), "x-opa")
			b.ReportMetric(float64(least[2])/float64(least[0]), "x-opa-converting")
		})
	}
}

// fastest times functions in turn, so that what else the machine does slows none of them
// alone, and returns the least time of each.
func fastest(fs ...func()) []time.Duration {
	const rounds, calls = 60, 500
	least := make([]time.Duration, len(fs))
	for round := range rounds {
		for i, f := range fs {
			start := time.Now()
			for range calls {
				f()
			}
			if d := time.Since(start); round == 0 || d < least[i] {
				least[i] = d
			}
		}
	}
	return least
}
