package hostile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/git"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/sim"
)

// rig is the federator command with a real hub, two honest members, and attackers that
// join them.
type rig struct {
	t      testing.TB
	hub    *kube.Hub
	door   *door // between federator and it
	repo   *git.Repo
	dir    string
	binary string
	fed    *federator
	host   string // of the query API
	admin  *http.Client
	sims   *sim.Fleet
	upon   map[string]*rest.Config // honest members around federator
	asks   map[string]*http.Client // the same

	kinds    map[string]map[aggregate.Kind]bool // scopes of honest members without attackers
	scopes   map[string]int                     // the number of them
	verdicts verdicts                           // on honest members
	base     usage

	requests, shown atomic.Int64              // requests of readers; what was shown that may be
	paged           atomic.Pointer[time.Time] // of the last request for a page

	mu    sync.Mutex
	trace []string
}

// newRig builds and starts it all; the test's end ends it.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), upon: map[string]*rest.Config{}, asks: map[string]*http.Client{}}
	built := make(chan error, 1)
	go func() { built <- r.build(t.Context()) }()
	fleet := shared.Start(t)
	r.hub = fleet.Hub
	err := <-built
	must(t, err)
	if r.sims, err = sim.New(sim.Options{Members: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.sims.Close)
	must(t, fillSimulated(r.sims.Members()[0]))
	must(t, fillReal(t.Context(), fleet.Members[0]))
	r.upon["good/sim"], r.upon["good/real"] = r.sims.Members()[0].RESTConfig(), fleet.Members[0].DirectRESTConfig()
	simulated, err := r.sims.Members()[0].Kubeconfig()
	must(t, err)
	for name, kubeconfig := range map[string][]byte{"sim": simulated, "real": fleet.Members[0].Kubeconfig()} {
		must(t, r.hub.Register(t.Context(), kube.Cluster{Namespace: "good", Name: name, Kubeconfig: kubeconfig, Labels: map[string]string{"tier": "honest"}}))
		client, err := rest.HTTPClientFor(r.upon["good/"+name])
		must(t, err)
		t.Cleanup(client.CloseIdleConnections)
		r.asks["good/"+name] = client
	}
	r.door, err = r.openDoor()
	must(t, err)
	t.Cleanup(func() { must(t, r.door.proxy.Close()) })
	must(t, r.bind(t.Context()))
	r.configure()
	r.start(t.Context(), r.binary)
	return r
}

// build makes the command, where none is given.
func (r *rig) build(ctx context.Context) error {
	if r.binary = os.Getenv("HOSTILE_BINARY"); r.binary != "" {
		return nil
	}
	r.binary = filepath.Join(r.dir, "federator")
	out, err := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", r.binary, "federator.dev/federator/cmd/federator").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build federator: %w\n%s", err, out)
	}
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// configure writes what the command reads.
func (r *rig) configure() {
	r.t.Helper()
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	must(r.t, err)
	files := map[string]string{
		"tls.crt": string(crt), "tls.key": string(key), "ca.crt": string(r.hub.RESTConfig().CAData),
		"federator.yaml": fmt.Sprintf(configuration, r.dir),
	}
	must(r.t, os.MkdirAll(filepath.Join(r.dir, "policies"), 0o755))
	for name, text := range policyFiles {
		files[filepath.Join("policies", name)] = text
	}
	for name, text := range files {
		must(r.t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
	}
}

// start starts the command, waits until honest members have synced, and takes note of
// how it is without attackers.
func (r *rig) start(ctx context.Context, binary string) {
	r.t.Helper()
	var err error
	r.fed, err = startFederator(ctx, binary, r.dir)
	must(r.t, err)
	r.t.Cleanup(func() {
		if err := r.fed.stop(); err != nil {
			r.t.Errorf("%v\n%s", err, r.fed.Tail(30))
		}
	})
	addr, err := r.fed.Address("query")
	must(r.t, err)
	r.host = "https://" + addr
	r.admin = r.as("administrator", "system:masters")
	must(r.t, kube.Until(ctx, patience, func() error {
		members, err := r.fed.members(ctx)
		if err != nil {
			return err
		}
		for _, name := range honest {
			if m := members[name]; !m.Synced {
				return fmt.Errorf("%s is %s %s: %s", name, m.State, m.Reason, m.LastError)
			}
		}
		return nil
	}))
	must(r.t, kube.Until(ctx, patience, func() error { return r.honestEqual(ctx) }))
	r.verdicts, err = r.fullEvaluation(ctx, nil)
	must(r.t, err)
	must(r.t, kube.Until(ctx, patience, func() error { return r.verdictsEqual(ctx, false) }))
	members, err := r.fed.members(ctx)
	must(r.t, err)
	r.kinds, r.scopes = map[string]map[aggregate.Kind]bool{}, map[string]int{}
	for _, name := range honest {
		r.kinds[name] = map[aggregate.Kind]bool{}
		r.scopes[name] = len(members[name].Details)
		for _, s := range members[name].Details {
			r.kinds[name][s.Kind] = true
		}
	}
	r.base, err = r.fed.usage(ctx)
	must(r.t, err)
}

// as makes the client of a user of the hub.
func (r *rig) as(user string, groups ...string) *http.Client {
	r.t.Helper()
	cred, err := r.hub.IssueCert(user, 24*time.Hour, groups...)
	must(r.t, err)
	ca, err := os.ReadFile(filepath.Join(r.dir, "tls.crt"))
	must(r.t, err)
	client, err := rest.HTTPClientFor(&rest.Config{
		Host: r.host, UserAgent: "hostile", TLSClientConfig: rest.TLSClientConfig{CAData: ca, CertData: cred.Cert, KeyData: cred.Key},
	})
	must(r.t, err)
	r.t.Cleanup(client.CloseIdleConnections)
	return client
}

// attacker is a member whose API server attacks.
type attacker struct {
	name  string // <namespace>/<name>
	plain string
	upon  string // the honest member whose server it is
	proxy *Proxy
}

// join lets an attacker join, whose server is that of an honest member.
func (r *rig) join(ctx context.Context, name, upon string) (*attacker, error) {
	p, err := Listen(r.upon[upon], disguise)
	if err != nil {
		return nil, err
	}
	l := &attacker{name: "evil/" + name, plain: name, upon: upon, proxy: p}
	return l, nil
}

func (l *attacker) register(ctx context.Context, hub *kube.Hub) error {
	kubeconfig, err := l.proxy.Kubeconfig()
	if err != nil {
		return err
	}
	return hub.Register(ctx, kube.Cluster{Namespace: "evil", Name: l.plain, Kubeconfig: kubeconfig, Labels: map[string]string{"tier": "hostile"}})
}

// leave takes the attacker from the fleet, and waits until nothing is left of it.
func (r *rig) leave(ctx context.Context, l *attacker) error {
	err := r.hub.Unregister(ctx, "evil", l.plain)
	return errors.Join(err, kube.Until(ctx, patience, func() error {
		members, err := r.fed.members(ctx)
		if err != nil {
			return err
		}
		if m, there := members[l.name]; there {
			return fmt.Errorf("%s, which has left the hub, is still there: %s", l.name, m.State)
		}
		return nil
	}), l.proxy.Close())
}

// note adds a line to the trace.
func (r *rig) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = append(r.trace, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
	if len(r.trace) > 60 {
		r.trace = r.trace[len(r.trace)-40:]
	}
}
