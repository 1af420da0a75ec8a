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

// How many questions to the hub one caller may have under way, of 64, and what one rules
// review may ask, with those that tell whether all may be read at once.
const (
	mostAtOnce    = 16
	mostQuestions = 2500
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
	asked, most := r.door.seen()
	r.note("reviews: %d questions, %d at once", asked, most)
	if asked == 0 {
		return errors.New("no review was asked for")
	}
	if most > mostAtOnce {
		return &Finding{"share", fmt.Errorf("one caller has %d questions to the hub under way, at most %d should be", most, mostAtOnce)}
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
	asked, _ := r.door.seen()
	r.note("rules: %d questions, %d", asked, code)
	if asked > mostQuestions {
		return &Finding{"share", fmt.Errorf("one rules review asks %d questions, at most %d should be", asked, mostQuestions)}
	}
	return err
}
