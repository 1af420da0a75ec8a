package sinks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/notify/sinks"
)

// manager takes alerts as Alertmanager's API does, and refuses fields that it does not have.
type manager struct {
	t             *testing.T
	authorization string
	refuse        int // status of the first request; 0: it is taken

	mu     sync.Mutex
	chunks []int
	names  []string
}

func (m *manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var alerts []struct {
		Labels       map[string]string `json:"labels"`
		Annotations  map[string]string `json:"annotations"`
		StartsAt     time.Time         `json:"startsAt"`
		EndsAt       time.Time         `json:"endsAt"`
		GeneratorURL string            `json:"generatorURL"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&alerts); err != nil {
		m.t.Error(err)
	}
	if r.Method != http.MethodPost || r.URL.Path != "/am/api/v2/alerts" || r.Header.Get("Content-Type") != "application/json" {
		m.t.Errorf("%s %s of %q", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.chunks = append(m.chunks, len(alerts)); m.refuse != 0 {
		http.Error(w, "not this one", m.refuse)
		m.refuse = 0
		return
	}
	if got := r.Header.Get("Authorization"); got != m.authorization {
		m.t.Errorf("authorization %q, want %q", got, m.authorization)
	}
	for _, a := range alerts {
		m.names = append(m.names, a.Labels["alertname"])
	}
}

func alerts(n int) []sinks.Alert {
	all := make([]sinks.Alert, n)
	for i := range all {
		all[i] = sinks.Alert{
			Labels: map[string]string{"alertname": fmt.Sprint("v-", i)}, Annotations: map[string]string{"summary": "…"},
			StartsAt: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), GeneratorURL: "https://federator.example.com/",
		}
	}
	return all
}

func TestAlertmanager_PostsToEachInChunks(t *testing.T) {
	authority := newCA(t)
	for _, c := range []struct {
		opts          sinks.AlertmanagerOptions
		authorization string
	}{
		{sinks.AlertmanagerOptions{}, ""},
		{sinks.AlertmanagerOptions{Token: "hidden"}, "Bearer hidden"},
		{sinks.AlertmanagerOptions{Username: "ann", Password: "hidden"}, "Basic YW5uOmhpZGRlbg=="},
	} {
		one, two := &manager{t: t, authorization: c.authorization}, &manager{t: t, authorization: c.authorization}
		var dials atomic.Int64
		c.opts.Dial, c.opts.CA = counted(&dials), authority.pem()
		for _, m := range []*manager{one, two} {
			c.opts.URLs = append(c.opts.URLs, authority.serve(m, true).URL+"/am/")
		}
		c.opts.ClientCert, c.opts.ClientKey = authority.issue()
		a, err := sinks.NewAlertmanager(c.opts)
		closing(t, a, err)
		if err := a.Post(t.Context(), alerts(1001)); err != nil {
			t.Fatal(err)
		}
		for _, m := range []*manager{one, two} {
			if fmt.Sprint(m.chunks) != "[500 500 1]" || len(m.names) != 1001 || m.names[1000] != "v-1000" {
				t.Errorf("%q: chunks %v", c.authorization, m.chunks)
			}
		}
		if n := dials.Load(); n != 2 {
			t.Errorf("%d connections, want one to each", n)
		}
	}
}

// TestAlertmanager_NamesThoseThatFail: others are posted to all the same.
func TestAlertmanager_NamesThoseThatFail(t *testing.T) {
	authority := newCA(t)
	bad, busy, good := &manager{t: t, refuse: http.StatusBadRequest}, &manager{t: t, refuse: http.StatusServiceUnavailable}, &manager{t: t}
	var urls []string
	for _, m := range []*manager{bad, busy, good} {
		urls = append(urls, authority.serve(m, false).URL+"/am?token=hidden")
	}
	refused := errors.New("the address is not allowed")
	a, err := sinks.NewAlertmanager(sinks.AlertmanagerOptions{
		URLs: append([]string{"http://am.example.com:9093?token=hidden"}, urls...), CA: authority.pem(),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "am.example.com:9093" {
				return nil, refused
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	})
	closing(t, a, err)
	err = a.Post(t.Context(), alerts(501))
	var answer *sinks.RefusedError
	if !errors.Is(err, refused) || !errors.As(err, &answer) || answer.Status != http.StatusBadRequest {
		t.Fatalf("error %v", err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "alertmanager http://am.example.com:9093: ") ||
		!strings.HasPrefix(lines[1], "alertmanager "+strings.TrimSuffix(urls[0], "?token=hidden")+": ") || !strings.Contains(lines[2], "503") {
		t.Errorf("errors %q", lines)
	}
	if strings.Contains(err.Error(), "hidden") {
		t.Errorf("error %v shows a query", err)
	}
	if got := fmt.Sprint(bad.chunks, busy.chunks, good.chunks); got != "[500 1] [500] [500 1]" {
		t.Errorf("chunks %s: one that was refused for what is in it keeps no other back, a busy one is left alone", got)
	}
}

func TestAlertmanager_RefusesTimes(t *testing.T) {
	a, err := sinks.NewAlertmanager(sinks.AlertmanagerOptions{URLs: []string{"https://h/"}, Dial: func(context.Context, string, string) (net.Conn, error) {
		t.Error("something was posted")
		return nil, net.ErrClosed
	}})
	closing(t, a, err)
	all := alerts(502)
	all[501].EndsAt = all[501].EndsAt.AddDate(20000, 0, 0)
	wantField(t, a.Post(t.Context(), all), "alerts[501]")
}

func TestNewAlertmanager_RefusesOptions(t *testing.T) {
	urls := []string{"https://h/"}
	cert, private := newCA(t).issue()
	for _, c := range []struct {
		opts  sinks.AlertmanagerOptions
		field string
	}{
		{sinks.AlertmanagerOptions{}, "urls"},
		{sinks.AlertmanagerOptions{URLs: []string{"https://h/", "h:9093"}}, "urls[1]"},
		{sinks.AlertmanagerOptions{URLs: []string{"https://u:hidden@h/"}}, "urls[0]"},
		{sinks.AlertmanagerOptions{URLs: []string{"https://h/\x7fhidden"}}, "urls[0]"},
		{sinks.AlertmanagerOptions{URLs: []string{"http://h/"}, Token: "hidden"}, "urls[0]"},
		{sinks.AlertmanagerOptions{URLs: []string{"http://h/"}, Password: "hidden"}, "urls[0]"},
		{sinks.AlertmanagerOptions{URLs: []string{"http://h/"}, ClientCert: cert, ClientKey: private}, "urls[0]"},
		{sinks.AlertmanagerOptions{URLs: urls, Token: "hidden\r\n"}, "token"},
		{sinks.AlertmanagerOptions{URLs: urls, Token: "hidden", Username: "ann"}, "token"},
		{sinks.AlertmanagerOptions{URLs: urls, Timeout: -1}, "timeout"},
		{sinks.AlertmanagerOptions{URLs: urls, CA: []byte("hidden")}, "ca"},
	} {
		_, err := sinks.NewAlertmanager(c.opts)
		wantField(t, err, c.field)
	}
}
