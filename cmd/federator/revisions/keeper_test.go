package revisions_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/cmd/federator/revisions"
	"federator.dev/federator/pkg/aggregate"
)

// job is a Keeper whose store is a file in a directory, with an index that is near the end
// of the first block.
type job struct {
	t      *testing.T
	dir    string
	keeper *revisions.Keeper
	index  *aggregate.Index
	logMu  sync.Mutex
	log    bytes.Buffer
	n      int
	ended  chan error
	cancel context.CancelFunc
}

// run runs a Keeper in a bubble, where its first block but for so many revisions is used.
func run(t *testing.T, left uint64, f func(t *testing.T, j *job)) {
	top := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC))) // it is 2000 in bubbles
		j := &job{t: t, dir: filepath.Join(top, "federator"), ended: make(chan error, 1)}
		log := slog.New(slog.NewTextHandler(j, nil))
		var err error
		if j.keeper, err = revisions.Reserve(t.Context(), j.store(), log); err != nil {
			t.Fatal(err)
		}
		first := j.keeper.First()
		j.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Range{First: first.End - aggregate.Revision(left) - 1, End: first.End}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		j.cancel = cancel
		go func() { j.ended <- j.keeper.Run(ctx, j.index) }()
		synctest.Wait()
		defer synctest.Wait()
		defer cancel()
		f(t, j)
	})
}

// logged returns the log.
func (j *job) logged() string {
	j.logMu.Lock()
	defer j.logMu.Unlock()
	return j.log.String()
}

// Write writes to the log.
func (j *job) Write(p []byte) (int, error) {
	j.logMu.Lock()
	defer j.logMu.Unlock()
	return j.log.Write(p)
}

func (j *job) store() revisions.Store { return revisions.InFile(filepath.Join(j.dir, "revisions")) }

// commit changes the index so often.
func (j *job) commit(n int) (err error) {
	for range n {
		j.n++
		err = errors.Join(err, j.index.PutMember(aggregate.Member{Name: "m", UID: "m", Version: fmt.Sprint(j.n)}))
	}
	return err
}

// lose makes the store unreadable, until it is found again.
func (j *job) lose() (found func()) {
	j.t.Helper()
	if err := errors.Join(os.Rename(j.dir, j.dir+".away"), os.WriteFile(j.dir, nil, 0o600)); err != nil {
		j.t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.Remove(j.dir), os.Rename(j.dir+".away", j.dir)); err != nil {
			j.t.Error(err)
		}
	}
}

