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
	Kubeconfig string `yaml:"kubeconfig" doc:"Without a hub: the kubeconfig that is written for kubectl, with address and token.\nEmpty: federator/kubeconfig in the user's configuration directory. Next to it, with the suffix .ca.crt, also\nwith a hub, the CA of a certificate that the server generates."`

	TLS          QueryTLS      `yaml:"tls" doc:"The server's certificate."`
	Audiences    []string      `yaml:"audiences" doc:"Audiences of tokens, one of which is required."`
	ClientCAFile string        `yaml:"clientCAFile" doc:"CAs (PEM) whose client certificates are accepted: they can assert any user. Empty: none."`
	AskMembers   *AskMembers   `yaml:"askMembers,omitempty" doc:"Let callers read what the members themselves grant them, in addition to what the hub grants."`
	AllowTTL     time.Duration `yaml:"allowTTL" doc:"How long a grant is cached, at most 30s."`
	DenyTTL      time.Duration `yaml:"denyTTL" doc:"How long a denial is cached, at most 30s."`

	Priority    bool          `yaml:"priority" doc:"Queue and share concurrent requests by the hub's FlowSchemas and PriorityLevelConfigurations, which federator must be allowed to watch."`
	MaxInFlight int           `yaml:"maxInFlight" doc:"Concurrent requests, watches excluded."`
	MaxWatches  int           `yaml:"maxWatches" doc:"Open watches."`
	Timeout     time.Duration `yaml:"timeout" doc:"Timeout of a request, watches excluded."`
	Audit       QueryAudit    `yaml:"audit" doc:"The audit log of requests."`
	MCP         bool          `yaml:"mcp" doc:"Serve tools for assistants at /mcp (Model Context Protocol). They show what the caller may read to an assistant, and so to those who run its model."`
}

// QueryTLS is the server's certificate.
type QueryTLS struct {
	CertFile   string   `yaml:"certFile" doc:"Certificate (PEM), reloaded when it changes. Empty: the server generates one."`
	KeyFile    string   `yaml:"keyFile" doc:"Its key (PEM)."`
	Hosts      []string `yaml:"hosts" doc:"Names and addresses of a generated certificate, besides those that the server listens on."`
	MinVersion string   `yaml:"minVersion" doc:"1.2 or 1.3."`
}

// AskMembers lets members grant access that the hub does not grant.
type AskMembers struct {
	UserPrefix string `yaml:"userPrefix" doc:"Prefix of callers' user and group names in the members, so that they never match another user. Required."`
}

// QueryAudit says where requests are recorded.
type QueryAudit struct {
	PolicyFile string        `yaml:"policyFile" doc:"Policy (audit.k8s.io/v1) that says what is recorded."`
	LogFile    string        `yaml:"logFile" doc:"File that Events are appended to, one JSON object per line."`
	MaxBytes   int64         `yaml:"maxBytes" doc:"Size at which the file is rotated."`
	MaxBackups int           `yaml:"maxBackups" doc:"How many rotated files are kept."`
	MaxAge     time.Duration `yaml:"maxAge" doc:"How long rotated files are kept. 0: unlimited, within maxBackups."`
}

const (
	DefaultQuery      = ":8443"
	DefaultQueryLocal = "127.0.0.1:8443"
	addressDefault    = "default" // depends on the sources
)

func defaultQueryConfig() Query {
	return Query{
		Listen: addressDefault, TLS: QueryTLS{MinVersion: "1.2"}, Audiences: []string{"federator"},
		AllowTTL: 20 * time.Second, DenyTTL: 10 * time.Second,
		Priority: true, MaxInFlight: 400, MaxWatches: 10_000, Timeout: time.Minute,
		Audit: QueryAudit{MaxBytes: 100 << 20, MaxBackups: 10},
	}
}

// tlsVersions are the minimum versions that can be configured.
var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Version is the least version of TLS that a server speaks.
func (t QueryTLS) Version() uint16 { return tlsVersions[t.MinVersion] }

// HasHub reports whether there is a hub.
func (c *Config) HasHub() bool {
	return c.Sources.OnHub() || c.Sources.Hub != nil && c.Sources.Hub.Enabled
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
		q.Priority = false // there are no FlowSchemas
	}
	if q.Listen == "" {
		return
	}
	host, _, err := net.SplitHostPort(q.Listen)
	switch {
	case err != nil:
		p.add("query.listen", "%q is not an address such as %q", q.Listen, DefaultQuery)
	case !c.HasHub() && !IsLoopback(host):
		p.add("query.listen", "%q is not a loopback address; without a hub callers cannot be authorized", q.Listen)
	}
	if tlsVersions[q.TLS.MinVersion] == 0 {
		p.add("query.tls.minVersion", "%q is not 1.2 or 1.3", q.TLS.MinVersion)
	}
	if (q.TLS.CertFile == "") != (q.TLS.KeyFile == "") {
		p.add("query.tls", "certFile and keyFile must be set together")
	}
	if (q.Audit.PolicyFile == "") != (q.Audit.LogFile == "") {
		p.add("query.audit", "policyFile and logFile must be set together")
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
		max   time.Duration
	}{
		{"query.allowTTL", q.AllowTTL, 30 * time.Second},
		{"query.denyTTL", q.DenyTTL, 30 * time.Second},
		{"query.timeout", q.Timeout, time.Hour},
	} {
		if d.value <= 0 || d.value > d.max {
			p.add(d.path, "is %s, must be above 0 and at most %s", d.value, d.max)
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
