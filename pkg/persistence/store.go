package persistence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"federator.dev/federator/internal/dirlock"
	"federator.dev/federator/pkg/aggregate"
)

// Options configure a Store.
type Options struct {
	// Directory has everything. It is made if it is not there, readable by its owner only.
	Directory string
	// MaxBytes bounds what is on disk; 0 means 16 GiB.
	MaxBytes int64
	// Key encrypts all files, 32 bytes; none: they are not encrypted.
	Key []byte
	// Form says what of a kind is held: what was written with another form is dropped.
	Form func(aggregate.Kind) string
	// Boot identifies the run of the operating system: what was written and not synced is lost
	// with it. "" reads it from the kernel.
	Boot string
	Log  *slog.Logger
	// OnChange is called, if it is not nil, when nothing is kept any more, with why, and with "" once it is
	// again. It must not block.
	OnChange func(why string)
	// Ahead is called, if it is not nil, before what was committed up to a revision is written, and returns when that may
	// be done. Readers do not wait for it for much more than a second.
	Ahead func(context.Context, aggregate.Revision)
}

const defaultMaxBytes = 16 << 30

func (o *Options) check() error {
	switch {
	case o.Directory == "":
		return errors.New("persistence: Options.Directory is empty")
	case o.MaxBytes < 0:
		return fmt.Errorf("persistence: Options.MaxBytes is %d, must not be negative", o.MaxBytes)
	case len(o.Key) != 0 && len(o.Key) != 32:
		return fmt.Errorf("persistence: Options.Key has %d bytes, must have 32", len(o.Key))
	case o.Form == nil:
		return errors.New("persistence: Options.Form is nil")
	case o.Log == nil:
		return errors.New("persistence: Options.Log is nil")
	}
	return nil
}

// Store is the index on disk, in a directory that is its own.
type Store struct {
	opts Options
	lock *os.File

	saving sync.Mutex
	saved  map[aggregate.DictionaryID]int64 // bytes on disk

	// What was loaded and is not continued yet, by name; nil: all is to be rewritten.
	ready      bool // Load was called
	ended      bool // before it had loaded: what is on disk stays
	loaded     map[string]*loadedMember
	bridges    []bridge
	compaction *rate.Limiter
	health     health
}

// ErrLocked is returned for a directory that another process uses.
var ErrLocked = dirlock.ErrLocked

// Open locks a directory and returns its store.
func Open(opts Options) (*Store, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	if opts.Boot == "" {
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err == nil {
			opts.Boot = strings.TrimSpace(string(boot))
		}
	}
	if err := os.MkdirAll(opts.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("persistence: %w", err)
	}
	lock, err := dirlock.Lock(opts.Directory)
	if err != nil {
		return nil, fmt.Errorf("persistence: %w", err)
	}
	s := &Store{opts: opts, lock: lock, saved: map[aggregate.DictionaryID]int64{}, compaction: rate.NewLimiter(compactRate, compactBurst)}
	s.health.onChange = opts.OnChange
	return s, nil
}

// Close releases the directory.
func (s *Store) Close() error { return s.lock.Close() }

// manifest says what the files are of.
type manifest struct {
	Format int    `json:"format"`
	Boot   string `json:"boot"`
	Sealed bool   `json:"sealed,omitempty"`

	// Bridges are the loads that readers may come from before.
	Bridges []bridge `json:"bridges,omitempty"`
}

const (
	manifestName = "manifest.json"
	lockName     = "lock"
)

// Loaded says what was loaded.
type Loaded struct {
	Members, Scopes, Objects int
	// Revision is up to which readers may go on; 0: they list again, Why.
	Revision aggregate.Revision
	Why      string
	Dropped  map[string]error // members of which something was dropped
}

// Load loads an index that is empty. What is not sound is dropped, and reported: it is listed
// again, as if it had never been there.
//
// After an error, which is of the disk and not of what is on it, Run rewrites all; where it is that
// of ctx Run changes nothing on disk. A disk that does not answer for a minute is an error.
func (s *Store) Load(ctx context.Context, x *aggregate.Index) (Loaded, error) {
	s.ready = true
	l := &loading{store: s, index: x, loader: x.Load(), members: map[string]*loadedMember{}}
	out, err := l.load(ctx)
	switch {
	case err == nil:
		s.loaded, s.bridges = l.members, l.bridges
	case ctx.Err() != nil:
		s.ended = true
	}
	return out, err
}

// clear removes what is on disk.
func (s *Store) clear() error {
	return errors.Join(
		os.RemoveAll(filepath.Join(s.opts.Directory, endsName)),
		os.RemoveAll(filepath.Join(s.opts.Directory, membersDir)),
		os.RemoveAll(filepath.Join(s.opts.Directory, dictionariesDir)),
		os.RemoveAll(filepath.Join(s.opts.Directory, manifestName)),
	)
}
