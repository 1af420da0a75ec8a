package config

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/spf13/pflag"

	"federator.dev/federator/pkg/policy"
)

// TestPolicyLimits_ScaleWithTheMemoryLimit shows that what views and bindings hold is refused
// before the runtime's limit is reached.
func TestPolicyLimits_ScaleWithTheMemoryLimit(t *testing.T) {
	for limit, want := range map[int64]policy.Limits{
		math.MaxInt64: {}, 1800 << 20: {View: 1800 << 16, Binding: 1800 << 16}, 64 << 30: {View: 512 << 20, Binding: 512 << 20}, 1: {View: 1 << 20, Binding: 1 << 20},
	} {
		if got := PolicyLimits(limit); got != want {
			t.Errorf("a limit of %d gives %+v, want %+v", limit, got, want)
		}
	}
}

// TestBudget_ScalesWithTheMemoryLimit shows that budgets act before the runtime's limit does,
// unless the configuration says otherwise.
func TestBudget_ScalesWithTheMemoryLimit(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("sources: {contexts: {names: [a]}}\nbudget: {bytes: 12345678}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(args ...string) Config {
		t.Helper()
		var f Flags
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Register(fs)
		if err := fs.Parse(append([]string{"--contexts", "a"}, args...)); err != nil {
			t.Fatal(err)
		}
		cfg, err := f.Load(fs, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	for _, tt := range []struct {
		limit int64
		want  Budget
		log   int64
	}{
		{math.MaxInt64, Budget{Bytes: 4 << 30, Objects: 2_000_000, ResponseBytes: 256 << 20}, 64 << 20},
		{1800 << 20, Budget{Bytes: 450 << 20, Objects: 2_000_000, ResponseBytes: 1800 << 16, FleetBytes: 900 << 20}, 1800 << 15},
		{64 << 30, Budget{Bytes: 4 << 30, Objects: 2_000_000, ResponseBytes: 256 << 20, FleetBytes: 32 << 30}, 64 << 20},
		{1 << 20, Budget{Bytes: 1 << 20, Objects: 2_000_000, ResponseBytes: 1 << 20, FleetBytes: 1 << 20}, 1 << 20},
	} {
		debug.SetMemoryLimit(tt.limit)
		cfg := load()
		if cfg.Budget != tt.want || cfg.Index.LogBytes != tt.log {
			t.Errorf("a limit of %d gives %+v and a log of %d, want %+v and %d", tt.limit, cfg.Budget, cfg.Index.LogBytes, tt.want, tt.log)
		}
		debug.SetMemoryLimit(tt.limit)
		if got := load("--config", file).Budget; got.Bytes != 12345678 || got.FleetBytes != tt.want.FleetBytes {
			t.Errorf("a limit of %d and a budget of one's own give %+v", tt.limit, got)
		}
	}
}
