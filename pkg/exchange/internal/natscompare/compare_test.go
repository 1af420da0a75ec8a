package natscompare

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"federator.dev/federator/internal/cputime"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
	"federator.dev/federator/test/kube/tcpproxy"
)

const (
	pods   = 20_000
	window = 256 << 10
)

// batches are how many records are sent at once: what changes in a moment is mostly little.
var batches = []int{100, 5}

// podRecord is that of the benchmark of package exchange.
func podRecord(r *rand.Rand, n, version int) *aggregate.Record {
	app := fmt.Sprintf("app-%03d", n%97)
	return &aggregate.Record{
		Namespace: fmt.Sprintf("team-%02d", n%40), Name: fmt.Sprintf("%s-%08x", app, uint32(n)*2654435761), ResourceVersion: fmt.Sprint(100_000 + version),
		UID:    fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(n)*2246822519, n),
		Labels: []aggregate.Label{{Key: "app.kubernetes.io/name", Value: app}, {Key: "pod-template-hash", Value: fmt.Sprintf("%08x", uint32(n%97)*2654435761)}},
		Body: fmt.Appendf(nil, `{"c":{"4c1f6a0f8f2b1d55":{"registry.example.com/%s":[{"phase":"Running","ready":%t,"restarts":%d}]}},`+
			`"o":{"spec":{"containers":[{"image":"registry.example.com/%s:v1.%d.0","name":"main","resources":{"limits":{"cpu":"500m","memory":"512Mi"},"requests":{"cpu":"%dm","memory":"256Mi"}}}],`+
			`"nodeName":"node-%03d","serviceAccountName":"%s"},"status":{"phase":"Running","podIP":"10.%d.%d.%d"}}}`,
			app, version%2 == 0, r.IntN(10), app, n%13, 100+n%400, n%250, app, n%256, r.IntN(256), r.IntN(256)),
	}
}

// payloads are records, made before anything is measured.
func payloads() [][]byte {
	r := rand.New(rand.NewPCG(1, 1))
	out := make([][]byte, pods)
	for n := range out {
		out[n] = wire.AppendRecord(nil, podRecord(r, r.IntN(pods), n))
	}
	return out
}

func encoder(b *testing.B) *zstd.Encoder {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(window),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	if err != nil {
		b.Fatal(err)
	}
	return z
}

// measure sends batches, each received before the next, and reports what a record costs of CPU and of the link.
func measure(b *testing.B, batch int, link *tcpproxy.Proxy, send func([][]byte), received <-chan int) {
	all := payloads()
	next := 0
	one := func() {
		records := all[next : next+batch]
		next = (next + batch) % pods
		send(records)
		for n := 0; n < batch; {
			select {
			case got := <-received:
				n += got
			case <-time.After(30 * time.Second):
				b.Fatal("nothing comes")
			}
		}
	}
	for range 2000 / batch {
		one()
	}
	before, cpu := link.Stats(), cputime.Process()
	for b.Loop() {
		one()
	}
	n := float64(b.N * batch)
	b.ReportMetric(float64((cputime.Process()-cpu).Nanoseconds())/1000/n, "cpu-µs/record")
	after := link.Stats()
	b.ReportMetric(float64(after.Received-before.Received+after.Sent-before.Sent)/n, "B/record")
}

func proxy(b *testing.B, target string) *tcpproxy.Proxy {
	p, err := tcpproxy.Listen(context.Background(), "127.0.0.1:0", target)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close() })
	return p
}

// BenchmarkHTTP2 is one stream with one window, as in package exchange, without what an index costs.
func BenchmarkHTTP2(b *testing.B) {
	for _, batch := range batches {
		b.Run(fmt.Sprint("batch=", batch), func(b *testing.B) { overHTTP2(b, batch) })
	}
}

func overHTTP2(b *testing.B, batch int) {
	todo, done := make(chan [][]byte), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		z := encoder(b)
		z.Reset(w)
		frames := wire.NewWriter(z)
		for {
			_ = z.Flush()
			_ = http.NewResponseController(w).Flush()
			select {
			case records := <-todo:
				for _, p := range records {
					_ = frames.Frame(wire.TypeRecord, p)
				}
			case <-done:
				return
			}
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	defer close(done)
	link := proxy(b, s.Listener.Addr().String())
	response, err := s.Client().Get("https://" + link.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	z, err := zstd.NewReader(response.Body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		b.Fatal(err)
	}
	received := make(chan int, 1000)
	go func() {
		frames := wire.NewReader(z, 4<<20)
		var rec aggregate.Record
		for {
			_, p, err := frames.Next()
			if err != nil {
				return
			}
			_ = wire.ParseRecord(p, &rec)
			received <- 1
		}
	}()
	measure(b, batch, link, func(records [][]byte) { todo <- records }, received)
}

// BenchmarkNATS is core NATS between two embedded servers with a route by mTLS, to which clients are connected in process.
func BenchmarkNATS(b *testing.B) {
	for _, batch := range batches {
		b.Run(fmt.Sprint("batch=", batch, "/message=batch"), func(b *testing.B) { overNATS(b, batch, batch) })
		b.Run(fmt.Sprint("batch=", batch, "/message=record"), func(b *testing.B) { overNATS(b, batch, 1) })
	}
}

// overNATS sends batches in messages of so many records.
func overNATS(b *testing.B, batch, per int) {
	ca := httptest.NewUnstartedServer(nil)
	ca.StartTLS()
	defer ca.Close()
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate())
	secure := &tls.Config{Certificates: ca.TLS.Certificates, RootCAs: pool, ClientCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS13}
	a := start(b, "a", secure, nil)
	link := proxy(b, a.ClusterAddr().String())
	c := start(b, "b", secure, []*url.URL{{Scheme: "nats-route", Host: link.Addr()}})
	publisher, subscriber := client(b, a), client(b, c)
	z := encoder(b)
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		b.Fatal(err)
	}
	received := make(chan int, 1000)
	_, err = subscriber.Subscribe("exchange.a.>", func(m *nats.Msg) {
		plain, err := d.DecodeAll(m.Data, nil)
		if err != nil {
			b.Error(err)
		}
		var rec aggregate.Record
		n := 0
		for frames := wire.NewReader(bytes.NewReader(plain), 4<<20); ; n++ {
			_, p, err := frames.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			_ = wire.ParseRecord(p, &rec)
		}
		received <- n
	})
	if err != nil {
		b.Fatal(err)
	}
	_ = subscriber.Flush()
	for a.NumRoutes() == 0 || a.NumSubscriptions() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second) // until the route knows the subscription
	measure(b, batch, link, func(records [][]byte) {
		for len(records) > 0 {
			var plain bytes.Buffer
			frames := wire.NewWriter(&plain)
			for _, p := range records[:per] {
				_ = frames.Frame(wire.TypeRecord, p)
			}
			records = records[per:]
			if err := publisher.Publish("exchange.a.fleet-one.Pod", z.EncodeAll(plain.Bytes(), nil)); err != nil {
				b.Fatal(err)
			}
		}
	}, received)
}

func start(b *testing.B, name string, secure *tls.Config, routes []*url.URL) *server.Server {
	s, err := server.NewServer(&server.Options{
		ServerName: name, Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, Routes: routes,
		Cluster: server.ClusterOpts{Name: "fleet", Host: "127.0.0.1", Port: -1, TLSConfig: secure, TLSTimeout: 5, NoAdvertise: true, PoolSize: -1},
	})
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		b.Fatal("NATS does not start")
	}
	b.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

func client(b *testing.B, s *server.Server) *nats.Conn {
	c, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return c
}
