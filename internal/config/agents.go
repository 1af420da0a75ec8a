package config

import (
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Agents configures where the agents of Members connect.
type Agents struct {
	Listen          string        `yaml:"listen" doc:"Address that the agents of Members connect to, by TLS. Empty: none."`
	Hosts           []string      `yaml:"hosts" doc:"DNS names and IP addresses, without ports, that agents reach this process by, for its certificate. Required with listen."`
	CertificateLife time.Duration `yaml:"certificateLife" doc:"How long the certificates of agents are valid, which they renew when half of it is over. An agent that is away for longer must join again."`
}

const (
	minCertificateLife = 10 * time.Minute
	maxCertificateLife = 30 * 24 * time.Hour
)

// validateAgents needs the sources to be checked.
func (c *Config) validateAgents(p *problems) {
	a := &c.Agents
	if a.CertificateLife < minCertificateLife || a.CertificateLife > maxCertificateLife {
		p.add("agents.certificateLife", "is %s, must be at least %s and at most %s", a.CertificateLife, minCertificateLife, maxCertificateLife)
	}
	if a.Listen == "" {
		return
	}
	if _, _, err := net.SplitHostPort(a.Listen); err != nil {
		p.add("agents.listen", "%q is not an address such as \":9443\"", a.Listen)
	}
	if len(a.Hosts) == 0 {
		p.add("agents.hosts", "at least one is required")
	}
	for _, host := range a.Hosts {
		if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
			p.add("agents.hosts", "%q is neither a DNS name nor an IP address, without a port or anything else", host)
		}
	}
	if c.Sources.Members == nil {
		p.add("agents", "sources.members is required: agents are of Members")
	}
}
