package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/process"
	"federator.dev/federator/test/seed"
)

// patience bounds what takes a moment on an idle machine.
const patience = 2 * time.Minute

const configuration = `sources:
  kubeconfig: %[1]s/hub.kubeconfig
  clusterAPI: {namespaces: [fleet]}
network: {allow: [127.0.0.0/8]}
discoveryInterval: 10s
query:
  listen: %[2]s
  tls: {certFile: %[1]s/tls.crt, keyFile: %[1]s/tls.key}
  clientCAFile: %[1]s/hub.crt
policies: {dirs: [%[1]s/policies], hub: true, namespace: federator}
persistence: {directory: %[1]s/kept/index}
listen: {serve: %[3]s, admin: %[4]s}
log: {format: text, level: info}
`

// rig is a hub, members that are written to, and federator between them and readers.
type rig struct {
	t      *testing.T
	dir    string
	binary string
	rng    *rand.Rand
	fleet  *kube.Fleet
	hub    *kube.Hub

	members            []*member
	query, serve, addr string // addresses of federator's servers; addr is the admin's
	client             *http.Client
	plain, scraper     *http.Client
	process            *process.Process
	on                 string // which machine, and which commit of federator
	unmounted          string // why there is no small disk; "" if there is

	reader   *reader
	watchers []*watcher

	base    map[string]int // what this process had listed when the row began, by cause
	sum     map[string]int // what was listed since by processes that have ended
	kills   int            // of the row that kills
	died    int            // objects that federator died of
	group   string         // a cgroup's directory
	flipped string
	jumpy   bool // federator has a clock that can be set
}

// newRig starts all of it, and waits until federator is exact.
func newRig(t *testing.T) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("no control planes with -short")
	}
	s := seed.Of(t)
	r := &rig{t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(s, 11)), base: map[string]int{}, sum: map[string]int{}, plain: &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}}
	built := make(chan error, 1)
	go func() { built <- r.build(t.Context()) }()
	r.fleet = kube.StartTest(t, kube.Options{Members: 2, Audit: true})
	r.hub = r.fleet.Hub
	r.do(<-built)
	r.on = machine()
	r.mountDisk()
	r.configure()
	for i := range r.fleet.Members {
		r.do(r.addMember(i, rand.New(rand.NewPCG(s, uint64(20+i)))))
	}
	r.start()
	t.Cleanup(r.stop)
	r.do(r.hub.Apply(t.Context(), []byte(bindings)))
	r.settle()
	ctx, cancel := context.WithCancel(t.Context())
	r.observe(ctx)
	for _, m := range r.members {
		m.writing.Go(func() { m.write(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		r.reader.done.Wait()
		for i, m := range r.members {
			m.writing.Wait()
			r.watchers[i].done.Wait()
			r.do(m.gate.Close())
		}
		r.client.CloseIdleConnections()
		r.plain.CloseIdleConnections()
		r.scraper.CloseIdleConnections()
	})
	return r
}

func (r *rig) do(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) build(ctx context.Context) error {
	r.binary = filepath.Join(r.dir, "federator")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", r.binary, "federator.dev/federator/cmd/federator").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build federator: %w\n%s", err, out)
	}
	return nil
}

