package memberclient

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

func TestParseKubeconfig_Refusals(t *testing.T) {
	ca, key := kubeconfigtest.KeyPair()
	for name, tc := range map[string]struct {
		change func(*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
		reason connection.Reason
		says   string
	}{
		"exec": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/evil", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never", Env: []clientcmdapi.ExecEnvVar{{Name: "A", Value: kubeconfigtest.Token}}}
		}, connection.ExecPlugin, "/bin/evil"},
		"auth provider": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc", Config: map[string]string{"id-token": kubeconfigtest.Token}}
		}, connection.AuthProvider, "oidc"},
		"certificate-authority": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthority = "/etc/ca"
		}, connection.FilePath, "certificate-authority"},
		"client-certificate": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificate = "/etc/crt"
		}, connection.FilePath, "client-certificate"},
		"client-key": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientKey = "/etc/key"
		}, connection.FilePath, "client-key"},
		"tokenFile": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.TokenFile = "/etc/token"
		}, connection.FilePath, "tokenFile"},
		"proxy-url": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = "http://u:" + kubeconfigtest.Token + "@proxy:3128"
		}, connection.ProxyURL, "proxy-url"},
		"as": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Impersonate = "root"
		}, connection.Impersonation, "user.as is"},
		"as-uid": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ImpersonateUID = "0"
		}, connection.Impersonation, "as-uid"},
		"as-groups": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ImpersonateGroups = []string{"system:masters"}
		}, connection.Impersonation, "as-groups"},
		"as-user-extra": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ImpersonateUserExtra = map[string][]string{"scopes": {"all"}}
		}, connection.Impersonation, "as-user-extra"},
		"http": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "HTTP://api.example.com:8080"
		}, connection.PlainHTTP, "api.example.com:8080"},
		"no CA": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = nil
		}, connection.NoCA, "certificate-authority-data is not set"},
		"CA without certificate": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = key
		}, connection.NoCA, "holds no certificate"},
		"insecure": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		}, connection.InsecureTLS, "insecure-skip-tls-verify"},
		"insecure with CA": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify = true
		}, connection.InsecureTLS, "insecure-skip-tls-verify"},
		"userinfo": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://admin:" + kubeconfigtest.Token + "@api.example.com"
		}, connection.InvalidKubeconfig, "user name"},
		"query": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://api.example.com/?k=" + kubeconfigtest.Token
		}, connection.InvalidKubeconfig, "query"},
		"empty query": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://api.example.com/?"
		}, connection.InvalidKubeconfig, "query"},
		"fragment": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://api.example.com/#" + kubeconfigtest.Token
		}, connection.InvalidKubeconfig, "fragment"},
		"no server": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = ""
		}, connection.InvalidKubeconfig, "server is not set"},
		"server without scheme": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "api.example.com"
		}, connection.InvalidKubeconfig, "not a URL"},
		"server of another scheme": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "unix:///var/run/docker.sock"
		}, connection.InvalidKubeconfig, "not a URL"},
		"host of another scheme": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "ftp://api.example.com"
		}, connection.InvalidKubeconfig, "not a URL"},
		"server that does not parse": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://" + kubeconfigtest.Token + "%zz"
		}, connection.InvalidKubeconfig, "not a URL"},
		"no current context": {func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CurrentContext = ""
		}, connection.InvalidKubeconfig, "current-context is not set"},
		"unknown context": {func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CurrentContext = "other"
		}, connection.InvalidKubeconfig, `"other"`},
		"unknown cluster": {func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			delete(c.Clusters, "c")
		}, connection.InvalidKubeconfig, `no cluster "c"`},
		"unknown user": {func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			delete(c.AuthInfos, "u")
		}, connection.InvalidKubeconfig, `no user "u"`},
		"certificate without key": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData = ca
		}, connection.InvalidKubeconfig, "both are needed"},
		"certificate and key that do not parse": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = ca, []byte(kubeconfigtest.Token)
		}, connection.InvalidKubeconfig, "not a pair"},
		"token and password": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Username, u.Password = "admin", kubeconfigtest.Token
		}, connection.InvalidKubeconfig, "only one"},
		"token with a line break": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token = "a\r\nImpersonate-User: " + kubeconfigtest.Token
		}, connection.InvalidKubeconfig, "header"},
	} {
		t.Run(name, func(t *testing.T) {
			checkRefusal(t, kubeconfigtest.New(t, kubeconfigtest.Server, tc.change), tc.reason, tc.says)
		})
	}
	for name, tc := range map[string]struct{ data, says string }{
		"empty":          {" \n", "empty"},
		"not YAML":       {"apiVersion: v1\nkind: Config\nusers: [" + kubeconfigtest.Token, "line 3"},
		"not base64":     {"apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {certificate-authority-data: " + kubeconfigtest.Token + "}}]", "does not parse"},
		"a map as a key": {"{{token: " + kubeconfigtest.Token + "}: 1}", "does not parse"},
		"another kind":   {"apiVersion: v1\nkind: Secret", "does not parse"},
		"too large":      {strings.Repeat("#\n", MaxKubeconfig), "more than 1048576"},
	} {
		t.Run(name, func(t *testing.T) { checkRefusal(t, []byte(tc.data), connection.InvalidKubeconfig, tc.says) })
	}
}

