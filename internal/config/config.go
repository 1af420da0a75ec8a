package config

import (
	"runtime/debug"
	"time"

	"federator.dev/federator/pkg/clusterinformers"
)

// Config is the configuration file. Its doc tags are what --print-config
// writes above each key.
type Config struct {
	Sources Sources `yaml:"sources" doc:"Where members are found. Without any, clusterAPI with in-cluster credentials."`

	Kinds []clusterinformers.KindRule    `yaml:"kinds" doc:"What is kept: the first rule that matches a kind decides. Empty: every kind but Event and Lease.\nA rule has kind (\"Pod\", \"Deployment.apps\", \"*\", \"*.apps\") and optionally exclude, namespaces, labels, fields, drop, ttl (how long after its last change an object is kept)\nand share (percent of the member's budget). Of Event, which must be named, 1h and 10 unless set otherwise."`
	Held  []clusterinformers.HeldVersion `yaml:"held" doc:"Versions that kinds are held at, as kind and version. Else the most preferred one that all members serve."`

	Budget  Budget  `yaml:"budget" doc:"What one member may cost. A scope that would exceed it is given up on, OverBudget."`
	Network Network `yaml:"network" doc:"Where members, and the repositories of PolicySources, may be."`

	DiscoveryInterval time.Duration `yaml:"discoveryInterval" doc:"How often a member is asked what it serves, beside when it says so."`
	ParallelSyncs     int           `yaml:"parallelSyncs" doc:"First lists under way at once, over all members."`
	GiveUpAfter       time.Duration `yaml:"giveUpAfter" doc:"When a member that has not synced no longer holds back /readyz."`
	Ping              Ping          `yaml:"ping" doc:"Detection of connections that have gone silent."`
	KeepSecretValues  bool          `yaml:"keepSecretValues" doc:"Keep the values of Secrets and ConfigMaps, which are cut otherwise."`

	Index    Index    `yaml:"index" doc:"The index."`
	Policies Policies `yaml:"policies" doc:"Policies that judge the fleet."`
	Query    Query    `yaml:"query" doc:"The query API: the whole fleet, and each member, for kubectl and client-go."`
	Listen   Listen   `yaml:"listen" doc:"Addresses that are listened on."`
	Log      Log      `yaml:"log" doc:"Logging, to standard error."`
}

// Sources says where members are found.
type Sources struct {
	ClusterAPI *ClusterAPI `yaml:"clusterAPI,omitempty" doc:"Clusters of a Cluster API management cluster, the hub."`
	Contexts   *Contexts   `yaml:"contexts,omitempty" doc:"Contexts of a kubeconfig. No hub is needed."`
	Hub        *Hub        `yaml:"hub,omitempty" doc:"The hub itself as a member, which is never written to."`
}

// ClusterAPI is the source of a hub's Clusters.
type ClusterAPI struct {
	Kubeconfig string   `yaml:"kubeconfig" doc:"File with the hub's credentials. Empty: in-cluster."`
	Namespaces []string `yaml:"namespaces" doc:"Namespaces to find Clusters in. Empty: all."`
}

// Contexts is the source of kubeconfig contexts.
type Contexts struct {
	Path   string   `yaml:"path" doc:"The kubeconfig. Empty: KUBECONFIG, else ~/.kube/config."`
	Names  []string `yaml:"names" doc:"The contexts. One * stands for all that there are at the start."`
	NoExec bool     `yaml:"noExec" doc:"Refuse contexts that log in by exec plugins, rather than run them."`
}

// Hub makes the hub a member.
type Hub struct {
	Enabled    bool   `yaml:"enabled" doc:"Whether it is."`
	Name       string `yaml:"name" doc:"Its name as a member."`
	Kubeconfig string `yaml:"kubeconfig" doc:"File with the credentials. Empty: clusterAPI.kubeconfig, else in-cluster."`
}

