package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// How many access reviews one caller may have in flight, of 64, and how many one rules
// review may cause, with those that decide whether all may be read.
const (
	maxInFlight = 16
	maxReviews  = 2500
)

// rules asks for what a user may do in a namespace.
func (r *rig) rules(ctx context.Context, client *http.Client, namespace string) (int, error) {
	body := fmt.Appendf(nil, `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":%q}}`, namespace)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.host+"/fleet/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// manyReviews asks for reviews at once, of a hub that is far away: others ask it, too.
func (r *rig) manyReviews(ctx context.Context, _ *rand.Rand, user string) error {
	r.door.look(user, 100*time.Millisecond)
	defer r.door.look("", 0)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	client := r.as(user)
	var asking sync.WaitGroup
	for i := range 8 {
		asking.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = r.rules(ctx, client, fmt.Sprintf("ns-%d-%d", i, n)) // some are refused
			}
		})
	}
	asking.Wait()
	reviews, most := r.door.seen()
	r.note("reviews: %d, %d at once", reviews, most)
	if reviews == 0 {
		return errors.New("there was no review")
	}
	if most > maxInFlight {
		return &Finding{"share", fmt.Errorf("one caller has %d access reviews under way, at most %d are allowed", most, maxInFlight)}
	}
	return nil
}

// manyRules asks once for what may be done with thousands of kinds.
func (r *rig) manyRules(ctx context.Context, _ *rand.Rand, user string) error {
	r.door.look(user, 0)
	defer r.door.look("", 0)
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	code, err := r.rules(ctx, r.as(user), "default")
	reviews, _ := r.door.seen()
	r.note("rules: %d reviews, %d", reviews, code)
	if reviews > maxReviews {
		return &Finding{"share", fmt.Errorf("one rules review causes %d access reviews, at most %d are allowed", reviews, maxReviews)}
	}
	return err
}
