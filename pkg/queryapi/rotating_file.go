package queryapi

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// rotatingFile is a file that is appended to. Before it grows beyond maxBytes it is renamed
// with the time in its name, and a new one is created; backups beyond maxBackups or maxAge
// are then removed. A single write is never split. Unlike lumberjack, which kube-apiserver
// uses, it leaves no goroutine behind.
type rotatingFile struct {
	path       string
	maxBytes   int64
	maxBackups int
	maxAge     time.Duration // 0: any
	log        *slog.Logger

	mu          sync.Mutex
	file        *os.File
	size        int64
	notRegular  bool // a pipe or a device, which is not rotated
	partialLine bool // the last line does not end with a newline
}

// backupTimeFormat is in names of backups, of fixed length, so that they sort by time.
const backupTimeFormat = "2006-01-02T15-04-05.000000000"

func openRotatingFile(a Audit, log *slog.Logger) (*rotatingFile, error) {
	r := &rotatingFile{path: a.LogFile, maxBytes: a.MaxBytes, maxBackups: a.MaxBackups, maxAge: a.MaxAge, log: log}
	if err := r.open(0o600); err != nil {
		return nil, err
	}
	if r.notRegular {
		return r, nil
	}
	// The file is renamed, not a link to it.
	path, err := filepath.EvalSymlinks(r.path)
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	r.path = path
	r.logError(r.prune())
	return r, nil
}

// open opens the file, or creates it.
func (r *rotatingFile) open(mode fs.FileMode) error {
	_, err := os.Lstat(r.path)
	created := errors.Is(err, fs.ErrNotExist)
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && created && info.Mode().Perm() != mode {
		err = file.Chmod(mode) // regardless of the umask
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	r.file, r.size, r.notRegular = file, info.Size(), !info.Mode().IsRegular()
	r.partialLine = !r.notRegular && r.endsInPartialLine()
	return nil
}

// endsInPartialLine reports whether the file does not end with a newline. One that cannot be
// read is assumed to.
func (r *rotatingFile) endsInPartialLine() bool {
	if r.size == 0 {
		return false
	}
	file, err := os.Open(r.path)
	if err != nil {
		return false
	}
	var last [1]byte
	_, err = file.ReadAt(last[:], r.size-1)
	return errors.Join(err, file.Close()) == nil && last[0] != '\n'
}

// Write implements io.Writer.
func (r *rotatingFile) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.notRegular && r.size > 0 && r.size+int64(len(p)) > r.maxBytes {
		r.logError(r.rotate())
	}
	if r.partialLine { // else this line would be lost, too
		if _, err := r.file.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		r.size++
		r.partialLine = false
	}
	n, err := r.file.Write(p)
	r.size += int64(n)
	r.partialLine = n > 0 && n < len(p) && !r.notRegular
	return n, err
}

// Close implements io.Closer.
func (r *rotatingFile) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Close()
}

func (r *rotatingFile) logError(err error) {
	if err != nil {
		r.log.Warn("query API: audit log rotation failed", "error", err)
	}
}

// rotate starts a new file, or keeps the present one where that fails.
func (r *rotatingFile) rotate() error {
	r.size = 0 // on failure, try again after another maxBytes
	mine, err := r.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(r.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	backup := "" // else the file has been moved, and maybe replaced
	if os.SameFile(mine, there) {
		if backup, err = r.backupName(); err != nil {
			return err
		}
		if err := os.Rename(r.path, backup); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	old := r.file
	if err := r.open(mine.Mode().Perm()); err != nil {
		if backup != "" {
			err = errors.Join(err, os.Rename(backup, r.path))
		}
		return err
	}
	return errors.Join(old.Close(), r.prune())
}

// backupName returns an unused name.
func (r *rotatingFile) backupName() (string, error) {
	before, after := r.backupAffixes()
	for at := time.Now().UTC(); ; at = at.Add(time.Nanosecond) {
		name := filepath.Join(filepath.Dir(r.path), before+at.Format(backupTimeFormat)+after)
		switch _, err := os.Lstat(name); {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil
		case err != nil:
			return "", err
		}
	}
}

// backupAffixes are what names of backups have before and after the time.
func (r *rotatingFile) backupAffixes() (before, after string) {
	base := filepath.Base(r.path)
	after = filepath.Ext(base)
	return strings.TrimSuffix(base, after) + "-", after
}

// prune removes backups above the limits.
func (r *rotatingFile) prune() error {
	dir := filepath.Dir(r.path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	type backup struct {
		name string
		at   time.Time
	}
	var list []backup
	before, after := r.backupAffixes()
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), before)
		name, ends := strings.CutSuffix(name, after)
		if at, err := time.Parse(backupTimeFormat, name); err == nil && ok && ends && e.Type().IsRegular() {
			list = append(list, backup{e.Name(), at})
		}
	}
	slices.SortFunc(list, func(a, b backup) int { return cmp.Or(b.at.Compare(a.at), strings.Compare(b.name, a.name)) })
	var errs []error
	for i, b := range list {
		if i < r.maxBackups && (r.maxAge == 0 || time.Since(b.at) <= r.maxAge) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, b.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove: %w", err))
		}
	}
	return errors.Join(errs...)
}
