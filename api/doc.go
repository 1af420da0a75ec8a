// Package api is the module of federator's API on the hub: the group
// federator.dev, and the labels and annotations that federator writes.
//
// Package v1alpha1 has the kinds: FleetPolicy, PolicySource and Action. This
// package has no dependencies, so that a program that only wants the names pays
// nothing for them; v1alpha1 needs k8s.io/apimachinery. The module has no replace
// directives.
package api
