// Package catalog knows the resources that the query API serves: their names
// and versions, how an object of the held version reads at another, the columns
// of its Table, and what discovery and OpenAPI say of them.
package catalog

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

// Served is one resource at one version as members serve it, merged over the
// fleet.
type Served struct {
	Kind       aggregate.Kind
	Resource   schema.GroupVersionResource
	Singular   string
	ShortNames []string
	Categories []string
	Namespaced bool
}

// Source tells what members serve, and closes the channel when that changes.
type Source interface {
	Resources() ([]Served, <-chan struct{})
}

// Resource is a resource at one version that the query API answers for.
type Resource struct {
	Served
	Held string // API version that the index holds the kind at, e.g. "apps/v1"
}
