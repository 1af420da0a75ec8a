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

// rotated is a file that is appended to. When it would become larger than it may, it is
// set aside under a name with the time, and another is begun; what is older than may be
// kept, or more, is removed then. What is written at once stays in one file. Unlike the
// library that kube-apiserver has for it, it leaves no goroutine behind.
type rotated struct {
	path    string
	most    int64
	backups int
	age     time.Duration // 0: any
	log     *slog.Logger

	mu   sync.Mutex
	file *os.File
	size int64
	only bool // there is one: it is a pipe or a device
}

// backupTime is in names of files set aside, of one length, so that they sort by time.
const backupTime = "2006-01-02T15-04-05.000000000"

func openRotated(a Audit, log *slog.Logger) (*rotated, error) {
	r := &rotated{path: a.LogFile, most: a.MaxBytes, backups: a.MaxBackups, age: a.MaxAge, log: log}
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r.file, r.size, r.only = file, info.Size(), !info.Mode().IsRegular()
	if !r.only {
		r.tell(r.prune())
	}
	return r, nil
}

// Write implements io.Writer.
func (r *rotated) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.only && r.size > 0 && r.size+int64(len(p)) > r.most {
		r.tell(r.rotate())
		r.size = 0 // where it failed, it is tried again when as much has been written again
	}
	n, err := r.file.Write(p)
	r.size += int64(n)
	return n, err
}

// Close implements io.Closer.
func (r *rotated) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Close()
}

func (r *rotated) tell(err error) {
	if err != nil {
		r.log.Warn("the audit log is not rotated as configured", "error", err)
	}
}

// rotate begins another file, or goes on with the one that there is.
func (r *rotated) rotate() error {
	aside, err := r.aside()
	if err != nil {
		return err
	}
	if err := os.Rename(r.path, aside); err != nil {
		return err
	}
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return errors.Join(err, os.Rename(aside, r.path))
	}
	old := r.file
	r.file = file
	return errors.Join(old.Close(), r.prune())
}

// aside is a name that nothing has yet.
func (r *rotated) aside() (string, error) {
	before, after := r.around()
	for at := time.Now().UTC(); ; at = at.Add(time.Nanosecond) {
		name := filepath.Join(filepath.Dir(r.path), before+at.Format(backupTime)+after)
		switch _, err := os.Lstat(name); {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil
		case err != nil:
			return "", err
		}
	}
}

// around is what names of files set aside have before and after the time.
func (r *rotated) around() (before, after string) {
	base := filepath.Base(r.path)
	after = filepath.Ext(base)
	return strings.TrimSuffix(base, after) + "-", after
}

// prune removes what is set aside and not to be kept.
func (r *rotated) prune() error {
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
	before, after := r.around()
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), before)
		name, ends := strings.CutSuffix(name, after)
		if at, err := time.Parse(backupTime, name); err == nil && ok && ends {
			list = append(list, backup{e.Name(), at})
		}
	}
	slices.SortFunc(list, func(a, b backup) int { return cmp.Or(b.at.Compare(a.at), strings.Compare(b.name, a.name)) })
	var errs []error
	for i, b := range list {
		if i < r.backups && (r.age == 0 || time.Since(b.at) <= r.age) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, b.name)); err != nil {
			errs = append(errs, fmt.Errorf("remove: %w", err))
		}
	}
	return errors.Join(errs...)
}
