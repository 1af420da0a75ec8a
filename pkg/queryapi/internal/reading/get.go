package reading

import (
	"federator.dev/federator/pkg/aggregate"
)

// get answers a request for a name: the object or, where several members of the
// fleet have it, a list of all.
func (q *request) get() error {
	var found []aggregate.Object
	for o := range q.named() {
		if q.grants.Member(o.Member()).Allows(o.Namespace()) {
			found = append(found, o)
		}
	}
	var visible []string
	for m := range q.snapshot.Members() {
		if (q.target.Member == "" || m.Name == q.target.Member) && !q.grants.Member(m.Name).None() {
			visible = append(visible, m.Name)
		}
	}
	fresh, err := q.freshness(visible)
	if err != nil {
		return err
	}
	switch {
	case len(found) == 0:
		return q.notFound()
	case len(found) > 1 || q.format.shape == table:
		meta := listMeta{ResourceVersion: revisionString(q.snapshot.Revision())}
		if err := meta.say(fresh); err != nil {
			return err
		}
		return q.write(meta, each(found))
	}
	e := q.encoder()
	defer q.release(e)
	text, err := e.append(nil, found[0], stampOf(found[0]))
	if err != nil {
		return err
	}
	return q.send(text)
}

// named yields the objects of the name that is asked for.
func (q *request) named() func(func(aggregate.Object) bool) {
	if q.target.Member == "" {
		return q.snapshot.Named(q.resource.Kind, q.namespace, q.info.Name)
	}
	return func(yield func(aggregate.Object) bool) {
		o, ok := q.snapshot.Get(aggregate.Ref{Member: q.target.Member, Kind: q.resource.Kind, Namespace: q.namespace, Name: q.info.Name})
		if ok {
			yield(o)
		}
	}
}
