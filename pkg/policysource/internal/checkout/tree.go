package checkout

import (
	"bytes"
	"context"
	"io/fs"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// entry is an entry of a tree object.
type entry struct {
	mode filemode.FileMode
	name string
	hash plumbing.Hash
}

// parseTree parses a tree object: mode SP name NUL hash, repeated.
func parseTree(data []byte, at string) ([]entry, error) {
	var out []entry
	names := map[string]bool{}
	for len(data) > 0 {
		space := bytes.IndexByte(data, ' ')
		end := bytes.IndexByte(data, 0)
		if space < 0 || end < space || len(data) < end+1+len(plumbing.ZeroHash) {
			return nil, fail(ErrContent, "the directory %q is not in git's format", shorten(at))
		}
		mode, err := filemode.New(string(data[:space]))
		if err != nil {
			return nil, fail(ErrContent, "the directory %q has an entry with an unknown mode", shorten(at))
		}
		e := entry{mode: mode, name: string(data[space+1 : end])}
		data = data[end+1:]
		copy(e.hash[:], data)
		data = data[len(e.hash):]
		if err := checkName(e.name); err != nil {
			return nil, fail(ErrContent, "the directory %q has an entry %q: %v", shorten(at), shorten(e.name), err)
		}
		if names[e.name] {
			return nil, fail(ErrContent, "the directory %q has two entries %q", shorten(at), shorten(e.name))
		}
		names[e.name] = true
		out = append(out, e)
	}
	return out, nil
}

type nameError string

func (e nameError) Error() string { return string(e) }

// checkName rejects names that have a special meaning on any system.
func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return nameError("it is not a name")
	case strings.EqualFold(name, ".git"):
		return nameError("it is reserved for git")
	case strings.ContainsAny(name, `/\`):
		return nameError("it contains a slash")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return nameError("it is not printable UTF-8")
	case len(name) > 255:
		return nameError("it has more than 255 bytes")
	}
	return nil
}

// treeReader reads a tree into memory, within limits.
type treeReader struct {
	objects storer.EncodedObjectStorer
	limits  Limits
	files   int
	dirs    int
	bytes   int64
}

// read reads the directory at a path of a commit's tree.
func (w *treeReader) read(ctx context.Context, root plumbing.Hash, at string) (fs.FS, error) {
	hash := root
	if at != "." {
		done := "."
		for part := range strings.SplitSeq(at, "/") {
			entries, err := w.readTree(ctx, hash, done)
			if err != nil {
				return nil, err
			}
			done = path.Join(done, part)
			if hash, err = lookupDir(entries, part, done); err != nil {
				return nil, err
			}
		}
	}
	out := &dir{name: "."}
	if err := w.readDir(ctx, out, hash, at, 0); err != nil {
		return nil, err
	}
	if w.files == 0 {
		return nil, fail(ErrEmpty, "there are no files below %q", shorten(at))
	}
	return tree{out}, nil
}

// lookupDir returns the hash of the directory of a name.
func lookupDir(entries []entry, name, at string) (plumbing.Hash, error) {
	for _, e := range entries {
		if e.name != name {
			continue
		}
		if e.mode != filemode.Dir {
			return e.hash, fail(ErrContent, "%q is a %s, not a directory", shorten(at), modeName(e.mode))
		}
		return e.hash, nil
	}
	return plumbing.ZeroHash, fail(ErrEmpty, "the commit has no directory %q", shorten(at))
}

func modeName(m filemode.FileMode) string {
	switch m {
	case filemode.Symlink:
		return "symbolic link"
	case filemode.Submodule:
		return "submodule"
	case filemode.Dir:
		return "directory"
	}
	return "file"
}

func (w *treeReader) readTree(ctx context.Context, hash plumbing.Hash, at string) ([]entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, err := read(w.objects, plumbing.TreeObject, hash, maxTree, "the directory "+shorten(at))
	if err != nil {
		return nil, err
	}
	return parseTree(data, at)
}

// readDir reads a directory that is depth levels below the path.
func (w *treeReader) readDir(ctx context.Context, into *dir, hash plumbing.Hash, at string, depth int) error {
	if depth > w.limits.Depth {
		return fail(ErrLimit, "%q is more than %d directories deep", shorten(at), w.limits.Depth)
	}
	if w.dirs++; w.dirs > w.limits.Dirs {
		return fail(ErrLimit, "there are more than %d directories", w.limits.Dirs)
	}
	entries, err := w.readTree(ctx, hash, at)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(at, e.name)
		switch e.mode {
		case filemode.Dir:
			sub := &dir{name: e.name}
			if err := w.readDir(ctx, sub, e.hash, name, depth+1); err != nil {
				return err
			}
			into.add(sub)
		case filemode.Regular, filemode.Executable, filemode.Deprecated:
			f, err := w.readFile(ctx, e, name)
			if err != nil {
				return err
			}
			into.add(f)
		default:
			return fail(ErrContent, "%q is a %s, which is not allowed", shorten(name), modeName(e.mode))
		}
	}
	into.sort()
	return nil
}

func (w *treeReader) readFile(ctx context.Context, e entry, name string) (*file, error) {
	if w.files++; w.files > w.limits.Files {
		return nil, fail(ErrLimit, "there are more than %d files", w.limits.Files)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, err := read(w.objects, plumbing.BlobObject, e.hash, w.limits.FileSize, shorten(name))
	if err != nil {
		return nil, err
	}
	if w.bytes += int64(len(data)); w.bytes > w.limits.TreeSize {
		return nil, fail(ErrLimit, "the files have more than %d bytes in total", w.limits.TreeSize)
	}
	return &file{name: e.name, data: string(data)}, nil
}
