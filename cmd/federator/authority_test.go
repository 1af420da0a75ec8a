package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/cmd/federator/revisions"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/internal/kubeconfigfile"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/kube"
)

// signer is a certificate with its key, and the one that has signed it.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	by   *signer // nil: itself
}

func (s *signer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})
}

// sign makes a certificate: of an authority, or of a server of these names.
func sign(t *testing.T, by *signer, name string, hosts ...string) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if len(hosts) == 0 {
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
	}
	s := &signer{key: key, by: by}
	parent, with := template, key
	if by != nil {
		parent, with = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, with)
	if err != nil {
		t.Fatal(err)
	}
	if s.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return s
}

// queryServer is a server with a certificate, that counts what it is sent.
type queryServer struct {
	url      string
	requests atomic.Int32
	tokens   atomic.Int32
}

// serveAs serves with a chain, without its root, until the test ends.
func serveAs(t *testing.T, leaf *signer) *queryServer {
	t.Helper()
	q := &queryServer{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q.requests.Add(1)
		if r.Header.Get("Authorization") != "" {
			q.tokens.Add(1)
		}
		fmt.Fprint(w, `{"items": [{"name": "fleet/one"}]}`)
	}))
	chain := tls.Certificate{PrivateKey: leaf.key}
	for c := leaf; c != nil && (c == leaf || c.by != nil); c = c.by {
		chain.Certificate = append(chain.Certificate, c.cert.Raw)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{chain}, MinVersion: tls.VersionTLS12}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes are refused
	s.StartTLS()
	t.Cleanup(s.Close)
	q.url = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	return q
}

// chartAuthority is found on the hub, in whichever namespace it is.
func chartAuthority(t *testing.T, hub *kube.Hub) {
	secret := func(namespace string, data map[string]string, labels map[string]string) {
		t.Helper()
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "federator-tls", Labels: labels}, Type: corev1.SecretTypeTLS, StringData: data}
		if _, err := hub.Client().CoreV1().Secrets(namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	root, alone := sign(t, nil, "root"), sign(t, nil, "localhost", "localhost")
	leaf := sign(t, sign(t, sign(t, root, "between"), "below"), "localhost", "localhost")
	other, unlabelled := sign(t, nil, "other"), sign(t, nil, "unlabelled")
	for _, ns := range []string{"a-empty", "b-other", "c-chart", "d-alone", "e-leaf", "f-unlabelled"} {
		if err := hub.Apply(t.Context(), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+ns+"}}")); err != nil {
			t.Fatal(err)
		}
	}
	charts := map[string]string{"app.kubernetes.io/name": "renamed", "app.kubernetes.io/part-of": "federator"}
	secret("a-empty", map[string]string{"tls.crt": "", "tls.key": ""}, charts)
	secret("b-other", map[string]string{"ca.crt": string(other.pem()), "tls.crt": string(sign(t, other, "o", "localhost").pem()), "tls.key": "k"}, charts)
	secret("c-chart", map[string]string{"ca.crt": string(root.pem()), "tls.crt": string(leaf.pem()), "tls.key": "k"}, charts)
	secret("d-alone", map[string]string{"tls.crt": string(alone.pem()), "tls.key": "k"}, charts)
	stranger := sign(t, sign(t, nil, "unknown"), "localhost", "localhost")
	secret("e-leaf", map[string]string{"tls.crt": string(stranger.pem()), "tls.key": "k"}, charts)
	secret("f-unlabelled", map[string]string{"ca.crt": string(unlabelled.pem()), "tls.crt": "c", "tls.key": "k"}, nil)

	admin := clitest.WriteFile(t, "hub", string(hub.Kubeconfig()))
	token := clitest.WriteFile(t, "token", "secret-token\n")
	kubeconfig := func(server string, more ...string) (string, error) {
		t.Helper()
		return command(t, append([]string{"kubeconfig", "--server", server, "--hub-kubeconfig", admin, "--token-file", token}, more...)...)
	}
	for name, c := range map[string]struct {
		leaf  *signer
		trust *signer
		args  []string
	}{
		"ca.crt, over intermediates":      {leaf, root, nil},
		"ca.crt, in one namespace":        {leaf, root, []string{"--namespace", "c-chart"}},
		"a certificate that signs itself": {alone, alone, nil},
	} {
		t.Run(name, func(t *testing.T) {
			server := serveAs(t, c.leaf)
			out, err := kubeconfig(server.url, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.Load([]byte(out))
			if err != nil {
				t.Fatal(err)
			}
			for _, context := range []string{"fleet", "flat", "fleet/one"} {
				if cluster := config.Clusters[context]; cluster == nil || string(cluster.CertificateAuthorityData) != string(c.trust.pem()) {
					t.Errorf("context %s: %+v", context, cluster)
				}
			}
			if server.tokens.Load() != 1 || server.requests.Load() != 1 {
				t.Errorf("%d requests, %d tokens", server.requests.Load(), server.tokens.Load())
			}
		})
	}

	restricted, err := hub.KubeconfigFor("ann")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		leaf *signer
		args []string
		want []string
	}{
		"nobody has signed it that is known": {stranger, nil, []string{
			"CAs of this system: x509", "a-empty/federator-tls of the hub: no ca.crt", "b-other/federator-tls of the hub: x509", "c-chart/federator-tls",
			`e-leaf/federator-tls of the hub: no ca.crt, and tls.crt was signed by "CN=unknown"`, "federator/kubeconfig.ca.crt: ", "--certificate-authority",
		}},
		"it is in a Secret without the label": {sign(t, unlabelled, "s", "localhost"), nil, []string{"--certificate-authority"}},
		"it is in another namespace":          {leaf, []string{"-n", "b-other"}, []string{"b-other/federator-tls"}},
		"the namespace has none":              {leaf, []string{"-n", "default"}, []string{"in namespace default: not found"}},
		"the hub refuses":                     {leaf, []string{"--hub-kubeconfig", clitest.WriteFile(t, "ann", string(restricted))}, []string{"forbidden", "--namespace"}},
		"there is no hub":                     {leaf, []string{"--hub-kubeconfig", "absent"}, []string{"Secrets of the hub with label app.kubernetes.io/part-of=federator: hub: "}},
	} {
		t.Run(name, func(t *testing.T) {
			server := serveAs(t, c.leaf)
			_, err := kubeconfig(server.url, c.args...)
			if err == nil || !strings.Contains(err.Error(), "no known CA verifies the server's certificate") {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant %q", err, want)
				}
			}
			if n := server.requests.Load(); n != 0 {
				t.Errorf("a server that nothing verifies is sent %d requests", n)
			}
		})
	}
	t.Run("it is for another name", func(t *testing.T) {
		server := serveAs(t, leaf)
		_, err := kubeconfig(strings.Replace(server.url, "localhost", "127.0.0.1", 1))
		var name x509.HostnameError
		if !errors.As(err, &name) || server.requests.Load() != 0 {
			t.Errorf("%v, after %d requests", err, server.requests.Load())
		}
	})
	t.Run("the system knows it", func(t *testing.T) {
		server := serveAs(t, leaf)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "kubeconfig", "--server", server.url, "--token-file", token, "--hub-kubeconfig", "absent")
		cmd.Env = append(os.Environ(), asBinary+"=1", "SSL_CERT_FILE="+clitest.WriteFile(t, "roots", string(root.pem())), "SSL_CERT_DIR="+t.TempDir())
		var errOut strings.Builder
		cmd.Stderr = &errOut
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, &errOut)
		}
		config, err := clientcmd.Load(out)
		if err != nil || config.Clusters["fleet"] == nil || config.Clusters["fleet"].CertificateAuthorityData != nil || errOut.Len() > 0 {
			t.Errorf("%v\n%s%s", err, out, &errOut)
		}
	})
	t.Run("a proxy's port that speaks no TLS", func(t *testing.T) {
		plain := httptest.NewServer(http.NotFoundHandler())
		defer plain.Close()
		if _, err := kubeconfig(strings.Replace(plain.URL, "http:", "https:", 1)); err == nil || !strings.Contains(err.Error(), "certificate of https://127.0.0.1") {
			t.Errorf("%v", err)
		}
	})
}

