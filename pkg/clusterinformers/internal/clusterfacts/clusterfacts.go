// Package clusterfacts reads what policies may know of a Cluster API Cluster besides its
// labels, by the contract of its version, and bounds it.
//
// Annotations are the hub's, and hold anything: kubectl's copy of the object is left out, a
// long value becomes "" and keeps its key, and what is beyond the total is left out in the
// order of keys. It is all the same each time, so that nothing changes that did not.
//
// It holds nothing, starts no goroutine and may be called by any.
package clusterfacts

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/util/annotations"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
)

// Bounds of what is kept of one Cluster. An API server accepts 256 KiB of annotations.
const (
	maxValue       = 4 << 10  // of an annotation
	maxAnnotations = 32 << 10 // bytes of keys and values
	maxConditions  = 32       // as in contract v1beta2
	maxText        = 256      // of a condition's texts
	maxMessage     = 512
)

// Of returns what a Cluster says, of contract v1beta1 or v1beta2.
func Of(u *unstructured.Unstructured) aggregate.Cluster {
	c := aggregate.Cluster{Paused: paused(u), Annotations: annotationsOf(u), Conditions: conditionsOf(u)}
	topology := field(u.Object, "spec", "topology")
	c.Version = text(topology, "version", maxText)
	if c.Class = text(field(topology, "classRef"), "name", maxText); c.Class == "" {
		c.Class = text(topology, "class", maxText) // v1beta1
	}
	return c
}

// paused reports whether Cluster API leaves the Cluster as it is; one that cannot be
// understood is taken for paused, as where writes are held.
func paused(u *unstructured.Unstructured) bool {
	is, _, err := unstructured.NestedBool(u.Object, "spec", "paused")
	return is || err != nil || annotations.HasPaused(u)
}

func annotationsOf(u *unstructured.Unstructured) []aggregate.Label {
	all, bytes := u.GetAnnotations(), 0
	var list []aggregate.Label
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key == corev1.LastAppliedConfigAnnotation {
			continue
		}
		value := all[key]
		if len(value) > maxValue {
			value = ""
		}
		if bytes += len(key) + len(value); bytes > maxAnnotations {
			break
		}
		list = append(list, aggregate.Label{Key: key, Value: strings.Clone(value)})
	}
	return list
}

// conditionsOf returns the conditions of the newest contract that a Cluster has any of.
func conditionsOf(u *unstructured.Unstructured) []aggregate.Condition {
	status := field(u.Object, "status")
	list, _ := field(status, "v1beta2")["conditions"].([]any) // in a Cluster of v1beta1
	if len(list) == 0 {
		list, _ = status["conditions"].([]any)
	}
	var out []aggregate.Condition
	for _, x := range list {
		m, _ := x.(map[string]any)
		c := aggregate.Condition{
			Type: text(m, "type", maxText), Status: text(m, "status", maxText), Reason: text(m, "reason", maxText),
			Message: text(m, "message", maxMessage), Since: text(m, "lastTransitionTime", maxText),
		}
		if c.Type != "" {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b aggregate.Condition) int { return strings.Compare(a.Type, b.Type) })
	out = slices.CompactFunc(out, func(a, b aggregate.Condition) bool { return a.Type == b.Type })
	return out[:min(len(out), maxConditions)]
}

// field returns an object below others, nil where there is none.
func field(m map[string]any, path ...string) map[string]any {
	for _, key := range path {
		m, _ = m[key].(map[string]any)
	}
	return m
}

func text(m map[string]any, key string, limit int) string {
	s, _ := m[key].(string)
	return strings.Clone(clip.Text(s, limit))
}
