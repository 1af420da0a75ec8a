package revisions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gofrs/flock"
)

// lockRetry is the interval between attempts at a lock that another process holds.
const lockRetry = 5 * time.Millisecond

type fileStore struct{ path string }

// InFile keeps the number in a file on this machine and creates its directory if
// necessary. A file next to it, with the suffix .lock, excludes other processes meanwhile.
func InFile(path string) Store { return fileStore{path} }

func (s fileStore) String() string { return "file " + s.path }

// Reserve implements Store.
func (s fileStore) Reserve(ctx context.Context, floor uint64) (n uint64, err error) {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return 0, err
	}
	lock := flock.New(s.path+".lock", flock.SetPermissions(0o600)) // not removed: others may be waiting for it
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return 0, fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	stored, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if n, err = nextBlock(string(stored), floor); err != nil {
		return 0, err
	}
	return n, replace(s.path, []byte(strconv.FormatUint(n, 10)+"\n"))
}

// replace replaces a file atomically, even if the process is killed.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
