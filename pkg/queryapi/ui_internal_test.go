package queryapi

import (
	"encoding/base64"
	"testing"
)

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
