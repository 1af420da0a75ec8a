package queries

import (
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
)

// nameRef is a reference by name.
type nameRef struct{ Name string }

// podSpec has the references of a Pod.
type podSpec struct {
	Spec struct {
		NodeName            string
		ServiceAccountName  string
		ImagePullSecrets    []nameRef
		Volumes             []volume
		Containers          []container
		InitContainers      []container
		EphemeralContainers []container
	}
}

type volume struct {
	ConfigMap             nameRef
	Secret                struct{ SecretName string }
	PersistentVolumeClaim struct{ ClaimName string }
	Projected             struct {
		Sources []struct{ ConfigMap, Secret nameRef }
	}
}

type container struct {
	Env []struct {
		ValueFrom struct{ ConfigMapKeyRef, SecretKeyRef nameRef }
	}
	EnvFrom []struct{ ConfigMapRef, SecretRef nameRef }
}

// podReference is one reference of a Pod.
type podReference struct {
	kind     aggregate.Kind
	name     string
	relation Relation
}

// references returns the objects that the Pod refers to; names may be "" and repeated.
func (p *podSpec) references() []podReference {
	out := []podReference{{node, p.Spec.NodeName, runsOn}, {account, p.Spec.ServiceAccountName, runsAs}}
	for _, v := range p.Spec.Volumes {
		out = append(out, podReference{configMap, v.ConfigMap.Name, mounts}, podReference{secret, v.Secret.SecretName, mounts},
			podReference{claim, v.PersistentVolumeClaim.ClaimName, mounts})
		for _, s := range v.Projected.Sources {
			out = append(out, podReference{configMap, s.ConfigMap.Name, mounts}, podReference{secret, s.Secret.Name, mounts})
		}
	}
	for _, containers := range [][]container{p.Spec.InitContainers, p.Spec.Containers, p.Spec.EphemeralContainers} {
		for _, c := range containers {
			for _, e := range c.Env {
				out = append(out, podReference{configMap, e.ValueFrom.ConfigMapKeyRef.Name, readsEnv}, podReference{secret, e.ValueFrom.SecretKeyRef.Name, readsEnv})
			}
			for _, e := range c.EnvFrom {
				out = append(out, podReference{configMap, e.ConfigMapRef.Name, readsEnv}, podReference{secret, e.SecretRef.Name, readsEnv})
			}
		}
	}
	for _, s := range p.Spec.ImagePullSecrets {
		out = append(out, podReference{secret, s.Name, pullsWith})
	}
	return out
}

// serviceSpec has the references of a Service.
type serviceSpec struct {
	Spec struct{ Selector map[string]string }
}

// selects reports whether a Service's selector matches; an empty one selects
// nothing.
func (s *serviceSpec) selects(o aggregate.Object) bool {
	if len(s.Spec.Selector) == 0 {
		return false
	}
	set := labels.Set{}
	for _, l := range o.Labels() {
		set[l.Key] = l.Value
	}
	return labels.SelectorFromValidatedSet(s.Spec.Selector).Matches(set)
}

// endpointSliceSpec has the references of an EndpointSlice.
type endpointSliceSpec struct {
	Endpoints []struct {
		TargetRef struct{ Kind, Name string }
	}
}

// targets reports whether an endpoint is the Pod of this name.
func (s *endpointSliceSpec) targets(name string) bool {
	for _, e := range s.Endpoints {
		if e.TargetRef.Kind == string(pod) && e.TargetRef.Name == name {
			return true
		}
	}
	return false
}
