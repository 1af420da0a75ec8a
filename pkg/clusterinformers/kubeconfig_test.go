package clusterinformers

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// secret stands in every place of the bad kubeconfigs where a secret may stand.
const secretToken = "s3cr3t"

// pair returns a certificate for 127.0.0.1 and example.com that is its own
// authority, and its key, as PEM.
var pair = sync.OnceValues(func() (cert, key []byte) {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	der, err := x509.MarshalPKCS8PrivateKey(srv.TLS.Certificates[0].PrivateKey)
	if err != nil {
		panic(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
})

// kubeconfigOf returns a good kubeconfig for a server, as changed.
func kubeconfigOf(tb testing.TB, server string, change func(*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	tb.Helper()
	ca, _ := pair()
	c := clientcmdapi.NewConfig()
	cluster := &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	user := &clientcmdapi.AuthInfo{Token: secretToken}
	c.Clusters["c"], c.AuthInfos["u"] = cluster, user
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	if change != nil {
		change(c, cluster, user)
	}
	data, err := clientcmd.Write(*c)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

const goodServer = "https://api.example.com:6443/k8s/clusters/c-1"

func TestKubeconfigRefusals(t *testing.T) {
	ca, key := pair()
	for name, tc := range map[string]struct {
		change func(*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
		reason Reason
		says   string
	}{
		"exec": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/evil", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never", Env: []clientcmdapi.ExecEnvVar{{Name: "A", Value: secretToken}}}
		}, ExecPlugin, "/bin/evil"},
		"auth provider": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc", Config: map[string]string{"id-token": secretToken}}
		}, AuthProvider, "oidc"},
		"certificate-authority": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthority = "/etc/ca"
		}, FilePath, "certificate-authority"},
		"client-certificate": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificate = "/etc/crt"
		}, FilePath, "client-certificate"},
		"client-key": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientKey = "/etc/key"
		}, FilePath, "client-key"},
		"tokenFile": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.TokenFile = "/etc/token"
		}, FilePath, "tokenFile"},
		"proxy-url": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = "http://u:" + secretToken + "@proxy:3128"
		}, ProxyURL, "proxy-url"},
		"as": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Impersonate = "root"
		}, Impersonation, "user.as is"},
		"as-uid": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ImpersonateUID = "0"
		}, Impersonation, "as-uid"},
		"as-groups": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ImpersonateGroups = []string{"system:masters"}
		}, Impersonation, "as-groups"},
		"as-user-extra": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ImpersonateUserExtra = map[string][]string{"scopes": {"all"}}
		}, Impersonation, "as-user-extra"},
		"http": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "HTTP://api.example.com:8080"
		}, PlainHTTP, "api.example.com:8080"},
		"no CA": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = nil
		}, NoCA, "certificate-authority-data is not set"},
		"CA without certificate": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = key
		}, NoCA, "holds no certificate"},
		"insecure": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		}, InsecureTLS, "insecure-skip-tls-verify"},
		"insecure with CA": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify = true
		}, InsecureTLS, "insecure-skip-tls-verify"},
		"userinfo": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://admin:" + secretToken + "@api.example.com"
		}, InvalidKubeconfig, "user name"},
		"query": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://api.example.com/?k=" + secretToken
		}, InvalidKubeconfig, "query"},
		"empty query": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://api.example.com/?"
		}, InvalidKubeconfig, "query"},
		"fragment": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://api.example.com/#" + secretToken
		}, InvalidKubeconfig, "fragment"},
		"no server": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = ""
		}, InvalidKubeconfig, "server is not set"},
		"server without scheme": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "api.example.com"
		}, InvalidKubeconfig, "not a URL"},
		"server of another scheme": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "unix:///var/run/docker.sock"
		}, InvalidKubeconfig, "not a URL"},
		"host of another scheme": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "ftp://api.example.com"
		}, InvalidKubeconfig, "not a URL"},
		"server that does not parse": {func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://" + secretToken + "%zz"
		}, InvalidKubeconfig, "not a URL"},
		"no current context": {func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CurrentContext = ""
		}, InvalidKubeconfig, "current-context is not set"},
		"unknown context": {func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CurrentContext = "other"
		}, InvalidKubeconfig, `"other"`},
		"unknown cluster": {func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			delete(c.Clusters, "c")
		}, InvalidKubeconfig, `no cluster "c"`},
		"unknown user": {func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			delete(c.AuthInfos, "u")
		}, InvalidKubeconfig, `no user "u"`},
		"certificate without key": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData = ca
		}, InvalidKubeconfig, "both are needed"},
		"certificate and key that do not parse": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = ca, []byte(secretToken)
		}, InvalidKubeconfig, "not a pair"},
		"token and password": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Username, u.Password = "admin", secretToken
		}, InvalidKubeconfig, "only one"},
		"token with a line break": {func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token = "a\r\nImpersonate-User: " + secretToken
		}, InvalidKubeconfig, "header"},
	} {
		t.Run(name, func(t *testing.T) {
			checkRefusal(t, kubeconfigOf(t, goodServer, tc.change), tc.reason, tc.says)
		})
	}
	for name, tc := range map[string]struct{ data, says string }{
		"empty":          {" \n", "empty"},
		"not YAML":       {"apiVersion: v1\nkind: Config\nusers: [" + secretToken, "line 3"},
		"not base64":     {"apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {certificate-authority-data: " + secretToken + "}}]", "does not parse"},
		"a map as a key": {"{{token: " + secretToken + "}: 1}", "does not parse"},
		"another kind":   {"apiVersion: v1\nkind: Secret", "does not parse"},
		"too large":      {strings.Repeat("#\n", maxKubeconfig), "more than 1048576"},
	} {
		t.Run(name, func(t *testing.T) { checkRefusal(t, []byte(tc.data), InvalidKubeconfig, tc.says) })
	}
}

