package simulation

import (
	"fmt"

	"federator.dev/federator/test/simulation/apiserver"
)

// member is a cluster of the fleet.
type member struct {
	name   string
	server *apiserver.Server
	away   bool // nothing reaches it
	denies bool // a webhook of its admission denies all writes
}

const namespace = "shop"

// deployment is an object that violates as many policies as it can.
func deployment(name string) map[string]any {
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"replicas": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"app": name}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": name}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
			},
		},
	}
}

// addMember adds a member with objects.
func (w *world) addMember(n, objects int) {
	m := &member{name: fmt.Sprintf("fleet/m%d", n), server: apiserver.New(apiserver.Builtins(), false)}
	for i := range objects {
		m.server.Change("deployments", namespace, fmt.Sprintf("d%d", i), "person", func(map[string]any) map[string]any { return deployment(fmt.Sprintf("d%d", i)) })
	}
	w.members = append(w.members, m)
}

func (w *world) member(name string) *member {
	for _, m := range w.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// change changes a Deployment of a member as another client does.
func (m *member) change(name, manager string, change func(object, spec, metadata map[string]any)) {
	m.server.Change("deployments", namespace, name, manager, func(o map[string]any) map[string]any {
		if o == nil {
			o = deployment(name)
		}
		change(o, o["spec"].(map[string]any), o["metadata"].(map[string]any))
		return o
	})
}

// drift changes what policies have corrected, or touches an object otherwise.
func (w *world) drift(m *member, name string, how int) {
	w.model.record.changed(m.name + " " + name)
	switch how {
	case 0:
		m.change(name, "person", func(_, spec, _ map[string]any) { spec["replicas"] = int64(1) })
	case 1:
		m.change(name, "person", func(_, _, meta map[string]any) { delete(meta, "labels") })
	case 2: // an apply conflicts with it
		m.change(name, "other", func(_, _, meta map[string]any) { meta["labels"] = map[string]any{"tier": "tin"} })
	case 3: // what no policy reads
		m.change(name, "person", func(_, _, meta map[string]any) {
			meta["labels"] = merged(meta["labels"], "touched", fmt.Sprint(w.step))
		})
	case 5: // its owner wants nobody to write it
		m.change(name, "person", func(_, _, meta map[string]any) {
			meta["annotations"] = merged(meta["annotations"], "federator.dev/protect", "please")
		})
	case 6:
		m.change(name, "person", func(_, _, meta map[string]any) {
			if annotations, _ := meta["annotations"].(map[string]any); annotations != nil {
				delete(annotations, "federator.dev/protect")
			}
		})
	case 4:
		m.server.Change("deployments", namespace, name, "person", func(map[string]any) map[string]any { return nil })
	}
}

// reconciled reports whether an object's controller has nothing to do.
func reconciled(o map[string]any) bool {
	status, _ := o["status"].(map[string]any)
	return status["observedGeneration"] == o["metadata"].(map[string]any)["generation"] && status["availableReplicas"] == o["spec"].(map[string]any)["replicas"]
}

// unreconciled returns the names of the Deployments whose controller has something to do.
func (m *member) unreconciled() (names []string) {
	objects, _ := m.server.Objects("deployments")
	for _, o := range objects {
		if !reconciled(o) {
			names = append(names, o["metadata"].(map[string]any)["name"].(string))
		}
	}
	return names
}

// reconcile does what a Deployment's controller does: the Deployment becomes Healthy, or
// Degraded if that fails.
func (m *member) reconcile(name string, fails bool) {
	m.server.ChangeStatus("deployments", namespace, name, "kube-controller-manager", func(o map[string]any) map[string]any {
		replicas := o["spec"].(map[string]any)["replicas"]
		status := map[string]any{"observedGeneration": o["metadata"].(map[string]any)["generation"], "replicas": replicas, "updatedReplicas": replicas}
		if fails {
			status["conditions"] = []any{map[string]any{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "lastUpdateTime": nil, "lastTransitionTime": nil}}
		} else {
			status["readyReplicas"], status["availableReplicas"] = replicas, replicas
		}
		o["status"] = status
		return o
	})
}

func merged(labels any, key, value string) map[string]any {
	out := map[string]any{key: value}
	if m, ok := labels.(map[string]any); ok {
		for k, v := range m {
			if k != key {
				out[k] = v
			}
		}
	}
	return out
}
