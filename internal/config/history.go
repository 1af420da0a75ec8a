package config

import (
	"fmt"
	"time"

	"federator.dev/federator/pkg/history"
)

// History configures what is kept of what happened.
type History struct {
	MaxBytes int64          `yaml:"maxBytes" doc:"Bytes on disk, in persistence.directory besides persistence.maxBytes, beyond which the oldest is removed."`
	MaxAge   time.Duration  `yaml:"maxAge" doc:"How long it is kept."`
	Kinds    []history.Rule `yaml:"kinds" doc:"Kinds whose objects' transitions are kept: kind and optionally fields, paths such as spec.replicas, metadata.labels[app] or status.conditions.status.\nEmpty: workloads, Nodes, PersistentVolumeClaims, Namespaces, Machines, Clusters. Kinds that policies read are kept with their default fields in any case.\nValues of Secrets and ConfigMaps never are."`
	Off      bool           `yaml:"off" doc:"Keep no history."`
}

// minHistory is the least that a history is kept in, in bytes.
const minHistory = 1 << 20

func (c *Config) validateHistory(p *problems) {
	h := &c.History
	if h.MaxBytes > 0 && h.MaxBytes < minHistory {
		p.add("history.maxBytes", "is %d, must be at least %d", h.MaxBytes, minHistory)
	}
	seen := map[string]bool{}
	for i, r := range h.Kinds {
		path := fmt.Sprintf("history.kinds[%d]", i)
		switch kind := string(r.Kind); {
		case kind == "":
			p.add(path+".kind", "is required")
		case seen[kind]:
			p.add(path+".kind", "%s has a rule already", kind)
		default:
			seen[kind] = true
		}
		if err := r.Validate(); err != nil {
			p.add(path+".fields", "%v", err)
		}
	}
}
