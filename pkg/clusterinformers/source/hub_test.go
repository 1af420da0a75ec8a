package source

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/test/kube"
)

func TestHub_IsAReadOnlyMember(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{}).Hub
	uid := uidOf(t, hub.ControlPlane)
	dir := t.TempDir()
	token := func(account string) string {
		cred, err := hub.IssueToken(t.Context(), "default", account, time.Hour)
		must(t, err)
		return cred.Token
	}
	allowViewing(t, hub.Client(), "first", "second")
	cfg := &rest.Config{Host: hub.DirectRESTConfig().Host, TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")}, BearerTokenFile: filepath.Join(dir, "token")}
	first := token("first")
	writeFile(t, cfg.CAFile, hub.DirectRESTConfig().CAData)
	writeFile(t, cfg.BearerTokenFile, []byte(first+"\n"))
	src, err := NewHub(HubOptions{Config: cfg, Logger: slog.New(newLogs(t))})
	v := watchSource(t, src, err)
	s := v.member("hub/local", "followed", followed)
	if s.UID != uid || !s.ReadOnly || !s.Trusted {
		t.Errorf("%+v, want UID %s", s, uid)
	}
	parsed, refusal := memberclient.ParseKubeconfig(s.Kubeconfig, memberclient.Allowed{})
	if refusal != nil || parsed.BearerToken != first {
		t.Errorf("%v, %v", parsed, refusal)
	}
	second := token("second")
	writeFile(t, cfg.BearerTokenFile, []byte(second))
	v.member("hub/local", "rotated", func(s clusterinformers.Spec) bool {
		return s.Refused == nil && strings.Contains(string(s.Kubeconfig), second)
	})
	for _, view := range v.all() {
		if slices.ContainsFunc(view, func(s clusterinformers.Spec) bool { return !s.ReadOnly || s.UID != uid }) {
			t.Errorf("not read-only, or another UID: %+v", view)
		}
	}
}

func TestHub_ChecksItsConfiguration(t *testing.T) {
	ca, _ := kubeconfigtest.KeyPair()
	good := rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	for reason, change := range map[connection.Reason]func(*rest.Config){
		connection.ExecPlugin: func(c *rest.Config) {
			c.ExecProvider = &clientcmdapi.ExecConfig{Command: "x", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
		},
		connection.AuthProvider:  func(c *rest.Config) { c.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"} },
		connection.FilePath:      func(c *rest.Config) { c.CAFile = "/does/not/exist" },
		connection.ProxyURL:      func(c *rest.Config) { c.Proxy = noProxy },
		connection.Impersonation: func(c *rest.Config) { c.Impersonate.UserName = "root" },
		connection.PlainHTTP:     func(c *rest.Config) { c.Host = "http://127.0.0.1:1" },
		connection.NoCA:          func(c *rest.Config) { c.CAData = nil },
		connection.InsecureTLS:   func(c *rest.Config) { c.Insecure = true },
		connection.Unreachable:   func(*rest.Config) {},
	} {
		c := rest.CopyConfig(&good)
		change(c)
		src, err := NewHub(HubOptions{Config: c, Name: "a/b", Logger: slog.New(slog.DiscardHandler)})
		v := watchSource(t, src, err)
		v.member("a/b", string(reason), refusedAs(reason))
		v.stop()
	}
	for want, o := range map[string]HubOptions{
		"Logger is required":       {Config: &good},
		"Config is required":       {Logger: slog.New(slog.DiscardHandler)},
		"is not <namespace>/<name": {Config: &good, Logger: slog.New(slog.DiscardHandler), Name: "x"},
		"dialer of its own":        {Config: &rest.Config{Dial: noDial}, Logger: slog.New(slog.DiscardHandler)},
	} {
		if _, err := NewHub(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
