// Package flat gives every object of the fleet a unique key for clients that key by
// namespace and name: a namespace, and the name of a cluster-scoped object, is "<namespace
// of the Cluster>.<name of the Cluster, "_" for .>.<original>". Cluster namespaces are DNS
// labels and cluster names DNS subdomains with their dots replaced, so that the first two
// dots end them, whatever the original contains.
//
// Join and Split convert names. A Keys, made by NewKeys for one kind, rewrites objects to
// flat names and reports which fields have them. Both use one table (table.go), which
// docs/flat.md shows; fields that are not in it are not rewritten.
//
// The package keeps no state and does no I/O; all of it is safe for concurrent use.
package flat
