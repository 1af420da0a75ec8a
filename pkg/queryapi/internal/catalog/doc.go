// Package catalog knows the resources that the query API serves: their names
// and versions, how an object that is held at one version reads at another, the
// columns and rows of its Table, and what discovery and OpenAPI say of them.
//
// A kind is served at its held version. Kinds that are part of Kubernetes are
// served, too, at every version that some member serves and that the library's
// scheme converts to; a custom kind's versions are its member's to convert.
// Rows of built-in kinds are made by the printers of kube-apiserver, rows of
// custom kinds by their CustomResourceDefinition, which the index holds.
//
// # Concurrency
//
// A Catalog may be used from any goroutine; it starts none. A View and its
// Resources are immutable to callers. Making a new View takes a lock, and
// whoever asks meanwhile waits for it.
//
// # Trade-offs
//
// Whether a View is current is found by looking at every scope and every
// definition in the index once per revision that is asked of: some 60 ns each,
// which buys that no request sees a definition later than the objects. Documents
// that few ask for (discovery, OpenAPI) are made when they are asked for, and
// kept for as long as the View.
package catalog
