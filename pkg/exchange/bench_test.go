package exchange_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"testing"
	"time"

	"federator.dev/federator/internal/cputime"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
)

// Projections of pods as policies read them: an image of a few, labels, owners, what they ask for.
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

// BenchmarkExchange is a process that tells of 20,000 pods, 100 of which change at a time, over TLS on this machine: the
// CPU of all that takes part, the index and the decoding of the judge's included, and the bytes that go over the wire.
func BenchmarkExchange(b *testing.B) {
	const pods, batch = 20_000, 100
	for _, importers := range []int{0, 1, 8} {
		b.Run(fmt.Sprint("importers=", importers), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			a := newProcess(b, "a", exchange.ExporterOptions{Gather: time.Nanosecond})
			a.history = nil
			a.put(m1, m1)
			all := make([]*aggregate.Record, pods)
			for n := range all {
				all[n] = podRecord(r, n, 0)
			}
			a.replace(m1, "Pod", "digest", all...)
			a.tell()
			var is []*importing
			for range importers {
				i := newImporting(b, exchange.ImporterOptions{}, a)
				i.fleet(m1, "a")
				is = append(is, i)
			}
			reached := func() {
				for {
					done := metric(b, a.exporter.Load(), "sequence", "") > 0 || importers > 0
					for _, i := range is {
						done = done && i.Complete(m1) && i.Status()[0].Frontier.Sequence == uint64(metric(b, a.exporter.Load(), "sequence", ""))
					}
					if done {
						return
					}
					time.Sleep(time.Millisecond)
				}
			}
			reached()
			scope := a.scope(m1, "Pod", "")
			x := a.exporter.Load()
			sent, plain, version := metric(b, x, "sent_bytes_total", ""), metric(b, x, "sent_plain_bytes_total", ""), 0
			cpu := cputime.Process()
			sequence := metric(b, x, "sequence", "")
			for b.Loop() {
				version++
				for range batch {
					rec := podRecord(r, r.IntN(pods), version)
					rec.Update = true
					scope.Upsert(scope.Item(rec))
				}
				if _, err := scope.Commit(); err != nil {
					b.Fatal(err)
				}
				a.tell()
				for sequence++; metric(b, x, "sequence", "") < sequence; {
					time.Sleep(time.Millisecond)
				}
				reached()
			}
			changed := float64(version * batch)
			b.ReportMetric(float64((cputime.Process()-cpu).Microseconds())/changed, "cpu-µs/record")
			b.ReportMetric((metric(b, x, "sent_bytes_total", "")-sent)/changed/float64(max(1, importers)), "B/record")
			b.ReportMetric((metric(b, x, "sent_plain_bytes_total", "")-plain)/changed/float64(max(1, importers)), "plain-B/record")
		})
	}
}

// BenchmarkIdleStream is the memory of a stream that is quiet, both sides' HTTP/2 included.
func BenchmarkIdleStream(b *testing.B) {
	a := newProcess(b, "a", exchange.ExporterOptions{})
	a.put(m1, m1)
	a.replace(m1, "Pod", "digest", record("x", 1, ""))
	a.tell()
	client := a.server.Client()
	defer client.CloseIdleConnections()
	open := func() io.Closer {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, a.peer().URL+exchange.StreamPath, nil)
		if err != nil {
			b.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 100)
		if _, err := io.ReadFull(response.Body, buf); err != nil {
			b.Fatal(err)
		}
		return response.Body
	}
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	defer open().Close()
	for b.Loop() {
		const streams = 32
		before := heap()
		var closers []io.Closer
		for range streams {
			closers = append(closers, open())
		}
		b.ReportMetric((heap()-before)/streams/1024, "KiB/stream")
		for _, c := range closers {
			_ = c.Close()
		}
	}
}
