// Package defaults knows the defaults of FleetPolicy's CRD. They are in effect where a field
// is not set, too: a manifest of a git repository has not passed through the API server.
package defaults
