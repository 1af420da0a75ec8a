package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/grantmemory"
	"federator.dev/federator/internal/verdictmemory"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/persistence"
	"federator.dev/federator/pkg/queryapi"
)

// keeper keeps the index on disk over restarts. A nil keeper keeps nothing.
type keeper struct {
	store  *persistence.Store // nil: the directory cannot be used, Why
	grants *grantmemory.Memory
	// verdicts is what outlasts the process of verdicts.
	verdicts *verdictmemory.Memory
	history  *history.History // nil: it is not kept
	why      error
	log      *slog.Logger
	onKept   func(why string)
	loaded   atomic.Bool
}

// openKeeper opens the directory that the index is kept in, nil where none is configured. A directory
// that cannot be used is no reason not to serve: what is there is listed.
func openKeeper(cfg *config.Config, form func(aggregate.Kind) string, read func(aggregate.Kind) bool, opts Options) (*keeper, error) {
	dir, err := PersistenceDirectory(cfg)
	if dir == "" || err != nil {
		return nil, err
	}
	key, err := ReadKey(cfg.Persistence.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("persistence.keyFile: %w", err)
	}
	log := opts.Logger
	k := &keeper{log: log, onKept: opts.OnKept, grants: grantmemory.New(dir, log)}
	if k.verdicts, err = verdictmemory.New(dir, key, log); err != nil {
		return nil, err
	}
	k.store, k.why = persistence.Open(persistence.Options{
		Directory: dir, MaxBytes: cfg.Persistence.MaxBytes, Key: key, Form: form, Log: log, OnChange: opts.OnKept, Ahead: k.ahead,
	})
	if k.why != nil {
		k.loaded.Store(true) // as empty as it is
		log.Error("nothing is kept over a restart", "error", k.why)
		return k, nil
	}
	k.openHistory(cfg, dir, key, read, opts)
	return k, nil
}

// PersistenceDirectory returns where the index is kept, "" for nowhere.
func PersistenceDirectory(cfg *config.Config) (string, error) {
	switch {
	case cfg.Persistence.Off:
		return "", nil
	case cfg.Persistence.Directory != "":
		return cfg.Persistence.Directory, nil
	case cfg.HasHub(), cfg.KeepSecretValues && cfg.Persistence.KeyFile == "":
		return "", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil // somebody without a home keeps nothing
	}
	sources, err := json.Marshal(cfg.Sources) // each fleet has its own
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(sources)
	return filepath.Join(cache, "federator", hex.EncodeToString(sum[:8])), nil
}

// ReadKey returns the key of a file, nil without one.
func ReadKey(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, errors.New("it is not base64") // the error would have some of the key
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("it has %d bytes, must have 32", len(key))
	}
	return key, nil
}

// Load loads what an earlier process has kept. It is done before anything else runs.
func (f *Fleet) Load(ctx context.Context) {
	k := f.keeper
	if k == nil || k.store == nil {
		return
	}
	defer k.loaded.Store(true)
	defer k.beginHistory(f.Index)
	from := time.Now()
	k.verdicts.Open(func() (aggregate.Revision, bool) {
		if f.Loading() {
			return 0, false
		}
		return f.Index.Snapshot().Revision(), true
	})
	// What readers know of is loaded only if it is remembered what they are sent from here on.
	failed := k.grants.Open(f.Index.First())
	if failed != nil {
		k.log.Error("nothing is loaded: under which grants it is read cannot be kept", "error", failed)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		ctx = ended // the store then keeps nothing
	}
	got, err := k.store.Load(ctx, f.Index)
	for member, why := range got.Dropped {
		k.log.Warn("some of what was kept of a member is not sound, and is listed again", "member", member, "error", why)
	}
	if err != nil {
		k.log.Error("what was kept cannot be read, and is listed again", "error", err)
	}
	f.lost = func(member string) bool { _, is := got.Dropped[member]; return is }
	if err != nil || failed != nil || got.Members == 0 && got.Why != "" {
		f.lost = func(string) bool { return true }
	}
	if err != nil || failed != nil {
		return
	}
	f.Manager.Adopt()
	f.known.Store(got.Members > 0 && len(got.Dropped) == 0)
	k.log.Info("loaded what was kept", "members", got.Members, "scopes", got.Scopes, "objects", got.Objects, "within", time.Since(from).Round(time.Millisecond),
		"revision", got.Revision, "readersListAgain", got.Why)
}

