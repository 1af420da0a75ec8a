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

	Kinds []clusterinformers.KindRule    `yaml:"kinds" doc:"What is kept: the first rule that matches a kind decides. Empty: every kind except Event and Lease.\nA rule has kind (\"Pod\", \"Deployment.apps\", \"*\", \"*.apps\") and optionally exclude, namespaces, labels, fields, drop, ttl (how long after its last change an object is kept)\nand share (percent of the member's budget). Event must be named; its defaults are 1h and 10."`
	Held  []clusterinformers.HeldVersion `yaml:"held" doc:"Versions that kinds are pinned to, as kind and version. Default: the most preferred version that all members serve."`

	Budget  Budget  `yaml:"budget" doc:"Limits of one member. A scope that would exceed them is no longer synced and has the state OverBudget."`
	Members Members `yaml:"members" doc:"How members are reached."`
	Agents  Agents  `yaml:"agents" doc:"Members that federator does not reach: their agents connect to it (see federator agent)."`
	Shards  Shards  `yaml:"shards" doc:"Several processes that share the members of one fleet."`
	Network Network `yaml:"network" doc:"Which addresses members, and the repositories of PolicySources, may have."`

	DiscoveryInterval time.Duration `yaml:"discoveryInterval" doc:"How often the kinds that a member serves are discovered, besides when it announces a change."`
	ParallelSyncs     int           `yaml:"parallelSyncs" doc:"Concurrent large initial lists (more than 64 KiB), over all members."`
	GiveUpAfter       time.Duration `yaml:"giveUpAfter" doc:"How long /readyz waits for a member that has not synced."`
	Ping              Ping          `yaml:"ping" doc:"Detection of dead connections."`
	KeepSecretValues  bool          `yaml:"keepSecretValues" doc:"Keep the values of Secrets and ConfigMaps, which are redacted otherwise."`

	Audit Audit `yaml:"audit" doc:"How often what is held is compared with what the members have, and what that may cost. What differs is listed again,\nand counted as federator_lost_events_total. Members with an agent are compared a twelfth as often. Where the budget does not suffice the intervals are longer, which federator members shows."`

	Index       Index       `yaml:"index" doc:"The index."`
	Persistence Persistence `yaml:"persistence" doc:"What is kept of the index over a restart, which then lists nothing again."`

	History History `yaml:"history" doc:"What is kept of what happened: transitions of members, objects and verdicts, as long as persistence keeps the index."`

	Metrics  Metrics  `yaml:"metrics" doc:"What /metrics shows."`
	Traces   Traces   `yaml:"traces" doc:"OpenTelemetry traces: of each change that leads to an Action, from the member's event to the corrective write and its echo, of those that are slow, and of a sample of the others and of queries."`
	Policies Policies `yaml:"policies" doc:"Policies that are evaluated on the fleet."`
	Query    Query    `yaml:"query" doc:"The query API: the whole fleet, and each member, for kubectl and client-go."`
	UI       UI       `yaml:"ui" doc:"The web UI, served with the query API."`
	Listen   Listen   `yaml:"listen" doc:"Listen addresses."`
	Log      Log      `yaml:"log" doc:"Logging, to standard error."`
}

// Sources says where members are found.
type Sources struct {
	Kubeconfig string `yaml:"kubeconfig" doc:"File with the hub's credentials. Empty: in-cluster."`

	ClusterAPI      *ClusterAPI      `yaml:"clusterAPI,omitempty" doc:"Clusters of a Cluster API management cluster, the hub."`
	Members         *HubMembers      `yaml:"members,omitempty" doc:"Members of the hub (federator.dev): clusters that nothing else there describes."`
	ArgoCD          *ArgoCD          `yaml:"argoCD,omitempty" doc:"Clusters of an Argo CD on the hub: Secrets with the label argocd.argoproj.io/secret-type=cluster."`
	ManagedClusters *ManagedClusters `yaml:"managedClusters,omitempty" doc:"ManagedClusters of Open Cluster Management on the hub, through its cluster-proxy."`
	ClusterProfiles *ClusterProfiles `yaml:"clusterProfiles,omitempty" doc:"ClusterProfiles of the Cluster Inventory API on the hub."`
	Federators      []Federator      `yaml:"federators,omitempty" doc:"Other federators, whose members are read at them, as far as they grant it, and never written to. No hub is needed.\nEach has name, a DNS label (its member fleet/eu-1 is called <name>/fleet.eu-1), server, the URL of its query API, caFile, certificates (PEM) that it is\nverified with, and tokenFile, a token that it accepts; or kubeconfig, a file whose current context has all of that. Files are reloaded when they change."`
	Contexts        *Contexts        `yaml:"contexts,omitempty" doc:"Contexts of a kubeconfig. No hub is needed."`
	Hub             *Hub             `yaml:"hub,omitempty" doc:"The hub itself as a member; it is never written to."`
}

