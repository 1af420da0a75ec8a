// Package api is the module of federator's API on the hub: the group
// federator.dev, and the labels and annotations that federator writes.
//
// Package v1alpha1 has the kinds: FleetPolicy, PolicySource, Action, Plan and Approval. This
// package has no dependencies, for programs that only need the names; v1alpha1 needs
// k8s.io/apimachinery. The module has no replace directives.
package api
