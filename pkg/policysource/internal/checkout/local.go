package checkout

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// local is a repository on this machine, read in place.
type local struct{ storage *filesystem.Storage }

func openLocal(path string) (*local, error) {
	for _, dir := range []string{filepath.Join(path, ".git"), path} {
		info, err := os.Stat(filepath.Join(dir, "objects"))
		if err == nil && info.IsDir() {
			return &local{filesystem.NewStorage(osfs.New(dir, osfs.WithBoundOS()), cache.NewObjectLRU(cache.MiByte))}, nil
		}
	}
	return nil, fail(ErrNotFound, "the directory is not a git repository")
}

func (l *local) refs(context.Context) (*refs, error) {
	out := &refs{names: map[string]plumbing.Hash{}, anyHash: true}
	iter, err := l.storage.IterReferences()
	if err != nil {
		return nil, fail(ErrProtocol, "refs: %v", err)
	}
	err = iter.ForEach(func(ref *plumbing.Reference) error {
		if ref.Type() == plumbing.SymbolicReference {
			resolved, err := storer.ResolveReference(l.storage, ref.Name())
			if errors.Is(err, plumbing.ErrReferenceNotFound) {
				return nil // such as HEAD before the first commit
			}
			if err != nil {
				return err
			}
			ref = plumbing.NewHashReference(ref.Name(), resolved.Hash())
		}
		if ref.Name() == plumbing.HEAD {
			out.head = ref.Hash()
		}
		out.names[ref.Name().String()] = ref.Hash()
		return nil
	})
	if err != nil {
		return nil, fail(ErrProtocol, "refs: %v", err)
	}
	if len(out.names) == 0 {
		return nil, fail(ErrEmpty, "the repository has no commit")
	}
	return out, nil
}

func (l *local) objects(context.Context, plumbing.Hash) (storer.EncodedObjectStorer, error) {
	return l.storage, nil
}

func (l *local) close() { _ = l.storage.Close() } // of files that were only read
