package policyfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// ReplaceFile atomically creates or replaces a file.
func ReplaceFile(tree *os.Root, name string, data []byte) (err error) {
	mode := fs.FileMode(0o644)
	if info, err := tree.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	temporary := path.Join(path.Dir(name), ".federator-"+path.Base(name))
	out, err := tree.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = out.Write(data)
	if err = errors.Join(err, out.Chmod(mode), out.Close()); err == nil {
		err = tree.Rename(temporary, name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, errors.Join(err, tree.Remove(temporary)))
	}
	return nil
}

// OpenDir opens a directory of policies and returns it with its name for messages.
func OpenDir(dir string) (*os.Root, string, error) {
	tree, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", err
	}
	name := filepath.ToSlash(filepath.Clean(dir))
	if name == "." {
		name = ""
	}
	return tree, name, nil
}
