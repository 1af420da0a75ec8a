package config

import (
	"federator.dev/federator/pkg/remediate"
)

// Corrections bounds what is written to members, whatever policies say. Those who write
// policies cannot change it.
type Corrections struct {
	Protected Protected `yaml:"protected" doc:"What is never written, in addition to RBAC, admission, CustomResourceDefinitions, APIServices, Namespaces, kube-system, federator's and Cluster API's own objects."`
}

// Protected is what is never written.
type Protected struct {
	Kinds      []string `yaml:"kinds" doc:"Patterns of kinds as kubectl writes them, such as Secret or *.cert-manager.io; * stands for any text."`
	Namespaces []string `yaml:"namespaces" doc:"Patterns of members' namespaces, such as *-system."`
}

// Protection returns what is never written.
func (c *Corrections) Protection() remediate.Protection {
	return remediate.Protection{Kinds: c.Protected.Kinds, Namespaces: c.Protected.Namespaces}
}

func (c *Corrections) validate(p *problems) {
	protection := c.Protection()
	if err := protection.Validate(); err != nil {
		p.add("policies.corrections.protected", "%v", err)
	}
}
