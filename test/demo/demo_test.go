package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is what the demo prints. It calls once when a text is printed.
type output struct {
	mu   sync.Mutex
	all  bytes.Buffer
	text string
	call func()
}

func (h *output) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all.Write(b)
	if h.call != nil && strings.Contains(h.all.String(), h.text) {
		h.call()
		h.call = nil
	}
	return len(b), nil
}

func (h *output) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all.String()
}

// in makes a directory the place of temporary files, which nothing must be left in.
func in(t *testing.T) (left func() []string) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "federator-demo-*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
}

// TestDemo_ShowsWhatItSays runs it as DEMO=ci does.
func TestDemo_ShowsWhatItSays(t *testing.T) {
	left := in(t)
	out := &output{}
	d := &demo{out: out}
	err := d.run(t.Context(), true)
	t.Log(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range d.story() {
		if !strings.Contains(out.String(), s.title) {
			t.Errorf("%q was not shown", s.title)
		}
	}
	t.Logf("it took %v", time.Since(d.started).Round(time.Second))
	if names := left(); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// TestDemo_InterruptedLeavesNothingBehind interrupts the demo in the middle of a step.
func TestDemo_InterruptedLeavesNothingBehind(t *testing.T) {
	left := in(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &output{text: "federator kubeconfig", call: interrupt}
	d := &demo{out: out}
	if err := d.run(ctx, false); ctx.Err() == nil {
		t.Fatalf("it ended by itself: %v\n%s", err, out)
	}
	for _, p := range d.fleet.Processes() {
		if p.Running() {
			t.Errorf("%s runs still", p.Name())
		}
	}
	select {
	case err := <-d.federator.ended:
		if err != nil {
			t.Errorf("federator did not end in order: %v", err)
		}
	default:
		t.Error("federator runs still")
	}
	if names := left(); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
	if _, err := os.Stat(d.dir); err == nil {
		t.Errorf("%s is left behind", d.dir)
	}
}
