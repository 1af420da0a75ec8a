package transitions

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/hub/internal/follow"
)

// lister has a look take in all objects of a resource.
type lister func(*catching) error

// resources sets what is followed and listed.
func (r *Recorder) resources() {
	add(r, follow.Resource[v1alpha1.PolicySource, *v1alpha1.PolicySource]{Client: r.hub, Name: v1alpha1.PolicySources}, ofSource, nil)
	add(r, follow.Resource[v1alpha1.PolicyState, *v1alpha1.PolicyState]{Client: r.hub, Name: v1alpha1.PolicyStates}, ofState, nil)
	add(r, follow.Resource[v1alpha1.Plan, *v1alpha1.Plan]{Client: r.hub, Name: v1alpha1.Plans}, ofPlan, nil)
	add(r, follow.Resource[v1alpha1.Approval, *v1alpha1.Approval]{Client: r.hub, Name: v1alpha1.Approvals}, ofApproval, withdrawn)
	add(r, follow.Resource[v1alpha1.Action, *v1alpha1.Action]{Client: r.hub, Name: v1alpha1.Actions}, ofAction, nil)
	r.addStops()
	r.addSuspensions()
}

// add adds a resource whose objects say what has become of them, and of which it may be recorded that they are gone.
func add[T any, P follow.Object[T]](r *Recorder, from follow.Resource[T, P], facts, gone func(P) []history.Record) {
	sink := &objects[P]{sink: sink{recorder: r}, facts: facts, gone: gone}
	r.addFollower(follow.New(from, sink, func() {}, r.opts.Logger).Run)
	r.lists = append(r.lists, func(c *catching) error {
		return from.Each(c.ctx, func(o P) { c.object(facts(o)) })
	})
}

func (r *Recorder) addFollower(run func(context.Context)) {
	r.follow = append(r.follow, run)
	r.unlisted++
}

// sink is what all sinks have.
type sink struct {
	recorder *Recorder
	known    bool // it was listed
}

func (s *sink) Begin() {}

func (s *sink) End() {
	s.recorder.listed(!s.known)
	s.known = true
}

func (s *sink) SetStale(bool)     {}
func (s *sink) SetUnreadable(int) {}
func (s *sink) Lacking() bool     { return false }

// objects takes in objects that say what has become of them.
type objects[P any] struct {
	sink

	facts, gone func(P) []history.Record
}

func (s *objects[P]) Put(P) {} // catchUp lists them, too

func (s *objects[P]) Set(o P) { s.recorder.take(s.facts(o)...) }

func (s *objects[P]) Remove(o P) {
	if s.gone != nil {
		s.recorder.take(s.gone(o)...)
	}
	s.recorder.forget(s.facts(o))
}

// addStops adds the ConfigMaps of stops.
func (r *Recorder) addStops() {
	from := follow.Resource[corev1.ConfigMap, *corev1.ConfigMap]{Client: r.core.CoreV1().RESTClient(), Namespace: r.opts.Namespace, Name: "configmaps"}
	r.addFollower(follow.New(from, &stops{sink: sink{recorder: r}}, func() {}, r.opts.Logger).Run)
	r.lists = append(r.lists, func(c *catching) error {
		if !c.leads {
			return nil
		}
		open, err := c.openStops(r.opts.Namespace)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		if err := from.Each(c.ctx, func(m *corev1.ConfigMap) {
			if s := ofStop(m); s != nil {
				there[s.UID] = true
				c.object([]history.Record{*s})
			}
		}); err != nil {
			return err
		}
		for _, s := range open {
			if !there[s.UID] {
				c.object([]history.Record{resumed(s, "it was found gone after a restart")})
			}
		}
		return nil
	})
}

// stops takes in the ConfigMaps that are stops.
type stops struct {
	sink

	listing, byName map[string]history.Record
}

func (s *stops) Begin() { s.listing = map[string]history.Record{} }

func (s *stops) Put(m *corev1.ConfigMap) {
	if stop := ofStop(m); stop != nil {
		s.listing[m.Name] = *stop
	}
}

func (s *stops) End() {
	for name, was := range s.byName {
		if now, is := s.listing[name]; !is || now.UID != was.UID {
			s.recorder.take(resumed(was, ""))
		}
	}
	s.byName, s.listing = s.listing, nil
	s.sink.End()
}

func (s *stops) Set(m *corev1.ConfigMap) {
	stop := ofStop(m)
	if stop == nil {
		s.Remove(m)
		return
	}
	s.byName[m.Name] = *stop
	s.recorder.take(*stop)
}

func (s *stops) Remove(m *corev1.ConfigMap) {
	was, is := s.byName[m.Name]
	if !is {
		return
	}
	delete(s.byName, m.Name)
	s.recorder.take(resumed(was, ""))
}

// addSuspensions adds the FleetPolicies, which may be suspended.
func (r *Recorder) addSuspensions() {
	from := follow.Resource[v1alpha1.FleetPolicy, *v1alpha1.FleetPolicy]{Client: r.hub, Name: v1alpha1.FleetPolicies}
	r.addFollower(follow.New(from, &suspensions{sink: sink{recorder: r}}, func() {}, r.opts.Logger).Run)
	r.lists = append(r.lists, func(c *catching) error {
		if !c.leads {
			return nil
		}
		return from.Each(c.ctx, func(p *v1alpha1.FleetPolicy) {
			s := ofSuspension(p)
			if c.ask(&s); c.wasSuspended[s.UID] != p.Spec.Suspend {
				c.object([]history.Record{s})
			}
		})
	})
}

// suspensions takes in which FleetPolicies are suspended.
type suspensions struct {
	sink

	listing, byUID map[string]bool
}

func (s *suspensions) Begin() { s.listing = map[string]bool{} }

func (s *suspensions) Put(p *v1alpha1.FleetPolicy) { s.listing[string(p.UID)] = p.Spec.Suspend }

func (s *suspensions) End() {
	s.byUID, s.listing = s.listing, nil
	s.sink.End() // what has changed is found by a look at the log
}

func (s *suspensions) Set(p *v1alpha1.FleetPolicy) {
	if s.byUID[string(p.UID)] != p.Spec.Suspend {
		s.recorder.take(ofSuspension(p))
	}
	s.byUID[string(p.UID)] = p.Spec.Suspend
}

func (s *suspensions) Remove(p *v1alpha1.FleetPolicy) { delete(s.byUID, string(p.UID)) }
