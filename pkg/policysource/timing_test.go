package policysource_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// bubble runs a manager in a bubble until f returns.
func bubble(t *testing.T, opts policysource.Options, src policysource.Source, f func(t *testing.T, m *policysource.Manager)) {
	synctest.Test(t, func(t *testing.T) {
		opts.Logger = slog.New(slog.DiscardHandler)
		m, err := policysource.NewManager(opts)
		if err != nil {
			t.Fatal(err)
		}
		set(t, m, src)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		f(t, m)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func near(d, want time.Duration) bool { return d >= want-want/10 && d <= want+want/10 }

func TestManager_ChecksAtEachInterval(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	second := commit(t, r, good("two"))
	head := filepath.Join(r.Dir, ".git", "refs", "heads", "main")
	point := func(hash string) {
		if err := os.WriteFile(head, []byte(hash+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	point(first)
	src := source("team", r)
	src.Interval = 10 * time.Minute
	opts := options()
	opts.Test = func(context.Context, policysource.Candidate) ([]policy.Finding, error) { return nil, nil }
	bubble(t, opts, src, func(t *testing.T, m *policysource.Manager) {
		start := time.Now()
		st := active(t, m, "team", first)
		if time.Since(start) != 0 {
			t.Errorf("the first look is after %s", time.Since(start))
		}
		delays := map[time.Duration]bool{}
		for range 10 {
			was := st.Status["team"].Contact
			<-st.Replaced()
			st = m.State()
			d := st.Status["team"].Contact.Sub(was)
			if !near(d, src.Interval) {
				t.Errorf("fetched again after %s", d)
			}
			delays[d] = true
		}
		if len(delays) < 2 {
			t.Error("there is no jitter")
		}
		point(second)
		start = time.Now()
		<-m.State().Replaced() // the next look
		active(t, m, "team", second)
		if d := time.Since(start); d > src.Interval+src.Interval/10 {
			t.Errorf("a commit is seen after %s", d)
		}
		start = time.Now()
		point(first)
		if err := m.Sync("team"); err != nil {
			t.Fatal(err)
		}
		active(t, m, "team", first)
		if time.Since(start) != 0 {
			t.Errorf("a sync is after %s", time.Since(start))
		}
	})
}

func TestManager_BacksOffAfterFailures(t *testing.T) {
	src := policysource.Source{Name: "team", URL: "file://" + filepath.Join(t.TempDir(), "none")}
	opts := options()
	opts.MinBackoff, opts.MaxBackoff = 4*time.Second, time.Minute
	bubble(t, opts, src, func(t *testing.T, m *policysource.Manager) {
		last := time.Now()
		st := await(t, m, "first", func(st *policysource.State) bool { return st.Status["team"].Failures == 1 })
		for i, want := range []time.Duration{4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
			<-st.Replaced()
			st = m.State()
			if d := time.Since(last); !near(d, want) || st.Status["team"].Failures != i+2 {
				t.Errorf("failure %d after %s, want %s", st.Status["team"].Failures, d, want)
			}
			last = time.Now()
			if d := st.Status["team"].Next.Sub(last); i < 4 && !near(d, min(2*want, time.Minute)) {
				t.Errorf("next in %s", d)
			}
		}
	})
}
