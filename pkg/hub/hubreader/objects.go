package hubreader

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policyquery"
)

// objects are objects by name. The zero value is ready to use.
type objects[T any] struct {
	listing map[string]T // by the follower's goroutine only

	mu     sync.Mutex
	byName map[string]T // nil: it is not known yet
	sorted []T          // nil: to be made
	state  policyquery.HubState
}

func (o *objects[T]) Begin() { o.listing = map[string]T{} }

// Put implements follow.Sink.
func (o *objects[T]) Put(x T) {
	name, x := named(x)
	o.listing[name] = x
}

func (o *objects[T]) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byName, o.sorted, o.state.Stale, o.listing = o.listing, nil, false, nil
}

func (o *objects[T]) Set(x T) {
	name, x := named(x)
	o.change(func() { o.byName[name] = x })
}

func (o *objects[T]) Remove(x T) {
	name, _ := named(x)
	o.change(func() { delete(o.byName, name) })
}

func (o *objects[T]) change(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
	o.sorted = nil
}

func (o *objects[T]) SetStale(stale bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state.Stale = stale
}

func (o *objects[T]) SetUnreadable(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state.Unreadable = n
}

func (*objects[T]) Lacking() bool { return false }

// list returns the objects by name.
func (o *objects[T]) list() (policyquery.HubObjects[T], error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byName == nil {
		return policyquery.HubObjects[T]{}, policyquery.ErrHubNotRead
	}
	if o.sorted == nil {
		o.sorted = make([]T, 0, len(o.byName))
		for _, name := range slices.Sorted(maps.Keys(o.byName)) {
			o.sorted = append(o.sorted, o.byName[name])
		}
	}
	return policyquery.HubObjects[T]{Items: o.sorted, HubState: o.state}, nil
}

// named returns an object without what nobody is shown, and its name.
func named[T any](x T) (string, T) {
	o, ok := any(x).(metav1.Object)
	if !ok {
		return "", x
	}
	o.SetManagedFields(nil)
	return o.GetName(), x
}

// stopSink takes in the ConfigMaps that are stops.
type stopSink struct{ *objects[policyquery.Stop] }

func (s stopSink) Put(m *corev1.ConfigMap) {
	if stop, is := stopOf(m); is {
		s.listing[m.Name] = stop
	}
}

func (s stopSink) Set(m *corev1.ConfigMap) {
	stop, is := stopOf(m)
	if !is {
		s.Remove(m)
		return
	}
	s.change(func() { s.byName[m.Name] = stop })
}

func (s stopSink) Remove(m *corev1.ConfigMap) { s.change(func() { delete(s.byName, m.Name) }) }

func stopOf(m *corev1.ConfigMap) (policyquery.Stop, bool) {
	f, malformed, is := hub.ReadStop(m)
	stop := policyquery.Stop{Scope: f.Scope, Name: f.Name, By: f.By, Reason: f.Reason, Since: f.Since.UTC()}
	if malformed {
		stop.Problem = f.Text
	}
	return stop, is
}

// haltSink takes in what PolicyStates remember of halts, which is a small part of them.
type haltSink struct {
	*objects[policyquery.PolicyHalts]
}

func (s haltSink) Put(x *v1alpha1.PolicyState) { s.listing[x.Name] = policyquery.HaltsOf(x) }

func (s haltSink) Set(x *v1alpha1.PolicyState) {
	halts := policyquery.HaltsOf(x)
	s.change(func() { s.byName[x.Name] = halts })
}

func (s haltSink) Remove(x *v1alpha1.PolicyState) { s.change(func() { delete(s.byName, x.Name) }) }
