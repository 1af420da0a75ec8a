package catalog

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/canonjson"
)

// buffers are for pruned bodies.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// prune lists what a kind's printer does not use and need not be decoded. It is a tree by
// key; all elements of a list are pruned in the same way.
type prune struct {
	drop map[string]bool   // keys to drop
	void map[string]bool   // keys of maps of which only the keys are used: values become ""
	in   map[string]*prune // keys whose values are pruned
}

func keySet(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return set
}

var (
	metadata  = &prune{drop: keySet("annotations", "labels", "ownerReferences", "finalizers")}
	container = &prune{drop: keySet("args", "command", "env", "envFrom", "lifecycle", "livenessProbe", "ports", "readinessProbe",
		"resources", "securityContext", "startupProbe", "volumeDevices", "volumeMounts")}
	podSpec = &prune{
		drop: keySet("affinity", "dnsConfig", "hostAliases", "imagePullSecrets", "securityContext", "tolerations", "topologySpreadConstraints", "volumes"),
		in:   map[string]*prune{"containers": container, "initContainers": container, "ephemeralContainers": container},
	}
	// Of templates only the containers' names and images are printed.
	workload = &prune{in: map[string]*prune{
		"metadata": metadata,
		"spec":     {in: map[string]*prune{"template": {drop: keySet("metadata"), in: map[string]*prune{"spec": podSpec}}}},
		"status":   {drop: keySet("uncountedTerminatedPods")},
	}}
	values = &prune{void: keySet("data", "binaryData"), in: map[string]*prune{"metadata": metadata}}
	status = &prune{drop: keySet("allocatedResources", "allocatedResourcesStatus", "containerID", "image", "imageID", "resources", "user", "volumeMounts")}
)

// prunes has the most common kinds. Tests check that pruning does not change rows.
var prunes = map[schema.GroupKind]*prune{
	{Kind: "Pod"}: {in: map[string]*prune{
		"metadata": metadata, "spec": podSpec,
		"status": {in: map[string]*prune{"containerStatuses": status, "initContainerStatuses": status, "ephemeralContainerStatuses": status}},
	}},
	{Kind: "Node"}:                          {in: map[string]*prune{"metadata": {drop: keySet("annotations")}, "status": {drop: keySet("images", "allocatable", "capacity", "volumesInUse", "volumesAttached")}}},
	{Kind: "ConfigMap"}:                     values,
	{Kind: "Secret"}:                        values,
	{Group: "apps", Kind: "Deployment"}:     workload,
	{Group: "apps", Kind: "ReplicaSet"}:     workload,
	{Group: "apps", Kind: "StatefulSet"}:    workload,
	{Group: "apps", Kind: "DaemonSet"}:      workload,
	{Group: "batch", Kind: "Job"}:           workload,
	{Kind: "Event"}:                         {in: map[string]*prune{"metadata": metadata}},
	{Group: "events.k8s.io", Kind: "Event"}: {in: map[string]*prune{"metadata": metadata}},
}

// append appends canonical JSON without what p drops. Other JSON is copied unchanged, and
// left to the decoder.
func (p *prune) append(dst, body []byte) []byte {
	s := &pruner{Reader: canonjson.NewReader(body), out: dst}
	s.value(p)
	if s.End() != nil {
		return append(dst, body...)
	}
	return s.out
}

// pruner copies JSON to out.
type pruner struct {
	canonjson.Reader
	out []byte
}

// value copies one value.
func (s *pruner) value(p *prune) {
	if p != nil {
		switch s.Peek() {
		case '{':
			s.object(p)
			return
		case '[':
			s.list(p)
			return
		}
	}
	s.out = append(s.out, s.Value()...)
}

func (s *pruner) object(p *prune) {
	s.out = append(s.out, '{')
	first := true
	for more := s.Open('{'); more; more = s.Next('}') {
		key, _ := s.Key()
		if p.drop[string(key)] {
			s.Skip()
			continue
		}
		if !first {
			s.out = append(s.out, ',')
		}
		first = false
		s.key(key)
		if p.void[string(key)] {
			s.void()
		} else {
			s.value(p.in[string(key)])
		}
	}
	s.out = append(s.out, '}')
}

func (s *pruner) list(p *prune) {
	s.out = append(s.out, '[')
	for more := s.Open('['); more; {
		s.value(p)
		if more = s.Next(']'); more {
			s.out = append(s.out, ',')
		}
	}
	s.out = append(s.out, ']')
}

// void copies a map with "" for every value.
func (s *pruner) void() {
	if s.Peek() != '{' {
		s.value(nil)
		return
	}
	s.out = append(s.out, '{')
	for more := s.Open('{'); more; {
		key, _ := s.Key()
		s.key(key)
		s.out = append(s.out, '"', '"')
		s.Skip()
		if more = s.Next('}'); more {
			s.out = append(s.out, ',')
		}
	}
	s.out = append(s.out, '}')
}

func (s *pruner) key(raw []byte) {
	s.out = append(append(append(s.out, '"'), raw...), '"', ':')
}