// OnHub reports whether the hub describes members.
func (s *Sources) OnHub() bool {
	return s.ClusterAPI != nil || s.Members != nil || s.ArgoCD != nil || s.ManagedClusters != nil || s.ClusterProfiles != nil
}

// Describing returns the resources on the hub that describe members, each with its group: with
// "secrets." core's.
func (s *Sources) Describing() []string {
	var out []string
	for _, r := range []struct {
		is       bool
		resource string
	}{
		{s.ClusterAPI != nil, "clusters.cluster.x-k8s.io"},
		{s.Members != nil, "members.federator.dev"},
		{s.ArgoCD != nil, "secrets."},
		{s.ManagedClusters != nil, "managedclusters.cluster.open-cluster-management.io"},
		{s.ClusterProfiles != nil, "clusterprofiles.multicluster.x-k8s.io"},
	} {
		if r.is {
			out = append(out, r.resource)
		}
	}
	return out
}

// ClusterAPI is the source of a hub's Clusters.
type ClusterAPI struct {
	Namespaces []string `yaml:"namespaces" doc:"Namespaces to find Clusters in. Empty: all."`
}

// HubMembers is the source of a hub's Members.
type HubMembers struct {
	Namespaces []string `yaml:"namespaces" doc:"Namespaces to find Members in, and their Secrets of type federator.dev/kubeconfig. Empty: all."`
}

// ArgoCD is the source of Argo CD's clusters.
type ArgoCD struct {
	Namespaces []string `yaml:"namespaces" doc:"Namespaces of Argo CD. Required: all of their Secrets can be read then."`
}

// ManagedClusters is the source of Open Cluster Management's clusters.
type ManagedClusters struct {
	ProxyURL       string `yaml:"proxyURL" doc:"The user server of cluster-proxy, such as https://cluster-proxy-addon-user.open-cluster-management-addon.svc:9092. Required."`
	CAFile         string `yaml:"caFile" doc:"Certificates (PEM) that it is verified with, reloaded when they change. Required."`
	ServiceAccount string `yaml:"serviceAccount" doc:"Name of the ManagedServiceAccount that each cluster has for federator, in its namespace of the hub. Default: federator."`
}

// ClusterProfiles is the source of the Cluster Inventory API.
type ClusterProfiles struct {
	Namespaces    []string `yaml:"namespaces" doc:"Namespaces to find ClusterProfiles in. Empty: all."`
	ProfileEnv    []string `yaml:"profileEnv" doc:"Environment variables that ClusterProfiles may set for providers whose profileSourcedEnvVarsPolicy lets them. A variable can decide what code runs: name none that a program, or what it starts, takes code or addresses from."`
	ProvidersFile string   `yaml:"providersFile" doc:"Access providers that federator may use, in the JSON of the Cluster Inventory API: providers with name, execConfig, profileSourcedCLIArgsPolicy and profileSourcedEnvVarsPolicy.\nThey are programs, which federator's image must have. Reloaded when it changes. Required."`
}

// Federator is the source of another federator's members.
type Federator struct {
	Name       string `yaml:"name"`
	Server     string `yaml:"server,omitempty"`
	CAFile     string `yaml:"caFile,omitempty"`
	TokenFile  string `yaml:"tokenFile,omitempty"`
	Kubeconfig string `yaml:"kubeconfig,omitempty"` // instead of server, caFile and tokenFile
}

