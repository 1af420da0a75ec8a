package people_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/admission"
	"federator.dev/federator/pkg/hub/internal/people"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs something until the test ends.
func run(t *testing.T, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// TestProofs_AreAskedAndGetOld: at the start, each minute, on request at most every 5 s, and
// by the leader only; errors and answers of long ago prove nothing.
func TestProofs_AreAskedAndGetOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, changes atomic.Int32
		var fails, follows, unproven atomic.Bool
		hangs := make(chan struct{})
		var hang atomic.Bool
		since := time.Now().Add(-time.Hour)
		p := people.NewProofs(people.ProofsOptions{
			Check: func(context.Context) (admission.KnownProofs, error) {
				asked.Add(1)
				if hang.Load() {
					<-hangs
				}
				if fails.Load() {
					return admission.KnownProofs{}, errors.New("the hub is away")
				}
				if unproven.Load() {
					return admission.KnownProofs{Approvals: admission.Known{Why: "missing"}, Authors: admission.Known{Why: "missing"}}, nil
				}
				return admission.KnownProofs{Approvals: admission.Known{Since: since}, Authors: admission.Known{Why: "differs"}}, nil
			},
			IsLeader: func() bool { return !follows.Load() }, OnChange: func() { changes.Add(1) },
		})
		if a := p.Answer(time.Now()); !a.Asked.IsZero() || a.Why == "" {
			t.Errorf("before Run: %+v", a)
		}
		start := time.Now()
		run(t, p.Run)
		synctest.Wait()
		if a := p.Answer(time.Now()); !a.Asked.Equal(start) || !a.Approvals.Since.Equal(since) || a.Authors.Why != "differs" || asked.Load() != 1 || changes.Load() != 1 {
			t.Errorf("at the start: %+v, asked %d times", a, asked.Load())
		}
		time.Sleep(2 * time.Second)
		for range 10 {
			p.Request()
		}
		time.Sleep(2 * time.Second)
		if asked.Load() != 1 {
			t.Errorf("asked %d times within 4 s", asked.Load())
		}
		time.Sleep(2 * time.Second)
		if a := p.Answer(time.Now()); asked.Load() != 2 || !a.Asked.After(start) {
			t.Errorf("on request: %+v, asked %d times", a, asked.Load())
		}
		time.Sleep(time.Minute + time.Second)
		if asked.Load() != 3 {
			t.Errorf("asked %d times after a minute", asked.Load())
		}

		fails.Store(true)
		p.Request()
		time.Sleep(6 * time.Second)
		if a := p.Answer(time.Now()); !a.Asked.IsZero() || !a.Approvals.Since.IsZero() || a.Why != "the hub was asked in vain: the hub is away" {
			t.Errorf("after an error: %+v", a)
		}
		fails.Store(false)
		unproven.Store(true)
		time.Sleep(7 * time.Second)
		before := asked.Load()
		time.Sleep(20 * time.Second)
		if n := asked.Load() - before; n != 2 {
			t.Errorf("asked %d times within 20 s while names are not proven", n)
		}
		unproven.Store(false)
		time.Sleep(11 * time.Second)
		if a := p.Answer(time.Now()); a.Asked.IsZero() {
			t.Errorf("after the error: %+v", a)
		}

		hang.Store(true)
		time.Sleep(2 * time.Minute)
		if a := p.Answer(time.Now()); a.Asked.IsZero() {
			t.Errorf("an answer of 2 minutes ago: %+v", a)
		}
		time.Sleep(2 * time.Minute)
		if a := p.Answer(time.Now()); !a.Asked.IsZero() || a.Why == "" {
			t.Errorf("an answer of 4 minutes ago: %+v", a)
		}
		hang.Store(false)
		close(hangs)
		synctest.Wait()

		follows.Store(true)
		time.Sleep(2 * time.Second)
		before = asked.Load()
		p.Request()
		time.Sleep(10 * time.Minute)
		if a := p.Answer(time.Now()); !a.Asked.IsZero() || asked.Load() != before {
			t.Errorf("without the lead: %+v, asked %d times", a, asked.Load()-before)
		}
		follows.Store(false)
		time.Sleep(2 * time.Second)
		if a := p.Answer(time.Now()); a.Asked.IsZero() || asked.Load() != before+1 {
			t.Errorf("with the lead again: %+v", a)
		}
	})
}

// rbac answers SubjectAccessReviews.
type rbac struct {
	mu      sync.Mutex
	allowed map[string]bool // by user
	away    bool
	asked   []authorizationv1.SubjectAccessReviewSpec
}

func (r *rbac) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var review authorizationv1.SubjectAccessReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return nil, errors.New("the hub is away")
	}
	r.asked = append(r.asked, review.Spec)
	review.Status.Allowed = r.allowed[review.Spec.User]
	out, err := json.Marshal(&review)
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(out)), Request: req}, err
}

func (r *rbac) set(user string, allowed, away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allowed[user], r.away = allowed, away
}

// TestReviews_AreUsedForHalfAMinute: who asks does not wait, is told what changes, and what is
// not asked any more is forgotten.
func TestReviews_AreUsedForHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := &rbac{allowed: map[string]bool{"ann": true}}
		client, err := authorizationclient.NewForConfig(&rest.Config{Host: "http://hub", Transport: hub, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
		if err != nil {
			t.Fatal(err)
		}
		var changes atomic.Int32
		r := people.NewReviews(client.SubjectAccessReviews(), func() { changes.Add(1) }, slog.New(slog.DiscardHandler))
		run(t, r.Run)
		ann, bob := people.Ask(people.Approve, "fleetpolicies", "hosts", "ann", []string{"sre", "dev"}), people.Ask(people.Approve, "fleetpolicies", "hosts", "bob", nil)
		check := func(what string, q people.Question, want bool, wantErr error) (until time.Time) {
			t.Helper()
			got, until, err := r.Allowed(q, time.Now())
			if got != want || !errors.Is(err, wantErr) || err == nil && (!until.After(time.Now()) || until.After(time.Now().Add(30*time.Second))) {
				t.Errorf("%s: %t until %s, %v", what, got, until, err)
			}
			return until
		}
		check("the first", ann, false, people.ErrNotKnown)
		check("the first", bob, false, people.ErrNotKnown)
		synctest.Wait()
		check("ann", ann, true, nil)
		check("bob", bob, false, nil)
		hub.mu.Lock()
		for _, spec := range hub.asked {
			if a := spec.ResourceAttributes; a.Verb != "approve" || a.Group != "federator.dev" || a.Resource != "fleetpolicies" || a.Name != "hosts" || len(spec.Groups) != map[string]int{"ann": 2, "bob": 0}[spec.User] {
				t.Errorf("asked %+v", spec)
			}
		}
		hub.mu.Unlock()

		before := changes.Load()
		hub.set("ann", false, false)
		time.Sleep(17 * time.Second)
		check("withdrawn", ann, false, nil)
		if changes.Load() != before+1 {
			t.Errorf("told of %d changes", changes.Load()-before)
		}

		hub.set("ann", true, true)
		time.Sleep(31 * time.Second)
		check("while the hub is away", ann, false, people.ErrNotKnown)
		hub.set("ann", true, false)
		time.Sleep(3 * time.Second)
		check("when it is back", ann, true, nil)

		time.Sleep(3 * time.Minute)
		hub.mu.Lock()
		asked := len(hub.asked)
		hub.mu.Unlock()
		time.Sleep(time.Minute)
		if hub.mu.Lock(); len(hub.asked) != asked {
			t.Error("asked what nobody needs to know")
		}
		hub.mu.Unlock()
	})
}
