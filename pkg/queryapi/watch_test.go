package queryapi_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

// watch opens a watch of pods and returns it once its first event is there.
func (s *server) watch(t *testing.T, c *http.Client, token string) (*http.Response, *bufio.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Address+"/fleet/api/v1/pods?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(line, `"ADDED"`) {
		t.Fatalf("%d %q, %v", resp.StatusCode, line, err)
	}
	return resp, lines
}

func TestWatch_EndingEndsWatchesAtOnce(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.Limits.Drain = time.Hour // is not for watches
	})
	for _, c := range []*http.Client{s.plain(t), s.client(t)} {
		c.Timeout = 0
		s.watch(t, c, s.Token())
	}
	ended := make(chan error, 1)
	go func() { ended <- s.End() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("a watch keeps the server from ending")
	}
}

func TestWatch_IsBoundedInNumberNotInTime(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.Limits.Request = 50 * time.Millisecond
		o.Fairness.MaxWatches = 1
	})
	c := s.client(t)
	c.Timeout = 0
	first, lines := s.watch(t, c, s.Token())
	resp, body := s.get(t, "/fleet/api/v1/pods?watch=1", s.Token())
	wantStatus(t, "the second watch", resp, body, http.StatusTooManyRequests)
	// Two more pods, then nothing: the end would come if requests' time applied.
	for range 2 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	quiet := make(chan error, 1)
	go func() {
		_, err := lines.ReadString('\n')
		quiet <- err
	}()
	select {
	case err := <-quiet:
		t.Errorf("the watch ended: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	first.Body.Close()
	<-quiet
	until(t, "there is room when the first is gone", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Address+"/fleet/api/v1/pods?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.Token())
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func TestWatch_PassesPriorityAndFairness(t *testing.T) {
	who := fresh("prio")
	token := tokenFor(t, who, "federator")
	allow(t, queryserver.UserOf(who), "", members("watch", "pods"))
	s := start(t, func(o *queryapi.Options) { o.Fairness.Priority = true })
	until(t, "the hub's priorities are known", func() bool {
		resp, _ := s.get(t, "/query/v1/whoami", token)
		return resp.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") != ""
	})
	c := s.client(t)
	c.Timeout = 0
	resp, _ := s.watch(t, c, token)
	if resp.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == "" {
		t.Error("the watch belongs to no FlowSchema")
	}
}
