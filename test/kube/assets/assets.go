package assets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The binaries that can be built.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Kwok              = "kwok"
)

// All returns the names of all binaries, in the order in which they are built.
func All() []string {
	return []string{Etcd, APIServer, ControllerManager, Scheduler, Kubectl, Kwok}
}

// Options says where binaries come from and go to.
type Options struct {
	// Dir is the directory to build into; empty means a directory below
	// [os.UserCacheDir] named after what is built.
	Dir string
	// Progress receives a line per binary built; nil discards them.
	Progress io.Writer
}

// Assets is what [Ensure] found or built.
type Assets struct {
	// Dir holds what was built: the binaries, crds/ and stages/.
	Dir string

	paths map[string]string
}

// Binary returns the path of a binary that was requested from [Ensure], else "".
func (a Assets) Binary(name string) string { return a.paths[name] }

// CRDs returns the directory of Cluster API's CustomResourceDefinition files,
// named <group>_<plural>.yaml.
func (a Assets) CRDs() string { return filepath.Join(a.Dir, "crds") }

// Stages returns the directory of kwok's stage files: what happens to nodes
// and pods that no kubelet looks after.
func (a Assets) Stages() string { return filepath.Join(a.Dir, "stages") }

// Ensure returns the named binaries, and Cluster API's CRDs and kwok's stages,
// building what is missing. No name means all. The first build takes five to
// ten minutes on two cores; afterwards Ensure takes milliseconds. It needs the go
// command and a current directory inside a module that knows federator's.
func Ensure(ctx context.Context, opts Options, names ...string) (Assets, error) {
	if len(names) == 0 {
		names = All()
	}
	for _, n := range names {
		if !slices.Contains(All(), n) {
			return Assets{}, fmt.Errorf("unknown binary %q", n)
		}
	}
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	src, err := sourceDir(ctx)
	if err != nil {
		return Assets{}, fmt.Errorf("find build modules: %w", err)
	}
	if opts.Dir == "" {
		if opts.Dir, err = cacheDir(ctx, src); err != nil {
			return Assets{}, err
		}
	}
	if opts.Dir, err = filepath.Abs(opts.Dir); err != nil {
		return Assets{}, err
	}
	a := Assets{Dir: opts.Dir, paths: make(map[string]string)}
	if a.complete(names) {
		return a, nil
	}
	if err := os.MkdirAll(a.Dir, 0o755); err != nil {
		return Assets{}, err
	}
	unlock, err := lock(ctx, filepath.Join(a.Dir, "lock"), opts.Progress)
	if err != nil {
		return Assets{}, fmt.Errorf("lock %s: %w", a.Dir, err)
	}
	defer unlock()
	if err := removeAbandoned(a.Dir); err != nil {
		return Assets{}, err
	}
	b := builder{src: src, dir: a.Dir, progress: opts.Progress}
	if err := b.files(ctx); err != nil {
		return Assets{}, err
	}
	for i, n := range names {
		if _, ok := a.find(n); ok {
			continue
		}
		if err := b.binary(ctx, n, i+1, len(names)); err != nil {
			return Assets{}, err
		}
	}
	if !a.complete(names) {
		return Assets{}, fmt.Errorf("%s: incomplete after the build", a.Dir)
	}
	return a, nil
}

// complete looks every name up, filling paths, and reports whether all
// files are there.
func (a Assets) complete(names []string) bool {
	ok := true
	for _, n := range names {
		p, found := a.find(n)
		if found {
			a.paths[n] = p
		}
		ok = ok && found
	}
	for _, d := range []string{a.CRDs(), a.Stages()} {
		if _, err := os.Stat(d); err != nil {
			ok = false
		}
	}
	return ok
}

// find returns where the binary is: KUBEBUILDER_ASSETS first, then the cache.
func (a Assets) find(name string) (string, bool) {
	for _, dir := range []string{os.Getenv("KUBEBUILDER_ASSETS"), a.Dir} {
		if dir == "" {
			continue
		}
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			return p, true
		}
	}
	return "", false
}

// removeAbandoned removes what interrupted builds left. The caller holds the
// lock.
func removeAbandoned(dir string) error {
	for _, pattern := range []string{".build-*", ".files-*"} {
		left, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, l := range left {
			if err := os.RemoveAll(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// lock takes the file lock at path, waiting for another holder until ctx ends.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for reported := false; ; {
		err := tryLock(f)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing releases the lock
		}
		if !errors.Is(err, errLocked) {
			_ = f.Close()
			return nil, err
		}
		if !reported {
			fmt.Fprintf(progress, "kube: waiting for another build in %s\n", filepath.Dir(path))
			reported = true
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}
