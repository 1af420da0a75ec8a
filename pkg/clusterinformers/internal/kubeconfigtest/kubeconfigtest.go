// Package kubeconfigtest makes kubeconfigs for tests.
package kubeconfigtest

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Token is the secret of the kubeconfigs, also wherever a bad one may hold a secret.
const Token = "s3cr3t"

// KeyPair returns a certificate for 127.0.0.1 and example.com that is its own
// authority, and its key, as PEM.
var KeyPair = sync.OnceValues(func() (cert, key []byte) {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	der, err := x509.MarshalPKCS8PrivateKey(srv.TLS.Certificates[0].PrivateKey)
	if err != nil {
		panic(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
})

// New returns a good kubeconfig for a server, as changed.
func New(tb testing.TB, server string, change func(*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	tb.Helper()
	ca, _ := KeyPair()
	c := clientcmdapi.NewConfig()
	cluster := &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	user := &clientcmdapi.AuthInfo{Token: Token}
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

// Server is a URL that is accepted.
const Server = "https://api.example.com:6443/k8s/clusters/c-1"
