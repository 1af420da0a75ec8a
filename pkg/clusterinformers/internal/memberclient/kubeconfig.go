package memberclient

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"regexp"

	"golang.org/x/net/http/httpguts"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// MaxKubeconfig bounds a kubeconfig in bytes: that of a Secret.
const MaxKubeconfig = 1 << 20

// UserAgent is what members see in their audit logs.
const UserAgent = "federator/0.1"

// Allowed is what a kubeconfig may ask for beyond the rules for kubeconfigs of a hub.
type Allowed struct {
	Plugin   bool // to run an exec plugin
	Insecure bool // to skip the verification of TLS
}

// Own is what a person's own kubeconfig may ask for.
func Own() Allowed { return Allowed{Plugin: true, Insecure: true} }

// execExtension is the extension of a cluster that client-go hands to an exec plugin, as
// ExecCredential's spec.cluster.config.
const execExtension = "client.authentication.k8s.io/exec"

// ParseKubeconfig checks a kubeconfig by the rules for kubeconfigs of a hub, and
// returns how to reach its current context's cluster, or why that is refused. Other
// contexts, clusters and users are ignored. Messages name what is wrong and where, and
// never repeat a value that may be secret. Nobody is trusted with more here: what a
// trusted kubeconfig may do besides is decided when its address is dialled.
//
// What is allowed beyond the rules is up to the caller.
func ParseKubeconfig(data []byte, allowed Allowed) (*rest.Config, *connection.Refusal) {
	cluster, user, refusal := currentContext(data)
	if refusal != nil {
		return nil, refusal
	}
	var plugin *clientcmdapi.ExecConfig
	insecure := false
	if allowed.Plugin {
		plugin, user.Exec = user.Exec, nil
	}
	if allowed.Insecure {
		if insecure, cluster.InsecureSkipTLSVerify = cluster.InsecureSkipTLSVerify, false; insecure {
			cluster.CertificateAuthorityData = nil
		}
	}
	checks := []func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) *connection.Refusal{
		checkPlugins, checkPaths, checkRouting, checkServer, checkCredentials,
	}
	if !insecure {
		checks = append(checks, checkCA)
	}
	for _, check := range checks {
		if refusal := check(cluster, user); refusal != nil {
			return nil, refusal
		}
	}
	// Built field by field, not by clientcmd, which would add what the
	// environment says.
	if plugin != nil {
		plugin.Config = cluster.Extensions[execExtension]
		plugin.StdinUnavailable = true
		plugin.StdinUnavailableMessage = "federator runs without a terminal"
	}
	return &rest.Config{
		ExecProvider: plugin,
		Host:         cluster.Server,
		BearerToken:  user.Token,
		Username:     user.Username,
		Password:     user.Password,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure:   insecure,
			ServerName: cluster.TLSServerName,
			CAData:     cluster.CertificateAuthorityData,
			CertData:   user.ClientCertificateData,
			KeyData:    user.ClientKeyData,
		},
		UserAgent:          UserAgent,
		DisableCompression: true,
		QPS:                -1, // who calls bounds itself
	}, nil
}

// lineNumber finds the one part of a parser's message that cannot hold a secret.
var lineNumber = regexp.MustCompile(`\bline \d{1,9}\b`)

// currentContext returns the cluster and the user that a kubeconfig's current
// context names.
func currentContext(data []byte) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, *connection.Refusal) {
	fail := func(format string, args ...any) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, *connection.Refusal) {
		return nil, nil, connection.Refuse(connection.InvalidKubeconfig, format, args...)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return fail("the kubeconfig is empty")
	}
	if len(data) > MaxKubeconfig {
		return fail("the kubeconfig has %d bytes, more than %d", len(data), MaxKubeconfig)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		at := ""
		if line := lineNumber.FindString(err.Error()); line != "" {
			at = " (" + line + ")"
		}
		return fail("it does not parse as a kubeconfig%s", at)
	}
	if config.CurrentContext == "" {
		return fail("current-context is not set")
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil {
		return fail("there is no context %q, which current-context names", message.Clip(config.CurrentContext))
	}
	cluster := config.Clusters[context.Cluster]
	if cluster == nil {
		return fail("there is no cluster %q, which the current context names", message.Clip(context.Cluster))
	}
	user := config.AuthInfos[context.AuthInfo]
	if user == nil {
		return fail("there is no user %q, which the current context names", message.Clip(context.AuthInfo))
	}
	return cluster, user, nil
}

