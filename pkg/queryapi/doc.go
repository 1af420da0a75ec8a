// Package queryapi is the cross-cluster query API: a Kubernetes API over the
// snapshots of an index, for kubectl and client-go.
package queryapi
