// Package v1alpha1 is the first version of the group federator.dev.
//
// It has no kinds yet: FleetPolicy and PolicySource come with policies, Action
// with remediation. An alpha version may change without notice.
package v1alpha1
