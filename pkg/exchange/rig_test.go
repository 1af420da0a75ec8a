package exchange_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/test/kube/tcpproxy"
)

// export is an Export of all that a snapshot has.
type export struct{ *aggregate.Snapshot }

func (x export) Records(member string, kind aggregate.Kind, yield func(*aggregate.Record) error) error {
	var rec aggregate.Record
	for o := range x.Objects(member, kind) {
		if err := fill(&rec, o); err != nil {
			return err
		}
		if err := yield(&rec); err != nil {
			return err
		}
	}
	return nil
}

func (x export) Record(ref aggregate.Ref, into *aggregate.Record) (bool, error) {
	o, ok := x.Get(ref)
	if !ok {
		return false, nil
	}
	return true, fill(into, o)
}

func (x export) Keys(member string, kind aggregate.Kind, yield func(namespace, name string, k *interest.Keys) error) error {
	var k interest.Keys
	for o := range x.Objects(member, kind) {
		x.KeysOf(o.Ref(), &k)
		if err := yield(o.Namespace(), o.Name(), &k); err != nil {
			return err
		}
	}
	return nil
}

// KeysOf finds the name of pods, and for all the key of a view in the body; what has no such key failed.
func (x export) KeysOf(ref aggregate.Ref, k *interest.Keys) {
	k.Reset()
	o, ok := x.Get(ref)
	if !ok {
		return
	}
	if ref.Kind == "Pod" {
		k.Add(interest.Names("Pod"), interest.NameBucket(ref.Namespace, ref.Name))
	}
	body, err := o.AppendBody(nil)
	if err != nil {
		panic(err)
	}
	wantedFor(body, k)
}

func wantedFor(body []byte, k *interest.Keys) {
	if bytes.Contains(body, []byte(`"f":`)) {
		k.Always = true
	}
	_, rest, _ := bytes.Cut(body, []byte(`{"view":{"`))
	if key, _, ok := bytes.Cut(rest, []byte(`"`)); ok {
		k.Add(theView, interest.Bucket(string(key)))
	}
}

var theView = interest.View("view")