// Contexts is the source of kubeconfig contexts.
type Contexts struct {
	Path   string   `yaml:"path" doc:"The kubeconfig. Empty: KUBECONFIG, else ~/.kube/config."`
	Names  []string `yaml:"names" doc:"The contexts. A single * stands for all contexts that exist at the start."`
	NoExec bool     `yaml:"noExec" doc:"Refuse contexts that log in by exec plugins, rather than run them."`
}

// Hub makes the hub a member.
type Hub struct {
	Enabled    bool   `yaml:"enabled" doc:"Whether the hub is a member."`
	Name       string `yaml:"name" doc:"Its name as a member."`
	Kubeconfig string `yaml:"kubeconfig" doc:"File with the credentials. Empty: sources.kubeconfig, else in-cluster."`
}

// Budget limits what one member may hold.
type Budget struct {
	Bytes         int64 `yaml:"bytes" doc:"Heap bytes of its objects. Default: a quarter of GOMEMLIMIT, at most 4 GiB."`
	Objects       int   `yaml:"objects" doc:"Number of its objects."`
	ResponseBytes int64 `yaml:"responseBytes" doc:"Bytes of one list page or watch event. Default: a sixteenth of GOMEMLIMIT, at most 256 MiB."`
	FleetBytes    int64 `yaml:"fleetBytes" doc:"Heap bytes of the objects of all members; members with more than an equal share have scopes dropped first. 0: unlimited.\nDefault: half of GOMEMLIMIT."`
}

// Network says where members and repositories may be.
type Network struct {
	Allow []string `yaml:"allow" doc:"Prefixes (CIDR) to allow among loopback, link-local and metadata addresses, which are refused otherwise."`
}

// The values of Members.Transport.
const (
	TransportHTTP2 = "http2"
	TransportStock = "stock"
)

// Members says how members are reached.
type Members struct {
	Transport string `yaml:"transport" doc:"http2: by a client for thousands of watches, and over HTTP/1.1 where a member does not speak HTTP/2 or violated it three times in ten minutes.\nstock: by net/http, always; a watch takes two goroutines and ten times the memory."`
}

// Ping detects silent connections.
type Ping struct {
	Interval time.Duration `yaml:"interval" doc:"Idle time after which a connection is pinged."`
	Timeout  time.Duration `yaml:"timeout" doc:"How long the answer to a ping may take."`
}

// Audit configures the comparison of what is held with what the members have.
type Audit struct {
	Interval               time.Duration `yaml:"interval" doc:"How often every kind of every member is compared."`
	FirstTier              time.Duration `yaml:"firstTier" doc:"The same for kinds that decide on security (Secrets, RBAC, webhooks, NetworkPolicies, …) and for those that policies read."`
	RequestsPerSecond      float64       `yaml:"requestsPerSecond" doc:"Requests of audits a second to one member, on average over ten seconds."`
	BytesPerSecond         int64         `yaml:"bytesPerSecond" doc:"Bytes a second of a member's responses to audits. A list that has begun is read within two minutes even if it exceeds this: what comes next waits."`
	FleetRequestsPerSecond float64       `yaml:"fleetRequestsPerSecond" doc:"Requests of audits a second to all members together."`
	Sample                 int           `yaml:"sample" doc:"Objects of a kind and member of which the content is compared, too, other ones in each audit. 0: none."`
	Off                    bool          `yaml:"off" doc:"Audit only when federator audit asks for it. What was kept over a restart then counts as soon as it is watched."`
}

// Options returns what the manager of members takes.
func (a Audit) Options() clusterinformers.Audit {
	if a.Sample == 0 {
		a.Sample = -1
	}
	return clusterinformers.Audit{
		Off: a.Off, Interval: a.Interval, FirstTier: a.FirstTier, Sample: a.Sample, BytesPerSecond: a.BytesPerSecond,
		RequestsPerSecond: a.RequestsPerSecond, FleetRequestsPerSecond: a.FleetRequestsPerSecond,
	}
}

