package checkout

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// tree is a directory in memory as an fs.FS. It is immutable.
type tree struct{ root *dir }

// node is a dir or a file.
type node interface {
	fs.FileInfo
	fs.DirEntry
	open(path string) fs.File
}

type dir struct {
	name    string
	entries []node // sorted by name after sort
}

type file struct{ name, data string }

func (d *dir) add(n node) { d.entries = append(d.entries, n) }

// sort orders entries by name, which is not git's order.
func (d *dir) sort() {
	slices.SortFunc(d.entries, func(a, b node) int { return cmp.Compare(a.Name(), b.Name()) })
}

// Open implements fs.FS.
func (t tree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	var at node = t.root
	if name != "." {
		for part := range strings.SplitSeq(name, "/") {
			d, ok := at.(*dir)
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			i, ok := slices.BinarySearchFunc(d.entries, part, func(n node, part string) int { return cmp.Compare(n.Name(), part) })
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			at = d.entries[i]
		}
	}
	return at.open(name), nil
}

func (d *dir) Name() string               { return d.name }
func (d *dir) Size() int64                { return 0 }
func (d *dir) Mode() fs.FileMode          { return fs.ModeDir | 0o555 }
func (d *dir) ModTime() time.Time         { return time.Time{} }
func (d *dir) IsDir() bool                { return true }
func (d *dir) Sys() any                   { return nil }
func (d *dir) Type() fs.FileMode          { return fs.ModeDir }
func (d *dir) Info() (fs.FileInfo, error) { return d, nil }
func (d *dir) open(path string) fs.File   { return &openDir{dir: d, path: path} }

func (f *file) Name() string               { return f.name }
func (f *file) Size() int64                { return int64(len(f.data)) }
func (f *file) Mode() fs.FileMode          { return 0o444 }
func (f *file) ModTime() time.Time         { return time.Time{} }
func (f *file) IsDir() bool                { return false }
func (f *file) Sys() any                   { return nil }
func (f *file) Type() fs.FileMode          { return 0 }
func (f *file) Info() (fs.FileInfo, error) { return f, nil }
func (f *file) open(string) fs.File        { return &openFile{strings.NewReader(f.data), f} }

type openFile struct {
	*strings.Reader
	file *file
}

func (o *openFile) Stat() (fs.FileInfo, error) { return o.file, nil }
func (o *openFile) Close() error               { return nil }

type openDir struct {
	dir  *dir
	path string
	next int
}

func (o *openDir) Stat() (fs.FileInfo, error) { return o.dir, nil }
func (o *openDir) Close() error               { return nil }

func (o *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: o.path, Err: errors.New("is a directory")}
}

// ReadDir implements fs.ReadDirFile.
func (o *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	left := len(o.dir.entries) - o.next
	if n > 0 && left == 0 {
		return nil, io.EOF
	}
	if n > 0 {
		left = min(left, n)
	}
	out := make([]fs.DirEntry, left)
	for i := range out {
		out[i] = o.dir.entries[o.next+i]
	}
	o.next += left
	return out, nil
}
