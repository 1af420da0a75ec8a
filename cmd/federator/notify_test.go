package main

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/test/clitest"
)

func TestConfig_ReceiversAreChecked(t *testing.T) {
	path := clitest.WriteFile(t, "config.yaml", `policies:
  notify:
    origin: ""
    receivers:
    - {name: Chat, url: "https://chat.example/hook", keyFile: key}
    - {name: chat, url: "http://chat.example/hook?token=sesame", keyFile: key}
    - name: chat
      url: "https://ann:sesame@chat.example"
`)
	_, err := command(t, "serve", "--config", path)
	for _, want := range []string{
		`:3: policies.notify.origin: "" is not a URI reference`,
		`:4: policies.notify.receivers: is set, but policies.hub is false`,
		`:5: policies.notify.receivers[0].name: "Chat" is not a DNS label`,
		`:6: policies.notify.receivers[1].url: http is for addresses of this machine only`,
		`:7: policies.notify.receivers[2].name: another receiver is named "chat"`,
		`:8: policies.notify.receivers[2].url: it has a user`,
		`:7: policies.notify.receivers[2].keyFile: is required`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "sesame") {
		t.Errorf("the error has what is secret: %v", err)
	}
}

func TestNotifyReceivers_ReadFiles(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	key := clitest.WriteFile(t, "key", "the first of the secrets\n\nwhsec_dGhlIHNlY29uZCBvZiB0aGUgc2VjcmV0cw==\n")
	receiver := config.Receiver{Name: "chat", URL: server.URL, KeyFile: key, CAFile: clitest.WriteFile(t, "ca.crt", string(ca))}
	got, err := notifyReceivers(&config.Notify{Receivers: []config.Receiver{receiver}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Certificate().Verify(x509.VerifyOptions{Roots: got[0].RootCAs, DNSName: "127.0.0.1"}); err != nil || got[0].Name != "chat" || got[0].URL != server.URL {
		t.Errorf("%v: %+v", err, got[0])
	}
	keys := func() string {
		t.Helper()
		all, err := got[0].Keys()
		if err != nil {
			return err.Error()
		}
		return string(slices.Concat(all...))
	}
	if keys() != "the first of the secretsthe second of the secrets" {
		t.Errorf("keys %q", keys())
	}
	if err := os.WriteFile(key, []byte("the third of the secrets"), 0o600); err != nil {
		t.Fatal(err)
	}
	if keys() != "the third of the secrets" {
		t.Errorf("keys after a rotation %q", keys())
	}
}

func TestNotifyReceivers_RejectFiles(t *testing.T) {
	key := clitest.WriteFile(t, "key", "the first of the secrets")
	for want, c := range map[string]config.Receiver{
		"policies.notify.receivers[0].keyFile: open ":                           {KeyFile: key + ".none"},
		"policies.notify.receivers[0].keyFile: key: there is none":              {KeyFile: clitest.WriteFile(t, "empty", "\n\n")},
		"policies.notify.receivers[0].keyFile: key: it has 5 bytes":             {KeyFile: clitest.WriteFile(t, "short", "the first of the secrets\nshort\n")},
		"policies.notify.receivers[0].keyFile: key: what follows whsec_ is":     {KeyFile: clitest.WriteFile(t, "base64", "whsec_the first of the secrets")},
		"has more than 65536 bytes":                                             {KeyFile: clitest.WriteFile(t, "long", strings.Repeat("a secret of a file that is too long\n", 2000))},
		"policies.notify.receivers[0].caFile: open ":                            {KeyFile: key, CAFile: key + ".none"},
		"policies.notify.receivers[0].caFile: " + key + " has no certificate (": {KeyFile: key, CAFile: key},
	} {
		c.Name, c.URL = "chat", "https://chat.example"
		if _, err := notifyReceivers(&config.Notify{Receivers: []config.Receiver{c}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
