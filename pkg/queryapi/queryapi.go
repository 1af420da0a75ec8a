// Package queryapi is the cross-cluster query API: a Kubernetes API over the
// snapshots of an index, for kubectl and client-go.
package queryapi

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
)

// Served is one resource at one version as members serve it, merged over the
// fleet.
type Served = catalog.Served

// Fleet tells of the members what the index does not hold.
type Fleet interface {
	// Resources returns what members serve, and a channel that is closed when
	// that changes.
	Resources() ([]Served, <-chan struct{})
	// Heard returns when a member was last heard of a kind; the zero time when
	// it never was.
	Heard(member string, kind aggregate.Kind) time.Time
}

// Options configure a Server. Index, Fleet and Logger are required.
type Options struct {
	Index   *aggregate.Index
	Fleet   Fleet
	Logger  *slog.Logger
	Metrics prometheus.Registerer // nil: not exported

	// Hub reviews tokens and access. Nil: there is no hub (see Local).
	Hub *rest.Config
}
