package catalog

import (
	"bytes"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
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

// append appends canonical JSON without what p drops. JSON that is not canonical
// is copied as far as it can be told, which the decoder after it judges.
func (p *prune) append(dst, body []byte) []byte {
	s := &pruner{in: body, out: dst}
	s.value(p)
	return append(s.out, s.in[s.at:]...)
}

// pruner copies JSON from in to out.
type pruner struct {
	in  []byte
	at  int
	out []byte
}

// value copies one value.
func (s *pruner) value(p *prune) {
	start := s.at
	if s.at >= len(s.in) {
		return
	}
	if p != nil {
		switch s.in[s.at] {
		case '{':
			s.object(p)
			return
		case '[':
			s.list(p)
			return
		}
	}
	s.skip()
	s.out = append(s.out, s.in[start:s.at]...)
}

func (s *pruner) object(p *prune) {
	s.at++
	s.out = append(s.out, '{')
	first := true
	for s.at < len(s.in) && s.in[s.at] != '}' {
		start := s.at
		s.skip() // the key
		if s.at >= len(s.in) || s.in[s.at] != ':' || s.at-start < 2 {
			s.out = append(s.out, s.in[start:s.at]...)
			return
		}
		key := s.in[start+1 : s.at-1]
		s.at++
		if p.drop[string(key)] {
			s.skip()
		} else {
			if !first {
				s.out = append(s.out, ',')
			}
			first = false
			s.out = append(s.out, s.in[start:s.at]...)
			if p.void[string(key)] {
				s.void()
			} else {
				s.value(p.in[string(key)])
			}
		}
		if s.at < len(s.in) && s.in[s.at] == ',' {
			s.at++
		}
	}
	s.close('}')
}

func (s *pruner) list(p *prune) {
	s.at++
	s.out = append(s.out, '[')
	for s.at < len(s.in) && s.in[s.at] != ']' {
		start := s.at
		s.value(p)
		if s.at < len(s.in) && s.in[s.at] == ',' {
			s.at++
			s.out = append(s.out, ',')
		}
		if s.at == start {
			return
		}
	}
	s.close(']')
}

// void copies a map with "" for every value.
func (s *pruner) void() {
	if s.at >= len(s.in) || s.in[s.at] != '{' {
		s.value(nil)
		return
	}
	s.at++
	s.out = append(s.out, '{')
	for s.at < len(s.in) && s.in[s.at] != '}' {
		start := s.at
		s.skip()
		if s.at >= len(s.in) || s.in[s.at] != ':' {
			return
		}
		s.at++
		s.out = append(append(s.out, s.in[start:s.at]...), '"', '"')
		s.skip()
		if s.at < len(s.in) && s.in[s.at] == ',' {
			s.at++
			s.out = append(s.out, ',')
		}
	}
	s.close('}')
}

func (s *pruner) close(c byte) {
	if s.at < len(s.in) && s.in[s.at] == c {
		s.at++
		s.out = append(s.out, c)
	}
}

// skip moves behind one value, or behind a key.
func (s *pruner) skip() {
	depth := 0
	for s.at < len(s.in) {
		switch c := s.in[s.at]; c {
		case '"':
			s.str()
			if depth == 0 {
				return
			}
		case '{', '[':
			depth++
			s.at++
		case '}', ']':
			if depth == 0 {
				return
			}
			depth--
			s.at++
			if depth == 0 {
				return
			}
		case ',', ':':
			if depth == 0 {
				return
			}
			s.at++
		default:
			s.at++
		}
	}
}

// str moves behind a string.
func (s *pruner) str() {
	s.at++
	for {
		end := bytes.IndexByte(s.in[s.at:], '"')
		if end < 0 {
			s.at = len(s.in)
			return
		}
		s.at += end
		escapes := 0
		for s.in[s.at-1-escapes] == '\\' {
			escapes++
		}
		s.at++
		if escapes%2 == 0 {
			return
		}
	}
}

// field returns the value of a key of canonical JSON, without decoding it; nil
// when there is none.
func field(body []byte, name string) []byte {
	if len(body) == 0 {
		return nil
	}
	s := &pruner{in: body}
	for s.at = 1; s.at < len(body) && body[s.at] == '"'; s.at++ {
		start := s.at
		s.skip()
		key := body[start:s.at]
		if s.at >= len(body) || body[s.at] != ':' {
			return nil
		}
		s.at++
		start = s.at
		s.skip()
		if len(key) == len(name)+2 && string(key[1:len(key)-1]) == name {
			return body[start:s.at]
		}
		if s.at >= len(body) || body[s.at] != ',' {
			return nil
		}
	}
	return nil
}
