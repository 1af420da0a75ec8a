package handover_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/handover"
)

const member = "fleet/a"

var fields = map[aggregate.Kind][]string{"Pod": {"spec.nodeName"}}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newIndex(t testing.TB, block uint64) *aggregate.Index {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(block), Fields: fields})
	must(t, err)
	must(t, x.PutMember(aggregate.Member{Name: member, UID: "uid-a"}))
	return x
}

// open opens a scope of the member.
func open(t testing.TB, x *aggregate.Index, kind aggregate.Kind) *aggregate.Scope {
	t.Helper()
	s, err := x.OpenScopeAs(member, kind, "v1", strings.ToLower(string(kind))+"s")
	must(t, err)
	return s
}

func record(i int, rv string) *aggregate.Record {
	rec := &aggregate.Record{
		Namespace: fmt.Sprint("ns-", i%7), Name: fmt.Sprint("object-", i), UID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), ResourceVersion: rv,
		Labels: []aggregate.Label{{Key: "app", Value: fmt.Sprint("app-", i%13)}, {Key: "tier", Value: "web"}},
		Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":"app-%d","tier":"web"},"name":"object-%d"},"spec":{"image":"registry.example.com/team/app:%d","nodeName":"node-%d"}}`,
			i%13, i, i*7919%1000003, i%50),
	}
	switch {
	case i%11 == 0:
		rec.UID, rec.ResourceVersion = fmt.Sprint("odd uid ", i), "odd version "+rv
	case i%3 == 0:
		rec.Owners = []aggregate.Owner{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprint("set-", i%13), UID: fmt.Sprint("owner-", i%13), Controller: true}}
	}
	rec.Update = i%5 == 0
	return rec
}

// fill puts objects into a scope, and says how far it was read.
func fill(t testing.TB, s *aggregate.Scope, objects int, reached string) {
	t.Helper()
	for i := range objects {
		s.Upsert(s.Item(record(i, fmt.Sprint(1000+i))))
	}
	s.SetStatus(aggregate.Status{State: aggregate.Synced})
	if reached != "" {
		s.Reached(aggregate.Part{ResourceVersion: reached, Served: "cluster v1.36"})
	}
	_, err := s.Commit()
	must(t, err)
}

func train(t testing.TB, x *aggregate.Index) {
	t.Helper()
	for more := true; more; {
		var err error
		_, more, err = x.Train(nil)
		must(t, err)
	}
}

// contents is all that a scope has, as text, without revisions.
func contents(t testing.TB, x *aggregate.Index, kind aggregate.Kind) []string {
	t.Helper()
	var out []string
	for o := range x.Newest().Objects(member, kind) {
		body, err := o.AppendBody(nil)
		must(t, err)
		out = append(out, fmt.Sprint(o.Namespace(), "/", o.Name(), " ", o.UID(), " ", o.ResourceVersion(), " ", o.Labels(), " ", o.Owners(), " ", string(body)))
	}
	return out
}

// server is a process that gives.
type server struct {
	*httptest.Server

	asked atomic.Int32
	// answer is what answers instead of the giver; nil: it does.
	answer atomic.Pointer[http.HandlerFunc]
	giver  *handover.Giver
	index  *aggregate.Index
}

const isPeer = "Is-Peer"

func form(aggregate.Kind) string { return "form" }

func newServer(t testing.TB, x *aggregate.Index, change func(*handover.GiverOptions)) *server {
	t.Helper()
	o := handover.GiverOptions{
		Index: x, Form: form, Proved: func(string, aggregate.Kind) time.Time { return time.Time{} }, Stall: 5 * time.Second,
		Peer:   func(r *http.Request) string { return r.Header.Get(isPeer) },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&o)
	}
	giver, err := handover.NewGiver(o)
	must(t, err)
	s := &server{giver: giver, index: x}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if h := s.answer.Load(); h != nil {
			(*h)(w, r)
			return
		}
		giver.ServeHTTP(w, r)
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(t.Output(), nil), slog.LevelDebug)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

type asPeer struct{ http.RoundTripper }

func (p asPeer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(isPeer, "federator-1")
	return p.RoundTripper.RoundTrip(r)
}

// holder is the server as who holds the member.
func (s *server) holder() handover.Holder {
	return handover.Holder{ID: s.URL, URL: s.URL, Client: &http.Client{Transport: asPeer{s.Client().Transport}}}
}

func newTaker(t testing.TB, holders ...handover.Holder) *handover.Taker {
	t.Helper()
	taker, err := handover.NewTaker(handover.TakerOptions{
		Holders: func(string) []handover.Holder { return holders }, Stall: 2 * time.Second, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(t, err)
	return taker
}

func wish(x *aggregate.Index) handover.Wish {
	return handover.Wish{
		Index: x, Member: member, UID: "uid-a", Form: form, Wanted: func(aggregate.Kind) bool { return true }, MaxObjects: 1e6, MaxBytes: 1 << 30,
	}
}

// results checks that one result was counted, once.
func results(t testing.TB, taker *handover.Taker, want string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(taker)
	families, err := registry.Gather()
	must(t, err)
	var got []string
	for _, f := range families {
		if f.GetName() != "federator_shard_handovers_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			got = append(got, fmt.Sprint(m.GetLabel()[0].GetValue(), " ", m.GetCounter().GetValue()))
		}
	}
	if len(got) != 1 || got[0] != want+" 1" {
		t.Errorf("counted were %v, want %s once", got, want)
	}
}

// sent is what a giver sends, not compressed.
func sent(t testing.TB, s *server) []byte {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, handover.Path+"?name="+member, http.NoBody)
	r.Header.Set(isPeer, "federator-1")
	w := &deadlines{httptest.NewRecorder()}
	s.giver.ServeHTTP(w, r)
	z, err := zstd.NewReader(w.Body)
	must(t, err)
	defer z.Close()
	out, err := io.ReadAll(z)
	must(t, err)
	return out
}

// deadlines is a recorder that takes deadlines.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetWriteDeadline(time.Time) error { return nil }

// sends answers with a text, compressed as givers do.
func sends(text []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.federator.handover+zstd")
		z, err := zstd.NewWriter(w, zstd.WithWindowSize(256<<10))
		if err != nil {
			return
		}
		_, _ = z.Write(text)
		_ = z.Close()
	}
}

var rng = rand.New(rand.NewPCG(1, 2))
