package checkout

import (
	"path"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"federator.dev/federator/internal/clip"
)

var fullHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// checkRef rejects names that git would reject (git-check-ref-format(1)).
func checkRef(ref string) error {
	if ref == "" {
		return nil
	}
	bad := strings.ContainsFunc(ref, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }) ||
		strings.Contains(ref, "..") || strings.Contains(ref, "//") || strings.Contains(ref, "@{") ||
		strings.HasPrefix(ref, "/") || strings.HasSuffix(ref, "/") || strings.HasPrefix(ref, "-") || strings.HasSuffix(ref, ".") || ref == "@"
	for part := range strings.SplitSeq(ref, "/") {
		bad = bad || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	if bad || len(ref) > 1024 {
		return fail(ErrRequest, "%q is not a valid ref name", shorten(ref))
	}
	return nil
}

// cleanPath returns a path that is valid for fs.ValidPath.
func cleanPath(p string) (string, error) {
	if p == "" || p == "." {
		return ".", nil
	}
	clean := path.Clean(strings.TrimPrefix(strings.TrimSuffix(p, "/"), "./"))
	for part := range strings.SplitSeq(clean, "/") {
		if err := checkName(part); err != nil {
			return "", fail(ErrRequest, "the path %q is not a relative path within the repository", shorten(p))
		}
	}
	return clean, nil
}

// find returns the full name and the hash of a ref.
func (r *refs) find(ref string) (string, plumbing.Hash, error) {
	var zero plumbing.Hash
	if ref == "" || ref == "HEAD" {
		if r.head == zero {
			return "", zero, fail(ErrEmpty, "the remote's HEAD has no commit")
		}
		return "HEAD", r.head, nil
	}
	if strings.HasPrefix(ref, "refs/") {
		if h, ok := r.names[ref]; ok {
			return ref, h, nil
		}
		return "", zero, fail(ErrRef, "the remote has no %s", shorten(ref))
	}
	branch, isBranch := r.names["refs/heads/"+ref]
	tag, isTag := r.names["refs/tags/"+ref]
	switch {
	case isBranch && isTag:
		return "", zero, fail(ErrRef, "%q is both a branch and a tag: prefix it with refs/heads/ or refs/tags/", shorten(ref))
	case isBranch:
		return "refs/heads/" + ref, branch, nil
	case isTag:
		return "refs/tags/" + ref, tag, nil
	case fullHash.MatchString(ref):
		return r.commit(plumbing.NewHash(ref))
	}
	return "", zero, fail(ErrRef, "the remote has no branch or tag %q", shorten(ref))
}

// commit returns a commit that was requested by its hash.
func (r *refs) commit(hash plumbing.Hash) (string, plumbing.Hash, error) {
	found := r.anyHash || r.head == hash
	for _, h := range r.names {
		found = found || h == hash
	}
	if !found {
		return "", hash, fail(ErrRef, "the remote does not serve commits by hash, and no ref points to %s", hash)
	}
	return hash.String(), hash, nil
}

// shorten limits the length of a name in an error.
func shorten(s string) string {
	return clip.Text(s, 100)
}
