package kube

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Credentials identify a user by a client certificate or a bearer token.
type Credentials struct {
	Cert, Key []byte // PEM
	Token     string
}

// IssueCert returns a client certificate that makes its bearer the user, in
// the groups, for the given time. A ttl in the past is allowed.
func (c *ControlPlane) IssueCert(user string, ttl time.Duration, groups ...string) (Credentials, error) {
	pair, err := c.pki.ca.client(user, groups, time.Now().Add(ttl))
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{Cert: pair.cert, Key: pair.key}, nil
}

// IssueToken returns a service account's token, creating the account in an
// existing namespace if it is missing. The API server allows no ttl below ten
// minutes; deleting the account revokes the token sooner.
func (c *ControlPlane) IssueToken(ctx context.Context, namespace, account string, ttl time.Duration) (Credentials, error) {
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return Credentials{}, fmt.Errorf("%s: create service account: %w", c.Name, err)
	}
	seconds := int64(ttl.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	token, err := accounts.CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return Credentials{}, fmt.Errorf("%s: create token: %w", c.Name, err)
	}
	return Credentials{Token: token.Status.Token}, nil
}

// Client returns an administrator's client that goes around the proxy. Its
// connections are closed by Fleet.Stop.
func (c *ControlPlane) Client() kubernetes.Interface { return c.client }

// RESTConfig returns an administrator's configuration, through the proxy and
// without a client-side rate limit.
func (c *ControlPlane) RESTConfig() *rest.Config { return c.restConfig(c.Proxy.Addr(), c.admin) }

// DirectRESTConfig is RESTConfig around the proxy.
func (c *ControlPlane) DirectRESTConfig() *rest.Config { return c.restConfig(c.addr, c.admin) }

// RESTConfigWith is RESTConfig for somebody else.
func (c *ControlPlane) RESTConfigWith(cred Credentials) *rest.Config {
	return c.restConfig(c.Proxy.Addr(), cred)
}

func (c *ControlPlane) restConfig(addr string, cred Credentials) *rest.Config {
	return &rest.Config{
		Host:        "https://" + addr,
		BearerToken: cred.Token,
		QPS:         -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.pki.ca.pem, CertData: cred.Cert, KeyData: cred.Key,
		},
	}
}

// Kubeconfig returns an administrator's kubeconfig, through the proxy.
func (c *ControlPlane) Kubeconfig() []byte { return c.kubeconfig(c.Proxy.Addr(), c.admin) }

// KubeconfigWith returns a kubeconfig with the credentials, through the proxy.
func (c *ControlPlane) KubeconfigWith(cred Credentials) []byte {
	return c.kubeconfig(c.Proxy.Addr(), cred)
}

// KubeconfigFor returns a kubeconfig for a user in groups, valid for a day.
func (c *ControlPlane) KubeconfigFor(user string, groups ...string) ([]byte, error) {
	cred, err := c.IssueCert(user, 24*time.Hour, groups...)
	if err != nil {
		return nil, err
	}
	return c.KubeconfigWith(cred), nil
}

// KubeconfigFile returns the path of a file with what Kubeconfig returns.
func (c *ControlPlane) KubeconfigFile() string { return filepath.Join(c.Dir, "kubeconfig") }

func (c *ControlPlane) kubeconfig(addr string, cred Credentials) []byte {
	config := clientcmdapi.NewConfig()
	config.Clusters[c.Name] = &clientcmdapi.Cluster{Server: "https://" + addr, CertificateAuthorityData: c.pki.ca.pem}
	config.AuthInfos[c.Name] = &clientcmdapi.AuthInfo{ClientCertificateData: cred.Cert, ClientKeyData: cred.Key, Token: cred.Token}
	config.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: c.Name}
	config.CurrentContext = c.Name
	data, err := clientcmd.Write(*config)
	if err != nil {
		panic(fmt.Sprintf("encode a kubeconfig: %v", err)) // nothing in it can fail to encode
	}
	return data
}