func checkRefusal(t *testing.T, data []byte, reason Reason, says string) {
	t.Helper()
	cfg, refusal := parseKubeconfig(data, false)
	switch {
	case cfg != nil || refusal == nil:
		t.Fatalf("accepted: %+v", cfg)
	case refusal.Reason != reason || !strings.Contains(refusal.Message, says):
		t.Errorf("refused as %v, want %s with %q", refusal, reason, says)
	case strings.Contains(refusal.Message, secretToken):
		t.Errorf("message repeats a secret: %q", refusal.Message)
	case len([]rune(refusal.Message)) > maxMessage:
		t.Errorf("message has %d characters", len(refusal.Message))
	}
}

func TestKubeconfigMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	checkRefusal(t, kubeconfigOf(t, goodServer, func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.CurrentContext = long
	}), InvalidKubeconfig, "xxx")
	checkRefusal(t, kubeconfigOf(t, "http://"+long, nil), PlainHTTP, "xxx")
}

func TestKubeconfigAccepted(t *testing.T) {
	ca, key := pair()
	// What other contexts hold does not matter.
	data := kubeconfigOf(t, goodServer, func(c *clientcmdapi.Config, cluster *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		cluster.TLSServerName = "example.com"
		u.ClientCertificateData, u.ClientKeyData = ca, key
		c.Clusters["bad"] = &clientcmdapi.Cluster{Server: "http://bad", InsecureSkipTLSVerify: true, ProxyURL: "http://bad"}
		c.AuthInfos["bad"] = &clientcmdapi.AuthInfo{TokenFile: "/etc/passwd", Impersonate: "root"}
		c.Contexts["bad"] = &clientcmdapi.Context{Cluster: "bad", AuthInfo: "bad"}
	})
	cfg, refusal := parseKubeconfig(data, false)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if cfg.Host != goodServer || cfg.ServerName != "example.com" || cfg.BearerToken != secretToken ||
		!bytes.Equal(cfg.CAData, ca) || !bytes.Equal(cfg.CertData, ca) || !bytes.Equal(cfg.KeyData, key) {
		t.Errorf("lost something: %+v", cfg)
	}
	if cfg.QPS >= 0 || cfg.UserAgent != userAgent || cfg.ContentType != "" {
		t.Errorf("QPS %v, user agent %q, content type %q", cfg.QPS, cfg.UserAgent, cfg.ContentType)
	}
}

func FuzzParseKubeconfig(f *testing.F) {
	f.Add(kubeconfigOf(f, goodServer, nil))
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: /ca}}]\nusers: [{name: u, user: {exec: {command: x}}}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, refusal := parseKubeconfig(data, false)
		if (cfg == nil) == (refusal == nil) {
			t.Fatalf("neither accepted nor refused: %v, %v", cfg, refusal)
		}
		if refusal != nil {
			if len([]rune(refusal.Message)) > maxMessage {
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
		if _, err := newTransport(cfg, transportOptions{}); err != nil {
			t.Errorf("no transport for what was accepted: %v", err)
		}
	})
}
