package remediate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/policy"
)

// lists is a journal that counts how often somebody takes over.
type lists struct {
	noJournal

	open  []*Action
	mu    sync.Mutex
	times int
}

func (j *lists) List(context.Context) ([]*Action, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.times++
	return j.open, nil
}

func (j *lists) taken() int {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.times
}

// TestWhoeverLeadsAgainTakesOverAgain: another process may have led in between, while
// this one had nothing to do.
func TestWhoeverLeadsAgainTakesOverAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var follows atomic.Bool
		j := &lists{}
		d, err := New(Options{Clients: noClients{}, Journal: j, Lead: func() error {
			if follows.Load() {
				return errors.New("another process acts")
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		for n := 1; n <= 3; n++ {
			time.Sleep(time.Minute)
			if got := j.taken(); got != n {
				t.Errorf("taken over %d times, want %d", got, n)
			}
			follows.Store(true)
			time.Sleep(2 * time.Second)
			follows.Store(false)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// slow are clients of members that take their time.
type slow struct{}

func (slow) Client(string, policy.Kind, string) (*Client, error) {
	c, err := client(&rest.Config{Host: "http://member"}, &http.Client{Transport: slow{}}, versionOf("ConfigMap"))
	return &Client{REST: c, Resource: "configmaps", Namespaced: true}, err
}

func (slow) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := sleep(r.Context(), settleTimeout-time.Second); err != nil {
		return nil, err
	}
	name := path.Base(r.URL.Path)
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":%q,"kind":"configmaps"}}`, name)
	return &http.Response{
		StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r,
	}, nil
}

// TestASlowMemberDoesNotKeepOthersFromBeingCorrected: what was left there is settled
// later.
func TestASlowMemberDoesNotKeepOthersFromBeingCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &lists{}
		for n, i := range intents("1", "m1 a", "m1 b", "m1 c", "m1 d", "m1 e", "m1 f") {
			j.open = append(j.open, &Action{Name: fmt.Sprint(n), Intent: i, Phase: Writing})
		}
		d, err := New(Options{Clients: slow{}, Journal: j})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		time.Sleep(takeOverTimeout + time.Second)
		d.mu.Lock()
		open := d.open
		d.mu.Unlock()
		if left := len(d.exec.leftovers()); !open || left == 0 || left == len(j.open) {
			t.Errorf("it may act: %v, while %d are left", open, left)
		}
		time.Sleep(2 * time.Minute)
		if left := len(d.exec.leftovers()); left != 0 {
			t.Errorf("%d are left", left)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
