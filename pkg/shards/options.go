package shards

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/shards/internal/assignment"
	"federator.dev/federator/pkg/shards/internal/shardmap"
)

// Names of what processes share on the hub, in federator's namespace.
const (
	// DefaultConfigMap has the map.
	DefaultConfigMap = "federator-shards"
	// DefaultSecret has the CAs of peers, with their keys, which nobody but federator reads.
	DefaultSecret = "federator-shards-ca"
	// LeasePrefix begins the name of each process's Lease; its ID ends it.
	LeasePrefix = "federator-shard-"
	// Label marks the Leases of processes; its value is the ID.
	Label = "federator.dev/shard"

	epochAnnotation   = "federator.dev/epoch"
	addressAnnotation = "federator.dev/address"
)

const (
	defaultRenew  = 5 * time.Second
	defaultExpire = 15 * time.Second
	// refusedAfter is how many renewals a process may miss whose address refuses connections.
	refusedAfter = 2
)

// Load is what a member costs the process that judges it: bytes held, deltas a second, cores of evaluations.
type Load = assignment.Load

// Options say which of the processes this one is, and what it knows of the members that it holds. Hub, Namespace, ID, Epoch,
// Address, Lead and Logger are required.
type Options struct {
	Hub       *rest.Config
	Namespace string // of federator on the hub

	ID      string             // of this process, stable over restarts: a DNS label
	Epoch   aggregate.Revision // the first revision of its index
	Address string             // host and port at which its peers reach Handler
	// Replication is how many processes hold a member: 1, or 2 with a standby. 0: 1.
	Replication int
	// Count is how many processes there are to be. The first map of all waits for them, a while. 0: one.
	Count int

	// Lead returns until when this process may write the map, or an error if another one leads.
	Lead func() (until time.Time, err error)
	// Fleet is told all members that the sources describe, whenever that or who judges them changes, by one goroutine. It does
	// not block. nil: nobody is told.
	Fleet func(Fleet)
	// Ready reports whether this process has read all that it reads of a member. nil: it always has.
	Ready func(member string) bool
	// LetGo reports whether a member whose judge is another process now may leave here: that what this process knows of it
	// otherwise is as good. nil: it always may.
	LetGo func(member string) bool
	// Measure returns what a member costs here; false: that is not known. nil: it never is.
	Measure func(member string) (Load, bool)
	// Applied returns the version of the map that this process has applied wherever it must: the keys of views that others had
	// before are theirs, too, until all processes have. nil: the version that Map returns.
	Applied func() int64
	// Policies names the policies and bindings that this process evaluates, for its peers, in 256 bytes at most. nil: "".
	Policies func() string

	ConfigMap string // of the map. "": DefaultConfigMap
	Secret    string // of the CAs. "": DefaultSecret
	// Renew is how often this process renews its Lease and, where it leads, asks its peers. 0: 5 s. Hub writes are at most two
	// in that time, when nothing is lost.
	Renew time.Duration
	// Expire is how long after its last renewal a process counts as gone: less, two renewals, where its address refuses
	// connections. 0: 15 s.
	Expire time.Duration

	Metrics prometheus.Registerer // nil: there are none
	Logger  *slog.Logger
}

func (o Options) validate() (Options, error) {
	switch {
	case o.Hub == nil, o.Namespace == "", o.Lead == nil, o.Logger == nil:
		return o, errors.New("shards: Hub, Namespace, Lead and Logger are required")
	case o.Epoch == 0:
		return o, errors.New("shards: Epoch is required: the first revision of the index")
	case o.Replication < 0 || o.Replication > 2:
		return o, fmt.Errorf("shards: Replication is %d: a member has one holder, or two", o.Replication)
	case o.Count < 0:
		return o, errors.New("shards: Count must not be negative")
	case o.Renew < 0 || o.Expire < 0:
		return o, errors.New("shards: Renew and Expire must not be negative")
	}
	if err := shardmap.CheckID(o.ID); err != nil {
		return o, fmt.Errorf("shards: ID: %w", err)
	}
	if err := shardmap.CheckAddress(o.Address); err != nil {
		return o, fmt.Errorf("shards: Address: %w", err)
	}
	o.Replication, o.Count = cmp.Or(o.Replication, 1), cmp.Or(o.Count, 1)
	o.ConfigMap, o.Secret = cmp.Or(o.ConfigMap, DefaultConfigMap), cmp.Or(o.Secret, DefaultSecret)
	o.Renew, o.Expire = cmp.Or(o.Renew, defaultRenew), cmp.Or(o.Expire, defaultExpire)
	if o.Expire < 2*o.Renew {
		return o, fmt.Errorf("shards: Expire is %s, and a Lease that is renewed every %s needs twice that", o.Expire, o.Renew)
	}
	if o.Fleet == nil {
		o.Fleet = func(Fleet) {}
	}
	if o.Ready == nil {
		o.Ready = func(string) bool { return true }
	}
	if o.LetGo == nil {
		o.LetGo = func(string) bool { return true }
	}
	if o.Measure == nil {
		o.Measure = func(string) (Load, bool) { return Load{}, false }
	}
	if o.Policies == nil {
		o.Policies = func() string { return "" }
	}
	return o, nil
}
