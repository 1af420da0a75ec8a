package heaprelease

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestReleaser_IsDueOnceABurstIsOver(t *testing.T) {
	const mb = 1 << 20
	now := time.Unix(1_700_000_000, 0)
	r := &releaser{}
	h := heap{live: 600 * mb}
	for i, step := range []struct {
		grown, held uint64
		due         bool
	}{
		{3000, 700, false},
		{3000, 2900, false}, // the burst
		{500, 2900, false},
		{50, 2900, false}, // quiet, for the first time
		{50, 2900, true},
		{50, 700, false}, // nothing to give back
		{50, 850, false}, // not enough to be worth it
		{900, 2900, false},
		{10, 2900, false},
		{10, 2900, false}, // too soon after the last
	} {
		now = now.Add(interval)
		h.allocated += step.grown * mb
		h.held = step.held * mb
		if got := r.due(now, h); got != step.due {
			t.Errorf("step %d: due %t, want %t", i, got, step.due)
		}
	}
	if now = now.Add(pause); !r.due(now, h) {
		t.Error("it is not due a while after the last")
	}
}

func TestRead_TellsWhatTheProcessHolds(t *testing.T) {
	debug.FreeOSMemory() // what other tests have left counts as held
	before := read()
	b := make([]byte, 64<<20)
	for i := range b {
		b[i] = 1
	}
	runtime.GC()
	after := read()
	runtime.KeepAlive(b)
	if after.held-before.held < 60<<20 || after.live-before.live < 60<<20 || after.allocated-before.allocated < 64<<20 {
		t.Errorf("64 MiB more: %+v after %+v", after, before)
	}
	if rss := resident(t); rss > 0 && after.held > 2*rss {
		t.Errorf("%d bytes are held, %d resident", after.held, rss)
	}
}

// resident returns the resident bytes of the process, 0 where that is not known.
func resident(t *testing.T) uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

func TestRun_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); Run(ctx, slog.New(slog.DiscardHandler)) }()
	cancel()
	<-done
}
