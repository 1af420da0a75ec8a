// Package input reads the objects that policies and queries are evaluated on, without a
// server: from manifests, from a saved snapshot, or from clusters, which are only read.
package input
