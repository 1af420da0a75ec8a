package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/source"
)

// problems collects the errors of a configuration.
type problems struct {
	doc  *document // nil without a file
	errs []error
}

func (p *problems) add(path, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s%s: %s", p.doc.at(path), path, fmt.Sprintf(format, args...)))
}

// validate fills in defaults that depend on other keys and returns all errors. doc may
// be nil.
func (c *Config) validate(doc *document) error {
	p := &problems{doc: doc}
	c.validateSources(p)
	c.validateKinds(p)
	c.validateNumbers(p)
	c.validatePersistence(p)
	c.validateHistory(p)
	c.validateListen(p)
	c.validateAgents(p)
	c.validateShards(p)
	c.validateQuery(p)
	c.validateUI(p)
	c.validatePolicies(p)
	c.validateTraces(p)
	if _, err := c.AllowedPrefixes(); err != nil {
		p.errs = append(p.errs, prefixErrors(doc, c.Network.Allow)...)
	}
	if t := c.Members.Transport; t != TransportHTTP2 && t != TransportStock {
		p.add("members.transport", "%q is not %s or %s", t, TransportHTTP2, TransportStock)
	}
	if _, err := parseLevel(c.Log.Level); err != nil {
		p.add("log.level", "%q is not debug, info, warn or error", c.Log.Level)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		p.add("log.format", "%q is not text or json", c.Log.Format)
	}
	return errors.Join(p.errs...)
}

func (c *Config) validateSources(p *problems) {
	s := &c.Sources
	if h := s.Hub; h != nil && h.Name == "" {
		h.Name = defaultHub
	}
	if !s.OnHub() && s.Contexts == nil && len(s.Federators) == 0 && (s.Hub == nil || !s.Hub.Enabled) {
		s.ClusterAPI = &ClusterAPI{}
	}
	s.validateFederators(p)
	if s.Contexts != nil && len(s.Contexts.Names) == 0 {
		p.add("sources.contexts.names", "at least one context is required")
	}
	if s.Contexts != nil && slices.Contains(s.Contexts.Names, "") {
		p.add("sources.contexts.names", "a context's name must not be empty")
	}
	s.eachNamespaces(func(path string, namespaces []string) {
		if slices.Contains(namespaces, "") {
			p.add(path, `a namespace must not be empty; leave the list out for all namespaces`)
		}
	})
	if a := s.ArgoCD; a != nil && len(a.Namespaces) == 0 {
		p.add("sources.argoCD.namespaces", "at least one is required: federator does not read the Secrets of others")
	}
	if m := s.ManagedClusters; m != nil {
		if !source.ValidProxyURL(m.ProxyURL) {
			p.add("sources.managedClusters.proxyURL", "is not a URL such as https://host:9092")
		}
		if m.CAFile == "" {
			p.add("sources.managedClusters.caFile", "is required")
		}
		if m.ServiceAccount == "" {
			m.ServiceAccount = DefaultManagedServiceAccount
		}
	}
	if c := s.ClusterProfiles; c != nil && c.ProvidersFile == "" {
		p.add("sources.clusterProfiles.providersFile", "is required: access providers are programs, which only federator's own configuration may name")
	}
	if s.Hub != nil {
		if ns, name, ok := strings.Cut(s.Hub.Name, "/"); !ok || ns == "" || name == "" || strings.Contains(name, "/") {
			p.add("sources.hub.name", "%q is not of the form <namespace>/<name>", s.Hub.Name)
		}
	}
}

// eachNamespaces calls f with the namespaces that each source of the hub looks in.
func (s *Sources) eachNamespaces(f func(path string, namespaces []string)) {
	if s.ClusterAPI != nil {
		f("sources.clusterAPI.namespaces", s.ClusterAPI.Namespaces)
	}
	if s.Members != nil {
		f("sources.members.namespaces", s.Members.Namespaces)
	}
	if s.ArgoCD != nil {
		f("sources.argoCD.namespaces", s.ArgoCD.Namespaces)
	}
	if s.ClusterProfiles != nil {
		f("sources.clusterProfiles.namespaces", s.ClusterProfiles.Namespaces)
	}
}

var leadingPath = regexp.MustCompile(`^((?:kinds|held)\[\d+\](?:\.\w+)?):? `)

func (c *Config) validateKinds(p *problems) {
	var several interface{ Unwrap() []error }
	if err := clusterinformers.ValidateKinds(c.Kinds, c.Held); errors.As(err, &several) {
		for _, err := range several.Unwrap() {
			at := leadingPath.FindStringSubmatch(err.Error())
			if at == nil {
				at = []string{"", "kinds"}
			}
			p.errs = append(p.errs, fmt.Errorf("%s%w", p.doc.at(at[1]), err))
		}
	}
	for kind, fields := range c.Index.Fields {
		for _, f := range fields {
			if f == "" || slices.Contains(strings.Split(f, "."), "") {
				p.add("index.fields."+kind, "%q is not a dotted path", f)
			}
		}
	}
}

