package authz_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// held is how many bytes of the heap are live.
func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAuthorizer_ReleasesExpiredDecisions, and not kept until as many others have come.
func TestAuthorizer_ReleasesExpiredDecisions(t *testing.T) {
	now := newClock()
	hub := hubFunc(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) { return false, nil })
	a := newAuthorizer(t, authz.Options{Reviewer: hub, Now: now.Now})
	ask := func(resource string) {
		t.Helper()
		if _, err := a.Grants(t.Context(), ann, "list", schema.GroupResource{Resource: resource}, nil, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	ask("first")
	before := held()
	const answers = 20_000
	for i := range answers {
		ask(fmt.Sprint("kind-", i))
	}
	most := held() - before
	now.Advance(time.Hour)
	ask("last")
	if left := held() - before; most < answers*100 || left > most/8 {
		t.Errorf("%d answers hold %d KiB, and %d KiB once they are over", answers, most>>10, left>>10)
	}
	runtime.KeepAlive(a)
}

// TestAuthorizer_CachedDecisionsAreSmall: names that clients write are parts of requests, and may
// be as long as these.
func TestAuthorizer_CachedDecisionsAreSmall(t *testing.T) {
	hub := hubFunc(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) { return false, nil })
	const requests, size = 1000, 64 << 10
	filler := strings.Repeat("x", size)
	for name, of := range map[string]func(request string) (gr schema.GroupResource, member string){
		"resources": func(r string) (schema.GroupResource, string) { return schema.GroupResource{Resource: r}, "" },
		"groups": func(r string) (schema.GroupResource, string) {
			return schema.GroupResource{Group: r, Resource: "pods"}, ""
		},
		"members":         func(r string) (schema.GroupResource, string) { return resources[0], "fleet/" + r },
		"parts of a path": func(r string) (schema.GroupResource, string) { return schema.GroupResource{Resource: r[:8]}, "" },
		"parts of a name": func(r string) (schema.GroupResource, string) { return resources[0], r[:8] },
	} {
		a := newAuthorizer(t, authz.Options{Reviewer: hub})
		before := held()
		for i := range requests {
			gr, member := of(fmt.Sprintf("%08d", i) + filler)
			g, err := a.Grants(t.Context(), ann, "list", gr, hubMembers, member, "")
			if err != nil || !g.Empty() {
				t.Fatalf("%s: %v, %v", name, g, err)
			}
		}
		if grown := held() - before; grown > requests*size/8 {
			t.Errorf("%s: after %d questions of %d KiB %d KiB more are held", name, requests, size>>10, grown>>10)
		}
		runtime.KeepAlive(a)
	}
}

// TestGrants_FillFromExpiresWithTheEarlier than they might have been by themselves.
func TestGrants_FillFromExpiresWithTheEarlier(t *testing.T) {
	now := time.Now()
	earlier, later := authz.Everything(now.Add(time.Second)).ServedAs("pods"), authz.Everything(now.Add(time.Minute)).ServedAs("widgets")
	if until := later.FillFrom(earlier, []string{"pods", "widgets"}).Expires(); !until.Equal(earlier.Expires()) {
		t.Errorf("grants of pods that count until %v count until %v beside others", earlier.Expires(), until)
	}
	if until := later.FillFrom(earlier, []string{"widgets"}).Expires(); !until.Equal(later.Expires()) {
		t.Errorf("grants that count until %v count until %v beside none", later.Expires(), until)
	}
}

// slowMembers says yes for one namespace of any member but one, which takes its time for
// every answer.
type slowMembers struct {
	slow  string
	takes time.Duration // 0: longer than anybody waits
	calls atomic.Int64  // to the slow one
}

func (m *slowMembers) Review(ctx context.Context, member string, r *authorizationv1.SubjectAccessReview) (bool, error) {
	if member != m.slow {
		return r.Spec.ResourceAttributes.Namespace == "mine", nil
	}
	m.calls.Add(1)
	var late <-chan time.Time
	if m.takes > 0 {
		late = time.After(m.takes)
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-late:
		return false, nil
	}
}

// TestAuthorizer_WaitsForASlowMemberOnce, however many namespaces it invents, and what
// others grant is found all the same.
func TestAuthorizer_WaitsForASlowMemberOnce(t *testing.T) {
	const timeout, invented = 100 * time.Millisecond, 500
	for name, takes := range map[string]time.Duration{"no answer": 0, "answers just in time": timeout / 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := &slowMembers{slow: "red/eu-1", takes: takes}
			a := newAuthorizer(t, authz.Options{
				Reviewer:       hubFunc(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) { return false, nil }),
				MemberReviewer: members, UserPrefix: "fed:", Timeout: timeout, DenyTTL: 30 * time.Second,
				Namespaces: func(member string) []string {
					if member != members.slow {
						return []string{"mine", "yours"}
					}
					out := make([]string, invented)
					for i := range out {
						out[i] = fmt.Sprint("n", i)
					}
					return out
				},
			})
			g, err := a.Grants(t.Context(), ann, "list", resources[0], []string{"red/eu-1", "red/us-1"}, "", "")
			if err != nil || !g.Member("red/us-1").Allows("mine") || !g.Member("red/eu-1").Empty() {
				t.Errorf("%+v, %v", g, err)
			}
			visible, _, err := a.Visible(t.Context(), ann, []string{"red/eu-1", "red/us-1"})
			if err != nil || len(visible) != 1 || visible[0] != "red/us-1" {
				t.Errorf("%q are visible, %v", visible, err)
			}
			if n := members.calls.Load(); n > invented/2 {
				t.Errorf("the slow member is waited for %d times", n)
			}
		})
	}
}

// allowing is a member whose RBAC allows everything.
type allowing struct{ asked atomic.Int64 }

func (a *allowing) Review(context.Context, string, *authorizationv1.SubjectAccessReview) (bool, error) {
	a.asked.Add(1)
	return true, nil
}

// TestAuthorizer_OnlyTheHubGrantsAllThatThereIs: a member's own "*" would be of one group.
func TestAuthorizer_OnlyTheHubGrantsAllThatThereIs(t *testing.T) {
	members := &allowing{}
	a := newAuthorizer(t, authz.Options{
		Reviewer: hubFunc(func(_ context.Context, r *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
			at := r.ResourceAttributes
			return at.Resource == "*" && at.Group == authz.Group && at.Verb == "list" && at.Namespace == "blue" && at.Name == "eu-1", nil
		}),
		MemberReviewer: members, UserPrefix: "fed:", Namespaces: func(string) []string { return nil },
	})
	g, err := a.Grants(t.Context(), ann, "list", schema.GroupResource{Resource: "*"}, []string{"blue/eu-1", "blue/us-1"}, "", "")
	if err != nil || !g.Member("blue/eu-1").All || !g.Member("blue/us-1").Empty() || members.asked.Load() != 0 {
		t.Errorf("%+v, %v after %d reviews of members", g, err, members.asked.Load())
	}
	if g, err := a.Grants(t.Context(), ann, "list", resources[0], []string{"blue/us-1"}, "", ""); err != nil || !g.Member("blue/us-1").All {
		t.Errorf("of a kind: %+v, %v", g, err)
	}
}
