// Package client is the module of federator's Go client.
//
// Today it holds Key, by which cluster-aware informers key the objects of many
// clusters in one store. The informers themselves come with the query API that
// they read from.
//
// A Key is a plain value: it may be copied, compared and used as a map key, by
// any number of goroutines. The module has no dependencies and no replace
// directives.
package client