func (c *Config) validateNumbers(p *problems) {
	for _, n := range []struct {
		path  string
		value int64
	}{
		{"budget.bytes", c.Budget.Bytes},
		{"budget.objects", int64(c.Budget.Objects)},
		{"budget.responseBytes", c.Budget.ResponseBytes},
		{"parallelSyncs", int64(c.ParallelSyncs)},
		{"index.logBytes", c.Index.LogBytes},
		{"persistence.maxBytes", c.Persistence.MaxBytes},
		{"history.maxBytes", c.History.MaxBytes},
		{"audit.bytesPerSecond", c.Audit.BytesPerSecond},
	} {
		if n.value <= 0 {
			p.add(n.path, "is %d, must be above 0", n.value)
		}
	}
	if n := c.Budget.FleetBytes; n < 0 {
		p.add("budget.fleetBytes", "is %d, must not be negative", n)
	}
	for path, n := range map[string]float64{"audit.requestsPerSecond": c.Audit.RequestsPerSecond, "audit.fleetRequestsPerSecond": c.Audit.FleetRequestsPerSecond} {
		if n <= 0 || math.IsNaN(n) || math.IsInf(n, 0) { // which no comparison says of .nan
			p.add(path, "is %g, must be a number above 0", n)
		}
	}
	if n := c.Audit.Sample; n < 0 {
		p.add("audit.sample", "is %d, must not be negative", n)
	}
	if c.Audit.FirstTier > c.Audit.Interval {
		p.add("audit.firstTier", "is %s, must not be longer than audit.interval, %s", c.Audit.FirstTier, c.Audit.Interval)
	}
	for _, d := range []struct {
		path  string
		value time.Duration
	}{
		{"history.maxAge", c.History.MaxAge},
		{"audit.interval", c.Audit.Interval},
		{"audit.firstTier", c.Audit.FirstTier},
		{"discoveryInterval", c.DiscoveryInterval},
		{"giveUpAfter", c.GiveUpAfter},
		{"ping.interval", c.Ping.Interval},
		{"ping.timeout", c.Ping.Timeout},
	} {
		if d.value <= 0 {
			p.add(d.path, "is %s, must be above 0", d.value)
		}
	}
}

func (c *Config) validatePersistence(p *problems) {
	switch k := c.Persistence; {
	case k.Off && k.Directory != "":
		p.add("persistence.off", "is true, but persistence.directory is %q", k.Directory)
	case k.Directory != "" && !filepath.IsAbs(k.Directory):
		p.add("persistence.directory", "%q is not an absolute path", k.Directory)
	case k.Directory != "" && c.KeepSecretValues && k.KeyFile == "":
		p.add("persistence.keyFile", "is required with keepSecretValues: what is kept has the values of Secrets")
	}
}

func (c *Config) validateListen(p *problems) {
	if c.Listen.Serve == addressDefault {
		c.Listen.Serve = DefaultServeLocal
		if c.HasHub() {
			c.Listen.Serve = DefaultServe
		}
	}
	if t := c.Listen.TLS; (t.CertFile == "") != (t.KeyFile == "") {
		p.add("listen.tls", "certFile and keyFile must be set together")
	}
	if _, _, err := net.SplitHostPort(c.Listen.Serve); err != nil {
		p.add("listen.serve", "%q is not an address such as %q", c.Listen.Serve, DefaultServe)
	}
	if c.Listen.Admin == "" {
		if c.Listen.Pprof {
			p.add("listen.pprof", "is true, but listen.admin is empty")
		}
		return
	}
	host, _, err := net.SplitHostPort(c.Listen.Admin)
	if err != nil || !IsLoopback(host) {
		p.add("listen.admin", "%q is not a loopback address such as %q", c.Listen.Admin, DefaultAdmin)
	}
}

// IsLoopback reports whether a host without port is a loopback address.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// AllowedPrefixes returns network.allow parsed.
func (c *Config) AllowedPrefixes() ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, 0, len(c.Network.Allow))
	for _, s := range c.Network.Allow {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

// prefixErrors returns an error for each prefix that does not parse.
func prefixErrors(doc *document, allow []string) []error {
	p := &problems{doc: doc}
	for i, s := range allow {
		if _, err := netip.ParsePrefix(s); err != nil {
			p.add(fmt.Sprintf("network.allow[%d]", i), "%q is not a prefix such as \"127.0.0.0/8\"", s)
		}
	}
	return p.errs
}

func parseLevel(s string) (slog.Level, error) {
	var l slog.Level
	err := l.UnmarshalText([]byte(s))
	return l, err
}

// IndexFields returns index.fields as the index takes them.
func (c *Config) IndexFields() map[aggregate.Kind][]string {
	m := make(map[aggregate.Kind][]string, len(c.Index.Fields))
	for kind, paths := range c.Index.Fields {
		m[aggregate.Kind(kind)] = paths
	}
	return m
}
