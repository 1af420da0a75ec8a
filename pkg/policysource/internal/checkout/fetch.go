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

// Client fetches. Its zero value dials as the system does, without a proxy, and
// refuses file URLs.
type Client struct {
	// Dial makes connections; nil is net.Dialer's. It is where addresses can be refused.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxy is as http.Transport's, for https alone; nil is none.
	Proxy func(*http.Request) (*url.URL, error)
	// AllowFile lets file URLs read repositories of this machine.
	AllowFile bool
}

// Request is what to fetch.
type Request struct {
	URL string
	// Ref is a branch, a tag, a full name below refs/, or a commit's hash. "" is the
	// remote's HEAD.
	Ref string
	// Path is the directory to read, with slashes; "" or "." is all of the tree.
	Path   string
	Auth   Auth
	Limits Limits
	// Known is the Remote of an earlier Result: nothing is fetched if it is still so.
	Known string
}

// Result is what a fetch found. When Unchanged, only Remote is set.
type Result struct {
	Unchanged bool
	Remote    string // the hash that the remote's reference has: of a commit, or of an annotated tag
	Ref       string // its full name, or a commit's hash
	Commit    string
	Author    Signature
	Committer Signature
	Signed    []Signed // the commit, then the annotated tags by which it was reached; those that have a signature
	Tree      fs.FS    // below Path, in memory and immutable
	Files     int
	Bytes     int64 // of the files
}

// Signature is who made a commit, and when, as the commit says.
type Signature struct {
	Name, Email string
	When        time.Time
}

// Signed is an object with a signature, which is not verified here.
type Signed struct {
	Object    string // "commit" or "tag"
	Payload   []byte // what is signed
	Signature []byte // armored: PGP or SSH
	When      time.Time
}

// refs are what a remote offers.
type refs struct {
	head  plumbing.Hash
	names map[string]plumbing.Hash
	// any says that a commit can be asked for by its hash though no reference has it.
	any bool
}

// remote is a repository to read from.
type remote interface {
	refs(ctx context.Context) (*refs, error)
	// objects returns a store with the object of a hash and, if it is a commit or a
	// tag of one, the tree of the commit.
	objects(ctx context.Context, want plumbing.Hash) (storer.EncodedObjectStorer, error)
	close()
}

// Validate checks a request without talking to anybody.
func (c *Client) Validate(req Request) error {
	if _, _, err := c.prepare(req); err != nil {
		return conceal(err, req.Auth.secrets())
	}
	return nil
}

// prepare returns the remote and the limits of a request.
func (c *Client) prepare(req Request) (Remote, Limits, error) {
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

// Fetch reads what a request asks for. Errors are *Error.
func (c *Client) Fetch(ctx context.Context, req Request) (*Result, error) {
	r, limits, err := c.prepare(req)
	if err != nil {
		return nil, ended(ctx, err, req.Auth.secrets())
	}
	ctx, cancel := context.WithTimeout(ctx, limits.Timeout)
	defer cancel()
	out, err := c.fetch(ctx, r, req, limits)
	if err != nil {
		return nil, ended(ctx, err, req.Auth.secrets())
	}
	return out, nil
}

func (c *Client) fetch(ctx context.Context, r Remote, req Request, limits Limits) (*Result, error) {
	from, err := c.open(ctx, r, req.Auth, limits)
	if err != nil {
		return nil, err
	}
	defer from.close()
	offered, err := from.refs(ctx)
	if err != nil {
		return nil, err
	}
	name, hash, err := offered.find(req.Ref)
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
	tree, err := out.describe(objects, hash)
	if err != nil {
		return nil, err
	}
	path, err := cleanPath(req.Path)
	if err != nil {
		return nil, err
	}
	w := walk{objects: objects, limits: limits}
	if out.Tree, err = w.read(ctx, tree, path); err != nil {
		return nil, err
	}
	out.Files, out.Bytes = w.files, w.bytes
	return out, nil
}

func (c *Client) open(ctx context.Context, r Remote, auth Auth, limits Limits) (remote, error) {
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
	t, err := openHTTPS(r, auth, dial, c.Proxy)
	if err != nil {
		return nil, err
	}
	return &wire{transport: t, limits: limits}, nil
}

const dialTimeout = 15 * time.Second
