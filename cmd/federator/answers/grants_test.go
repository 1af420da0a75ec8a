package answers_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/cmd/federator/answers"
	"federator.dev/federator/pkg/queryapi"
)

// reviews is a hub that knows everybody by the token, and allows all or nothing, or
// what may says.
type reviews struct {
	allows atomic.Bool
	asked  atomic.Int64 // about access
	may    func(user, resource string) bool
}

func (h *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status.Authenticated, review.Status.User.Username, review.Status.Audiences = true, review.Spec.Token, review.Spec.Audiences
		write(w, review)
		return
	}
	h.asked.Add(1)
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Status.Allowed = h.allows.Load()
	if h.may != nil {
		review.Status.Allowed = h.may(review.Spec.User, review.Spec.ResourceAttributes.Resource)
	}
	write(w, review)
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(v)
}

// hubbed is a fleet whose callers are who their tokens say, and whose grants are asked
// of a hub and kept for a second.
func hubbed(t *testing.T, change func(*queryapi.Options, *answers.Violations)) (*judged, *reviews) {
	t.Helper()
	hub := &reviews{}
	hub.allows.Store(true)
	at := httptest.NewServer(hub)
	t.Cleanup(at.Close)
	j := start(t, func(o *queryapi.Options, q *answers.Violations) {
		o.Local, o.Hub = false, &rest.Config{Host: at.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
		o.Authority.AllowTTL, o.Authority.DenyTTL = time.Second, time.Second
		if change != nil {
			change(o, q)
		}
	})
	j.token = "ann"
	return j, hub
}

// TestAWatchEndsWithItsGrants: of a caller who might read everything, too. As long as the
// grants stay what they are, asking for them tells nothing anew.
func TestAWatchEndsWithItsGrants(t *testing.T) {
	j, hub := hubbed(t, func(_ *queryapi.Options, q *answers.Violations) { q.Bookmark = 20 * time.Millisecond })
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.judgedAll()
	s := j.watch("policy=replicas", nil)
	reach := func() {
		j.judgedAll()
		found, _ := j.list("")
		s.reach(found.ResourceVersion)
	}
	reach()
	first := hub.asked.Load()
	j.until(func() error {
		if n := hub.asked.Load(); n < first+3 {
			return errNotAsked
		}
		return nil
	})
	j.put("fleet/a", "db", 1, "")
	reach()
	told := slices.DeleteFunc(slices.Clone(s.told), func(kind string) bool { return kind == "BOOKMARK" })
	if got := strings.Join(told, " "); got != "ADDED ADDED" {
		t.Errorf("while the grants stay what they are: told %q", got)
	}
	hub.allows.Store(false)
	for len(s.knows) > 0 {
		if _, err := s.next(); err != nil {
			t.Fatalf("after the revocation the watch still knows %v: %v", s.knows, err)
		}
	}
	j.put("fleet/a", "later", 1, "")
	reach()
	if len(s.knows) > 0 {
		t.Errorf("after the revocation the watch tells of %v", s.knows)
	}
}
