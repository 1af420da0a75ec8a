package queryapi

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/aggregate"
)

type emptyFleet struct{}

func (emptyFleet) Resources() ([]ServedResource, <-chan struct{})       { return nil, nil }
func (emptyFleet) LastContact(string, aggregate.Kind) (never time.Time) { return never }

type constant struct{}

func (constant) Serve(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	_, err := io.WriteString(w, "1")
	return err
}

// TestStream_QuestionsAreAdmittedByPriorityAndFairness, each of them as any other request.
func TestStream_QuestionsAreAdmittedByPriorityAndFairness(t *testing.T) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := New(Options{Index: index, Fleet: emptyFleet{}, Logger: slog.New(slog.DiscardHandler), Listener: l, Local: true, Queries: map[string]Query{"one": constant{}}})
	if err != nil {
		t.Fatal(err)
	}
	s.fairness = &fairness{}
	stream, err := s.newStream()
	if err != nil {
		t.Fatal(err)
	}
	refuse := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"code":429}`)
	}))
	for _, f := range s.fairness.filters {
		f.active.Store(&refuse)
	}
	ctx, cancel := context.WithTimeout(apirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "ann"}), 500*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	if err := stream.Handler.Serve(w, httptest.NewRequest(http.MethodGet, streamOf("a /query/v1/one"), nil).WithContext(ctx)); err != nil {
		t.Fatal(err)
	}
	if text := w.Body.String(); strings.Contains(text, "value") || !strings.Contains(text, `"retry":`) || !strings.Contains(text, `"code":429`) {
		t.Errorf("a question that is not admitted gets %s", text)
	}
}

func streamOf(subscription string) string {
	return "/query/v1/stream?watch=true&s=" + strings.ReplaceAll(subscription, " ", "+")
}
