package config

import (
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"time"
)

// Query configures the query API.
type Query struct {
	Listen     string `yaml:"listen" doc:"Address, served with TLS. Empty: none. Without a hub it must be a loopback address.\nDefault: :8443, without a hub 127.0.0.1:8443."`
	Kubeconfig string `yaml:"kubeconfig" doc:"Without a hub: the file that is written with address and token, for kubectl.\nEmpty: federator/kubeconfig in the user's configuration directory. Beside it, with .ca.crt after its name and\nwith a hub, too, the authority of a certificate that the server makes itself."`

	TLS          QueryTLS      `yaml:"tls" doc:"How the server proves who it is."`
	Audiences    []string      `yaml:"audiences" doc:"Tokens must be meant for one of these."`
	ClientCAFile string        `yaml:"clientCAFile" doc:"Authorities (PEM) whose client certificates are accepted: they can name anybody. Empty: none."`
	AskMembers   *AskMembers   `yaml:"askMembers,omitempty" doc:"Let a caller read, beside what the hub grants, what the members themselves would let him read."`
	AllowTTL     time.Duration `yaml:"allowTTL" doc:"How long a grant is remembered, at most 30s."`
	DenyTTL      time.Duration `yaml:"denyTTL" doc:"How long a denial is remembered, at most 30s."`

	Priority    bool          `yaml:"priority" doc:"Share the requests at once by the hub's FlowSchemas and PriorityLevelConfigurations, which federator must be allowed to watch."`
	MaxInFlight int           `yaml:"maxInFlight" doc:"Requests at once, watches aside."`
	MaxWatches  int           `yaml:"maxWatches" doc:"Open watches."`
	Timeout     time.Duration `yaml:"timeout" doc:"How long a request may take, watches aside."`
	Audit       QueryAudit    `yaml:"audit" doc:"Who asked for what."`
}

// QueryTLS is the server's certificate.
type QueryTLS struct {
	CertFile   string   `yaml:"certFile" doc:"Certificate (PEM), read again when it changes. Empty: one that the server makes itself."`
	KeyFile    string   `yaml:"keyFile" doc:"Its key (PEM)."`
	Hosts      []string `yaml:"hosts" doc:"Names and addresses of a certificate that the server makes itself, beside those it listens on."`
	MinVersion string   `yaml:"minVersion" doc:"1.2 or 1.3."`
}

// AskMembers lets members grant what the hub does not.
type AskMembers struct {
	UserPrefix string `yaml:"userPrefix" doc:"What comes before a caller's names in the members, so that they are never taken for somebody else. Required."`
}

// QueryAudit says where requests are recorded.
type QueryAudit struct {
	PolicyFile string        `yaml:"policyFile" doc:"Policy (audit.k8s.io/v1) that says what is recorded."`
	LogFile    string        `yaml:"logFile" doc:"File that is appended to, an Event in JSON a line."`
	MaxBytes   int64         `yaml:"maxBytes" doc:"Size at which the file is set aside, under a name with the time, and another is begun."`
	MaxBackups int           `yaml:"maxBackups" doc:"How many files set aside are kept."`
	MaxAge     time.Duration `yaml:"maxAge" doc:"How long they are kept. 0: as long as there are not more."`
}

const (
	DefaultQuery      = ":8443"
	DefaultQueryLocal = "127.0.0.1:8443"
	addressDefault    = "default" // as written by somebody who has no wish
)

func defaultQueryConfig() Query {
	return Query{
		Listen: addressDefault, TLS: QueryTLS{MinVersion: "1.2"}, Audiences: []string{"federator"},
		AllowTTL: 20 * time.Second, DenyTTL: 10 * time.Second,
		Priority: true, MaxInFlight: 400, MaxWatches: 10_000, Timeout: time.Minute,
		Audit: QueryAudit{MaxBytes: 100 << 20, MaxBackups: 10},
	}
}

// tlsVersions are the least versions that may be asked for.
var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Version is the least version of TLS that a server speaks.
func (t QueryTLS) Version() uint16 { return tlsVersions[t.MinVersion] }

// HasHub reports whether there is a hub to ask about callers.
func (c *Config) HasHub() bool {
	return c.Sources.ClusterAPI != nil || c.Sources.Hub != nil && c.Sources.Hub.Enabled
}

// validateQuery fills in what depends on the sources. They must be checked.
func (c *Config) validateQuery(p *problems) {
	q := &c.Query
	if q.Listen == addressDefault {
		q.Listen = DefaultQuery
		if !c.HasHub() {
			q.Listen = DefaultQueryLocal
		}
	}
	if !c.HasHub() {
		q.Priority = false // there is nobody's to share by
	}
	if q.Listen == "" {
		return
	}
	host, _, err := net.SplitHostPort(q.Listen)
	switch {
	case err != nil:
		p.add("query.listen", "%q is not an address such as %q", q.Listen, DefaultQuery)
	case !c.HasHub() && !IsLoopback(host):
		p.add("query.listen", "%q is no loopback address; without a hub nobody can say who may read", q.Listen)
	}
	if tlsVersions[q.TLS.MinVersion] == 0 {
		p.add("query.tls.minVersion", "%q is not 1.2 or 1.3", q.TLS.MinVersion)
	}
	if (q.TLS.CertFile == "") != (q.TLS.KeyFile == "") {
		p.add("query.tls", "certFile and keyFile go together")
	}
	if (q.Audit.PolicyFile == "") != (q.Audit.LogFile == "") {
		p.add("query.audit", "policyFile and logFile go together")
	}
	if len(q.Audiences) == 0 || slices.Contains(q.Audiences, "") {
		p.add("query.audiences", "at least one is required, and none may be empty")
	}
	if q.AskMembers != nil && (q.AskMembers.UserPrefix == "" || strings.HasPrefix(q.AskMembers.UserPrefix, "system:")) {
		p.add("query.askMembers.userPrefix", "a prefix is required, and it must not begin with system:")
	}
	for _, d := range []struct {
		path  string
		value time.Duration
		most  time.Duration
	}{
		{"query.allowTTL", q.AllowTTL, 30 * time.Second},
		{"query.denyTTL", q.DenyTTL, 30 * time.Second},
		{"query.timeout", q.Timeout, time.Hour},
	} {
		if d.value <= 0 || d.value > d.most {
			p.add(d.path, "is %s, must be above 0 and at most %s", d.value, d.most)
		}
	}
	if q.Audit.MaxAge < 0 {
		p.add("query.audit.maxAge", "is %s, must be at least 0", q.Audit.MaxAge)
	}
	for path, n := range map[string]int64{
		"query.maxInFlight": int64(q.MaxInFlight), "query.maxWatches": int64(q.MaxWatches),
		"query.audit.maxBytes": q.Audit.MaxBytes, "query.audit.maxBackups": int64(q.Audit.MaxBackups),
	} {
		if n <= 0 {
			p.add(path, "is %d, must be above 0", n)
		}
	}
}