// configure writes what federator reads, and prepares the hub.
func (r *rig) configure() {
	r.t.Helper()
	ctx := r.t.Context()
	r.do(r.hub.InstallCRDs(ctx, "../../charts/federator/crds"))
	r.do(r.hub.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: federator}\n")))
	crt, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	r.do(err)
	r.query, r.serve, r.addr = kube.FreeAddress(r.t), kube.FreeAddress(r.t), kube.FreeAddress(r.t)
	files := map[string]string{
		"tls.crt": string(crt), "tls.key": string(key), "hub.crt": string(r.hub.RESTConfig().CAData), "hub.kubeconfig": string(r.hub.Kubeconfig()),
		"federator.yaml": fmt.Sprintf(configuration, r.dir, r.query, r.serve, r.addr),
	}
	r.do(os.MkdirAll(filepath.Join(r.dir, "policies"), 0o755))
	for name, text := range policyFiles {
		files[filepath.Join("policies", name)] = text
	}
	for name, text := range files {
		r.do(os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
	}
	r.client, err = rest.HTTPClientFor(r.queryConfig())
	r.do(err)
	r.client.Timeout = 30 * time.Second
	r.do(r.hub.Apply(ctx, []byte(scraperRights)))
	token, err := r.hub.IssueToken(ctx, "federator", "scraper", 24*time.Hour)
	r.do(err)
	r.scraper, err = rest.HTTPClientFor(&rest.Config{BearerToken: token.Token, Timeout: 10 * time.Second})
	r.do(err)
}

const scraperRights = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: scraper, namespace: federator}]
`

// queryConfig is how an administrator reaches federator's query API.
func (r *rig) queryConfig() *rest.Config {
	r.t.Helper()
	cred, err := r.hub.IssueCert("reader", 24*time.Hour, "system:masters")
	r.do(err)
	ca, err := os.ReadFile(filepath.Join(r.dir, "tls.crt"))
	r.do(err)
	return &rest.Config{Host: "https://" + r.query, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca, CertData: cred.Cert, KeyData: cred.Key}}
}

// start starts federator.
func (r *rig) start() {
	r.t.Helper()
	binary := r.binary
	if r.jumpy {
		binary += "-clock"
	}
	p, err := process.Serve(binary, r.dir, "GOTRACEBACK=all", "FAULTS_CLOCK="+r.clockFile())
	r.do(err)
	r.process = p
}

// kill ends it as a crash does.
func (r *rig) kill() {
	lists, err := r.lists(r.t.Context()) // it may not serve yet
	r.process.Kill()
	if err != nil {
		lists = r.base
	}
	if !all() { // a short turn does not wait until the Lease of a dead leader expires
		err := r.hub.Client().CoordinationV1().Leases("federator").Delete(r.t.Context(), "federator", metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			r.t.Error(err)
		}
	}
	r.ended(lists)
}

// ended takes note of what a process that has ended had listed.
func (r *rig) ended(lists map[string]int) {
	for cause, n := range lists {
		r.sum[cause] += n - r.base[cause]
	}
	r.base = map[string]int{} // the counters of the next one start anew
}

func (r *rig) stop() {
	err := r.process.Stop(patience)
	if err != nil {
		r.t.Errorf("federator: %v", err)
	}
	if r.t.Failed() {
		r.t.Logf("federator's log:\n%s", r.process.Tail(40))
	}
}

// get asks federator, or a member around its proxy.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &refusedError{code: resp.StatusCode, body: body}
	}
	return body, err
}

// refusedError is an answer that says that there is none.
type refusedError struct {
	code int
	body []byte
}

func (e *refusedError) Error() string { return fmt.Sprintf("%d: %.200s", e.code, e.body) }

// restore undoes what a row may have left: ways lead to API servers, and all processes run.
func (r *rig) restore() error {
	ctx := r.t.Context()
	var errs []error
	for _, m := range r.members {
		for _, p := range []*kube.Process{m.Etcd, m.APIServer} {
			if !p.Running() {
				errs = append(errs, p.Start(ctx))
			}
		}
		if m.rotated {
			m.rotated = false
			errs = append(errs, r.hub.SetKubeconfig(ctx, "fleet", m.plain(), m.KubeconfigWith(m.cred)))
		}
		if m.gated {
			m.gated = false
			m.gate.set(nil, nil)
			m.Proxy.SetTargets(m.APIServerAddress())
			m.Proxy.Reset()
		}
		errs = append(errs, m.Proxy.Set(tcpproxy.Mode{}))
	}
	if r.jumpy {
		r.jumpy = false
		r.kill()
		r.start()
	}
	return errors.Join(append(errs, r.hub.Proxy.Set(tcpproxy.Mode{}))...)
}

// pause holds all writers, and returns what releases them.
func (r *rig) pause() (release func()) {
	for _, m := range r.members {
		m.pause.Lock()
	}
	return func() {
		for _, m := range r.members {
			m.pause.Unlock()
		}
	}
}

// settle waits until all is well, which a row starts from.
func (r *rig) settle() {
	r.t.Helper()
	release := r.pause()
	defer release()
	well := func() error {
		return kube.Until(r.t.Context(), patience, func() error {
			return errors.Join(r.exact(r.t.Context()), r.exactEverywhere(r.t.Context()))
		})
	}
	if err := well(); err != nil {
		r.t.Errorf("not exact before a fault: %v", err)
		r.startAnew() // the rows to come tell their own
		r.do(well())
	}
}

// logged returns an error while federator has not logged a line with some words.
func (r *rig) logged(words string) error {
	text, err := r.process.Log()
	if err == nil && !strings.Contains(string(text), words) {
		err = fmt.Errorf("federator has not logged %q", words)
	}
	return err
}
