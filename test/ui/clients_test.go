package ui

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// TestClients measures a real tab, and how long commits take, without and with 200 others that have
// the stream of a tab, where FIGURES is set.
func TestClients(t *testing.T) {
	if os.Getenv("FIGURES") == "" {
		t.Skip("make ui-figures measures")
	}
	found := require(t)
	s := startSimulated(t, 20, 5000, 500)
	c := &clients{t: t, s: s}
	t.Cleanup(c.stop)
	play(t, found, "clients", world{URL: s.url, Driver: c.drive(), Tokens: map[string]string{"local": s.token}, Members: 20, Pods: 100_000, PID: s.federator.PID()})
}

// clients are others that watch a server as a tab does.
type clients struct {
	t *testing.T
	s *simulated

	cancel context.CancelFunc
	open   sync.WaitGroup
}

func (c *clients) drive() string {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /clients", func(w http.ResponseWriter, r *http.Request) {
		var command struct{ Number int }
		err := json.NewDecoder(r.Body).Decode(&command)
		if err == nil {
			err = c.start(command.Number)
		}
		answer(w, nil, err)
	})
	mux.HandleFunc("POST /commits", func(w http.ResponseWriter, _ *http.Request) {
		buckets, err := c.s.commits()
		answer(w, buckets, err)
	})
	server := httptest.NewServer(mux)
	c.t.Cleanup(server.Close)
	return server.URL
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(v) // the story may be over
}

// start opens streams, each on a connection of its own, and returns when all have begun.
func (c *clients) start(n int) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	began := make(chan error, n)
	for range n {
		c.open.Go(func() {
			if err := c.one(ctx, began); err != nil {
				began <- err
			}
		})
	}
	var err error
	for range n {
		err = errors.Join(err, <-began)
	}
	return err
}

// one reads a stream until the end; it says once that it has begun.
func (c *clients) one(ctx context.Context, began chan<- error) error {
	subscriptions := url.Values{"watch": {"true"}, "s": {
		"pods /fleet/api/v1/pods?watch=true&as=Table&limit=500&labelSelector=" + url.QueryEscape("federator.dev/member-name=member-1"),
		"count /query/v1/count?resource=pods&groupBy=member", "members /query/v1/members?summary=true",
		"violations /query/v1/violations?groupBy=severity", "policies /query/v1/policies",
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.s.url+"/query/v1/stream?"+subscriptions.Encode(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.s.token)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	began <- nil
	_, _ = io.Copy(io.Discard, resp.Body) // until ctx ends
	return nil
}

func (c *clients) stop() {
	if c.cancel != nil {
		c.cancel()
	}
	c.open.Wait()
}

var serving = regexp.MustCompile(`server=serve address=(\S+)`)

// bucket is how many commits took so many seconds at most.
type bucket struct {
	Seconds float64 `json:"seconds"`
	Count   uint64  `json:"count"`
}

// commits are the buckets of the time from reading an event until it is visible.
func (s *simulated) commits() ([]bucket, error) {
	log, err := os.ReadFile(s.federator.LogFile)
	if err != nil {
		return nil, err
	}
	at := serving.FindSubmatch(log)
	if at == nil {
		return nil, errors.New("federator serves no metrics")
	}
	resp, err := (&http.Client{Timeout: 30 * time.Second}).Get("http://" + string(at[1]) + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, err
	}
	family := families["federator_scope_event_to_commit_seconds"]
	if family == nil {
		return nil, fmt.Errorf("there is no histogram of commits among %d metrics", len(families))
	}
	var out []bucket
	for _, b := range family.GetMetric()[0].GetHistogram().GetBucket() {
		out = append(out, bucket{b.GetUpperBound(), b.GetCumulativeCount()})
	}
	return slices.DeleteFunc(out, func(b bucket) bool { return math.IsInf(b.Seconds, 1) }), nil // JSON has no infinity
}
