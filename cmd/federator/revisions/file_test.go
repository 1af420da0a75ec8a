package revisions_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"federator.dev/federator/cmd/federator/revisions"
)

// TestFile_ProcessesNeverShareABlock: several processes, and several goroutines of one,
// reserve blocks from one file concurrently.
func TestFile_ProcessesNeverShareABlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "there", "revisions")
	const processes, goroutines = 6, 4
	var mu sync.Mutex
	var all []uint64
	record := func(blocks []uint64) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, blocks...)
	}
	var running sync.WaitGroup
	for range processes {
		running.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), reserveIn+"="+path)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
				return
			}
			var blocks []uint64
			for line := range strings.Lines(string(out)) {
				n, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
				if err != nil {
					t.Error(err)
				}
				blocks = append(blocks, n)
			}
			record(blocks)
		})
	}
	for range goroutines {
		running.Go(func() {
			var blocks []uint64
			for range perProcess {
				n, err := revisions.InFile(path).Reserve(t.Context(), 1000)
				if err != nil {
					t.Error(err)
				}
				blocks = append(blocks, n)
			}
			record(blocks)
		})
	}
	running.Wait()
	if want := (processes + goroutines) * perProcess; len(all) != want {
		t.Errorf("%d blocks, want %d", len(all), want)
	}
	wantDistinct(t, all)
}

func TestFile_BlockExceedsTheStoredOneAndTheClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "revisions")
	store := revisions.InFile(path)
	reserve := func(floor, want uint64) {
		t.Helper()
		if got, err := store.Reserve(t.Context(), floor); err != nil || got != want {
			t.Errorf("reserved %d, %v; want %d", got, err, want)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reserve(470_000, 470_000)
	older, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reserve(470_000, 470_001)
	reserve(470_000, 470_002)
	reserve(470_010, 470_010)
	write(string(older)) // restored, two minutes later
	reserve(470_012, 470_012)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	reserve(470_013, 470_013)

	for _, bad := range []string{"x", "-1", "4.7e5", "18446744073709551616", "134217728", "470013 470014"} {
		write(bad)
		if n, err := store.Reserve(t.Context(), 470_014); !errors.Is(err, revisions.ErrMalformed) || !errors.Is(err, revisions.ErrPermanent) {
			t.Errorf("%q gave %d, %v", bad, n, err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != bad {
			t.Errorf("%q was written over: %q, %v", bad, text, err)
		}
	}
	write("134217726")
	reserve(1, 134217727) // the last one
	if n, err := store.Reserve(t.Context(), 1); !errors.Is(err, revisions.ErrPermanent) {
		t.Errorf("after the last block: %d, %v", n, err)
	}
}
