package checkout

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

var fullHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// checkRef refuses names that git would refuse (git-check-ref-format(1)).
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
		return fail(ErrRequest, "%q is not a name that a reference can have", shorten(ref))
	}
	return nil
}

// cleanPath returns a path as fs.ValidPath has it.
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

// find returns the full name and the hash of the reference that is asked for.
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
		return "", zero, fail(ErrRef, "%q is a branch and a tag: write refs/heads/ or refs/tags/ before it", shorten(ref))
	case isBranch:
		return "refs/heads/" + ref, branch, nil
	case isTag:
		return "refs/tags/" + ref, tag, nil
	case fullHash.MatchString(ref):
		return r.commit(plumbing.NewHash(ref))
	}
	return "", zero, fail(ErrRef, "the remote has no branch or tag %q", shorten(ref))
}

// commit returns a commit that is asked for by its hash.
func (r *refs) commit(hash plumbing.Hash) (string, plumbing.Hash, error) {
	offered := r.any || r.head == hash
	for _, h := range r.names {
		offered = offered || h == hash
	}
	if !offered {
		return "", hash, fail(ErrRef, "the remote gives no commit by its hash, and none of its references is %s", hash)
	}
	return hash.String(), hash, nil
}

// shorten bounds a name for an error.
func shorten(s string) string {
	if len(s) <= 100 {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:100], len(s))
}
