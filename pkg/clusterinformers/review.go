package clusterinformers

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// reviewTimeout bounds a member's answer: somebody waits for it.
const reviewTimeout = 5 * time.Second

// Review asks a member, with federator's credentials there, whether it would
// allow what a SubjectAccessReview describes. A member that is not connected,
// or that does not answer, is an error.
func (m *Manager) Review(ctx context.Context, member string, review *authorizationv1.SubjectAccessReview) (bool, error) {
	mb, err := m.member(member)
	if err != nil {
		return false, err
	}
	a, err := mb.reach()
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
		return false, fmt.Errorf("member %q: %s", member, Clip(err.Error()))
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}