func checkRefusal(t *testing.T, data []byte, reason connection.Reason, says string) {
	t.Helper()
	cfg, refusal := ParseKubeconfig(data, Allowed{})
	switch {
	case cfg != nil || refusal == nil:
		t.Fatalf("accepted: %+v", cfg)
	case refusal.Reason != reason || !strings.Contains(refusal.Message, says):
		t.Errorf("refused as %v, want %s with %q", refusal, reason, says)
	case strings.Contains(refusal.Message, kubeconfigtest.Token):
		t.Errorf("message repeats a secret: %q", refusal.Message)
	case len(refusal.Message) > message.MaxBytes:
		t.Errorf("message has %d characters", len(refusal.Message))
	}
}

func TestParseKubeconfig_MessagesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	checkRefusal(t, kubeconfigtest.New(t, kubeconfigtest.Server, func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.CurrentContext = long
	}), connection.InvalidKubeconfig, "xxx")
	checkRefusal(t, kubeconfigtest.New(t, "http://"+long, nil), connection.PlainHTTP, "xxx")
}

func TestParseKubeconfig_Accepted(t *testing.T) {
	ca, key := kubeconfigtest.KeyPair()
	// What other contexts hold does not matter.
	data := kubeconfigtest.New(t, kubeconfigtest.Server, func(c *clientcmdapi.Config, cluster *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		cluster.TLSServerName = "example.com"
		u.ClientCertificateData, u.ClientKeyData = ca, key
		c.Clusters["bad"] = &clientcmdapi.Cluster{Server: "http://bad", InsecureSkipTLSVerify: true, ProxyURL: "http://bad"}
		c.AuthInfos["bad"] = &clientcmdapi.AuthInfo{TokenFile: "/etc/passwd", Impersonate: "root"}
		c.Contexts["bad"] = &clientcmdapi.Context{Cluster: "bad", AuthInfo: "bad"}
	})
	cfg, refusal := ParseKubeconfig(data, Allowed{})
	if refusal != nil {
		t.Fatal(refusal)
	}
	if cfg.Host != kubeconfigtest.Server || cfg.ServerName != "example.com" || cfg.BearerToken != kubeconfigtest.Token ||
		!bytes.Equal(cfg.CAData, ca) || !bytes.Equal(cfg.CertData, ca) || !bytes.Equal(cfg.KeyData, key) {
		t.Errorf("lost something: %+v", cfg)
	}
	if cfg.QPS >= 0 || cfg.UserAgent != UserAgent || cfg.ContentType != "" {
		t.Errorf("QPS %v, user agent %q, content type %q", cfg.QPS, cfg.UserAgent, cfg.ContentType)
	}
}

func FuzzParseKubeconfig(f *testing.F) {
	f.Add(kubeconfigtest.New(f, kubeconfigtest.Server, nil))
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: /ca}}]\nusers: [{name: u, user: {exec: {command: x}}}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, refusal := ParseKubeconfig(data, Allowed{})
		if (cfg == nil) == (refusal == nil) {
			t.Fatalf("neither accepted nor refused: %v, %v", cfg, refusal)
		}
		if refusal != nil {
			if len(refusal.Message) > message.MaxBytes {
				t.Errorf("message has %d bytes", len(refusal.Message))
			}
			return
		}
		u, err := url.Parse(cfg.Host)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			t.Errorf("host %q", cfg.Host)
		}
		if len(cfg.CAData) == 0 || cfg.Insecure || cfg.ExecProvider != nil || cfg.AuthProvider != nil || cfg.Proxy != nil ||
			cfg.CAFile+cfg.CertFile+cfg.KeyFile+cfg.BearerTokenFile != "" || cfg.Impersonate.UserName+cfg.Impersonate.UID != "" ||
			len(cfg.Impersonate.Groups)+len(cfg.Impersonate.Extra) > 0 {
			t.Errorf("accepted %+v", cfg)
		}
		if _, err := NewHTTPClient(cfg, TransportOptions{}); err != nil {
			t.Errorf("no transport for what was accepted: %v", err)
		}
	})
}
