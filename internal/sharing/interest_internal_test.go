package sharing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
)

const ingresses = aggregate.Kind("Ingress.networking.k8s.io")

const byHost = `# METADATA
# title: One host, one member
# custom: {severity: high, kinds: ["Ingress.networking.k8s.io"]}
package hosts

view.hosts[input.object.spec.host] contains input.ref.name if true

violation contains {"msg": "several"} if count(data.fleet.views["hosts"].hosts[input.object.spec.host]) > 1
`

var bindings = []policy.Binding{{Name: "hosts", Package: "hosts"}}

// pipes is a network in memory, so that tests in virtual time have one. While it is cut nothing comes through, and nothing is told
// about that.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}

	mu  sync.Mutex
	cut chan struct{} // closed when it is whole again; nil: it is
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.done)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return &piped{Conn: here, of: p, closed: make(chan struct{})}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut != nil {
		close(p.cut)
		p.cut = nil
	}
	if cut {
		p.cut = make(chan struct{})
	}
}

// piped is the client's end of a connection.
type piped struct {
	net.Conn
	of     *pipes
	once   sync.Once
	closed chan struct{}
}

func (c *piped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.of.mu.Lock()
	cut := c.of.cut
	c.of.mu.Unlock()
	if cut != nil && err == nil {
		select {
		case <-cut:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	return n, err
}

func (c *piped) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// process is one that judges a member.
type process struct {
	*Sharing
	t      *testing.T
	member string
	scope  *aggregate.Scope
	exists int
}

// startProcess runs what of a process follows its policies, until the test ends.
func startProcess(t *testing.T, name, member string, subscribe bool, seen func(*process), others ...exchange.FleetMember) *process {
	t.Helper()
	p := &process{t: t, member: member, Sharing: &Sharing{o: Options{Name: name, Logger: slog.New(slog.DiscardHandler)}, passed: trigger.New()}}
	index := func(block uint64) *aggregate.Index {
		x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(block)})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	p.own, p.peers = index(1), index(2)
	var err error
	if p.exporter, err = exchange.NewExporter(exchange.ExporterOptions{Process: name, Epoch: 1, Logger: p.o.Logger}); err != nil {
		t.Fatal(err)
	}
	if p.importer, err = exchange.NewImporter(exchange.ImporterOptions{Index: p.peers, Logger: p.o.Logger}); err != nil {
		t.Fatal(err)
	}
	p.importer.SetInterest(&interest.Set{})
	if err := p.importer.SetFleet(others); err != nil { // as Known waits for it
		t.Fatal(err)
	}
	if err := p.own.PutMember(aggregate.Member{Name: member, UID: member, Serves: []aggregate.Kind{ingresses}}); err != nil {
		t.Fatal(err)
	}
	if p.scope, err = p.own.OpenScope(member, ingresses, "networking.k8s.io/v1"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.scope.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(byHost)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.loop, err = enforce.New(enforce.Options{Index: p.own, Peers: p.peers, Exports: true, Set: set, Bindings: bindings, Subscribe: subscribe, Changed: func(c *policy.Changes, _ *aggregate.Batch) {
		p.Changed(c)
		seen(p)
	}})
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the test ends")
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context())) // that of the test ends before Cleanup
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{p.loop.Run, p.exporter.Run, p.importer.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	if subscribe {
		running.Go(func() {
			if err := p.followInterest(ctx); !errors.Is(err, cause) && !errors.Is(err, enforce.ErrStopped) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
	t.Cleanup(func() { cancel(cause); running.Wait() })
	return p
}

// put has the member serve an Ingress of a host.
func (p *process) put(name, host string) {
	p.t.Helper()
	p.exists++
	p.scope.Upsert(p.scope.Item(&aggregate.Record{
		Namespace: "shop", Name: name, UID: name, ResourceVersion: fmt.Sprint(p.exists), Body: fmt.Appendf(nil, `{"spec":{"host":%q}}`, host),
	}))
	if _, err := p.scope.Commit(); err != nil {
		p.t.Fatal(err)
	}
}

// serve serves a process's exporter in memory, and returns it as others know it.
func (p *process) serve(network *pipes) exchange.Peer {
	server := &http.Server{Handler: p.exporter, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{DialContext: network.dial, Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(network) })
	p.t.Cleanup(func() {
		network.setCut(false)
		transport.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	})
	return exchange.Peer{ID: p.o.Name, URL: "http://" + p.o.Name, Client: &http.Client{Transport: transport}}
}

// verdicts are those on the process's member, as text.
func (p *process) verdicts() string {
	n := p.loop.State().Total("hosts")
	return fmt.Sprintf("%d known, %d unknown", n.Known, n.Unknown)
}

// toldOf returns how many objects of a member are told.
func (p *process) toldOf(member string) (n int) {
	for range p.peers.Snapshot().Objects(member, ingresses) {
		n++
	}
	return n
}

// TestFollowInterest_AsksForWhatIsReadAndNoMore, as policies read more, and less, and nothing, and through a time in which the other
// process is not heard. Never is anything said of what is not held.
func TestFollowInterest_AsksForWhatIsReadAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lies := 0
		network := newPipes()
		b := startProcess(t, "b", "fleet/b", false, func(*process) {})
		a := startProcess(t, "a", "fleet/a", true, func(p *process) {
			s := p.loop.State()
			if has, _ := p.importer.Held(); !has.Covers(s.Held()) {
				t.Error("verdicts are of what is not held")
			}
			if n := s.Total("hosts"); n.Known > n.Violations { // all that a has b has, too
				lies++
			}
		}, exchange.FleetMember{Name: "fleet/b", UID: "fleet/b", Judge: "b"})
		is := func(when, want string, told int) {
			t.Helper()
			synctest.Wait()
			if got := a.verdicts(); got != want {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
			if got := a.toldOf("fleet/b"); got != told {
				t.Errorf("%s: %d objects are told, want %d", when, got, told)
			}
		}
		for n := range 50 {
			b.put(fmt.Sprint("other", n), fmt.Sprint("other", n))
		}
		for _, host := range []string{"x", "y", "z"} {
			b.put(host, host)
		}
		synctest.Wait() // b has all of it, and not a part, when it is asked
		a.put("x", "x")
		network.setCut(true) // else it may be told before anything is looked at
		a.importer.SetPeers([]exchange.Peer{b.serve(network)})
		is("before anything is told", "0 known, 1 unknown", 0)
		network.setCut(false)
		time.Sleep(time.Second)
		is("when it is told", "1 known, 0 unknown", 1)

		network.setCut(true)
		a.put("y", "y")
		is("when more is read", "1 known, 1 unknown", 1)
		network.setCut(false)
		time.Sleep(time.Second)
		is("when that is told", "2 known, 0 unknown", 2)

		network.setCut(true)
		a.put("z", "z")
		time.Sleep(30 * time.Second)
		if s := a.loop.State(); !s.Held().Equal(s.Wanted()) {
			t.Error("one that is not heard is waited for")
		}
		is("while the other is not heard", "0 known, 3 unknown", 2)
		network.setCut(false)
		time.Sleep(30 * time.Second)
		is("when it is heard again", "3 known, 0 unknown", 3)

		if err := a.loop.Configure(t.Context(), a.loop.State().Set(), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		is("without policies", "0 known, 0 unknown", 0)
		if held, _ := a.importer.Held(); !held.Empty() || !a.loop.State().Held().Empty() {
			t.Error("without policies something is held")
		}
		if err := a.loop.Configure(t.Context(), a.loop.State().Set(), bindings); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		is("with policies again", "3 known, 0 unknown", 3)
		if lies > 0 {
			t.Errorf("%d times it was said that nothing is wrong", lies)
		}
	})
}
