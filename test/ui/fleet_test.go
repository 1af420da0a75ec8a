package ui

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"federator.dev/federator/charts"
	"federator.dev/federator/test/git"
	"federator.dev/federator/test/issuer"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/process"
)

// patience is how long a test waits for what takes a moment on an idle machine.
const patience = 60 * time.Second

// app is a Deployment of the shop, as test/demo/files/shop.yaml has it.
type app struct {
	Name, Tier string
	Replicas   int
	Privileged bool
}

// member is a cluster of the fleet.
type member struct {
	Name, Region, Host string
	Apps               []app
}

var members = []member{
	{"eu-1", "eu", "shop.example.com", []app{{"cart", "critical", 2, false}, {"search", "critical", 2, false}, {"web", "critical", 3, false}}},
	{"us-1", "us", "shop.example.com", []app{{"cart", "critical", 1, false}, {"search", "critical", 2, false}, {"web", "critical", 3, false}}},
	{"ap-1", "ap", "shop.example.jp", []app{{"cart", "critical", 2, false}, {"search", "critical", 2, false}, {"debug", "none", 1, true}}},
}

// fleet is a hub with members, git and federator.
type fleet struct {
	t         *testing.T
	dir       string
	clusters  *kube.Fleet
	issuer    *issuer.Issuer // where users log in, whom the hub trusts
	repo      *git.Repo
	binary    string
	federator *process.Process
	address   string // of the query API and the web UI, over restarts
}

func (f *fleet) url() string { return "https://" + f.address }

const (
	clientID     = "federator-ui"
	clientSecret = "secret"
)