func checkPlugins(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *connection.Refusal {
	if user.Exec != nil {
		return connection.Refuse(connection.ExecPlugin, "user.exec runs a command, here %q", message.Clip(user.Exec.Command))
	}
	if user.AuthProvider != nil {
		return connection.Refuse(connection.AuthProvider, "user.auth-provider requires plugin %q", message.Clip(user.AuthProvider.Name))
	}
	return nil
}

func checkPaths(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *connection.Refusal {
	for _, f := range []struct{ field, path, instead string }{
		{"cluster.certificate-authority", cluster.CertificateAuthority, "certificate-authority-data"},
		{"user.client-certificate", user.ClientCertificate, "client-certificate-data"},
		{"user.client-key", user.ClientKey, "client-key-data"},
		{"user.tokenFile", user.TokenFile, "token"},
	} {
		if f.path != "" {
			return connection.Refuse(connection.FilePath, "%s names a file; only %s is accepted", f.field, f.instead)
		}
	}
	return nil
}

// checkRouting refuses what would send requests elsewhere or as another user.
func checkRouting(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *connection.Refusal {
	if cluster.ProxyURL != "" {
		return connection.Refuse(connection.ProxyURL, "cluster.proxy-url is set") // it may hold a password
	}
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"as", user.Impersonate != ""},
		{"as-uid", user.ImpersonateUID != ""},
		{"as-groups", len(user.ImpersonateGroups) > 0},
		{"as-user-extra", len(user.ImpersonateUserExtra) > 0},
	} {
		if f.set {
			return connection.Refuse(connection.Impersonation, "user.%s is set", f.field)
		}
	}
	return nil
}

func checkServer(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) *connection.Refusal {
	u, err := url.Parse(cluster.Server)
	switch {
	case cluster.Server == "":
		return connection.Refuse(connection.InvalidKubeconfig, "cluster.server is not set")
	case err != nil: // which repeats the URL
		return connection.Refuse(connection.InvalidKubeconfig, "cluster.server is not a URL such as https://host:6443")
	case u.User != nil:
		return connection.Refuse(connection.InvalidKubeconfig, "cluster.server holds a user name or password")
	case u.Scheme == "http":
		return connection.Refuse(connection.PlainHTTP, "cluster.server is http://%s; only https is accepted", message.Clip(u.Host))
	case u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return connection.Refuse(connection.InvalidKubeconfig, "cluster.server is not a URL such as https://host:6443")
	case u.RawQuery != "" || u.ForceQuery:
		return connection.Refuse(connection.InvalidKubeconfig, "cluster.server has a query")
	case u.Fragment != "":
		return connection.Refuse(connection.InvalidKubeconfig, "cluster.server has a fragment")
	}
	return nil
}

func checkCA(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) *connection.Refusal {
	if cluster.InsecureSkipTLSVerify {
		return connection.Refuse(connection.InsecureTLS, "cluster.insecure-skip-tls-verify is set")
	}
	if len(cluster.CertificateAuthorityData) == 0 {
		return connection.Refuse(connection.NoCA, "cluster.certificate-authority-data is not set")
	}
	if !x509.NewCertPool().AppendCertsFromPEM(cluster.CertificateAuthorityData) {
		return connection.Refuse(connection.NoCA, "cluster.certificate-authority-data holds no certificate")
	}
	return nil
}

func checkCredentials(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *connection.Refusal {
	cert, key := len(user.ClientCertificateData) > 0, len(user.ClientKeyData) > 0
	basic := user.Username != "" || user.Password != ""
	switch {
	case cert != key:
		return connection.Refuse(connection.InvalidKubeconfig, "user has one of client-certificate-data and client-key-data; both are needed")
	case user.Token != "" && basic:
		return connection.Refuse(connection.InvalidKubeconfig, "user has a token and a username or password; only one is accepted")
	case !httpguts.ValidHeaderFieldValue(user.Token):
		return connection.Refuse(connection.InvalidKubeconfig, "user.token contains characters that are invalid in an HTTP header")
	}
	if cert {
		if _, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData); err != nil {
			return connection.Refuse(connection.InvalidKubeconfig, "user.client-certificate-data and client-key-data are not a pair of certificate and key")
		}
	}
	return nil
}
