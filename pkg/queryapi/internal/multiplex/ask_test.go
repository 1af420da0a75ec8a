package multiplex

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestAsk_IsAuditedFromItsFirstAnswerToItsEnd: whatever was refused before is by itself.
func TestAsk_IsAuditedFromItsFirstAnswerToItsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		refusedAt int // asking
		want      string
	}{
		"it ends with the stream": {1 << 30, "[begin 429 end begin 429 end begin 200 end]"},
		"it is refused":           {6, "[begin 429 end begin 429 end begin 200 403 end]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var audited []string
			var n int
			open(t, Options{
				Changes: changing, Caller: ann, Check: credible, Beat: time.Hour,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					switch n++; {
					case n < 3 || n == 4: // later ones are of the same question
						w.WriteHeader(http.StatusTooManyRequests)
					case n == test.refusedAt:
						w.WriteHeader(http.StatusForbidden)
					default:
						io.WriteString(w, "1")
					}
				}),
				Audit: func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						audited = append(audited, "begin")
						next.ServeHTTP(codes{w, &audited}, r)
						audited = append(audited, "end")
					})
				},
			}, 50*time.Second, "q /query/v1/members")
			if fmt.Sprint(audited) != test.want {
				t.Errorf("%s: audited are %v, want %s", name, audited, test.want)
			}
		})
	}
}

// codes are those that were written.
type codes struct {
	http.ResponseWriter
	to *[]string
}

func (c codes) WriteHeader(code int) { *c.to = append(*c.to, strconv.Itoa(code)) }

// TestAsk_WhatCannotBeAuditedIsNotAsked, until it can.
func TestAsk_WhatCannotBeAuditedIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures int
		out := open(t, Options{
			Changes: changeless, Caller: ann, Check: credible, Beat: time.Hour,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if failures < 3 {
					t.Error("it is asked")
				}
				io.WriteString(w, "1")
			}),
			Audit: func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if failures++; failures < 3 {
						w.WriteHeader(http.StatusInternalServerError)
						io.WriteString(w, `{"code":500}`)
						return
					}
					next.ServeHTTP(w, r)
				})
			},
		}, 50*time.Second, "q /query/v1/members")
		if want := strings.Repeat(`{"id":"q","retry":{"code":500}}`+"\n", 2) + `{"id":"q","value":1}` + "\n"; out != want || failures != 3 {
			t.Errorf("audited %d times, sent\n%s", failures, out)
		}
	})
}

// stuckReader stops reading after some lines.
type stuckReader struct {
	http.ResponseWriter
	stuck  bool
	ctx    context.Context
	values atomic.Int64
}

func (s *stuckReader) Write(b []byte) (int, error) {
	if s.stuck {
		<-s.ctx.Done()
		return 0, s.ctx.Err()
	}
	s.values.Add(int64(bytes.Count(b, []byte("\n"))))
	return len(b), nil
}

func (s *stuckReader) FlushError() error { return nil }

// TestAsk_HoldsFewAnswers: however many questions with large answers a stream has, and whether they are read.
func TestAsk_HoldsFewAnswers(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		t.Run(fmt.Sprint("stuck=", stuck), func(t *testing.T) {
			large := bytes.Repeat([]byte("1"), maxAnswer-1)
			var answered atomic.Int64
			h, err := New(Options{Changes: changeless, Caller: ann, Check: credible, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Write(large)
				answered.Add(1)
			})})
			if err != nil {
				t.Fatal(err)
			}
			var subscriptions []string
			for i := range 32 {
				subscriptions = append(subscriptions, fmt.Sprintf("q%d /query/v1/members", i))
			}
			ctx, cancel := context.WithCancel(t.Context())
			w := &stuckReader{ResponseWriter: httptest.NewRecorder(), ctx: ctx, stuck: stuck}
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_ = h.Serve(w, request(ctx, subscriptions...))
			}()
			patience := 30 * time.Second
			if stuck {
				patience = 2 * time.Second
			}
			for began := time.Now(); time.Since(began) < patience && w.values.Load() < 32; {
				time.Sleep(20 * time.Millisecond)
			}
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			// What is being written, what waits for that, and a slot's each.
			if most := uint64(2*maxConcurrent+3) * maxAnswer; m.HeapAlloc > most {
				t.Errorf("%d MiB are held of %d answers, at most %d", m.HeapAlloc>>20, answered.Load(), most>>20)
			}
			cancel()
			<-done
		})
	}
}

// TestAsk_WaitingForATurnCostsNothing: a quick question is asked again soon, whatever the others take.
func TestAsk_WaitingForATurnCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quick atomic.Int64
		var work work
		subscriptions := []string{"s0 /query/v1/slow", "s1 /query/v1/slow", "s2 /query/v1/slow", "s3 /query/v1/slow", "s4 /query/v1/slow", "q /query/v1/quick"}
		open(t, Options{Changes: changing, Caller: ann, Check: credible, CPU: work.cpu, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/query/v1/quick" {
				quick.Add(1)
			} else {
				work.do(2 * time.Second)
			}
			io.WriteString(w, "1")
		})}, 25*time.Second, subscriptions...)
		if n := quick.Load(); n < 40 {
			t.Errorf("the quick one was asked %d times in 25 s", n)
		}
	})
}