func (j *job) metric(name string) float64 {
	j.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(j.keeper.Metrics(j.index))
	families, err := registry.Gather()
	if err != nil {
		j.t.Fatal(err)
	}
	for _, f := range families {
		if m := f.GetMetric()[0]; f.GetName() == name {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	j.t.Fatalf("no metric %s", name)
	return 0
}

func TestKeeper_ReservesTheNextBlockAtHalfUse(t *testing.T) {
	const half = aggregate.BlockSize / 2
	run(t, half+2, func(t *testing.T, j *job) {
		before := j.index.Unused()
		if time.Sleep(time.Minute); j.index.Unused() != before || before != half+2 {
			t.Fatalf("%d are left, of %d", j.index.Unused(), before)
		}
		if err := j.commit(2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if left := j.index.Unused(); left != half+aggregate.BlockSize {
			t.Errorf("%d are left", left)
		}
		if v := j.metric("federator_revisions_unused"); v != half+aggregate.BlockSize {
			t.Errorf("the metric says %v", v)
		}
		if v := j.metric("federator_revisions_reserved_blocks_total"); v != 2 {
			t.Errorf("%v blocks were reserved", v)
		}
	})
}

// TestKeeper_IndexContinuesInTheNextBlock: a watch that resumes in the block before receives what came
// after it, and another process has other blocks.
func TestKeeper_IndexContinuesInTheNextBlock(t *testing.T) {
	run(t, 5, func(t *testing.T, j *job) {
		other, err := revisions.Reserve(t.Context(), j.store(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		start := j.index.Snapshot().Revision()
		if err := j.commit(20); err != nil {
			t.Fatal(err)
		}
		end := j.index.Snapshot().Revision()
		switch next := aggregate.Block(uint64(j.keeper.First().End / aggregate.BlockSize)); {
		case end < next.First || end >= next.End || !j.index.Owns(start) || !j.index.Owns(end):
			t.Errorf("from %d to %d", start, end)
		case j.index.Owns(other.First().First) || other.First().First <= end:
			t.Errorf("the other process begins at %d", other.First().First)
		}
		for rev := start; rev < j.keeper.First().End; rev++ {
			if _, err := j.index.Changes(rev); err != nil {
				t.Errorf("changes after %d: %v", rev, err)
			}
		}
		if _, err := j.index.Changes(other.First().First); !errors.Is(err, aggregate.ErrExpired) {
			t.Errorf("changes after another process's: %v", err)
		}
	})
}

// TestKeeper_UsesUpItsBlocksAndWarns.
func TestKeeper_UsesUpItsBlocksAndWarns(t *testing.T) {
	run(t, aggregate.BlockSize/2+5, func(t *testing.T, j *job) {
		found := j.lose()
		if err := j.commit(10); err != nil { // below the half
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if err := j.commit(10); err != nil {
			t.Errorf("nothing is committed any more: %v", err)
		}
		if n := j.metric("federator_revisions_reservation_failures_total"); n < 5 || n > 30 {
			t.Errorf("%v reservations have failed in 10 minutes", n)
		}
		if text := j.logged(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "retrying, and this process ends when") || !strings.Contains(text, j.dir) {
			t.Errorf("log: %s", text)
		}
		found()
		time.Sleep(2 * time.Minute)
		if left := j.index.Unused(); left <= aggregate.BlockSize {
			t.Errorf("%d are left after the store is back", left)
		}
	})
	run(t, 5, func(t *testing.T, j *job) {
		// Its second block cannot be given back, so that what is left is used up by hand.
		x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Range{First: 1, End: 7}})
		if err != nil {
			t.Fatal(err)
		}
		j.cancel()
		<-j.ended
		defer j.lose()()
		j.index = x
		go func() { j.ended <- j.keeper.Run(t.Context(), x) }()
		synctest.Wait()
		if err := j.commit(5); err != nil {
			t.Fatalf("with revisions left: %v", err)
		}
		synctest.Wait()
		if text := j.logged(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "left=5") {
			t.Errorf("log: %s", text)
		}
		if err := j.commit(1); !errors.Is(err, aggregate.ErrExhausted) {
			t.Errorf("without: %v", err)
		}
		if err := <-j.ended; !errors.Is(err, aggregate.ErrExhausted) || !strings.Contains(err.Error(), j.dir) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestKeeper_RetriesTheFirstBlock(t *testing.T) {
	top := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		store := revisions.InFile(filepath.Join(top, "federator", "revisions"))
		if _, err := revisions.Reserve(t.Context(), store, log); !errors.Is(err, revisions.ErrPermanent) || !strings.Contains(err.Error(), "2000-01-01") {
			t.Errorf("with a clock of 2000: %v", err)
		}
		time.Sleep(time.Until(time.Date(2026, 1, 2, 0, 0, 30, 0, time.UTC)))
		at := filepath.Join(top, "federator")
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := revisions.Reserve(t.Context(), store, log); err == nil || time.Since(began) < 10*time.Second || time.Since(began) > time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		go func() {
			time.Sleep(5 * time.Second)
			os.Remove(at)
		}()
		k, err := revisions.Reserve(t.Context(), store, log)
		if err != nil {
			t.Fatal(err)
		}
		slots := uint64(time.Since(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) / (10 * time.Second))
		if got, whole := k.First(), aggregate.Block(slots); got.End != whole.End || got.First < whole.First {
			t.Errorf("it begins with %v, which is not of block %d", got, slots)
		}
		synctest.Wait()
	})
}

// TestKeeper_RepeatsNoRevisionWhenTheFileIsLost, however soon they come after each other.
func TestKeeper_RepeatsNoRevisionWhenTheFileIsLost(t *testing.T) {
	top := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)))
		store := revisions.InFile(filepath.Join(top, "federator", "revisions"))
		var last aggregate.Revision // that any process has used
		for i, pause := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, time.Second, 8900 * time.Millisecond, 93 * time.Millisecond, time.Millisecond, time.Minute} {
			time.Sleep(pause)
			k, err := revisions.Reserve(t.Context(), store, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			first := k.First()
			if n := first.End - first.First; n < aggregate.BlockSize/2 || n > aggregate.BlockSize {
				t.Errorf("start %d has %d revisions", i, n)
			}
			index, err := aggregate.New(aggregate.Options{Revisions: first})
			if err != nil {
				t.Fatal(err)
			}
			if first.First <= last || index.Owns(last) {
				t.Errorf("start %d begins with %d, and %d was used before", i, first.First, last)
			}
			for n := range 500 {
				if err := index.PutMember(aggregate.Member{Name: "m", UID: "m", Version: fmt.Sprint(n)}); err != nil {
					t.Fatal(err)
				}
			}
			last = index.Snapshot().Revision()
			if err := os.RemoveAll(filepath.Join(top, "federator")); err != nil {
				t.Fatal(err)
			}
		}
	})
}
