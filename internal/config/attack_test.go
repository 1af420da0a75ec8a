package config

import "testing"

// TestAttack_HostsOfAgents: what is no name or address ends in a certificate that no agent accepts, or in none at all.
func TestAttack_HostsOfAgents(t *testing.T) {
	for _, host := range []string{"agents.example.com:9443", "https://agents.example.com", "ägents.example", "a b", "10.0.0.0/8"} {
		c := Default()
		c.Sources.Members = &HubMembers{}
		c.Agents.Listen, c.Agents.Hosts = ":9443", []string{host}
		p := &problems{}
		c.validateAgents(p)
		if len(p.errs) == 0 {
			t.Errorf("agents.hosts may be %q", host)
		}
	}
}
