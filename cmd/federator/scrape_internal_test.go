package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// knowing is a hub that accepts the token "scraper" and authorizes its user for everything.
type knowing struct{}

// RoundTrip implements http.RoundTripper.
func (knowing) RoundTrip(r *http.Request) (*http.Response, error) {
	var review map[string]any
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		return nil, err
	}
	status := map[string]any{"allowed": true}
	if spec, _ := review["spec"].(map[string]any); spec["token"] != nil {
		status = map[string]any{"authenticated": spec["token"] == "scraper", "user": map[string]any{"username": "scraper"}}
	}
	review["status"] = status
	body, err := json.Marshal(review)
	return &http.Response{
		StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, err
}

// TestScrapers_AreNotLockedOutByUnknownTokens, however many of them are sent.
func TestScrapers_AreNotLockedOutByUnknownTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := &rest.Config{Host: "https://hub", Transport: knowing{}, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
		h, err := onlyScrapers(hub, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		scrape := func(token string) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, metricsPath, nil)
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		if code := scrape("scraper"); code != http.StatusOK {
			t.Fatalf("the scraper gets %d", code)
		}
		time.Sleep(time.Minute) // reviews are not kept for as long
		var strangers sync.WaitGroup
		for i := range 1000 {
			strangers.Go(func() {
				if code := scrape(fmt.Sprint("stranger-", i)); code == http.StatusOK {
					t.Error("an unknown token is accepted")
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if code := scrape("scraper"); code != http.StatusOK || time.Since(began) > time.Second {
			t.Errorf("the scraper gets %d after %s", code, time.Since(began))
		}
		strangers.Wait()
	})
}
