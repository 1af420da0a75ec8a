package queries

import (
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
)

// named is a reference by name.
type named struct{ Name string }

// podBody is what a Pod says of others.
type podBody struct {
	Spec struct {
		NodeName            string
		ServiceAccountName  string
		ImagePullSecrets    []named
		Volumes             []volume
		Containers          []container
		InitContainers      []container
		EphemeralContainers []container
	}
}

type volume struct {
	ConfigMap             named
	Secret                struct{ SecretName string }
	PersistentVolumeClaim struct{ ClaimName string }
	Projected             struct {
		Sources []struct{ ConfigMap, Secret named }
	}
}

type container struct {
	Env []struct {
		ValueFrom struct{ ConfigMapKeyRef, SecretKeyRef named }
	}
	EnvFrom []struct{ ConfigMapRef, SecretRef named }
}

// use is one reference of a Pod.
type use struct {
	kind     aggregate.Kind
	name     string
	relation Relation
}

// uses returns what the Pod refers to; names may be "" and repeat.
func (p *podBody) uses() []use {
	out := []use{{node, p.Spec.NodeName, RunsOn}, {account, p.Spec.ServiceAccountName, RunsAs}}
	for _, v := range p.Spec.Volumes {
		out = append(out, use{configMap, v.ConfigMap.Name, Mounts}, use{secret, v.Secret.SecretName, Mounts},
			use{claim, v.PersistentVolumeClaim.ClaimName, Mounts})
		for _, s := range v.Projected.Sources {
			out = append(out, use{configMap, s.ConfigMap.Name, Mounts}, use{secret, s.Secret.Name, Mounts})
		}
	}
	for _, containers := range [][]container{p.Spec.InitContainers, p.Spec.Containers, p.Spec.EphemeralContainers} {
		for _, c := range containers {
			for _, e := range c.Env {
				out = append(out, use{configMap, e.ValueFrom.ConfigMapKeyRef.Name, ReadsEnv}, use{secret, e.ValueFrom.SecretKeyRef.Name, ReadsEnv})
			}
			for _, e := range c.EnvFrom {
				out = append(out, use{configMap, e.ConfigMapRef.Name, ReadsEnv}, use{secret, e.SecretRef.Name, ReadsEnv})
			}
		}
	}
	for _, s := range p.Spec.ImagePullSecrets {
		out = append(out, use{secret, s.Name, PullsWith})
	}
	return out
}

// serviceBody is what a Service says of others.
type serviceBody struct {
	Spec struct{ Selector map[string]string }
}

// selects reports whether a Service's selector matches; an empty one selects
// nothing.
func (s *serviceBody) selects(o aggregate.Object) bool {
	if len(s.Spec.Selector) == 0 {
		return false
	}
	set := labels.Set{}
	for _, l := range o.Labels() {
		set[l.Key] = l.Value
	}
	return labels.SelectorFromValidatedSet(s.Spec.Selector).Matches(set)
}

// sliceBody is what an EndpointSlice says of others.
type sliceBody struct {
	Endpoints []struct {
		TargetRef struct{ Kind, Name string }
	}
}

// targets reports whether an endpoint is the Pod of this name.
func (s *sliceBody) targets(name string) bool {
	for _, e := range s.Endpoints {
		if e.TargetRef.Kind == string(pod) && e.TargetRef.Name == name {
			return true
		}
	}
	return false
}