// Loading reports whether the index is not yet what it was before a restart. Where not all of it could be
// kept, that is until all members are known, and those were read again of which something was lost: a list
// without that would say that it is deleted. A member or hub that does not answer does not hold it up for good.
func (f *Fleet) Loading() bool {
	if f.keeper != nil && !f.keeper.loaded.Load() {
		return true
	}
	if !f.known.Load() && (f.found() || time.Since(f.made) > f.giveUpAfter) {
		f.known.Store(true)
	}
	return !f.known.Load()
}

// found reports whether the index has what was lost of it.
func (f *Fleet) found() bool {
	if !f.Manager.Known() {
		return false
	}
	if f.lost == nil {
		return true
	}
	_, waiting := f.Manager.Ready()
	return !slices.ContainsFunc(waiting, f.lost)
}

// Keep keeps the index on disk until ctx is done. Load must have returned.
func (f *Fleet) Keep(ctx context.Context) error {
	k := f.keeper
	if k == nil || k.store == nil {
		if k != nil && k.onKept != nil {
			k.onKept(k.why.Error())
		}
		<-ctx.Done()
		return nil
	}
	beside, end := context.WithCancel(ctx) // a store that ends before ctx ends all of it
	recorded, endHistory := context.WithCancel(context.WithoutCancel(ctx))
	var wg, recording sync.WaitGroup
	wg.Go(func() { k.verdicts.Run(beside) })
	if k.history != nil {
		recording.Go(func() {
			if err := k.history.Run(recorded); err != nil {
				k.log.Error("what happens is not recorded any more", "error", err)
			}
		})
	}
	err := k.store.Run(ctx, f.Index)
	endHistory() // the store waits for it until its last write
	recording.Wait()
	end()
	wg.Wait()
	k.grants.Close(ctx.Err() != nil) // readers are served until ctx is done
	return errors.Join(err, k.store.Close())
}

// Grants remembers under which grants callers of the query API are sent objects, nil where nothing is
// kept over a restart.
func (f *Fleet) Grants() queryapi.GrantMemory {
	if k := f.keeper; k != nil && k.store != nil {
		return k.grants
	}
	return nil
}

// Verdicts keeps what of verdicts outlasts the process, or who judges a member, nil where nothing does.
func (f *Fleet) Verdicts() enforce.Memory {
	if f.Memory == nil {
		return nil
	}
	return f.Memory
}

// newMemory returns what is kept of verdicts: on disk, or where others take members over in memory, or nil.
func newMemory(k *keeper, shared bool, log *slog.Logger) (*verdictmemory.Memory, error) {
	switch {
	case k != nil && k.store != nil:
		return k.verdicts, nil
	case shared:
		return verdictmemory.New("", nil, log)
	}
	return nil, nil
}

// Kept says how what is kept on disk is, for probes; "" where nothing is to be said.
func (f *Fleet) Kept() string {
	k := f.keeper
	switch {
	case k == nil:
		return ""
	case k.store == nil:
		return "nothing is kept over a restart: " + k.why.Error()
	}
	if s := k.store.Status(); s.Error != "" {
		return fmt.Sprintf("nothing is kept over a restart since %s: %s", s.Since.UTC().Format(time.RFC3339), s.Error)
	}
	return ""
}

var (
	descKept = prometheus.NewDesc("federator_persistence_up", "Whether the index is kept on disk.", nil, nil)
	descSlow = prometheus.NewDesc("federator_persistence_slow_total", "Times that readers did not wait for the disk.", nil, nil)
)

// Describe implements prometheus.Collector.
func (k *keeper) Describe(ch chan<- *prometheus.Desc) {
	ch <- descKept
	ch <- descSlow
}

// Collect implements prometheus.Collector.
func (k *keeper) Collect(ch chan<- prometheus.Metric) {
	up, slow := 0.0, 0.0
	if k.store != nil {
		s := k.store.Status()
		slow = float64(s.Slow)
		if s.Error == "" {
			up = 1
		}
	}
	ch <- prometheus.MustNewConstMetric(descKept, prometheus.GaugeValue, up)
	ch <- prometheus.MustNewConstMetric(descSlow, prometheus.CounterValue, slow)
}
