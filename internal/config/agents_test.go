package config

import "testing"

// TestAgents_HostsAreOfACertificate: what is neither a name nor an address ends in a certificate that no agent accepts, or in
// none at all.
func TestAgents_HostsAreOfACertificate(t *testing.T) {
	for host, want := range map[string]bool{
		"agents.example.com": true, "Agents.example.com": true, "localhost": true, "192.0.2.1": true, "2001:db8::1": true,
		"": false, "agents.example.com:9443": false, "https://agents.example.com": false, "ägents.example": false, "a b": false, "10.0.0.0/8": false,
		"[2001:db8::1]": false, "*.example.com": false, "agents.example.com.": false,
	} {
		c := Default()
		c.Sources.Members = &HubMembers{}
		c.Agents.Listen, c.Agents.Hosts = ":9443", []string{host}
		p := &problems{}
		c.validateAgents(p)
		if (len(p.errs) == 0) != want {
			t.Errorf("%q: %v", host, p.errs)
		}
	}
}