func (x export) Find(set *interest.Set, look func() error, yield func(aggregate.Ref) error) error {
	var k interest.Keys
	for info := range x.Scopes("") {
		for o := range x.Objects(info.Member, info.Kind) {
			x.KeysOf(o.Ref(), &k)
			for _, key := range k.Of {
				if !set.Has(key.Space, key.Bucket) {
					continue
				}
				if err := yield(o.Ref()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func fill(rec *aggregate.Record, o aggregate.Object) (err error) {
	rec.Namespace, rec.Name, rec.UID, rec.ResourceVersion = o.Namespace(), o.Name(), o.UID(), o.ResourceVersion()
	rec.Labels, rec.Owners = o.Labels(), o.Owners()
	rec.Body, err = o.AppendBody(rec.Body[:0])
	return err
}

var _ exchange.Export = export{}

func (x export) Scopes(member string) iter.Seq[aggregate.ScopeInfo] { return x.Snapshot.Scopes(member) }

// process is one that judges: its own index, and an exporter of all of it behind TLS and a proxy.
type process struct {
	t        testing.TB
	id       string
	index    *aggregate.Index
	cursor   *aggregate.Cursor
	scopes   map[exchange.ScopeOf]*aggregate.Scope
	exporter atomic.Pointer[exchange.Exporter]
	options  exchange.ExporterOptions
	epoch    uint64
	stop     func()
	server   *httptest.Server
	proxy    *tcpproxy.Proxy
	client   *http.Client
	flips    atomic.Int64 // bytes of a stream after which one is flipped; 0: none is
	slow     atomic.Bool  // importers read a few bytes at a time
	rewrite  atomic.Pointer[func(*http.Response)]
	forget   func(aggregate.Ref) bool // changes that are not told
	history  *history
	as       func(*aggregate.Snapshot) exchange.Export // nil: export
}

func (p *process) exports(s *aggregate.Snapshot) exchange.Export {
	if p.as != nil {
		return p.as(s)
	}
	return export{s}
}

var blocks atomic.Uint64

func newIndex(t testing.TB) *aggregate.Index {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(blocks.Add(1))})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func newProcess(t testing.TB, id string, o exchange.ExporterOptions) *process {
	t.Helper()
	p := &process{t: t, id: id, index: newIndex(t), scopes: map[exchange.ScopeOf]*aggregate.Scope{}, options: o, history: newHistory()}
	p.cursor = p.index.Cursor(nil)
	p.restart()
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.exporter.Load().ServeHTTP(w, r)
	}))
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	p.server.StartTLS()
	var err error
	if p.proxy, err = tcpproxy.Listen(context.Background(), "127.0.0.1:0", p.server.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	p.client = &http.Client{Transport: &middle{p, p.server.Client().Transport}}
	t.Cleanup(func() {
		p.stop()
		p.client.CloseIdleConnections()
		_ = p.proxy.Close()
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// restart ends the exporter and begins another one, of another epoch.
func (p *process) restart() {
	if p.stop != nil {
		p.stop()
	}
	p.epoch++
	o := p.options
	o.Process, o.Epoch, o.Logger = p.id, uint64(p.index.First())+p.epoch, slog.New(slog.DiscardHandler)
	x, err := exchange.NewExporter(o)
	if err != nil {
		p.t.Fatal(err)
	}
	p.exporter.Store(x)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = x.Run(ctx) })
	p.stop = func() { cancel(); wg.Wait() }
	x.Changed(p.exports(p.index.Snapshot()), exchange.Changes{})
}

func (p *process) peer() exchange.Peer {
	return exchange.Peer{ID: p.id, URL: "https://" + p.proxy.Addr(), Client: p.client}
}

// middle is between an importer and the network.
type middle struct {
	p    *process
	next http.RoundTripper
}

func (m *middle) RoundTrip(r *http.Request) (*http.Response, error) {
	w, err := m.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if w.ProtoMajor != 2 {
		panic("this is not HTTP/2")
	}
	if f := m.p.rewrite.Load(); f != nil {
		(*f)(w)
	}
	if strings.HasPrefix(r.URL.Path, exchange.StreamPath) {
		w.Body = &flipping{w.Body, m.p}
	}
	return w, nil
}

// flipping flips a byte when it is asked to.
type flipping struct {
	io.ReadCloser
	p *process
}

// CloseIdleConnections lets http.Client close those of the transport below.
func (m *middle) CloseIdleConnections() { m.next.(*http.Transport).CloseIdleConnections() }

func (f *flipping) Read(b []byte) (int, error) {
	if f.p.slow.Load() {
		b = b[:min(len(b), 5)]
	}
	n, err := f.ReadCloser.Read(b)
	if left := f.p.flips.Load(); left > 0 && n > 0 {
		if f.p.flips.Store(max(0, left-int64(n))); left <= int64(n) {
			b[left-1] ^= 0x10
		}
	}
	return n, err
}

// put changes the process's own index, without telling.
func (p *process) put(member, uid string) {
	p.t.Helper()
	if err := p.index.PutMember(aggregate.Member{Name: member, UID: uid, Serves: []aggregate.Kind{"Job", "Pod"}}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) scope(member string, kind aggregate.Kind, version string) *aggregate.Scope {
	p.t.Helper()
	of := exchange.ScopeOf{Member: member, Kind: kind}
	if s := p.scopes[of]; s != nil {
		return s
	}
	s, err := p.index.OpenScopeAs(member, kind, version, strings.ToLower(string(kind))+"s")
	if err != nil {
		p.t.Fatal(err)
	}
	p.scopes[of] = s
	return s
}

func record(name string, version int, text string) *aggregate.Record {
	return &aggregate.Record{
		Namespace: "ns", Name: name, UID: "00000000-0000-4000-8000-000000000000", ResourceVersion: fmt.Sprint(version),
		Labels: []aggregate.Label{{Key: "app", Value: name}},
		Owners: []aggregate.Owner{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "00000000-0000-4000-8000-000000000001", Controller: true}},
		Body:   fmt.Appendf(nil, `{"c":{"view":{"%s":[%d]}},"o":{"spec":{"text":"%s"}}}`, name, version, text),
	}
}

// replace has a scope hold records, as Synced.
func (p *process) replace(member string, kind aggregate.Kind, version string, records ...*aggregate.Record) {
	p.t.Helper()
	s := p.scope(member, kind, version)
	items := make([]aggregate.Item, len(records))
	for i, r := range records {
		items[i] = s.Item(r)
	}
	if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
		p.t.Fatal(err)
	}
}

// tell passes what has changed to the exporter.
func (p *process) tell() {
	b, ok := p.cursor.Poll()
	if !ok {
		return
	}
	var c exchange.Changes
	for d := range b.Members() {
		if d.Before != nil {
			c.Members = append(c.Members, d.Before.Name)
		} else {
			c.Members = append(c.Members, d.After.Name)
		}
	}
	for d := range b.Scopes() {
		c.Scopes = append(c.Scopes, exchange.ScopeOf{Member: d.After.Member, Kind: d.After.Kind})
	}
	for d := range b.Deltas() {
		if p.forget == nil || !p.forget(d.Ref) {
			c.Objects = append(c.Objects, d.Ref)
		}
	}
	if p.history != nil {
		p.history.note(b.After)
	}
	p.exporter.Load().Changed(p.exports(b.After), c)
}

// importing is one that imports.
type importing struct {
	*exchange.Importer
	t     testing.TB
	index *aggregate.Index
}

func newImporting(t testing.TB, o exchange.ImporterOptions, peers ...*process) *importing {
	t.Helper()
	i, end := startImporting(t, o, func(*importing) {}, peers...)
	t.Cleanup(end)
	return i
}

// startImporting prepares an importer before it runs. end ends it.
func startImporting(t testing.TB, o exchange.ImporterOptions, prepare func(*importing), peers ...*process) (i *importing, end func()) {
	t.Helper()
	index := newIndex(t)
	if o.Index, o.Logger = index, slog.New(slog.DiscardHandler); o.Backoff == 0 {
		o.Backoff = 100 * time.Millisecond
	}
	im, err := exchange.NewImporter(o)
	if err != nil {
		t.Fatal(err)
	}
	i = &importing{im, t, index}
	prepare(i)
	i.peers(peers...)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = im.Run(ctx) })
	return i, func() { cancel(); wg.Wait() }
}

