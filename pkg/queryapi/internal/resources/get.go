package resources

import (
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// get serves one object. Where several members have an object of that name, a Table has a
// row for each; other formats hold one object only, and get a 409: clients would decode a
// list as an object without fields.
func (q *request) get() error {
	var found []aggregate.Object
	for o := range q.namedObjects() {
		if q.grants.Member(o.Member()).Allows(o.Namespace()) {
			found = append(found, o)
		}
	}
	if q.ask != nil {
		return q.getPart(found)
	}
	var visible []string
	for m := range q.snapshot.Members() {
		if q.targets(m.Name) && !q.grants.Member(m.Name).Empty() {
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
	case len(found) > 1 && q.format.shape != table:
		return q.ambiguous(found)
	case q.format.shape == table:
		meta := ListMeta{ResourceVersion: revisionString(q.snapshot.Revision())}
		if meta.Annotations, err = selection.Annotations(fresh); err != nil {
			return err
		}
		return q.writeList(meta, values(found))
	}
	q.warnOfRedaction()
	e := q.encoder()
	e.strict = true
	defer q.release(e)
	text, err := q.encodeObject(e, found[0])
	if err != nil {
		return err
	}
	return q.writeObject(text)
}

// reasonAmbiguous is the reason of a name that several members have.
const reasonAmbiguous metav1.StatusReason = "AmbiguousName"

// maxAmbiguousMembers bounds the members in an error.
const maxAmbiguousMembers = 20

// ambiguous is the error for a name that several members have.
func (q *request) ambiguous(found []aggregate.Object) error {
	var members []string
	for _, o := range found[:min(len(found), maxAmbiguousMembers)] {
		members = append(members, o.Member())
	}
	return Ambiguous(q.resource.Resource.GroupResource(), q.namespace, q.info.Name, members, len(found))
}

// Ambiguous is the error for a name that so many members have, of which the first are given.
func Ambiguous(gr schema.GroupResource, namespace, name string, members []string, count int) error {
	members = members[:min(len(members), maxAmbiguousMembers)]
	var causes []metav1.StatusCause
	for _, member := range members {
		causes = append(causes, metav1.StatusCause{Type: "Member", Field: member, Message: "/members/" + member})
	}
	names := strings.Join(members, ", ")
	if more := count - len(members); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	list := "kubectl get " + gr.String()
	if namespace != "" {
		list += " -n " + namespace
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: reasonAmbiguous,
		Message: fmt.Sprintf("%s %q is ambiguous, %d members have it: %s. Choose one with --context %s (federator kubeconfig writes a context per member), or use the path /members/%s. To list all: %s --field-selector metadata.name=%s -o yaml",
			gr, name, count, names, members[0], members[0], list, name),
		Details: &metav1.StatusDetails{Name: name, Group: gr.Group, Kind: gr.Resource, Causes: causes},
	}}
}

// encodeObject encodes a single object as JSON or protobuf.
func (q *request) encodeObject(e *encoder, o aggregate.Object) ([]byte, error) {
	if !e.protobuf {
		return e.append(nil, o, addedMetadataOf(o))
	}
	message, err := e.appendProtobuf(nil, o, addedMetadataOf(o))
	return appendEnveloped(nil, e.typeMeta(), message), err
}

// namedObjects yields the objects with the requested name.
func (q *request) namedObjects() func(func(aggregate.Object) bool) {
	if q.location.Member == "" && !q.location.NoMember {
		return q.snapshot.Named(q.resource.Kind, q.namespace, q.location.Name)
	}
	return func(yield func(aggregate.Object) bool) {
		o, ok := q.snapshot.Get(aggregate.Ref{Member: q.location.Member, Kind: q.resource.Kind, Namespace: q.namespace, Name: q.location.Name})
		if ok {
			yield(o)
		}
	}
}
