package limits

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// deprecated are builtins that Rego v1 no longer has and that templates written in v0 use.
// Policies of our own are compiled strictly, which refuses them.
var deprecated = []string{
	"all", "any", "cast_array", "cast_boolean", "cast_null", "cast_object", "cast_set", "cast_string",
	"net.cidr_overlap", "re_match", "set_diff",
	"trace", // without a tracer it is true
}

// TemplateCapabilities returns what ConstraintTemplates may use: what policies may, and
// builtins that are deprecated since.
func TemplateCapabilities() *ast.Capabilities {
	c := Capabilities()
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		if slices.Contains(deprecated, b.Name) {
			c.Builtins = append(c.Builtins, b)
		}
	}
	return c
}

// Refused returns why a builtin that is not on the allowlist is refused, "" for one that
// is unknown.
func Refused(name string) string {
	switch name {
	case "external_data":
		return "it asks an external data provider, and an evaluation asks nobody: name the data in spec.external of a PolicySource, and read data.fleet.external[source][key] in a policy in Rego"
	case "http.send", "net.lookup_ip_addr":
		return "it reads the network, and a verdict is a function of objects alone"
	case "time.now_ns":
		return "it reads the clock, and a verdict must not change with the time of its evaluation"
	case "rand.intn", "uuid.rfc4122":
		return "it is random, and a verdict is a function of objects alone"
	case "opa.runtime":
		return "it reads the environment of the process"
	}
	if ast.BuiltinMap[name] != nil {
		return "it is not on the list of builtins whose cost is bounded"
	}
	return ""
}
