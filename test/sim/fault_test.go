package sim_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/sim"
)

// fetch reads a list of ConfigMaps by bare HTTP.
func fetch(ctx context.Context, t *testing.T, client *http.Client, m *sim.Member) (code int, body []byte, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.RESTConfig().Host+"/api/v1/configmaps", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

func bare(t *testing.T, m *sim.Member) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(m.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func TestFault_EndsAsDescribed(t *testing.T) {
	list := sim.Fault{Verb: "list", Kind: cmResource, Times: 1}
	for _, test := range []struct {
		name  string
		fault func(*sim.Fault)
		check func(code int, body []byte, err error, took time.Duration) bool
	}{
		{"status", func(f *sim.Fault) { f.Status = 503 }, func(code int, body []byte, err error, _ time.Duration) bool {
			return code == 503 && strings.Contains(string(body), `"reason":"ServiceUnavailable"`) && err == nil
		}},
		{"delay", func(f *sim.Fault) { f.Delay = 100 * time.Millisecond }, func(code int, _ []byte, err error, took time.Duration) bool {
			return code == 200 && err == nil && took >= 100*time.Millisecond
		}},
		{"slow body", func(f *sim.Fault) { f.BytesPerSecond = 20_000 }, func(code int, body []byte, err error, took time.Duration) bool {
			return code == 200 && err == nil && len(body) > 4000 && took >= time.Duration(len(body)-2000)*time.Second/20_000
		}},
		{"reset", func(f *sim.Fault) { f.Reset = true }, func(_ int, _ []byte, err error, _ time.Duration) bool { return err != nil }},
		{"truncate", func(f *sim.Fault) { f.Truncate = 1000 }, func(code int, body []byte, err error, _ time.Duration) bool {
			return code == 200 && len(body) == 1000 && err != nil
		}},
		{"garbage", func(f *sim.Fault) { f.Garbage = true }, func(code int, body []byte, err error, _ time.Duration) bool {
			return code == 200 && bytes.HasPrefix(body, []byte("\x00\xff")) && err == nil
		}},
		{"huge", func(f *sim.Fault) { f.Huge = 20 << 20 }, func(code int, body []byte, err error, _ time.Duration) bool {
			return code == 200 && len(body) == 20<<20 && err == nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, _ := member(t, sim.Options{})
			big := configMap("a")
			big.Data["k"] = strings.Repeat("x", 4000)
			mustCreate(t, m, big)
			client := bare(t, m)
			if code, _, err := fetch(t.Context(), t, client, m); code != 200 || err != nil {
				t.Fatalf("before: %d, %v", code, err)
			}
			fault := list
			test.fault(&fault)
			m.Faults().Add(fault)
			begin := time.Now()
			code, body, err := fetch(t.Context(), t, client, m)
			if !test.check(code, body, err, time.Since(begin)) {
				t.Errorf("%d, %d bytes %.80q, %v after %v", code, len(body), body, err, time.Since(begin))
			}
			if m.Faults().Seen() != 1 {
				t.Errorf("%d faults seen", m.Faults().Seen())
			}
			// Once only. A reset connection may be noticed by the request after it.
			eventually(t, "the member is well again", func() bool {
				code, _, err := fetch(t.Context(), t, client, m)
				return code == 200 && err == nil
			})
		})
	}
}

func TestFault_HangEndsWithTheClientOrTheFault(t *testing.T) {
	m, _ := member(t, sim.Options{})
	client := bare(t, m)
	clear := m.Faults().Add(sim.Fault{Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := fetch(ctx, t, client, m); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a hanging member: %v", err)
	}
	failed := make(chan error, 1)
	go func() {
		_, _, err := fetch(t.Context(), t, client, m)
		failed <- err
	}()
	eventually(t, "the second request hangs", func() bool { return m.Faults().Seen() == 2 })
	clear()
	if err := <-failed; err == nil {
		t.Error("a request that hung was answered")
	}
	if code, _, err := fetch(t.Context(), t, client, m); code != 200 || err != nil {
		t.Errorf("afterwards: %d, %v", code, err)
	}
	m.Faults().Add(sim.Fault{Status: 500})
	m.Faults().Clear()
	if code, _, err := fetch(t.Context(), t, client, m); code != 200 || err != nil {
		t.Errorf("with all faults cleared: %d, %v", code, err)
	}
}

func TestFault_TooManyRequestsSaysWhenToRetry(t *testing.T) {
	m, client := member(t, sim.Options{})
	m.Faults().Add(sim.Fault{Verb: "list", Status: 429, RetryAfter: 7, Times: 1})
	err := client.CoreV1().RESTClient().Get().Resource("configmaps").MaxRetries(0).Do(t.Context()).Error()
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds != 7 {
		t.Errorf("%v, retry after %d", err, seconds)
	}
}

func TestFault_RefusesWatchesWith410(t *testing.T) {
	m, client := member(t, sim.Options{})
	m.Faults().Add(sim.Fault{Verb: "watch", Kind: cmResource, Status: 410, Times: 1})
	_, err := client.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: m.ResourceVersion()})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("%v", err)
	}
}

func TestFault_TruncatesWatchesWithinAnEvent(t *testing.T) {
	m, client := member(t, sim.Options{})
	rv := m.ResourceVersion()
	big := configMap("b")
	big.Data["k"] = strings.Repeat("x", 4000)
	mustCreate(t, m, configMap("a"), big)
	m.Faults().Add(sim.Fault{Verb: "watch", Truncate: 2000, Times: 1})
	w := watchConfigMaps(t, client, rv)
	expect(t, w, "ADDED a")
	if ev, ok := nextEvent(t, w); ok && ev.Type != watch.Error {
		t.Errorf("%s %v", ev.Type, ev.Object)
	}
	expect(t, watchConfigMaps(t, client, rv), "ADDED a", "ADDED b")
}
