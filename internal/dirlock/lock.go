// Package dirlock locks a directory for one process, by a file in it.
package dirlock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// name is that of the file that is locked.
const name = "lock"

// ErrLocked is returned for a directory that another process uses.
var ErrLocked = errors.New("another process uses the directory")

// Lock locks a directory until the file is closed. The error is ErrLocked where it is locked already.
func Lock(directory string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(directory, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(f.Fd(), setLock, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = ErrLocked
	}
	return nil, fmt.Errorf("directory %s: %w", directory, err)
}

// InUse reports whether a process has a directory locked. It locks nothing: a process that starts
// meanwhile would take the directory for used.
func InUse(directory string) bool {
	f, err := os.Open(filepath.Join(directory, name))
	if err != nil {
		return false
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	return unix.FcntlFlock(f.Fd(), getLock, &l) == nil && l.Type != unix.F_UNLCK
}
