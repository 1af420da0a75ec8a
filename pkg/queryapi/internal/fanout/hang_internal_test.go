package fanout

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/queryapi/internal/part"
)

// half is a process that begins its part, and is silent from then on, also when it is asked whether it lives.
type half struct{}

func (half) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if r.URL.Path == alivePath {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	in, out := io.Pipe()
	context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	begun, err := part.AppendHeader(nil, &part.Header{Epoch: 1, Revision: 2})
	if err != nil {
		return nil, err
	}
	go func() { _, _ = out.Write(part.Append(begun, part.ItemFrame, []byte("an item"))) }()
	return &http.Response{StatusCode: http.StatusOK, Body: in}, nil
}

// TestStream_OfAProcessThatHangsAmidItIsGivenUp as soon as it is known that the process does not answer: what waits for it has a slot,
// of which there are few. A watch, whose silence says nothing, goes on.
func TestStream_OfAProcessThatHangsAmidItIsGivenUp(t *testing.T) {
	withHealth(t, func(t *testing.T, h *health, _ *process, _ *Peer, _ *lines, live *atomic.Pointer[Peer]) {
		peer := &Peer{ID: "b", Epoch: 1, URL: "https://b", Client: &http.Client{Transport: half{}}}
		live.Store(peer)
		of := &Assignment{Self: "a", Peers: []Peer{*peer}}
		of.derive()
		for _, watches := range []bool{true, false} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			q := &request{
				Handler: &Handler{Options{Answer: time.Hour, Log: slog.New(slog.DiscardHandler)}, h}, user: &user.DefaultInfo{Name: "u"}, info: &apirequest.RequestInfo{},
				r: httptest.NewRequestWithContext(ctx, http.MethodGet, "/query/v1/rego", http.NoBody), g: &gathered{assignment: of}, watches: watches,
			}
			began, items := time.Now(), 0
			s := q.open(place{id: "b"}, nil, part.Ask{})
			defer s.end()
			if s.lost != nil {
				t.Fatal(s.lost)
			}
			err := s.items(func([]byte) error { items++; return nil })
			if took := time.Since(began); !errors.Is(err, errLost) || items != 1 || (took > 3100*time.Millisecond) != watches {
				t.Errorf("watch %t: %d items and %v after %v", watches, items, err, took)
			}
		}
	})
}

// TestForwardSocket_OneRequestWaitsForASilentProcess, as for what is no WebSocket.
func TestForwardSocket_OneRequestWaitsForASilentProcess(t *testing.T) {
	withHealth(t, func(t *testing.T, h *health, p *process, peer *Peer, _ *lines, _ *atomic.Pointer[Peer]) {
		p.silent.Store(true)
		handler := &Handler{Options{Log: slog.New(slog.DiscardHandler)}, h}
		for _, most := range []time.Duration{3100 * time.Millisecond, 0} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ctx = apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{Verb: "watch"})
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/members/a/b/api/v1/pods?watch=true", http.NoBody)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			began := time.Now()
			err := handler.Forward(httptest.NewRecorder(), r, peer, &user.DefaultInfo{Name: "u"})
			var lost *LostError
			if took := time.Since(began); !errors.As(err, &lost) || took > most {
				t.Errorf("%v after %v", err, took)
			}
		}
	})
}
