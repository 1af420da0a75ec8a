// Package catalog has the resources that the query API serves: their names and versions,
// conversion of objects from the held version to others, the columns and rows of Tables,
// discovery and OpenAPI.
//
// A kind is served at its held version. Kinds that are part of Kubernetes are also served at
// every version that some member serves and that the library's scheme converts to; versions
// of custom kinds can be converted only by their member. Rows of built-in kinds are made by
// the printers of kube-apiserver, rows of custom kinds by their CustomResourceDefinition,
// which the index holds.
//
// # Concurrency
//
// A Catalog may be used from any goroutine; it starts none. A View and its Resources are
// immutable to callers. Building a new View takes a lock, and concurrent callers wait for
// it.
//
// # Trade-offs
//
// Whether a View is current is checked against every scope and every definition in the index
// once per requested revision: some 60 ns each, so that no request sees a definition later
// than the objects. Documents that are rarely requested (discovery, OpenAPI) are built on
// demand, and cached as long as the View.
package catalog
