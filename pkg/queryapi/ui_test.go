package queryapi_test

import (
	"net/http"
	"sync"
	"testing"

	"federator.dev/federator/pkg/queryapi"
)

// heldUI holds requests of its files until it is released.
type heldUI struct {
	entered chan struct{}
	release chan struct{}
}

func (heldUI) SetHeaders(h http.Header) { h.Set("X-Of-The-UI", "yes") }

func (u heldUI) ServePublic(w http.ResponseWriter, _ *http.Request, _ queryapi.UICallers) {
	u.entered <- struct{}{}
	<-u.release
	w.WriteHeader(http.StatusNoContent)
}

func (heldUI) ServeCaller(w http.ResponseWriter, _ *http.Request, _ queryapi.UICaller) {
	w.WriteHeader(http.StatusNoContent)
}

func (heldUI) Bearer(http.ResponseWriter, *http.Request) (string, error) { return "", nil }

// TestUI_RequestsAreBounded: those that need no log-in have a number of their own, which takes
// none of the API's.
func TestUI_RequestsAreBounded(t *testing.T) {
	const limit = 32 // half of all, of one address
	ui := heldUI{make(chan struct{}, limit), make(chan struct{})}
	s := start(t, func(o *queryapi.Options) { o.UI = ui })
	client := s.client(t)
	var held sync.WaitGroup
	for range limit {
		held.Go(func() {
			if resp, body := s.ask(t, client, "GET", "/ui/", "", nil, nil); resp.StatusCode != http.StatusNoContent {
				t.Errorf("held: %d %s", resp.StatusCode, body)
			}
		})
	}
	for range limit {
		<-ui.entered
	}
	resp, body := s.ask(t, client, "GET", "/ui/", "", nil, nil)
	wantStatus(t, "one too many", resp, body, http.StatusTooManyRequests)
	if resp.Header.Get("X-Of-The-UI") != "yes" {
		t.Error("it has not the UI's headers")
	}
	if resp, body := s.ask(t, client, "GET", "/query/v1/whoami", tokenFor(t, "beside", "federator"), nil, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("a query beside them: %d %s", resp.StatusCode, body)
	}
	close(ui.release)
	held.Wait()
}

// TestUI_WithoutOneCookiesAreNothing: and neither is /ui.
func TestUI_WithoutOneCookiesAreNothing(t *testing.T) {
	s := start(t, nil)
	header := http.Header{"Cookie": {"__Host-federator-session=1.x"}, "Sec-Fetch-Site": {"same-origin"}, "Accept": {"text/html"}}
	for _, path := range []string{"/", "/ui", "/ui/", "/ui/session", "/ui/relay/stops", "/query/v1/whoami"} {
		resp, body := s.ask(t, s.client(t), "GET", path, "", header, nil)
		wantStatus(t, path, resp, body, http.StatusUnauthorized)
	}
	resp, body := s.ask(t, s.client(t), "GET", "/ui/relay/stops", tokenFor(t, "nobody", "federator"), header, nil)
	wantStatus(t, "of a caller", resp, body, http.StatusNotFound)
}
