package checkout

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Client fetches. The zero value dials without a proxy and does not allow file URLs.
type Client struct {
	// Dial opens connections and may reject addresses; nil means net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxy is that of http.Transport, for https only; nil means none.
	Proxy func(*http.Request) (*url.URL, error)
	// AllowFile allows file URLs of local repositories.
	AllowFile bool
	// Transport does the requests of https URLs instead of connections by Dial; nil: none.
	Transport http.RoundTripper
}

// Request is what to fetch.
type Request struct {
	URL string
	// Ref is a branch, a tag, a full name starting with refs/, or a commit's hash.
	// Defaults to the remote's HEAD.
	Ref string
	// Path is the directory to read, with slashes; "" or "." is the root.
	Path   string
	Auth   Auth
	Limits Limits
	// Known is the Remote of an earlier Result: nothing is fetched if it is unchanged.
	Known string
}

// Result is the result of a fetch. If Unchanged, only Remote is set.
type Result struct {
	Unchanged bool
	Remote    string // hash of the remote's ref: of a commit, or of an annotated tag
	Ref       string // full name of the ref, or a commit's hash
	Commit    string
	Parents   []string // of the commit
	Author    Signature
	Committer Signature
	Signed    []SignedObject // the commit, then the annotated tags that lead to it, if they have a signature
	Tree      fs.FS          // below Path, in memory and immutable
	Files     int
	Bytes     int64 // of the files
}

// Signature is the author or committer of a commit, and the time, as in the commit.
type Signature struct {
	Name, Email string
	When        time.Time
}

// SignedObject is an object with a signature that has not been verified.
type SignedObject struct {
	Object    string // "commit" or "tag"
	Payload   []byte // the signed bytes
	Signature []byte // armored: PGP or SSH
	When      time.Time
}

// refs are the refs of a remote.
type refs struct {
	head  plumbing.Hash
	names map[string]plumbing.Hash
	// anyHash is true if a commit can be fetched by its hash even if no ref points to it.
	anyHash bool
}

// repository is a git repository to read from.
type repository interface {
	refs(ctx context.Context) (*refs, error)
	// objects returns a store with the object of a hash and, if it is a commit or a
	// tag of one, the tree of the commit.
	objects(ctx context.Context, want plumbing.Hash) (storer.EncodedObjectStorer, error)
	close()
}

// Validate checks a request without contacting the remote.
func (c *Client) Validate(req Request) error {
	if _, _, err := c.validate(req); err != nil {
		return sanitize(err, req.Auth.secrets())
	}
	return nil
}

// validate checks a request and returns its remote and limits.
func (c *Client) validate(req Request) (Remote, Limits, error) {
	limits, err := req.Limits.WithDefaults()
	if err != nil {
		return Remote{}, limits, fail(ErrRequest, "%v", err)
	}
	r, err := ParseURL(req.URL)
	if err != nil {
		return r, limits, err
	}
	if r.Scheme == schemeFile && !c.AllowFile {
		return r, limits, fail(ErrRequest, "file URLs are not allowed")
	}
	if err := req.Auth.validate(r); err != nil {
		return r, limits, err
	}
	if r.Scheme == schemeSSH {
		if _, err := req.Auth.signer(); err != nil {
			return r, limits, err
		}
		if _, err := parseKnownHosts(req.Auth.KnownHosts); err != nil {
			return r, limits, err
		}
	}
	if err := checkRef(req.Ref); err != nil {
		return r, limits, err
	}
	_, err = cleanPath(req.Path)
	return r, limits, err
}

// Fetch fetches the requested directory. Errors are *Error.
func (c *Client) Fetch(ctx context.Context, req Request) (*Result, error) {
	r, limits, err := c.validate(req)
	if err != nil {
		return nil, fetchError(ctx, err, req.Auth.secrets())
	}
	ctx, cancel := context.WithTimeout(ctx, limits.Timeout)
	defer cancel()
	out, err := c.fetch(ctx, r, req, limits)
	if err != nil {
		return nil, fetchError(ctx, err, req.Auth.secrets())
	}
	return out, nil
}

func (c *Client) fetch(ctx context.Context, r Remote, req Request, limits Limits) (*Result, error) {
	from, err := c.open(ctx, r, req.Auth, limits)
	if err != nil {
		return nil, err
	}
	defer from.close()
	refs, err := from.refs(ctx)
	if err != nil {
		return nil, err
	}
	name, hash, err := refs.find(req.Ref)
	if err != nil {
		return nil, err
	}
	if req.Known != "" && req.Known == hash.String() {
		return &Result{Unchanged: true, Remote: hash.String()}, nil
	}
	objects, err := from.objects(ctx, hash)
	if err != nil {
		return nil, err
	}
	out := &Result{Remote: hash.String(), Ref: name}
	tree, err := out.resolve(objects, hash)
	if err != nil {
		return nil, err
	}
	path, err := cleanPath(req.Path)
	if err != nil {
		return nil, err
	}
	w := treeReader{objects: objects, limits: limits}
	if out.Tree, err = w.read(ctx, tree, path); err != nil {
		return nil, err
	}
	out.Files, out.Bytes = w.files, w.bytes
	return out, nil
}

func (c *Client) open(ctx context.Context, r Remote, auth Auth, limits Limits) (repository, error) {
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	switch r.Scheme {
	case schemeFile:
		return openLocal(r.Path)
	case schemeSSH:
		t, err := openSSH(ctx, r, auth, dial)
		if err != nil {
			return nil, err
		}
		return &wire{transport: t, limits: limits}, nil
	}
	t, err := openHTTPS(r, auth, dial, c.Proxy, c.Transport)
	if err != nil {
		return nil, err
	}
	return &wire{transport: t, limits: limits}, nil
}

const dialTimeout = 15 * time.Second