// generatedAuthority is found on this machine, with a hub or without.
func generatedAuthority(t *testing.T, f *kube.Hub) {
	hub := clitest.WriteFile(t, "hub", string(f.Kubeconfig()))
	if err := f.Apply(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: federator}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: ann, namespace: default}\n")); err != nil {
		t.Fatal(err)
	}
	members, contexts := clitest.Fleet(t, 1)
	for name, args := range map[string][]string{
		"with a hub":    {"--config", clitest.WriteFile(t, "config.yaml", "sources: {clusterAPI: {namespaces: [fleet]}, kubeconfig: "+hub+"}\npolicies: {namespace: federator}\n")},
		"without a hub": {"--kubeconfig", contexts, "--contexts", members[0].Name()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			r := start(t, append(args, "--query-kubeconfig", "")...)
			var server string
			clitest.Eventually(t, "it listens", func() error {
				for _, m := range listening.FindAllStringSubmatch(r.log.String(), -1) {
					if m[1] == "query" {
						server = "https://" + m[2]
						return nil
					}
				}
				return clitest.ErrNotYet
			})
			ask := []string{"kubeconfig", "--server", server, "--hub-kubeconfig", hub, "--service-account", "default/ann"}
			if name == "without a hub" { // tokens are the server's
				path, err := kubeconfigfile.Path("")
				if err != nil {
					t.Fatal(err)
				}
				config, err := clientcmd.LoadFromFile(path)
				if err != nil {
					t.Fatal(err)
				}
				ask = append(ask[:5], "--token-file", clitest.WriteFile(t, "token", config.AuthInfos["fleet"].Token))
			}
			var out string
			clitest.Eventually(t, "requests are served", func() (err error) {
				out, err = command(t, ask...)
				return err
			})
			if !strings.Contains(out, "certificate-authority-data: ") {
				t.Errorf("there is no authority:\n%s", out)
			}
			if name == "with a hub" {
				revisionsFromLease(t, f, r)
			}
		})
	}
}

// revisionsFromLease, and not of a file, which other machines do not see.
func revisionsFromLease(t *testing.T, f *kube.Hub, r *running) {
	t.Helper()
	lease, err := f.Client().CoordinationV1().Leases("federator").Get(t.Context(), revisions.LeaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseUint(lease.Annotations[revisions.BlockAnnotation], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var answer fleet.Status
	if err := json.Unmarshal([]byte(mustGet(t, r.admin+"/members", http.StatusOK)), &answer); err != nil {
		t.Fatal(err)
	}
	if block := aggregate.Block(number); answer.Revision < block.First || answer.Revision >= block.End {
		t.Errorf("revision %d is not of block %d, from %d to %d", answer.Revision, number, block.First, block.End)
	}
}
