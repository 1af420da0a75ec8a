package preview

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
)

// maxCommit bounds the bytes of policies that are read of a commit: the server takes fewer.
const maxCommit = 16 << 20

// filesAt reads the policies in a directory of a commit, by git. What is not committed is not among them.
func filesAt(ctx context.Context, repository, commit, dir string) ([]policyquery.PreviewFile, error) {
	hash, err := git(ctx, repository, "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("%q is neither a directory nor a commit: %w", commit, err)
	}
	tree := strings.TrimSpace(string(hash))
	if dir = path.Clean(dir); dir != "." {
		tree += ":" + dir
	}
	var files []policyquery.PreviewFile
	err = gitTo(ctx, func(out io.Reader) (err error) {
		files, err = unpack(out)
		return err
	}, repository, "archive", "--format=tar", tree)
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", commit, err)
	}
	return files, nil
}

func unpack(archive io.Reader) (files []policyquery.PreviewFile, err error) {
	in, total := tar.NewReader(archive), 0
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		named := strings.HasSuffix(h.Name, ".rego") || policy.MayHoldDocuments(h.Name) && h.Size <= maxCommit // others are data, whatever their size
		if h.Typeflag != tar.TypeReg || !named || hidden(h.Name) {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(in, maxCommit+1))
		if err != nil {
			return nil, err
		}
		if !policy.Reads(h.Name, text) {
			continue
		}
		if total += len(text); total > maxCommit {
			return nil, fmt.Errorf("the policies have more than %d bytes", maxCommit)
		}
		files = append(files, policyquery.PreviewFile{Path: h.Name, Text: string(text)})
	}
}

// git returns what git says.
func git(ctx context.Context, repository string, args ...string) (said []byte, err error) {
	err = gitTo(ctx, func(out io.Reader) (err error) {
		said, err = io.ReadAll(out)
		return err
	}, repository, args...)
	return said, err
}

// gitTo has what git says read while it says it: that may be a whole repository.
func gitTo(ctx context.Context, read func(io.Reader) error, repository string, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var problem bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", repository}, args...)...)
	cmd.Stderr = &problem
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("git: %w", err)
	}
	if err = read(out); err == nil {
		_, err = io.Copy(io.Discard, out)
	}
	if err != nil {
		cancel()
		_ = cmd.Wait() // it was ended
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("git %s: %w%s", args[0], err, clip.Line(strings.TrimRight(": "+problem.String(), ": \n"), 500))
	}
	return nil
}

// hidden reports whether a path goes through a directory whose name begins with a dot.
func hidden(p string) bool {
	return strings.HasPrefix(p, ".") && strings.Contains(p, "/") || strings.Contains(p, "/.")
}
