package clusterinformers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// Errors of Writer and Review that callers branch on.
var (
	// ErrUnknownMember is returned for a member that no source names.
	ErrUnknownMember = errors.New("unknown member")
	// ErrUnreachable is returned for a member that is out of reach or refused.
	ErrUnreachable = errors.New("member is unreachable")
	// ErrReadOnly is returned for a member that is never written to.
	ErrReadOnly = errors.New("member is read-only")
	// ErrPaused is returned for a member whose Cluster is paused.
	ErrPaused = errors.New("writes to the member are paused")
	// ErrFrozen is returned for a member whose Cluster is frozen.
	ErrFrozen = errors.New("writes to the member are frozen")
	// ErrNotServed is returned for a kind that a member does not serve, or not
	// at that version.
	ErrNotServed = catalog.ErrNotServed
)

// Writer returns how objects of a kind are written in a member, with federator's
// credentials there: a client for the kind's group and version, the resource as
// it is in paths, and whether it has namespaces. apiVersion, such as "apps/v1",
// is that of the objects; "" is the one that the kind is held at. The client
// takes and gives bytes: it knows no types beyond its library's. Its credentials
// are those of now, so it is for one write and its retries.
func (m *Manager) Writer(member string, kind aggregate.Kind, apiVersion string) (client rest.Interface, resource string, namespaced bool, err error) {
	mb, err := m.lookup(member)
	if err != nil {
		return nil, "", false, err
	}
	if mb.currentSpec().ReadOnly {
		return nil, "", false, fmt.Errorf("member %q: %w", member, ErrReadOnly)
	}
	if err := mb.checkWritable(); err != nil {
		return nil, "", false, err
	}
	a, err := mb.client()
	if err != nil {
		return nil, "", false, err
	}
	r, err := m.catalog.Find(member, kind, apiVersion)
	if err != nil {
		return nil, "", false, fmt.Errorf("member %q: %w", member, err)
	}
	client, err = a.REST(r.GVR.GroupVersion())
	if err != nil {
		return nil, "", false, fmt.Errorf("member %q: %w", member, err)
	}
	return client, r.GVR.Resource, r.Namespaced, nil
}

// CheckWritable returns why nothing may be written to a member at the moment although it
// is read: ErrPaused or ErrFrozen, or nil. A client that Writer has returned before continues to
// work, so writers call it right before each write.
func (m *Manager) CheckWritable(member string) error {
	m.mu.Lock()
	mb := m.members[member]
	m.mu.Unlock()
	if mb == nil {
		return nil // Writer says that it is not followed
	}
	return mb.checkWritable()
}

func (mb *member) checkWritable() error {
	why := mb.hold()
	switch {
	case why == nil:
		return nil
	case why.Reason == connection.Paused:
		return fmt.Errorf("member %q: %w: %s", mb.name, ErrPaused, why.Message)
	default:
		return fmt.Errorf("member %q: %w: %s", mb.name, ErrFrozen, why.Message)
	}
}

// WritesHeld returns why nothing is written to a member at the moment, "" when it may be.
func (m *Manager) WritesHeld(member string) string {
	m.mu.Lock()
	mb := m.members[member]
	m.mu.Unlock()
	if mb == nil {
		return ""
	}
	if mb.currentSpec().ReadOnly {
		return ErrReadOnly.Error()
	}
	if why := mb.hold(); why != nil {
		return why.Message
	}
	return ""
}

// hold returns why the member's Cluster holds writes now, nil when it does not.
func (mb *member) hold() *connection.Refusal {
	return mb.currentSpec().Hold.At(mb.manager.opts.Clock())
}

// lookup returns the member of a name.
func (m *Manager) lookup(name string) (*member, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mb := m.members[name]; mb != nil {
		return mb, nil
	}
	return nil, fmt.Errorf("member %q: %w", name, ErrUnknownMember)
}

// client returns the access of now.
func (mb *member) client() (*memberclient.Client, error) {
	if a := mb.conn.current(); a != nil {
		return a, nil
	}
	_, reason, _, _ := mb.conn.state()
	return nil, fmt.Errorf("member %q: %w (%s)", mb.name, ErrUnreachable, cmp.Or(reason, connection.Connecting)) // a connection is tried before it is lost
}

// reviewTimeout bounds a member's answer: a caller waits for it.
const reviewTimeout = 5 * time.Second

// Review creates a SubjectAccessReview in a member, with federator's credentials there,
// and reports whether it is allowed. A member that is not connected,
// or that does not answer, is an error.
func (m *Manager) Review(ctx context.Context, member string, review *authorizationv1.SubjectAccessReview) (bool, error) {
	mb, err := m.lookup(member)
	if err != nil {
		return false, err
	}
	a, err := mb.client()
	if err != nil {
		return false, err
	}
	c, err := a.REST(authorizationv1.SchemeGroupVersion)
	if err != nil {
		return false, fmt.Errorf("member %q: %w", member, err)
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	var answer authorizationv1.SubjectAccessReview
	err = c.Post().Resource("subjectaccessreviews").Body(review).MaxRetries(0).Do(ctx).Into(&answer)
	if err != nil {
		return false, fmt.Errorf("member %q: %s", member, message.Clip(err.Error()))
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}
