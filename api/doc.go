// Package api is the module of federator's API on the hub: the group
// federator.dev, and the labels and annotations that federator writes.
//
// Package v1alpha1 names the version. It has no kinds yet: FleetPolicy and
// PolicySource come with policies, Action with remediation. What is here is
// what others must agree on already.
//
// The module has no dependencies and no replace directives, so that a program
// that only wants the names pays nothing for them.
package api
