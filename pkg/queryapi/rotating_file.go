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

// rotatingFile is a file that is appended to. When it would become larger than it may, it is
// set aside under a name with the time, and another is begun; what is older than may be
// kept, or more, is removed then. What is written at once stays in one file. Unlike the
// library that kube-apiserver has for it, it leaves no goroutine behind.
type rotatingFile struct {
	path       string
	maxBytes   int64
	maxBackups int
	maxAge     time.Duration // 0: any
	log        *slog.Logger

	mu          sync.Mutex
	file        *os.File
	size        int64
	notRegular  bool // there is one: it is a pipe or a device
	partialLine bool // its last line has no end
}

// backupTimeFormat is in names of files set aside, of one length, so that they sort by time.
const backupTimeFormat = "2006-01-02T15-04-05.000000000"

func openRotatingFile(a Audit, log *slog.Logger) (*rotatingFile, error) {
	r := &rotatingFile{path: a.LogFile, maxBytes: a.MaxBytes, maxBackups: a.MaxBackups, maxAge: a.MaxAge, log: log}
	if err := r.open(0o600); err != nil {
		return nil, err
	}
	if r.notRegular {
		return r, nil
	}
	// What is set aside is the file, not a link to it.
	path, err := filepath.EvalSymlinks(r.path)
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	r.path = path
	r.logError(r.prune())
	return r, nil
}

// open goes on with the file at the path, or begins it.
func (r *rotatingFile) open(mode fs.FileMode) error {
	_, err := os.Lstat(r.path)
	begun := errors.Is(err, fs.ErrNotExist)
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && begun && info.Mode().Perm() != mode {
		err = file.Chmod(mode) // whatever the umask is
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	r.file, r.size, r.notRegular = file, info.Size(), !info.Mode().IsRegular()
	r.partialLine = !r.notRegular && r.endsInPartialLine()
	return nil
}

// endsInPartialLine reports whether the file does not end with a line. One that may not be read
// is taken for whole.
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
	if r.partialLine { // or what is written now would be lost with it
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
		r.log.Warn("the audit log is not rotated as configured", "error", err)
	}
}

// rotate begins another file, or goes on with the one that there is.
func (r *rotatingFile) rotate() error {
	r.size = 0 // where it fails, it is tried again when as much has been written again
	mine, err := r.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(r.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	aside := "" // somebody else has taken it away, and may have put another in its place
	if os.SameFile(mine, there) {
		if aside, err = r.backupName(); err != nil {
			return err
		}
		if err := os.Rename(r.path, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	old := r.file
	if err := r.open(mine.Mode().Perm()); err != nil {
		if aside != "" {
			err = errors.Join(err, os.Rename(aside, r.path))
		}
		return err
	}
	return errors.Join(old.Close(), r.prune())
}

// backupName is a name that nothing has yet.
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

// backupAffixes is what names of files set aside have before and after the time.
func (r *rotatingFile) backupAffixes() (before, after string) {
	base := filepath.Base(r.path)
	after = filepath.Ext(base)
	return strings.TrimSuffix(base, after) + "-", after
}

// prune removes what is set aside and not to be kept.
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
