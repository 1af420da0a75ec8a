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
	archive, err := git(ctx, repository, "archive", "--format=tar", tree)
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", commit, err)
	}
	files, err := unpack(bytes.NewReader(archive))
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
		if h.Typeflag != tar.TypeReg || !isPolicy(h.Name) || hidden(h.Name) {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(in, maxCommit+1))
		if total += len(text); err == nil && total > maxCommit {
			err = fmt.Errorf("the policies have more than %d bytes", maxCommit)
		}
		if err != nil {
			return nil, err
		}
		files = append(files, policyquery.PreviewFile{Path: h.Name, Text: string(text)})
	}
}

// git returns what git says.
func git(ctx context.Context, repository string, args ...string) ([]byte, error) {
	var out, problem bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", repository}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("git %s: %w%s", args[0], err, clip.Line(strings.TrimRight(": "+problem.String(), ": \n"), 500))
	}
	return out.Bytes(), nil
}

// hidden reports whether a path goes through a directory whose name begins with a dot.
func hidden(p string) bool {
	return strings.HasPrefix(p, ".") && strings.Contains(p, "/") || strings.Contains(p, "/.")
}
