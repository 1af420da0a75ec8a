package h2_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// held is what the process holds: heap that is in use and stacks.
func held() (bytes int64) {
	runtime.GC()
	runtime.GC() // what pools held survives one
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() + s[1].Value.Uint64())
}

// serverEnv has this binary run as a server, so that what the client costs is measured
// alone.
const serverEnv = "H2_BENCH_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		serveBench()
		return
	}
	goleak.VerifyTestMain(m)
}

// serveBench serves until its standard input ends.
func serveBench() {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		switch size, err := strconv.Atoi(path.Base(r.URL.Path)); {
		case err == nil:
			event := make([]byte, 1000)
			for ; size > 0; size -= len(event) {
				_, _ = w.Write(event)
			}
		case r.URL.Path == "/idle":
			<-r.Context().Done()
		}
	}))
	s.EnableHTTP2 = true
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 100}
	s.StartTLS()
	defer s.Close()
	fmt.Fprintln(os.Stdout, s.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.CloseClientConnections()
}

func benchServer(b *testing.B) (url string) {
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), serverEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // killed with its context
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// BenchmarkIdle reports what a watch and a connection cost that nothing comes from:
// 1,000 watches, 96 to a connection.
func BenchmarkIdle(b *testing.B) {
	url := benchServer(b)
	for _, kind := range []string{"own", "stock"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				c := benchClient(b, kind)
				warm := c.watch(b, b.Context(), url+"/idle") // what the first costs
				before, routines := held(), runtime.NumGoroutine()
				const n = 960
				streams := make([]stream.Stream, n)
				for i := range streams {
					resp, err := c.do(b.Context(), http.MethodGet, url+"/idle?watch=1", nil)
					if err != nil {
						b.Fatal(err)
					}
					streams[i] = resp.Body.(stream.Stream)
					streams[i].Notify(func() {})
				}
				b.ReportMetric(float64(held()-before)/n, "B/watch")
				b.ReportMetric(float64(runtime.NumGoroutine()-routines)*1000/n, "goroutines/1000")
				conns, opened := []*client{}, held()
				for range 20 {
					c := benchClient(b, kind)
					conns = append(conns, c)
					if _, _, err := c.get(b.Context(), url+"/once"); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(held()-opened)/20, "B/conn")
				warm.Close()
				for _, s := range streams {
					s.Close()
				}
				for _, c := range append(conns, c) {
					c.end()
				}
			}
		})
	}
}

// BenchmarkEvents reports how many events of 1,000 bytes are read by second of the
// client's CPU: from 50 watches at once.
func BenchmarkEvents(b *testing.B) {
	url := benchServer(b)
	for _, kind := range []string{"own", "stock"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				c := benchClient(b, kind)
				const n, bytes = 50, 20 << 20
				var left atomic.Int32
				left.Store(n)
				done := make(chan struct{})
				runnable := make(chan stream.Stream, n) // as the driver does: a scope is queued at most once
				before, begin := cpu(), time.Now()
				for range n {
					s := c.watch(b, b.Context(), fmt.Sprintf("%s/events/%d", url, bytes))
					s.Notify(func() { runnable <- s })
				}
				for range runtime.GOMAXPROCS(0) {
					go func() {
						buf := make([]byte, 32<<10)
						for {
							select {
							case s := <-runnable:
								_, err := 0, error(nil)
								for err == nil {
									_, err = s.ReadNow(buf)
								}
								if !errors.Is(err, stream.ErrNothing) && left.Add(-1) == 0 {
									close(done)
								}
							case <-done:
								return
							}
						}
					}()
				}
				<-done
				const events = n * bytes / 1000.
				b.ReportMetric(events/(cpu()-before).Seconds(), "events/CPU-s")
				b.ReportMetric(events/time.Since(begin).Seconds(), "events/s")
				c.end()
			}
		})
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchClient(b *testing.B, kind string) *client {
	if kind == "stock" {
		return newStock(b, patience)
	}
	return newOwn(b, func(o *h2.Options) { o.PingInterval, o.PingTimeout = patience, patience })
}

func (c *client) end() {
	if c.own != nil {
		c.own.Close()
	} else {
		c.RoundTripper.(stock).CloseIdleConnections()
	}
}
