package config

import (
	"fmt"
	"strings"

	"federator.dev/federator/pkg/clusterinformers/source"
)

// validateFederators checks the federators whose members are read.
func (s *Sources) validateFederators(p *problems) {
	taken := map[string]bool{}
	for i, f := range s.Federators {
		at := fmt.Sprintf("sources.federators[%d]", i)
		switch {
		case !source.ValidFederatorName(f.Name):
			p.add(at+".name", "%q is not a DNS label such as eu, or one that members of other sources have", f.Name)
		case taken[f.Name]:
			p.add(at+".name", "%q is given twice", f.Name)
		case s.Hub != nil && s.Hub.Enabled && strings.HasPrefix(s.Hub.Name, f.Name+"/"):
			p.add(at+".name", "%q is the first half of sources.hub.name", f.Name)
		}
		taken[f.Name] = true
		if f.Kubeconfig != "" {
			if f.Server+f.CAFile+f.TokenFile != "" {
				p.add(at+".kubeconfig", "has what server, caFile and tokenFile say: set it or them")
			}
			continue
		}
		if !source.ValidProxyURL(f.Server) {
			p.add(at+".server", "is not a URL such as https://host:8443")
		}
		if f.CAFile == "" {
			p.add(at+".caFile", "is required")
		}
		if f.TokenFile == "" {
			p.add(at+".tokenFile", "is required")
		}
	}
}

// FederatorNames returns what the federators are called whose members are read.
func (s *Sources) FederatorNames() []string {
	names := make([]string, 0, len(s.Federators))
	for _, f := range s.Federators {
		names = append(names, f.Name)
	}
	return names
}
