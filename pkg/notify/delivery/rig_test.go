package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/delivery"
	"federator.dev/federator/pkg/notify/sinks"
)

func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// openHistory opens the history of a directory, and runs it until close.
func openHistory(t testing.TB, dir string, change func(*history.Options)) (h *history.History, end func()) {
	t.Helper()
	opts := history.Options{Directory: filepath.Join(dir, "history"), Boot: "boot", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&opts)
	}
	h, err := history.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Begin(x); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(end)
	return h, end
}

// record appends, and waits until it can be read.
func record(t testing.TB, h *history.History, records ...history.Record) {
	t.Helper()
	before := h.Span().Last
	if err := h.Tell(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	<-h.More(before + uint64(len(records)) - 1)
}

// violation is a transition of a violation in a member.
func violation(member, name, transition, key string) history.Record {
	return history.Record{
		Type: history.Verdict, Transition: transition, Key: key, Policy: "unique-host", Version: "1", Severity: "high",
		Member: member, MemberUID: "uid-" + member, Kind: "Ingress.networking.k8s.io", Namespace: "shop", Name: name, Violation: "host of " + name,
	}
}

// receiver is a sink that remembers.
type receiver struct {
	mu       sync.Mutex
	messages []sinks.Message
	times    []time.Time
	err      func(*sinks.Message) error // why a message is not taken; nil: it is
	came     chan struct{}              // a message, maybe several
}

func newReceiver() *receiver { return &receiver{came: make(chan struct{}, 1)} }

func (r *receiver) Send(_ context.Context, messages []sinks.Message) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		select {
		case r.came <- struct{}{}:
		default:
		}
	}()
	for i := range messages {
		if r.err != nil {
			if err := r.err(&messages[i]); err != nil {
				return i, err
			}
		}
		r.messages, r.times = append(r.messages, messages[i]), append(r.times, time.Now())
	}
	return len(messages), nil
}

// refuse says which messages are refused from now on; nil: none.
func (r *receiver) refuse(err func(*sinks.Message) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *receiver) all() []sinks.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.messages)
}

// once returns the messages without those that came before, as a receiver that knows IDs has them.
func (r *receiver) once() (out []sinks.Message) {
	seen := map[string]bool{}
	for _, m := range r.all() {
		if !seen[m.ID] {
			out = append(out, m)
		}
		seen[m.ID] = true
	}
	return out
}

// wait returns once a condition holds, which messages alone change.
func (r *receiver) wait(t testing.TB, until func() bool) {
	t.Helper()
	for !until() {
		select {
		case <-r.came:
		case <-t.Context().Done():
			t.Fatal("the test ends")
		case <-time.After(time.Hour): // in virtual time
			t.Fatalf("only %d messages came", len(r.all()))
		}
	}
}

// newDelivery returns one of everything; change may be nil.
func newDelivery(t testing.TB, dir string, h delivery.Log, to delivery.Sink, change func(*delivery.Options)) *delivery.Delivery {
	t.Helper()
	opts := delivery.Options{
		UID: "uid", Version: "1", Origin: "/federator/test", Log: h, Sink: to, Selects: func(*history.Record) bool { return true },
		File: filepath.Join(dir, "position.json"), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&opts)
	}
	d, err := delivery.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// run runs it until end.
func run(t testing.TB, d *delivery.Delivery, before delivery.Reported) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx, before); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(end)
	return end
}

func data[T any](t testing.TB, m *sinks.Message) (out T) {
	t.Helper()
	if err := json.Unmarshal(m.Data, &out); err != nil {
		t.Fatalf("%s: %v", m.Data, err)
	}
	return out
}

func key(i int) string { return "key-" + strconv.Itoa(i) }
