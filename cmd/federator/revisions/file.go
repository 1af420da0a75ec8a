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

// lockRetry is how often a lock that another process holds is tried for.
const lockRetry = 5 * time.Millisecond

type fileStore struct{ path string }

// InFile keeps the number in a file of this machine, whose directory is made if need be.
// A file beside it, with .lock after its name, keeps other processes out meanwhile.
func InFile(path string) Store { return fileStore{path} }

func (s fileStore) String() string { return "file " + s.path }

// Reserve implements Store.
func (s fileStore) Reserve(ctx context.Context, floor uint64) (n uint64, err error) {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return 0, err
	}
	lock := flock.New(s.path+".lock", flock.SetPermissions(0o600)) // stays, for whoever waits for it
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return 0, fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	kept, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if n, err = following(string(kept), floor); err != nil {
		return 0, err
	}
	return n, replace(s.path, []byte(strconv.FormatUint(n, 10)+"\n"))
}

// replace writes a file so that it is there whole, or as it was, whatever ends us.
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
