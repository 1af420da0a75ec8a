package selection

import "federator.dev/federator/pkg/aggregate"

// alias is how a kube-apiserver reads a field label that is not simply the
// path of a field: pkg/registry and pkg/apis/*/conversion.go of
// k8s.io/kubernetes.
type alias struct {
	paths  [][]string // the first with a value other than "" is used; nil: the label itself
	absent string     // the value when there is none
}

var aliases = map[aggregate.Kind]map[string]alias{
	"Event": {
		"source": {paths: [][]string{{"source", "component"}, {"reportingComponent"}}},
	},
	"Job.batch": {
		"status.successful": {paths: [][]string{{"status", "succeeded"}}, absent: "0"},
	},
	"Node": {
		"spec.unschedulable": {absent: "false"},
	},
	"Pod": {
		"spec.host":        {paths: [][]string{{"spec", "nodeName"}}},
		"spec.hostNetwork": {absent: "false"},
	},
	"ReplicaSet.apps": {
		"status.replicas": {absent: "0"},
	},
	"ReplicationController": {
		"status.replicas": {absent: "0"},
	},
}
