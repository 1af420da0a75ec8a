package queries

import (
	"fmt"
	"slices"
)

// Operation describes a query in OpenAPI.
type Operation struct {
	Description string
	// Parameters are all that it accepts.
	Parameters []Parameter
	// Response is a value of the type of responses, as encoding/json encodes it; nil:
	// not described.
	Response any
	// Table says that a Table of meta.k8s.io/v1 is served, too.
	Table bool
	// Events are values of the types of objects in watch events, besides Status; nil:
	// no watches.
	Events []any
}

// Parameter describes a query parameter.
type Parameter struct {
	Name, Description string
	Required          bool
	Repeated          bool     // it may be given more than once
	Type              string   // in OpenAPI; "" means string
	Enum              []string // allowed values; nil: any
}

// commonParameters are those of every query, as of requests for objects.
var commonParameters = []Parameter{
	{Name: "pretty", Description: "Indent the response.", Type: "boolean"},
	{Name: "require", Description: "With synced, fail with 503 unless all affected members are synced.", Enum: []string{"synced"}},
	{Name: "timeout", Description: `Timeout of the request, such as 30s, up to that of the server.`},
}

// operations are the queries, by name.
var operations = map[string]Operation{
	"count": {
		Description: "Count objects of the fleet.",
		Parameters: append([]Parameter{
			{Name: "resource", Description: "What to count, such as pods or deployments.apps.", Required: true, Repeated: true},
			{Name: "groupBy", Description: "member, memberLabel:<key>, namespace, kind, label:<key> or field:<path>.", Repeated: true},
			{Name: "labelSelector", Description: "Label selector; labels such as federator.dev/member select members."},
			{Name: "fieldSelector", Description: "Field selector, on any path."},
			{Name: "namespace", Description: "Only objects in this namespace."},
		}, commonParameters...),
		Response: CountResult{}, Table: true,
	},
	"find": {
		Description: "Find objects of the fleet by how their names begin.",
		Parameters: append([]Parameter{
			{Name: "resource", Description: "What to find, such as pods or deployments.apps.", Required: true, Repeated: true},
			{Name: "namePrefix", Description: fmt.Sprintf("How the names begin: at least %d characters.", minPrefix), Required: true},
			{Name: "limit", Description: fmt.Sprintf("Maximum number of items of each resource, 1 to %d; the default is %d.", maxFind, findLimit), Type: "integer"},
		}, commonParameters...),
		Response: FindResult{}, Table: true,
	},
	"related": {
		Description: "Find the objects that are related to an object, within its member.",
		Parameters: append([]Parameter{
			{Name: "member", Description: "The member that has the object, <namespace>/<name>.", Required: true},
			{Name: "resource", Description: "Its resource, such as pods or deployments.apps.", Required: true},
			{Name: "name", Description: "Its name.", Required: true},
			{Name: "namespace", Description: "Its namespace, none for a cluster-scoped one."},
			{Name: "depth", Description: "Maximum number of edges from the object, 1 to 10; the default is 3.", Type: "integer"},
			{Name: "kinds", Description: "Resources to include, also separated by commas; all by default.", Repeated: true},
			{
				Name: "direction", Description: "down to what it owns and uses, up to what owns and uses it, or both (the default).",
				Enum: []string{"down", "up", "both"},
			},
		}, commonParameters...),
		Response: Graph{}, Table: true,
	},
	"members": {
		Description: "List the members in which the caller may read anything.",
		Parameters: append([]Parameter{
			{Name: "labelSelector", Description: "Label selector, of virtual labels."},
			{Name: "fieldSelector", Description: "Field selector, of metadata.name, metadata.namespace and version."},
			{Name: "namePrefix", Description: "Only members whose <namespace>/<name> starts with this."},
			{Name: "resource", Description: "Consider these kinds only, such as pods or deployments.apps; all by default.", Repeated: true},
			{Name: "state", Description: "Only members with a kind in this state, such as Stale; also separated by commas.", Repeated: true},
			{Name: "notSynced", Description: "Only members that are not fresh for a kind.", Type: "boolean"},
			{Name: "details", Description: "Describe each kind of each member and, where the caller may list everything in it, its connection, budget, errors and audits.", Type: "boolean"},
			{Name: "facts", Description: "With what another federator needs in order to read a member here: its identity, and which kinds it serves.", Type: "boolean"},
			{Name: "summary", Description: "Return totals of the members in place of the members.", Type: "boolean"},
			{Name: "limit", Description: "Maximum number of members in the response.", Type: "integer"},
			{Name: "continue", Description: "Where the next page starts, as the response before says."},
		}, commonParameters...),
		Response: MemberList{}, Table: true,
	},
	"stream": {
		Description: "Carry many reads in one response, a line of JSON for each event or changed answer.",
		Parameters: []Parameter{
			{Name: "s", Description: "An id, a blank and a path with its query; with watch=true there, events are passed on, else the answer is sent again when it changes. as=Table asks for a Table.", Required: true, Repeated: true},
			{Name: "watch", Description: "Must be true.", Required: true, Type: "boolean"},
		},
	},
}

// Describe returns the description of count, find, related, members or stream.
func Describe(name string) Operation { return operations[name] }

// parameter returns one that is accepted.
func (d Operation) parameter(name string) (Parameter, bool) {
	i := slices.IndexFunc(d.Parameters, func(p Parameter) bool { return p.Name == name })
	if i < 0 {
		return Parameter{}, false
	}
	return d.Parameters[i], true
}

// isCommon reports whether a parameter is one of commonParameters.
func isCommon(name string) bool {
	return slices.ContainsFunc(commonParameters, func(p Parameter) bool { return p.Name == name })
}
