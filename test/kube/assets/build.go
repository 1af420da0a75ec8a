package assets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const module = "federator.dev/federator"

type builder struct {
	src, dir string
	progress io.Writer
}

// sourceDir returns test/kube/build of the federator module that the current
// directory's module is or requires.
func sourceDir(ctx context.Context) (string, error) {
	out, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", err
	}
	return filepath.Join(strings.TrimSpace(out), "test", "kube", "build"), nil
}

// cacheDir names the cache after everything that decides what the build makes.
func cacheDir(ctx context.Context, src string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	version, err := goCommand(ctx, src, "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, runtime.GOOS, runtime.GOARCH, strings.TrimSpace(version), buildFlags(""))
	err = filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.ToSlash(rel), len(b), b)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read build modules: %w", err)
	}
	return filepath.Join(base, "federator", "kube", hex.EncodeToString(h.Sum(nil)[:8])), nil
}

// binary builds one binary and renames it into place.
func (b builder) binary(ctx context.Context, name string, i, n int) error {
	start := time.Now()
	fmt.Fprintf(b.progress, "kube: [%d/%d] %s: building\n", i, n, name)
	dir, pkg, versioned := b.src, "./"+name, "k8s.io/kubernetes"
	if name == Kwok {
		dir, pkg, versioned = filepath.Join(b.src, Kwok), ".", "sigs.k8s.io/kwok"
	}
	version, err := b.version(ctx, dir, versioned)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(b.dir, ".build-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, name)

	done := make(chan struct{})
	ticking := make(chan struct{})
	go func() {
		defer close(ticking)
		b.tick(done, start, name)
	}()
	args := append([]string{"build"}, buildFlags(version)...)
	if name == Kwok { // of the versions that federator has, and as that is built: what both need is compiled once
		args = append(args, "-trimpath=false")
	}
	_, err = goCommand(ctx, dir, append(args, "-o", out, pkg)...)
	close(done)
	<-ticking
	if err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	if err := os.Rename(out, filepath.Join(b.dir, name)); err != nil {
		return err
	}
	fmt.Fprintf(b.progress, "kube: [%d/%d] %s: built in %s\n", i, n, name, time.Since(start).Round(time.Second))
	return nil
}

// tick prints every half minute that the build goes on, until done.
func (b builder) tick(done <-chan struct{}, start time.Time, name string) {
	t := time.NewTicker(30 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			fmt.Fprintf(b.progress, "kube: %s: still building, %s\n", name, time.Since(start).Round(time.Second))
		}
	}
}

// buildFlags stamps the version where Kubernetes binaries look for theirs;
// kubectl refuses to run without.
func buildFlags(version string) []string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const pkg = " -X k8s.io/component-base/version."
	return []string{
		"-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags=-s -w" + pkg + "gitVersion=" + version + pkg + "gitMajor=" + major +
			pkg + "gitMinor=" + minor + pkg + "gitTreeState=clean",
	}
}

// version returns the version that the build module in dir pins.
func (b builder) version(ctx context.Context, dir, module string) (string, error) {
	out, err := goCommand(ctx, dir, "list", "-m", "-f", "{{.Version}}", module)
	return strings.TrimSpace(out), err
}

// files copies Cluster API's CRDs and kwok's stages out of their modules.
func (b builder) files(ctx context.Context) error {
	capi, err := b.moduleDir(ctx, "capi", "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	kwok, err := b.moduleDir(ctx, Kwok, "sigs.k8s.io/kwok")
	if err != nil {
		return err
	}
	if err := b.copyYAML("crds", filepath.Join(capi, "core", "config", "crd", "bases", "*.yaml")); err != nil {
		return err
	}
	stage := filepath.Join(kwok, "kustomize", "stage")
	return b.copyYAML("stages",
		filepath.Join(stage, "node", "fast", "node-*.yaml"),
		filepath.Join(stage, "node", "heartbeat-with-lease", "node-*.yaml"),
		filepath.Join(stage, "pod", "fast", "pod-*.yaml"))
}

func (b builder) moduleDir(ctx context.Context, build, module string) (string, error) {
	out, err := goCommand(ctx, filepath.Join(b.src, build), "mod", "download", "-json", module)
	if err != nil {
		return "", fmt.Errorf("download %s: %w", module, err)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return "", fmt.Errorf("download %s: %w", module, err)
	}
	return m.Dir, nil
}

// copyYAML fills the directory name from the files that the patterns match
// and renames it into place, unless it is there.
func (b builder) copyYAML(name string, patterns ...string) error {
	target := filepath.Join(b.dir, name)
	if _, err := os.Stat(target); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tmp, err := os.MkdirTemp(b.dir, ".files-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for _, p := range patterns {
		paths, err := filepath.Glob(p)
		if err != nil || len(paths) == 0 {
			return fmt.Errorf("no files match %s: %w", p, errors.Join(err, fs.ErrNotExist))
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(tmp, filepath.Base(path)), data, 0o644); err != nil {
				return err
			}
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, target)
}

// goCommand runs the go command in dir and returns its standard output.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// Interrupted rather than killed, go ends the compilers that it runs.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if dir != "" { // a build module: nothing of the caller's workspace applies
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, tail(stderr.String(), 2000))
	}
	return stdout.String(), nil
}

// tail returns the last n bytes of s, trimmed.
func tail(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) > n {
		s = "…" + s[len(s)-n:]
	}
	return s
}
