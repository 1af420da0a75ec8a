package queries

import "slices"

// Operation is what OpenAPI says of a question.
type Operation struct {
	Description string
	// Parameters are all that it accepts.
	Parameters []Parameter
	// Response is of the type that answers are encoded from with encoding/json; nil:
	// nothing is said of them.
	Response any
	// Table says that a Table of Kubernetes (meta/v1) can be had instead.
	Table bool
	// Events are of the types that objects of a watch's events are encoded from, a
	// Status aside; nil: nothing is said of watches.
	Events []any
}

// Parameter is one that a question accepts in the query of a URL.
type Parameter struct {
	Name, Description string
	Required          bool
	Repeated          bool     // it may be given more than once
	Type              string   // as OpenAPI calls it; "" means string
	Enum              []string // all that it may have; nil: no such list
}

// commonParameters are parameters that every question takes, as requests for objects do.
var commonParameters = []Parameter{
	{Name: "pretty", Description: "Write the answer on several lines.", Type: "boolean"},
	{Name: "require", Description: "Answer only when all members concerned are synced, else with 503.", Enum: []string{"synced"}},
	{Name: "timeout", Description: `How long the answer may take, such as 30s; no longer than the server allows.`},
}

// operations are the questions, by name.
var operations = map[string]Operation{
	"count": {
		Description: "Count objects of the fleet, from memory.",
		Parameters: append([]Parameter{
			{Name: "resource", Description: "What to count, such as pods or deployments.apps.", Required: true, Repeated: true},
			{Name: "groupBy", Description: "member, memberLabel:<key>, namespace, kind, label:<key> or field:<path>.", Repeated: true},
			{Name: "labelSelector", Description: "Label selector; federator.dev/member and the like name members."},
			{Name: "fieldSelector", Description: "Field selector, on any path."},
			{Name: "namespace", Description: "Only this namespace."},
		}, commonParameters...),
		Response: CountResult{}, Table: true,
	},
	"related": {
		Description: "Find an object and what belongs to it in its member.",
		Parameters: append([]Parameter{
			{Name: "member", Description: "The member that has the object, <namespace>/<name>.", Required: true},
			{Name: "resource", Description: "Its resource, such as pods or deployments.apps.", Required: true},
			{Name: "name", Description: "Its name.", Required: true},
			{Name: "namespace", Description: "Its namespace, none for a cluster-scoped one."},
			{Name: "depth", Description: "How many edges to go from it, 1 to 10, by default 3.", Type: "integer"},
			{Name: "kinds", Description: "Resources that may be in the answer, also with commas between them; by default all.", Repeated: true},
			{
				Name: "direction", Description: "down to what it owns and uses, up to what owns and uses it, or both (the default).",
				Enum: []string{"down", "up", "both"},
			},
		}, commonParameters...),
		Response: Graph{}, Table: true,
	},
	"members": {
		Description: "List the members of which the caller may read anything.",
		Parameters:  append([]Parameter{{Name: "labelSelector", Description: "Label selector, of virtual labels."}}, commonParameters...),
		Response:    MemberList{}, Table: true,
	},
}

// Describe returns what is said of count, related or members.
func Describe(name string) Operation { return operations[name] }

// parameter returns one that is accepted.
func (d Operation) parameter(name string) (Parameter, bool) {
	i := slices.IndexFunc(d.Parameters, func(p Parameter) bool { return p.Name == name })
	if i < 0 {
		return Parameter{}, false
	}
	return d.Parameters[i], true
}

// isCommon reports whether a parameter is read as that of a request for objects.
func isCommon(name string) bool {
	return slices.ContainsFunc(commonParameters, func(p Parameter) bool { return p.Name == name })
}
