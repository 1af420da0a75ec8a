// Package rows is the format in which the query API streams a list as rows, for analysts' programs and
// not for clients of Kubernetes: what `federator export` reads.
//
// A response is lines of JSON (application/x-ndjson). The first is a Header: the revision, the columns, and
// how fresh what is there is. Each line after it is the row of one object:
//
//	{"cells":["fleet/eu-1","shop","web",3,true,null]}
//	{"cells":["fleet/eu-1","shop","key",null,null,null],"redacted":[3],"invalid":[5]}
//
// A cell is null where the object has no such value. It is null, too, where the value is redacted or is not
// one of its column's type; then the row says so, by the number of the column. The last line says how many
// rows there were: a response without it is incomplete, whatever the connection says.
//
//	{"end":{"rows":2}}
//
// # Cells
//
// Cells are JSON, by the Type of their column: a string; a number without or with a fraction; true or false; a
// string in RFC 3339, in UTC; a string that is a quantity as Kubernetes writes it; an array of strings; an object
// whose values are strings; a string that is JSON itself.
//
// # Concurrency
//
// A Reader belongs to one goroutine.
//
// # Trade-offs
//
// Rows are arrays and not objects, so that names of columns are not repeated a million times. A
// page has its columns, so that each can be read alone.
package rows
