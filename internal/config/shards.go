package config

import (
	"net"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Shards configures how several processes share a fleet.
type Shards struct {
	Count       int    `yaml:"count" doc:"Processes that share the fleet: each reads and judges some of its members, and any answers for all. 1: each process has the whole fleet."`
	Replication int    `yaml:"replication" doc:"Processes that read each member: 1 or, so that one that is lost costs no time, 2. One of them judges it."`
	Listen      string `yaml:"listen" doc:"Address that the other processes connect to, by TLS with certificates that federator makes. Required where count is above 1."`
	Name        string `yaml:"name" doc:"Name of this process, which it has again after a restart. Default: POD_NAME of the environment, else the host's name."`
	Address     string `yaml:"address" doc:"Address, with the port, that the other processes reach this one by. Default: POD_IP of the environment, else the host's name, with the port of listen."`
}

// Many reports whether several processes share the fleet.
func (s *Shards) Many() bool { return s.Count > 1 }

const (
	maxShards      = 100
	maxReplication = 2
)

// validateShards fills in what this process is called, and needs the sources to be checked.
func (c *Config) validateShards(p *problems) {
	s := &c.Shards
	if s.Count < 1 || s.Count > maxShards {
		p.add("shards.count", "is %d, must be at least 1 and at most %d", s.Count, maxShards)
	}
	if s.Replication < 1 || s.Replication > maxReplication {
		p.add("shards.replication", "is %d, must be 1 or %d", s.Replication, maxReplication)
	}
	if !s.Many() {
		return
	}
	if s.Replication > s.Count {
		p.add("shards.replication", "is %d, more than the %d of shards.count", s.Replication, s.Count)
	}
	if !c.Sources.OnHub() {
		p.add("shards", "a hub is required, on which the processes agree: a source such as sources.clusterAPI")
	}
	_, port, err := net.SplitHostPort(s.Listen)
	if err != nil {
		p.add("shards.listen", "%q is not an address such as \":9444\"", s.Listen)
	}
	if s.Name == "" {
		s.Name = hostName("POD_NAME")
	}
	if wrong := validation.IsDNS1123Label(s.Name); len(wrong) > 0 {
		p.add("shards.name", "%q: %s", s.Name, wrong[0])
	}
	if s.Address == "" && port != "" {
		s.Address = net.JoinHostPort(hostName("POD_IP"), port)
	}
	if host, port, err := net.SplitHostPort(s.Address); s.Address != "" && (err != nil || host == "" || slices.Contains([]string{"", "0"}, port)) {
		p.add("shards.address", "%q is not a host and a port", s.Address)
	}
}

// hostName returns a variable of the environment or, where it is not set, the name of the host.
func hostName(variable string) string {
	if v := os.Getenv(variable); v != "" {
		return v
	}
	name, err := os.Hostname()
	if err != nil {
		return "" // which is no name
	}
	return name
}
