package history

import (
	"slices"

	"federator.dev/federator/pkg/aggregate"
)

// Rule says what is recorded of a kind.
type Rule struct {
	Kind   aggregate.Kind `yaml:"kind"`
	Fields []string       `yaml:"fields,omitempty"` // paths; none: the default
}

// Validate returns a *PathError for a field that cannot be recorded.
func (r *Rule) Validate() error {
	_, err := newSelection(r.Kind, r.Fields)
	return err
}

// Fields that are recorded of each kind: what it is called by, and how it is.
var commonFields = []string{
	"metadata.labels", "metadata.deletionTimestamp",
	"spec.replicas", "spec.suspend", "spec.paused",
	"spec.template.spec.containers.image", "spec.template.spec.initContainers.image",
	"status.phase", "status.conditions.status", "status.conditions.reason", "status.conditions.message",
	"status.replicas", "status.readyReplicas", "status.updatedReplicas", "status.availableReplicas",
}

// Fields that are recorded of some kinds besides the common ones.
var kindFields = map[aggregate.Kind][]string{
	"Pod": {
		"spec.nodeName", "spec.containers.image", "spec.initContainers.image",
		"status.reason", "status.message",
		"status.containerStatuses.ready", "status.containerStatuses.restartCount", "status.containerStatuses.state.waiting.reason",
		"status.containerStatuses.state.terminated.reason", "status.containerStatuses.state.terminated.exitCode",
	},
	"Node":                  {"spec.unschedulable", "spec.taints", "status.nodeInfo.kubeletVersion"},
	"PersistentVolumeClaim": {"spec.volumeName", "spec.storageClassName", "spec.resources.requests", "status.capacity"},
	"DaemonSet.apps": {
		"status.desiredNumberScheduled", "status.currentNumberScheduled", "status.updatedNumberScheduled", "status.numberReady",
		"status.numberAvailable", "status.numberUnavailable",
	},
	"Job.batch":                {"spec.parallelism", "spec.completions", "status.active", "status.succeeded", "status.failed"},
	"CronJob.batch":            {"spec.schedule", "spec.jobTemplate.spec.template.spec.containers.image", "status.lastScheduleTime"},
	"Machine.cluster.x-k8s.io": {"spec.version", "spec.providerID", "status.nodeRef.name"},
	"Cluster.cluster.x-k8s.io": {"spec.topology.version", "spec.topology.class", "spec.controlPlaneEndpoint"},
}

// DefaultKinds are recorded where nothing else is configured, with those that policies read.
var DefaultKinds = []aggregate.Kind{
	"Pod", "Deployment.apps", "ReplicaSet.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch",
	"Node", "PersistentVolumeClaim", "Namespace", "Machine.cluster.x-k8s.io", "Cluster.cluster.x-k8s.io",
}

// DefaultFields returns the paths of what is recorded of a kind by default.
func DefaultFields(kind aggregate.Kind) []string {
	return append(slices.Clone(commonFields), kindFields[kind]...)
}

// selections are what is recorded, by kind.
type selections struct {
	rules map[aggregate.Kind]*selection
	read  func(aggregate.Kind) bool // whether policies read a kind, which is then recorded by default; may be nil
	known map[aggregate.Kind]*selection
}

func newSelections(rules []Rule, read func(aggregate.Kind) bool) (*selections, error) {
	s := &selections{rules: map[aggregate.Kind]*selection{}, read: read, known: map[aggregate.Kind]*selection{}}
	if len(rules) == 0 {
		for _, kind := range DefaultKinds {
			rules = append(rules, Rule{Kind: kind})
		}
	}
	for _, r := range rules {
		if r.Kind == "" {
			return nil, &PathError{"", "its rule has no kind"}
		}
		fields := r.Fields
		if len(fields) == 0 {
			fields = DefaultFields(r.Kind)
		}
		of, err := newSelection(r.Kind, fields)
		if err != nil {
			return nil, err
		}
		s.rules[r.Kind] = of
	}
	return s, nil
}

// of returns what is recorded of a kind, nil for nothing.
func (s *selections) of(kind aggregate.Kind) *selection {
	if of := s.rules[kind]; of != nil {
		return of
	}
	if s.read == nil || !s.read(kind) {
		return nil
	}
	of := s.known[kind]
	if of == nil {
		of, _ = newSelection(kind, DefaultFields(kind)) // they are valid
		s.known[kind] = of
	}
	return of
}
