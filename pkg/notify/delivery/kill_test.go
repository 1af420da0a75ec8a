package delivery_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/delivery"
	"federator.dev/federator/pkg/notify/sinks"
	"federator.dev/federator/test/seed"
)

// childEnv is the environment variable with the childConfig of a process.
const childEnv = "FEDERATOR_DELIVERY_CHILD"

// childConfig says what a process records and sends. It writes each key to its output before it records it.
type childConfig struct {
	Dir, URL string
	First    int // number of the first transition
	Grouped  bool
}

var signingKey = []byte("0123456789abcdef")

// runChild reports whether this process is a child, which is killed.
func runChild() bool {
	text := os.Getenv(childEnv)
	if text == "" {
		return false
	}
	if err := child(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func child(text string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	h, err := history.Open(history.Options{Directory: filepath.Join(c.Dir, "history"), Boot: "boot"})
	if err != nil {
		return err
	}
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), Hold: true})
	if err != nil {
		return err
	}
	if err := h.Begin(x); err != nil {
		return err
	}
	hook, err := sinks.NewWebhook(sinks.WebhookOptions{URL: c.URL, Keys: [][]byte{signingKey}})
	if err != nil {
		return err
	}
	opts := delivery.Options{
		UID: "uid", Version: "1", Origin: "/federator/test", Log: h, Sink: hook, Selects: func(*history.Record) bool { return true }, File: filepath.Join(c.Dir, "position.json"),
	}
	if c.Grouped {
		opts.Grouping = &delivery.Grouping{By: []delivery.Dimension{delivery.ByTransition}, Wait: 20 * time.Millisecond, Interval: 30 * time.Millisecond, Messages: 100}
	}
	d, err := delivery.New(opts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is what counts
		cancel()
	}()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = h.Run(ctx) })
	running.Go(func() { _ = d.Run(ctx, delivery.Reported{Log: h.ID()}) })
	for i := c.First; ctx.Err() == nil; i++ {
		r := violation("eu", "o", history.Opened, key(i))
		if i%2 == 1 {
			r.Transition = history.Closed
		}
		before := h.Span().Last
		if err := h.Tell(ctx, []history.Record{r}); err != nil {
			return nil
		}
		select {
		case <-h.More(before):
			fmt.Println(i) // from here on it is not to be lost
		case <-ctx.Done():
		}
		if err := sleep.For(ctx, time.Millisecond); err != nil {
			return nil
		}
	}
	return nil
}

// hookReceiver is a webhook that now and then fails after it has taken a message.
type hookReceiver struct {
	mu       sync.Mutex
	random   *rand.Rand
	received map[string]json.RawMessage
	order    []string // of IDs, each once
	twice    int
}

func (h *hookReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e struct {
		ID   string
		Data json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil || e.ID == "" || r.Header.Get("webhook-signature") == "" {
		http.Error(w, "malformed", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, is := h.received[e.ID]; is {
		h.twice++
		if string(known) != string(e.Data) {
			h.received[e.ID] = json.RawMessage("null") // the ID of something else: counted as lost
		}
	} else {
		h.received[e.ID], h.order = e.Data, append(h.order, e.ID)
	}
	if h.random.IntN(200) == 0 {
		http.Error(w, "later", http.StatusServiceUnavailable)
	}
}

// TestDelivery_SurvivesKills: the process is killed KILLS times at any moment; the receiver, which knows messages by
// their IDs, has each transition that was recorded exactly once, in their order.
func TestDelivery_SurvivesKills(t *testing.T) {
	for name, group := range map[string]bool{"each": false, "grouped": true} {
		t.Run(name, func(t *testing.T) { survivesKills(t, group) })
	}
}

func survivesKills(t *testing.T, group bool) {
	kills := 6
	if n, err := strconv.Atoi(os.Getenv("KILLS")); err == nil {
		kills = n
	}
	random := rand.New(rand.NewPCG(seed.Of(t), 7))
	hook := &hookReceiver{random: rand.New(rand.NewPCG(seed.Of(t), 8)), received: map[string]json.RawMessage{}}
	server := httptest.NewServer(hook)
	defer server.Close()
	dir, next := t.TempDir(), 0
	for range kills {
		next = runOne(t, childConfig{dir, server.URL, next, group}, time.Duration(random.IntN(400)+100)*time.Millisecond)
	}
	// The last is left alone until all is sent.
	h, end := openHistory(t, dir, nil)
	defer end()
	to, err := sinks.NewWebhook(sinks.WebhookOptions{URL: server.URL, Keys: [][]byte{signingKey}})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	d := newDelivery(t, dir, h, to, func(o *delivery.Options) {
		if group {
			o.Grouping = &delivery.Grouping{By: []delivery.Dimension{delivery.ByTransition}, Wait: 20 * time.Millisecond, Interval: 30 * time.Millisecond, Messages: 100}
		}
	})
	stop := run(t, d, delivery.Reported{Log: h.ID()})
	for d.Status().Waiting > 0 || d.Status().Position == 0 {
		if err := sleep.For(t.Context(), 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	hook.mu.Lock()
	defer hook.mu.Unlock()
	sent, last := 0, -1
	for _, id := range hook.order {
		if !group {
			var i int
			if _, err := fmt.Sscanf(id, "key-%d", &i); err != nil || i <= last {
				t.Errorf("%s comes after key-%d", id, last)
			}
			last, sent = i, sent+1
			continue
		}
		var g delivery.Group
		if err := json.Unmarshal(hook.received[id], &g); err != nil {
			t.Fatal(err)
		}
		sent += g.Transitions
	}
	recorded := h.Span().Last
	t.Logf("%d kills: %d recorded, %d sent in %d messages, %d of them more than once", kills, recorded, sent, len(hook.order), hook.twice)
	if uint64(sent) != recorded || recorded < uint64(next) || next == 0 {
		t.Errorf("%d sent, %d recorded, %d known to be", sent, recorded, next)
	}
}

// runOne runs a process for a while, kills it, and returns the number of the next transition.
func runOne(t *testing.T, c childConfig, lives time.Duration) int {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+string(text)), os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	next, lines := c.First, bufio.NewScanner(out)
	var timer *time.Timer
	for lines.Scan() {
		i, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Errorf("the process says %q", lines.Text())
		}
		next = i + 1
		if timer == nil { // it has begun
			timer = time.AfterFunc(lives, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
		}
	}
	if err := cmd.Wait(); err == nil || timer == nil {
		t.Fatalf("the process ended by itself: %v", err)
	}
	return next
}
