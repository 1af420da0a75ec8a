package queries

import "slices"

// Description is what OpenAPI says of a question.
type Description struct {
	About string
	// Parameters are all that it accepts.
	Parameters []Parameter
	// Answer is of the type that answers are encoded from with encoding/json; nil:
	// nothing is said of them.
	Answer any
	// Table says that a Table of Kubernetes (meta/v1) can be had instead.
	Table bool
	// Events are of the types that objects of a watch's events are encoded from, a
	// Status aside; nil: nothing is said of watches.
	Events []any
}

// Parameter is one that a question accepts in the query of a URL.
type Parameter struct {
	Name, About string
	Required    bool
	Many        bool     // it may be given more than once
	Type        string   // as OpenAPI calls it; "" means string
	Values      []string // all that it may have; nil: no such list
}

// general are parameters that every question takes, as requests for objects do.
var general = []Parameter{
	{Name: "pretty", About: "Write the answer on several lines.", Type: "boolean"},
	{Name: "require", About: "Answer only when all members concerned are synced, else with 503.", Values: []string{"synced"}},
	{Name: "timeout", About: `How long the answer may take, such as 30s; no longer than the server allows.`},
}

// described are the questions, by name.
var described = map[string]Description{
	"count": {
		About: "Count objects of the fleet, from memory.",
		Parameters: append([]Parameter{
			{Name: "resource", About: "What to count, such as pods or deployments.apps.", Required: true, Many: true},
			{Name: "groupBy", About: "member, memberLabel:<key>, namespace, kind, label:<key> or field:<path>.", Many: true},
			{Name: "labelSelector", About: "Label selector; federator.dev/member and the like name members."},
			{Name: "fieldSelector", About: "Field selector, on any path."},
			{Name: "namespace", About: "Only this namespace."},
		}, general...),
		Answer: Counted{}, Table: true,
	},
	"related": {
		About: "Find an object and what belongs to it in its member.",
		Parameters: append([]Parameter{
			{Name: "member", About: "The member that has the object, <namespace>/<name>.", Required: true},
			{Name: "resource", About: "Its resource, such as pods or deployments.apps.", Required: true},
			{Name: "name", About: "Its name.", Required: true},
			{Name: "namespace", About: "Its namespace, none for a cluster-scoped one."},
			{Name: "depth", About: "How many edges to go from it, 1 to 10, by default 3.", Type: "integer"},
			{Name: "kinds", About: "Resources that may be in the answer, also with commas between them; by default all.", Many: true},
			{
				Name: "direction", About: "down to what it owns and uses, up to what owns and uses it, or both (the default).",
				Values: []string{"down", "up", "both"},
			},
		}, general...),
		Answer: Graph{}, Table: true,
	},
	"members": {
		About:      "List the members of which the caller may read anything.",
		Parameters: append([]Parameter{{Name: "labelSelector", About: "Label selector, of virtual labels."}}, general...),
		Answer:     MemberList{}, Table: true,
	},
}

// Describe returns what is said of count, related or members.
func Describe(name string) Description { return described[name] }

// parameter returns one that is accepted.
func (d Description) parameter(name string) (Parameter, bool) {
	i := slices.IndexFunc(d.Parameters, func(p Parameter) bool { return p.Name == name })
	if i < 0 {
		return Parameter{}, false
	}
	return d.Parameters[i], true
}

// isGeneral reports whether a parameter is read as that of a request for objects.
func isGeneral(name string) bool {
	return slices.ContainsFunc(general, func(p Parameter) bool { return p.Name == name })
}
