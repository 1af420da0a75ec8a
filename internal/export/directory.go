package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ManifestName is the name of a directory's manifest, which is written after all files.
const ManifestName = "export.json"

// Manifest says what the files of a directory are.
type Manifest struct {
	Revision string `json:"revision"` // of all of them
	Files    []File `json:"files"`
}

// File is a file of a Manifest.
type File struct {
	Name string `json:"name"`
	Summary
}

// WriteDirectory writes a file of each kind into a directory, which it makes, and a manifest. They appear once all are
// whole; with an error, none does, unless the file system failed while they were renamed.
func WriteDirectory(ctx context.Context, dir string, o Options, source Source, kinds []string) (m *Manifest, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d := &directory{dir: dir, overwrite: o.Overwrite}
	defer func() { err = errors.Join(err, d.discard()) }()
	m = &Manifest{}
	for _, kind := range kinds {
		file, err := d.writeKind(ctx, o, source, kind)
		if err != nil {
			return nil, err
		}
		if m.Revision == "" {
			m.Revision = file.Revision
		}
		if file.Revision != m.Revision {
			return nil, fmt.Errorf("%s: %w: %s, others are of %s", kind, errRevision, file.Revision, m.Revision)
		}
		m.Files = append(m.Files, *file)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := d.write(ManifestName, func(f *os.File) error {
		_, err := f.Write(append(text, '\n'))
		return err
	}); err != nil {
		return nil, err
	}
	return m, d.commit()
}

var errRevision = errors.New("the rows are of another revision")

// directory holds files under temporary names.
type directory struct {
	dir       string
	overwrite bool
	files     []pending
}

// pending is a file that is whole, or was when writing failed.
type pending struct{ temporary, name string }

func (d *directory) writeKind(ctx context.Context, o Options, source Source, kind string) (*File, error) {
	from, err := source.Open(ctx, kind)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	file := &File{Name: from.Name() + "." + string(o.Format)}
	err = d.write(file.Name, func(f *os.File) error {
		s, err := Write(ctx, f, o, from)
		if err == nil {
			file.Summary = *s
		}
		return err
	})
	return file, err
}

// write writes a file under a temporary name.
func (d *directory) write(name string, fill func(*os.File) error) (err error) {
	target := filepath.Join(d.dir, name)
	if name != filepath.Base(target) {
		return fmt.Errorf("%q is no name of a file", name)
	}
	if _, err := os.Lstat(target); err == nil && !d.overwrite {
		return fmt.Errorf("%s: %w", target, os.ErrExist)
	}
	for _, other := range d.files {
		if other.name == target {
			return fmt.Errorf("%s: two files would have this name", target)
		}
	}
	f, err := os.CreateTemp(d.dir, "."+name+".*.partial")
	if err != nil {
		return err
	}
	d.files = append(d.files, pending{f.Name(), target})
	if err := fill(f); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}

// commit gives all files their names. What was written before has no manifest from here on, which would be of other files.
func (d *directory) commit() error {
	if d.overwrite {
		if err := os.Remove(filepath.Join(d.dir, ManifestName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	var named []string
	for _, f := range d.files {
		if err := d.name(f); err != nil {
			for _, name := range named { // which were not there before
				err = errors.Join(err, os.Remove(name))
			}
			return err
		}
		if !d.overwrite {
			named = append(named, f.name)
		}
	}
	dir, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// name gives a file its name, which no other has meanwhile got, unless that may be replaced.
func (d *directory) name(f pending) error {
	if d.overwrite {
		return os.Rename(f.temporary, f.name)
	}
	err := os.Link(f.temporary, f.name)
	if err == nil || errors.Is(err, os.ErrExist) {
		return err
	}
	if _, err := os.Lstat(f.name); err == nil { // the file system has no links
		return fmt.Errorf("%s: %w", f.name, os.ErrExist)
	}
	return os.Rename(f.temporary, f.name)
}

// discard removes the temporary names that there are.
func (d *directory) discard() (err error) {
	for _, f := range d.files {
		if gone := os.Remove(f.temporary); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
