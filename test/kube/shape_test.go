package kube_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// shape returns the paths and values of the pod whose name ends in suffix; what
// is its own is replaced by its type.
func shape(pods []corev1.Pod, suffix string) string {
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return strings.HasSuffix(p.Name, suffix) })
	if i < 0 {
		return "no pod " + suffix
	}
	p := pods[i].DeepCopy()
	p.ManagedFields = nil
	data, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err.Error()
	}
	var lines []string
	walk("", v, &lines)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func walk(path string, v any, lines *[]string) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			walk(path+"/"+k, e, lines)
		}
	case []any:
		for i, e := range v {
			walk(fmt.Sprintf("%s/%d", path, i), e, lines)
		}
	default:
		own := []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "containerID", "lastTransitionTime", "startTime", "startedAt"}
		if k := path[strings.LastIndex(path, "/")+1:]; slices.Contains(own, k) {
			v = fmt.Sprintf("%T", v)
		}
		*lines = append(*lines, fmt.Sprintf("%s = %v", path, v))
	}
}