// Budget bounds what one member may cost.
type Budget struct {
	Bytes         int64 `yaml:"bytes" doc:"Heap bytes of its objects. Default: a quarter of GOMEMLIMIT, at most 4 GiB."`
	Objects       int   `yaml:"objects" doc:"Number of its objects."`
	ResponseBytes int64 `yaml:"responseBytes" doc:"Bytes of one list page or watch event. Default: a sixteenth of GOMEMLIMIT, at most 256 MiB."`
	FleetBytes    int64 `yaml:"fleetBytes" doc:"Heap bytes of the objects of all members; a member with more than its equal share gives way. 0: no bound.\nDefault: half of GOMEMLIMIT."`
}

// Network says where members and repositories may be.
type Network struct {
	Allow []string `yaml:"allow" doc:"Prefixes (CIDR) to allow among loopback, link-local and metadata addresses, which are refused otherwise."`
}

// Ping detects silent connections.
type Ping struct {
	Interval time.Duration `yaml:"interval" doc:"Silence after which a connection is asked for a sign of life."`
	Timeout  time.Duration `yaml:"timeout" doc:"How long that may take."`
}

// Index configures the index.
type Index struct {
	LogBytes int64               `yaml:"logBytes" doc:"Memory that the log of changes may keep alive, for single changes and, again, for lists; for the last list up to four times as much.\nDefault: a 32nd of GOMEMLIMIT, at most 64 MiB."`
	Fields   map[string][]string `yaml:"fields" doc:"Fields by which lists find objects, by kind. A kind named here replaces its default."`

	RevisionsFile string `yaml:"revisionsFile" doc:"File from which the processes of this machine take the numbers of their revisions. Empty: with a hub its Lease\nfederator-revisions in policies.namespace; without one, revisions beside federator's kubeconfig."`
}

// Listen says where the servers listen.
type Listen struct {
	Serve string    `yaml:"serve" doc:"/healthz, /readyz and /metrics. Metrics are for who bears a token that the hub knows and lets get /metrics;\nwithout a hub, for this machine.\nDefault: :8080, without a hub 127.0.0.1:8080."`
	TLS   ListenTLS `yaml:"tls" doc:"The certificate of serve. Without one it speaks plain HTTP, and tokens can be read on the way."`
	Admin string    `yaml:"admin" doc:"/members and, if on, /debug/pprof: a loopback address, or empty for none."`
	Pprof bool      `yaml:"pprof" doc:"Serve /debug/pprof on the admin address."`
}

// ListenTLS is the certificate of the address that is for probes and metrics.
type ListenTLS struct {
	CertFile string `yaml:"certFile" doc:"Certificate (PEM), read again when it changes."`
	KeyFile  string `yaml:"keyFile" doc:"Its key (PEM)."`
}

// Log configures logging.
type Log struct {
	Level  string `yaml:"level" doc:"debug, info, warn or error."`
	Format string `yaml:"format" doc:"text or json."`
}

const (
	DefaultServe      = ":8080"
	DefaultServeLocal = "127.0.0.1:8080"
	DefaultAdmin      = "127.0.0.1:8081"
	defaultHub        = "hub/local"

	DefaultNamespace = "federator"
)

// Default returns the configuration of somebody who wrote none.
func Default() Config {
	budget, logBytes := memoryShares(debug.SetMemoryLimit(-1)) // of GOMEMLIMIT
	return Config{
		Budget:            budget,
		DiscoveryInterval: time.Minute,
		ParallelSyncs:     32,
		GiveUpAfter:       2 * time.Minute,
		Ping:              Ping{Interval: 3 * time.Second, Timeout: 3 * time.Second},
		Index: Index{
			LogBytes: logBytes,
			Fields: map[string][]string{
				"Pod":   {"spec.nodeName", "status.phase"},
				"Event": {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid"},
			},
		},
		Policies: Policies{Namespace: DefaultNamespace, ReportInterval: 30 * time.Second, ActionRetention: 7 * 24 * time.Hour, ActionsKept: 100},

		Query:  defaultQueryConfig(),
		Listen: Listen{Serve: addressDefault, Admin: DefaultAdmin},
		Log:    Log{Level: "info", Format: "text"},
	}
}

// InteractiveGiveUpAfter is GiveUpAfter where somebody waits for the answer.
const InteractiveGiveUpAfter = 30 * time.Second
