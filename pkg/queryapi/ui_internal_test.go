package queryapi

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// slowUI serves addresses but one at once.
type slowUI struct {
	UI

	slow             string
	entered, release chan struct{}
}

func (u slowUI) ServePublic(w http.ResponseWriter, r *http.Request, _ UICallers) {
	if r.RemoteAddr == u.slow {
		u.entered <- struct{}{}
		<-u.release
	}
	w.WriteHeader(http.StatusNoContent)
}

// TestUI_OneAddressLeavesLogInsToOthers, however many requests it has that nobody is known of.
func TestUI_OneAddressLeavesLogInsToOthers(t *testing.T) {
	ui := slowUI{slow: "10.0.0.1:1", entered: make(chan struct{}, 2*maxUIRequests), release: make(chan struct{})}
	h := (&Server{options: Options{UI: ui}}).withUI(http.NotFoundHandler())
	ask := func(address string) int {
		r := httptest.NewRequest(http.MethodGet, "/ui/session", nil)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	var held sync.WaitGroup
	refused := make(chan struct{}, 2*maxUIRequests)
	for range 2 * maxUIRequests {
		held.Go(func() {
			if ask(ui.slow) == http.StatusTooManyRequests {
				refused <- struct{}{}
			}
		})
	}
	for range 2 * maxUIRequests {
		select {
		case <-ui.entered:
		case <-refused:
		}
	}
	if code := ask("10.0.0.2:1"); code != http.StatusNoContent {
		t.Errorf("another address gets %d", code)
	}
	close(ui.release)
	held.Wait()
}

func TestOfHub_ByIssuerAndAudience(t *testing.T) {
	tokens := []HubTokens{{"https://a", "ui"}, {"https://b", "hub"}}
	token := func(claims string) string { return "x." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".y" }
	for token, want := range map[string]bool{
		token(`{"iss":"https://a","aud":"ui"}`):                true,
		token(`{"iss":"https://b","aud":["federator","hub"]}`): true,
		token(`{"iss":"https://a","aud":"hub"}`):               false,
		token(`{"iss":"https://c","aud":"ui"}`):                false,
		token(`{"iss":"https://a","aud":["federator"]}`):       false,
		token(`{"iss":"https://a"}`):                           false,
		token(`{"iss":"https://a","aud":7}`):                   false,
		token(`{"iss":["https://a"],"aud":"ui"}`):              false,
		token(`[`): false,
		"":         false,
		"x.%.y":    false,
		token(`{"iss":"https://a","aud":"ui"}`) + ".z": false,
		"opaque": false,
	} {
		if got := ofHub(token, tokens); got != want {
			t.Errorf("%s: %t", token, got)
		}
		if ofHub(token, nil) {
			t.Errorf("%s: is the hub's, where none is", token)
		}
	}
}
