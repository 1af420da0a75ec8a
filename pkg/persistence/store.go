package persistence

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/time/rate"

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

// ErrLocked is returned for a directory that another process uses.
var ErrLocked = errors.New("another process uses the directory")

// Store is the index on disk, in a directory that is its own.
type Store struct {
	opts Options
	lock *os.File

	saving sync.Mutex
	saved  map[aggregate.DictionaryID]int64 // bytes on disk

	// What was loaded and is not continued yet, by name; nil: all is to be written anew.
	ready      bool // Load was called
	loaded     map[string]*loadedMember
	bridges    []bridge
	compaction *rate.Limiter
	health     health
}

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
	lock, err := os.OpenFile(filepath.Join(opts.Directory, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("persistence: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, fmt.Errorf("persistence: directory %s: %w", opts.Directory, err)
	}
	return &Store{opts: opts, lock: lock, saved: map[aggregate.DictionaryID]int64{}, compaction: rate.NewLimiter(compactRate, compactBurst)}, nil
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
	tipName      = "tip"
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
// After an error, which is of the disk and not of what is on it, Run writes all anew.
func (s *Store) Load(ctx context.Context, x *aggregate.Index) (Loaded, error) {
	s.ready, s.loaded = true, map[string]*loadedMember{}
	out, err := s.load(ctx, x)
	if err != nil {
		s.loaded = nil
	}
	return out, err
}

func (s *Store) load(ctx context.Context, x *aggregate.Index) (Loaded, error) {
	out := Loaded{Dropped: map[string]error{}}
	var m manifest
	text, err := os.ReadFile(filepath.Join(s.opts.Directory, manifestName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return out, s.clear()
	case err != nil:
		return out, fmt.Errorf("persistence: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil || m.Format != formatVersion || m.Sealed != (len(s.opts.Key) > 0) {
		out.Why = "what is on disk has another format"
		return out, s.clear()
	}
	tip, why := s.readTip()
	if m.Boot == "" || m.Boot != s.opts.Boot {
		tip, why = 0, "the machine was started since"
	}
	if first := x.First(); tip >= first {
		out.Why = fmt.Sprintf("revision %d on disk is not below those of this process, from %d on", tip, first)
		return out, s.clear()
	}
	l := x.Load()
	if err := s.loadDictionaries(l); err != nil {
		return out, fmt.Errorf("persistence: dictionaries: %w", err)
	}
	if err := s.loadMembers(ctx, l, tip); err != nil {
		return out, fmt.Errorf("persistence: %w", err)
	}
	for name, m := range s.loaded {
		if m.doubt != nil {
			out.Dropped[name] = m.doubt
			tip, why = 0, "something was lost"
		}
		if m.base > tip {
			tip, why = 0, "a segment has what readers may not have seen"
		}
		if len(m.dropped) > 0 {
			tip, why = 0, "some kinds are held otherwise now"
		}
	}
	for _, b := range m.Bridges {
		l.Bridge(b.Since, b.To)
	}
	if out.Revision, err = l.Finish(tip); err != nil {
		return out, fmt.Errorf("persistence: %w", err)
	}
	if out.Revision > 0 {
		s.bridges = append(m.Bridges, bridge{out.Revision, x.Snapshot().Revision()})
		s.bridges = s.bridges[max(0, len(s.bridges)-maxBridges):]
	}
	if out.Why = why; out.Revision == 0 && why == "" {
		out.Why = "what was written last does not follow what was before"
	}
	if err := s.dropDictionaries(l); err != nil {
		return out, fmt.Errorf("persistence: dictionaries: %w", err)
	}
	snap := x.Snapshot()
	out.Objects, _ = snap.Size()
	for range snap.Members() {
		out.Members++
	}
	for range snap.Scopes("") {
		out.Scopes++
	}
	return out, nil
}

// clear removes what is on disk.
func (s *Store) clear() error {
	return errors.Join(
		os.RemoveAll(filepath.Join(s.opts.Directory, tipName)),
		os.RemoveAll(filepath.Join(s.opts.Directory, membersDir)),
		os.RemoveAll(filepath.Join(s.opts.Directory, dictionariesDir)),
		os.RemoveAll(filepath.Join(s.opts.Directory, manifestName)),
	)
}

// loadMembers loads all members, as many at a time as there are processors.
func (s *Store) loadMembers(ctx context.Context, l *aggregate.Loader, tip aggregate.Revision) error {
	entries, err := os.ReadDir(filepath.Join(s.opts.Directory, membersDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var mu sync.Mutex
	var failed error
	var running sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, e := range entries {
		name, err := url.PathUnescape(e.Name())
		if err != nil {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			r := &memberReader{
				loader: l, key: s.opts.Key, name: name, dir: memberDir(s.opts.Directory, name), form: s.opts.Form, seen: tip,
				forms: map[aggregate.Kind]string{},
			}
			err := r.load(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("member %q: %w", name, err))
				return
			}
			s.loaded[name] = &r.out
		})
	}
	running.Wait()
	return failed
}

// readTip returns the last revision that readers may have seen.
func (s *Store) readTip() (aggregate.Revision, string) {
	b, err := os.ReadFile(filepath.Join(s.opts.Directory, tipName))
	if err != nil || len(b) != tipBytes || crc32.Checksum(b[:8], castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return 0, "it is not known what readers have seen"
	}
	return aggregate.Revision(binary.LittleEndian.Uint64(b)), ""
}

const tipBytes = 12

func appendTip(dst []byte, r aggregate.Revision) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r))
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[len(dst)-8:], castagnoli))
}
