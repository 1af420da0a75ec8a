package fanout

import (
	"bytes"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// maxNamed bounds the members that are held of those which have an object of a name.
const maxNamed = 64

// get serves one object, or the rows of all that have its name.
func (q *request) get() error {
	defer func() { q.g.end() }()
	if err := q.gather(part.Ask{}); err != nil {
		return err
	}
	lead := q.g.lead
	if err := resources.SetFreshness(q.w.Header(), q.params, lead.Resource, q.g.notSynced); err != nil {
		return err
	}
	gr := schema.ParseGroupResource(lead.Resource)
	count := 0
	for _, s := range q.g.parts {
		count += s.header.Count
	}
	switch {
	case count == 0 && q.absentReadable():
		return unavailable(fmt.Sprintf("%s %q is in no member that is known now: others are not", gr, q.info.Name))
	case count == 0:
		return apierrors.NewNotFound(gr, q.info.Name)
	case lead.Table:
		revision, err := q.options.Revisions.mint(q.g.vector(), true)
		if err != nil {
			return err
		}
		meta := resources.ListMeta{ResourceVersion: fmt.Sprint(uint64(revision))}
		if meta.Annotations, err = selection.Annotations(q.g.notSynced); err != nil {
			return fmt.Errorf("fanout: %w", err)
		}
		around, err := q.envelope(meta)
		if err != nil {
			return err
		}
		return q.writeList(around, -1)
	}
	var members []string
	var text []byte
	err := (&merge{parts: q.g.parts}).run(-1, func(it *part.Item) error {
		if len(members) < maxNamed {
			members = append(members, string(it.Member))
		}
		text = bytes.Clone(it.Text)
		return nil
	})
	switch {
	case errors.Is(err, errLost):
		return q.lostBefore(err)
	case err != nil:
		return err
	case count > 1:
		namespace := q.info.Namespace
		if lead.Kind == "Namespace" {
			namespace = "" // request info of a Namespace has itself as namespace
		}
		return resources.Ambiguous(gr, namespace, q.info.Name, members, count)
	}
	q.warnAll(func(h *part.Header) []string { return h.LateWarnings })
	q.w.Header().Set("Content-Type", q.contentType())
	_, _ = q.w.Write(text) // the client may be gone
	return nil
}

// absentReadable reports whether the caller could read something in a member that is absent.
func (q *request) absentReadable() bool {
	for _, n := range q.g.notSynced {
		for _, absent := range q.g.absent {
			if n.Member == absent {
				return true
			}
		}
	}
	return false
}