// Index configures the index.
type Index struct {
	LogBytes int64               `yaml:"logBytes" doc:"Memory that the change log may retain, for single changes and, separately, for lists; for the last list up to four times as much.\nDefault: a 32nd of GOMEMLIMIT, at most 64 MiB."`
	Fields   map[string][]string `yaml:"fields" doc:"Indexed fields, by kind. A kind named here replaces its default."`

	RevisionsFile string `yaml:"revisionsFile" doc:"File in which the processes of this machine reserve their revision numbers. Empty: with a hub its Lease\nfederator-revisions in policies.namespace; without one, the file revisions next to federator's kubeconfig."`
}

// Persistence configures what is kept of the index over restarts.
type Persistence struct {
	Directory string `yaml:"directory" doc:"Directory that is this process's own. Empty: with a hub nothing is kept; without one a directory of\nthe user's cache has it."`
	MaxBytes  int64  `yaml:"maxBytes" doc:"Bytes on disk beyond which nothing more is kept."`
	KeyFile   string `yaml:"keyFile" doc:"File with a key of 32 bytes, in base64, by which all that is kept is encrypted. Required with keepSecretValues."`
	Off       bool   `yaml:"off" doc:"Keep nothing."`
}

// Metrics configures what /metrics shows.
type Metrics struct {
	PerScope bool `yaml:"perScope" doc:"Series of every kind of every member, a kilobyte for each. Otherwise there are series by member, and by kind only where something is wrong."`
}

// Listen says where the servers listen.
type Listen struct {
	Serve string    `yaml:"serve" doc:"/healthz, /readyz and /metrics. Metrics require a bearer token that the hub authorizes to get /metrics;\nwithout a hub, they are served to this machine only.\nDefault: :8080, without a hub 127.0.0.1:8080."`
	TLS   ListenTLS `yaml:"tls" doc:"The certificate of serve. Without one it serves plain HTTP, and tokens are sent in the clear."`
	Admin string    `yaml:"admin" doc:"/members and, if on, /debug/pprof: a loopback address, or empty for none."`
	Pprof bool      `yaml:"pprof" doc:"Serve /debug/pprof on the admin address."`
}

// ListenTLS is the certificate of the address for probes and metrics.
type ListenTLS struct {
	CertFile string `yaml:"certFile" doc:"Certificate (PEM), reloaded when it changes."`
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

	// DefaultManagedServiceAccount is what the ManagedServiceAccount for federator is called.
	DefaultManagedServiceAccount = "federator"
)

// Default returns the default configuration.
func Default() Config {
	budget, logBytes := memoryShares(debug.SetMemoryLimit(-1)) // of GOMEMLIMIT
	return Config{
		Budget:            budget,
		DiscoveryInterval: time.Minute,
		ParallelSyncs:     32,
		GiveUpAfter:       2 * time.Minute,
		Members:           Members{Transport: TransportHTTP2},
		Agents:            Agents{CertificateLife: 24 * time.Hour},
		Shards:            Shards{Count: 1, Replication: 1},
		Ping:              Ping{Interval: 3 * time.Second, Timeout: 3 * time.Second},
		Audit: Audit{
			Interval: 15 * time.Minute, FirstTier: 2 * time.Minute, RequestsPerSecond: 2, BytesPerSecond: 1 << 20, FleetRequestsPerSecond: 200, Sample: 50,
		},
		Index: Index{
			LogBytes: logBytes,
			Fields: map[string][]string{
				"Pod":   {"spec.nodeName", "status.phase"},
				"Event": {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid"},
			},
		},
		Persistence: Persistence{MaxBytes: 16 << 30},
		History:     History{MaxBytes: 2 << 30, MaxAge: 7 * 24 * time.Hour},
		Policies:    Policies{Namespace: DefaultNamespace, ReportInterval: 30 * time.Second, ActionRetention: 7 * 24 * time.Hour, ActionsKept: 100, Corrections: defaultCorrections(), Notify: defaultNotify()},

		Traces: defaultTraces(),
		Query:  defaultQueryConfig(),
		UI:     UI{Enabled: true},
		Listen: Listen{Serve: addressDefault, Admin: DefaultAdmin},
		Log:    Log{Level: "info", Format: "text"},
	}
}

// InteractiveGiveUpAfter is GiveUpAfter where somebody waits for the answer.
const InteractiveGiveUpAfter = 30 * time.Second