func (i *importing) peers(peers ...*process) {
	all := make([]exchange.Peer, len(peers))
	for n, p := range peers {
		all[n] = p.peer()
	}
	i.SetPeers(all)
}

// fleet sets the fleet: pairs of a member and its judge. The UID of a member is its name.
func (i *importing) fleet(pairs ...string) {
	i.t.Helper()
	var fleet []exchange.FleetMember
	for n := 0; n < len(pairs); n += 2 {
		fleet = append(fleet, exchange.FleetMember{Name: pairs[n], UID: pairs[n], Judge: pairs[n+1], Labels: []aggregate.Label{{Key: "source", Value: "y"}}})
	}
	if err := i.SetFleet(fleet); err != nil {
		i.t.Fatal(err)
	}
}

// eventually waits until why returns "".
func eventually(t testing.TB, why func() string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		reason := why()
		if reason == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(reason)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// differs says how a member differs between two snapshots, in all that is told of it.
func differs(got, want *aggregate.Snapshot, member string) string {
	return differ(textOf(got, member), textOf(want, member))
}

func differ(got, want string) string {
	if got == want {
		return ""
	}
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("has %q, want %q", a[i], append(b, "nothing")[min(i, len(b))])
		}
	}
	return fmt.Sprintf("ends before %q", b[len(a)])
}

// textOf is all that is told of a member.
func textOf(s *aggregate.Snapshot, member string) string {
	var b strings.Builder
	m, ok := s.Member(member)
	fmt.Fprintln(&b, ok, m.UID, m.Labels, m.Version, m.Serves)
	for info := range s.Scopes(member) {
		b.WriteString(scopeText(s, info))
	}
	return b.String()
}

func scopeText(s *aggregate.Snapshot, info aggregate.ScopeInfo) string {
	var b strings.Builder
	fmt.Fprintln(&b, info.Kind, info.Version, info.Resource, info.Status, info.Objects)
	for o := range s.Objects(info.Member, info.Kind) {
		body, err := o.AppendBody(nil)
		fmt.Fprintln(&b, o.Ref(), o.UID(), o.ResourceVersion(), o.Labels(), o.Owners(), string(body), err)
	}
	return b.String()
}

// history is what scopes have been.
type history struct {
	mu     sync.Mutex
	scopes map[string]bool
	at     map[aggregate.Revision]*aggregate.Snapshot
	order  []*aggregate.Snapshot // the newest is first
}

func newHistory() *history {
	return &history{scopes: map[string]bool{}, at: map[aggregate.Revision]*aggregate.Snapshot{}}
}

func (h *history) note(s *aggregate.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[s.Revision()] = s
	h.order = slices.Insert(h.order, 0, s)
	for info := range s.Scopes("") {
		h.scopes[scopeText(s, info)] = true
	}
}

func (h *history) has(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.scopes[text]
}

// any reports whether what was once is so.
func (h *history) any(is func(*aggregate.Snapshot) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.order {
		if is(s) {
			return true
		}
	}
	return false
}

func (h *history) snapshot(r aggregate.Revision) *aggregate.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[r]
}

// pod is what is asked for by who reads the Pod of a name.
func pod(name string) *interest.Set {
	var b interest.Builder
	b.Add(interest.Names("Pod"), interest.NameBucket("ns", name))
	return b.Take()
}
