package admissioncel

import (
	"strings"

	"github.com/google/cel-go/interpreter"
	plugin "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// activation is what the names in expressions stand for.
type activation struct {
	object, params, request, namespace, variables any

	stopped func() bool // of the Input
}

var _ interpreter.Activation = (*activation)(nil)

func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case plugin.ObjectVarName:
		return a.object, true
	case plugin.OldObjectVarName:
		return nil, true
	case plugin.ParamsVarName:
		return a.params, true
	case plugin.RequestVarName:
		return a.request, true
	case plugin.NamespaceVarName:
		return a.namespace, true
	case plugin.VariableVarName:
		return a.variables, true
	default:
		return nil, false
	}
}

func (a *activation) Parent() interpreter.Activation { return nil }

func (p *Program) activation(in *Input) *activation {
	a := &activation{object: in.Object, request: p.request(in), stopped: in.Stopped}
	if in.Params != nil {
		a.params = in.Params
	}
	return a
}

// request is the request that would create the object, without what Compile refuses.
func (p *Program) request(in *Input) map[string]any {
	version, _ := in.Object["apiVersion"].(string)
	kind, _ := in.Object["kind"].(string)
	group := ""
	if g, v, ok := strings.Cut(version, "/"); ok {
		group, version = g, v
	}
	of := map[string]any{"group": group, "version": version, "kind": kind}
	resource := map[string]any{"group": group, "version": version, "resource": in.Resource}
	if p.policy.Dialect == Gatekeeper {
		resource = map[string]any{"group": "", "version": "", "resource": ""}
	}
	out := map[string]any{
		"kind": of, "requestKind": of, "resource": resource, "requestResource": resource,
		"operation": p.policy.Dialect.operation(),
	}
	metadata, _ := in.Object["metadata"].(map[string]any)
	for _, field := range []string{"name", "namespace"} {
		if s, _ := metadata[field].(string); s != "" {
			out[field] = s
		}
	}
	// Requests for a Namespace name itself.
	if p.policy.Dialect == Admission && group == "" && kind == "Namespace" && out["name"] != nil {
		out["namespace"] = out["name"]
	}
	return out
}

// namespaceFields are those of a Namespace's metadata that expressions see.
var namespaceFields = []string{
	"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
}

// namespaceObject is what expressions see of a Namespace.
func namespaceObject(ns map[string]any) any {
	if ns == nil {
		return nil
	}
	out := map[string]any{"spec": map[string]any{}, "status": map[string]any{}}
	for _, field := range []string{"spec", "status"} {
		if m, ok := ns[field].(map[string]any); ok {
			out[field] = m
		}
	}
	metadata := map[string]any{}
	from, _ := ns["metadata"].(map[string]any)
	for _, field := range namespaceFields {
		if v, ok := from[field]; ok && v != nil {
			metadata[field] = v
		}
	}
	out["metadata"] = metadata
	return out
}
