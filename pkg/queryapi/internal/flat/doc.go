// Package flat gives every object of the fleet a key that is its own for clients
// that key by namespace and name: a namespace, and the name of a cluster-scoped
// object, is "<namespace of the Cluster>.<name of the Cluster, "_" for .>.<original>".
// Cluster namespaces are DNS labels and cluster names DNS subdomains, so that the
// first two dots end them, whatever the original has.
//
// Join and Split are the names. A Keys, made by Of for one kind, rewrites objects
// to them and says which field labels hold them. Both follow one table (table.go),
// which docs/flat.md shows; fields that are not in it stay the member's.
//
// Nothing here keeps state or talks to anybody; all is safe for concurrent use.
package flat
