package people

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"federator.dev/federator/api"
	"federator.dev/federator/internal/trigger"
)

// How long answers of RBAC are used, and asked for.
const (
	maxReviewAge   = 30 * time.Second
	reviewRefresh  = maxReviewAge / 2
	reviewUnused   = time.Minute // after which one is forgotten
	reviewRetry    = 2 * time.Second
	reviewTimeout  = 5 * time.Second
	reviewsAtOnce  = 8
	reviewInterval = time.Second
)

// ErrNotKnown says that RBAC has not answered yet, or too long ago.
var ErrNotKnown = errors.New("RBAC has not answered yet")

// Verbs that are for people.
const (
	Approve  = "approve"
	RollBack = "rollback"
)

// Question is whether RBAC grants a user a verb on an object.
type Question struct {
	Verb, Resource, Name string
	User                 string
	groups               string // joined
}

// Ask returns the question whether a user in groups may do something to an object.
func Ask(verb, resource, name, user string, groups []string) Question {
	groups = slices.Clone(groups)
	slices.Sort(groups)
	return Question{Verb: verb, Resource: resource, Name: name, User: user, groups: strings.Join(groups, "\x00")}
}

// Reviews know what RBAC grants people.
type Reviews struct {
	client   authorizationclient.SubjectAccessReviewInterface
	onChange func()
	log      *slog.Logger
	asked    trigger.Trigger

	mu      sync.Mutex
	answers map[Question]*review
}

// review is an answer.
type review struct {
	allowed bool
	asked   time.Time // when the answer was asked for; zero: there is none
	tried   time.Time // the last time
	used    time.Time
}

// NewReviews returns Reviews that know nothing before Run. onChange must not block.
func NewReviews(client authorizationclient.SubjectAccessReviewInterface, onChange func(), log *slog.Logger) *Reviews {
	return &Reviews{client: client, onChange: onChange, log: log, asked: trigger.New(), answers: map[Question]*review{}}
}

// Allowed returns the answer to a question, and until when it may be used. Where it is not
// known the error is ErrNotKnown, and it is asked for.
func (r *Reviews) Allowed(q Question, now time.Time) (allowed bool, until time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.answers[q]
	if a == nil {
		a = &review{}
		r.answers[q] = a
		r.asked.Fire()
	}
	a.used = now
	if until = a.asked.Add(maxReviewAge); a.asked.IsZero() || !now.Before(until) {
		return false, time.Time{}, ErrNotKnown
	}
	return a.allowed, until, nil
}

// Run asks the hub until the context ends, and returns when all goroutines that it started
// have ended.
func (r *Reviews) Run(ctx context.Context) {
	tick := time.NewTicker(reviewInterval)
	defer tick.Stop()
	for {
		due := r.due(time.Now())
		for len(due) > 0 && ctx.Err() == nil {
			n := min(len(due), reviewsAtOnce)
			var asking sync.WaitGroup
			for _, q := range due[:n] {
				asking.Go(func() { r.ask(ctx, q) })
			}
			asking.Wait()
			due = due[n:]
		}
		select {
		case <-ctx.Done():
			return
		case <-r.asked:
		case <-tick.C:
		}
	}
}

// due returns the questions to ask, and forgets those that nobody has any more.
func (r *Reviews) due(now time.Time) []Question {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Question
	for q, a := range r.answers {
		switch {
		case now.Sub(a.used) > reviewUnused:
			delete(r.answers, q)
		case now.Sub(a.asked) >= reviewRefresh && now.Sub(a.tried) >= reviewRetry:
			out = append(out, q)
		}
	}
	return out
}

func (r *Reviews) ask(ctx context.Context, q Question) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	began := time.Now()
	allowed, err := r.review(ctx, q)
	if err != nil {
		r.log.Debug("asking RBAC failed", "user", q.User, "resource", q.Resource, "name", q.Name, "error", err)
	}
	r.mu.Lock()
	changed := false
	if a := r.answers[q]; a != nil {
		if a.tried = began; err == nil {
			changed = a.allowed != allowed || began.Sub(a.asked) >= maxReviewAge
			a.allowed, a.asked = allowed, began
		}
	}
	r.mu.Unlock()
	if changed {
		r.onChange()
	}
}

func (r *Reviews) review(ctx context.Context, q Question) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               q.User,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: api.GroupName, Resource: q.Resource, Name: q.Name, Verb: q.Verb},
	}}
	if q.groups != "" {
		review.Spec.Groups = strings.Split(q.groups, "\x00")
	}
	got, err := r.client.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("SubjectAccessReview: %w", err)
	}
	return got.Status.Allowed && !got.Status.Denied, nil
}