// startIssuer starts a real issuer of OpenID Connect.
func (f *fleet) startIssuer() {
	f.t.Helper()
	var err error
	f.issuer, err = issuer.Start(context.WithoutCancel(f.t.Context()), f.t.TempDir(), issuer.Client{
		ID: clientID, Secret: clientSecret, RedirectURLs: []string{f.url() + "/ui/oidc/callback"},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(f.issuer.Stop)
}

// startFleet boots the fleet of the demonstration, without controllers: what stories look at are
// desired states.
func startFleet(t *testing.T) *fleet {
	f := &fleet{t: t, dir: t.TempDir(), address: kube.FreeAddress(t)}
	f.startIssuer()
	f.clusters = kube.StartTest(t, kube.Options{Members: len(members), Audit: true, APIServerArgs: []string{
		"--oidc-issuer-url=" + f.issuer.URL, "--oidc-client-id=" + clientID, "--oidc-ca-file=" + f.issuer.CAFile,
		"--oidc-username-claim=sub", "--oidc-username-prefix=oidc:",
	}})
	f.binary = build(t)
	ctx := t.Context()
	hub := f.clusters.Hub
	policies, err := charts.Admission("kubernetes-admin") // as whom federator runs here
	if err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(root(t), "test/demo/files")
	manifests := [][]byte{read(t, files, "hub.yaml"), read(t, files, "library.yaml"), read(t, "testdata", "people.yaml")}
	for _, p := range policies {
		manifests = append(manifests, []byte(p))
	}
	if err := hub.InstallCRDs(ctx, filepath.Join(root(t), "charts/federator/crds")); err != nil {
		t.Fatal(err)
	}
	for _, m := range manifests {
		if err := hub.Apply(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range members {
		f.join(f.clusters.Members[i], m, read(t, files, "shop.yaml"))
	}
	f.prepareRepo(files)
	f.configure()
	f.serve()
	t.Cleanup(f.stop)
	return f
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// build builds the command, once for all tests.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "federator")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "federator.dev/federator/cmd/federator").CombinedOutput(); err != nil {
		t.Fatalf("build federator: %v\n%s", err, out)
	}
	return binary
}

// join deploys the shop on a cluster and registers it.
func (f *fleet) join(c *kube.ControlPlane, m member, shop []byte) {
	f.t.Helper()
	var manifests bytes.Buffer
	err := template.Must(template.New(m.Name).Parse(string(shop))).Execute(&manifests, m)
	if err == nil {
		err = c.Apply(f.t.Context(), manifests.Bytes())
	}
	if err == nil {
		err = f.clusters.Hub.Register(f.t.Context(), kube.Cluster{
			Namespace: "fleet", Name: m.Name, Kubeconfig: c.Kubeconfig(), Labels: map[string]string{"region": m.Region},
		})
	}
	if err != nil {
		f.t.Fatalf("member %s: %v", m.Name, err)
	}
}

// policyFiles are those of the repository.
var policyFiles = []string{"replicas.rego", "replicas_test.rego", "replicas.yaml"}

// prepareRepo makes the repository of the demonstration, with its policy as it should be.
func (f *fleet) prepareRepo(files string) {
	f.t.Helper()
	var err error
	if f.repo, err = git.Init(filepath.Join(f.dir, "policies")); err != nil {
		f.t.Fatal(err)
	}
	content := map[string]string{}
	for _, name := range policyFiles {
		content[name] = string(read(f.t, files, name))
	}
	content["replicas.rego"] = strings.ReplaceAll(content["replicas.rego"], "replicas < 1", "replicas < input.parameters.replicas")
	if _, err = f.repo.Commit(content, "-m", "Ask for replicas"); err != nil {
		f.t.Fatal(err)
	}
}

const configuration = `sources:
  kubeconfig: hub.yaml
  clusterAPI: {namespaces: [fleet]}
network: {allow: [127.0.0.0/8]}
query:
  listen: %[1]s
  tls: {certFile: tls.crt, keyFile: tls.key}
policies: {hub: true, library: true, allowFile: true}
listen: {serve: 127.0.0.1:0, admin: 127.0.0.1:0}
ui:
  sessionKeyFile: session.key
  hubTokens: [{issuer: "https://kubernetes.default.svc.cluster.local", audience: "https://kubernetes.default.svc.cluster.local"}]
  oidc: {issuer: "%[2]s", clientID: %[3]s, clientSecretFile: client.secret, caFile: "%[4]s"}
`

// configure writes what federator is started with.
func (f *fleet) configure() {
	f.t.Helper()
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"tls.crt": crt, "tls.key": key, "hub.yaml": f.clusters.Hub.Kubeconfig(), "client.secret": []byte(clientSecret),
		"session.key":    []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32))),
		"federator.yaml": fmt.Appendf(nil, configuration, f.address, f.issuer.URL, clientID, f.issuer.CAFile),
	} {
		if err := os.WriteFile(filepath.Join(f.dir, name), text, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
}

// serve starts federator and waits until it answers.
func (f *fleet) serve() {
	f.t.Helper()
	var err error
	if f.federator, err = process.Serve(f.binary, f.dir); err != nil {
		f.t.Fatal(err)
	}
	insecure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // of the test's own certificate
	defer insecure.CloseIdleConnections()
	err = kube.Until(f.t.Context(), patience, func() error {
		resp, err := (&http.Client{Transport: insecure}).Get(f.url() + "/ui/session")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	if err != nil {
		f.t.Fatalf("%v\n%s", err, f.log())
	}
}

// log is the end of federator's log.
func (f *fleet) log() []byte {
	text, err := os.ReadFile(f.federator.LogFile)
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-8000):]
}

func (f *fleet) stop() {
	if err := f.federator.Stop(30 * time.Second); err != nil {
		f.t.Errorf("federator: %v", err)
	}
	if f.t.Failed() {
		f.t.Logf("%s", f.log())
	}
}

// token returns a token of a ServiceAccount of namespace teams, of an audience; "" is the hub's own.
func (f *fleet) token(ctx context.Context, account, audience string) (string, error) {
	request := &authenticationv1.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	answer, err := f.clusters.Hub.Client().CoreV1().ServiceAccounts("teams").CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of %s: %w", account, err)
	}
	return answer.Status.Token, nil
}
