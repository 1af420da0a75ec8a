package catalog

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/canonjson"
)

// buffers are for pruned bodies.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// prune says what a kind's printer does not read, so that it need not be decoded.
// It is a tree by key; a list's elements are pruned alike.
type prune struct {
	drop map[string]bool   // keys that go
	void map[string]bool   // keys of maps of which only the keys count: values become ""
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
	// Of a template the containers' names and images are printed.
	workload = &prune{in: map[string]*prune{
		"metadata": metadata,
		"spec":     {in: map[string]*prune{"template": {drop: keySet("metadata"), in: map[string]*prune{"spec": podSpec}}}},
		"status":   {drop: keySet("uncountedTerminatedPods")},
	}}
	values = &prune{void: keySet("data", "binaryData"), in: map[string]*prune{"metadata": metadata}}
	status = &prune{drop: keySet("allocatedResources", "allocatedResourcesStatus", "containerID", "image", "imageID", "resources", "user", "volumeMounts")}
)

// prunes has the kinds that fleets have most of. The tests hold that rows do not
// differ by it.
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

// append appends canonical JSON without what p drops. What is not canonical is
// copied as it is: the decoder after it judges.
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
