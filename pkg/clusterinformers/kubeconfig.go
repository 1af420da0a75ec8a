package clusterinformers

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"regexp"

	"golang.org/x/net/http/httpguts"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxKubeconfig bounds a kubeconfig in bytes: that of a Secret.
const maxKubeconfig = 1 << 20

// userAgent is what members see in their audit logs.
const userAgent = "federator/0.1"

// parseKubeconfig judges a kubeconfig by law 9 and returns how to reach its
// current context's cluster, or why that is refused. Other contexts, clusters
// and users are not looked at. Messages name what is wrong and where, and never
// repeat a value that may be secret. Nobody is trusted with more here: what a
// trusted kubeconfig may do besides is decided when its address is dialled.
//
// A person's own context may run an exec plugin, and skip the verification of TLS.
func parseKubeconfig(data []byte, own bool) (*rest.Config, *Refusal) {
	cluster, user, refusal := currentContext(data)
	if refusal != nil {
		return nil, refusal
	}
	var plugin *clientcmdapi.ExecConfig
	insecure := false
	if own {
		plugin, user.Exec = user.Exec, nil
		if insecure, cluster.InsecureSkipTLSVerify = cluster.InsecureSkipTLSVerify, false; insecure {
			cluster.CertificateAuthorityData = nil
		}
	}
	judges := []func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) *Refusal{
		judgePlugins, judgePaths, judgeDetours, judgeServer, judgeCredentials,
	}
	if !insecure {
		judges = append(judges, judgeTrust)
	}
	for _, judge := range judges {
		if refusal := judge(cluster, user); refusal != nil {
			return nil, refusal
		}
	}
	// Built field by field, not by clientcmd, which would add what the
	// environment says.
	if plugin != nil {
		plugin.StdinUnavailable = true
		plugin.StdinUnavailableMessage = "federator has nobody to ask"
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
		UserAgent:          userAgent,
		DisableCompression: true,
		QPS:                -1, // who calls bounds itself
	}, nil
}

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, clip(fmt.Sprintf(format, args...))}
}

// atLine finds the one part of a parser's message that cannot hold a secret.
var atLine = regexp.MustCompile(`\bline \d{1,9}\b`)

// currentContext returns the cluster and the user that a kubeconfig's current
// context names.
func currentContext(data []byte) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, *Refusal) {
	fail := func(format string, args ...any) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, *Refusal) {
		return nil, nil, refuse(InvalidKubeconfig, format, args...)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return fail("the kubeconfig is empty")
	}
	if len(data) > maxKubeconfig {
		return fail("the kubeconfig has %d bytes, more than %d", len(data), maxKubeconfig)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		at := ""
		if line := atLine.FindString(err.Error()); line != "" {
			at = " (" + line + ")"
		}
		return fail("it does not parse as a kubeconfig%s", at)
	}
	if config.CurrentContext == "" {
		return fail("current-context is not set")
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil {
		return fail("there is no context %q, which current-context names", clip(config.CurrentContext))
	}
	cluster := config.Clusters[context.Cluster]
	if cluster == nil {
		return fail("there is no cluster %q, which the current context names", clip(context.Cluster))
	}
	user := config.AuthInfos[context.AuthInfo]
	if user == nil {
		return fail("there is no user %q, which the current context names", clip(context.AuthInfo))
	}
	return cluster, user, nil
}

func judgePlugins(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *Refusal {
	if user.Exec != nil {
		return refuse(ExecPlugin, "user.exec runs a command, here %q", clip(user.Exec.Command))
	}
	if user.AuthProvider != nil {
		return refuse(AuthProvider, "user.auth-provider asks for plugin %q", clip(user.AuthProvider.Name))
	}
	return nil
}

func judgePaths(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *Refusal {
	for _, f := range []struct{ field, path, instead string }{
		{"cluster.certificate-authority", cluster.CertificateAuthority, "certificate-authority-data"},
		{"user.client-certificate", user.ClientCertificate, "client-certificate-data"},
		{"user.client-key", user.ClientKey, "client-key-data"},
		{"user.tokenFile", user.TokenFile, "token"},
	} {
		if f.path != "" {
			return refuse(FilePath, "%s names a file; only %s is accepted", f.field, f.instead)
		}
	}
	return nil
}

// judgeDetours refuses what would send requests elsewhere or as somebody else.
func judgeDetours(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *Refusal {
	if cluster.ProxyURL != "" {
		return refuse(ProxyURL, "cluster.proxy-url is set") // it may hold a password
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
			return refuse(Impersonation, "user.%s is set", f.field)
		}
	}
	return nil
}

func judgeServer(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) *Refusal {
	u, err := url.Parse(cluster.Server)
	switch {
	case cluster.Server == "":
		return refuse(InvalidKubeconfig, "cluster.server is not set")
	case err != nil: // which repeats the URL
		return refuse(InvalidKubeconfig, "cluster.server is not a URL such as https://host:6443")
	case u.User != nil:
		return refuse(InvalidKubeconfig, "cluster.server holds a user name or password")
	case u.Scheme == "http":
		return refuse(PlainHTTP, "cluster.server is http://%s; only https is accepted", clip(u.Host))
	case u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return refuse(InvalidKubeconfig, "cluster.server is not a URL such as https://host:6443")
	case u.RawQuery != "" || u.ForceQuery:
		return refuse(InvalidKubeconfig, "cluster.server has a query")
	case u.Fragment != "":
		return refuse(InvalidKubeconfig, "cluster.server has a fragment")
	}
	return nil
}

func judgeTrust(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) *Refusal {
	if cluster.InsecureSkipTLSVerify {
		return refuse(InsecureTLS, "cluster.insecure-skip-tls-verify is set")
	}
	if len(cluster.CertificateAuthorityData) == 0 {
		return refuse(NoCA, "cluster.certificate-authority-data is not set")
	}
	if !x509.NewCertPool().AppendCertsFromPEM(cluster.CertificateAuthorityData) {
		return refuse(NoCA, "cluster.certificate-authority-data holds no certificate")
	}
	return nil
}

func judgeCredentials(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *Refusal {
	cert, key := len(user.ClientCertificateData) > 0, len(user.ClientKeyData) > 0
	basic := user.Username != "" || user.Password != ""
	switch {
	case cert != key:
		return refuse(InvalidKubeconfig, "user has one of client-certificate-data and client-key-data; both are needed")
	case user.Token != "" && basic:
		return refuse(InvalidKubeconfig, "user has a token and a username or password; only one is accepted")
	case !httpguts.ValidHeaderFieldValue(user.Token):
		return refuse(InvalidKubeconfig, "user.token holds characters that a header cannot carry")
	}
	if cert {
		if _, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData); err != nil {
			return refuse(InvalidKubeconfig, "user.client-certificate-data and client-key-data are not a pair of certificate and key")
		}
	}
	return nil
}
