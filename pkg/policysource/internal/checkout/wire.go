package checkout

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// transport carries git-upload-pack's two exchanges (gitprotocol-pack(5)).
type transport interface {
	// advertisement returns what the remote says first, to be closed.
	advertisement(ctx context.Context) (io.ReadCloser, error)
	// exchange sends a request and returns the answer, to be closed.
	exchange(ctx context.Context, request []byte) (io.ReadCloser, error)
	close()
}

// wire is a remote behind a transport.
type wire struct {
	transport
	limits Limits
	caps   *capability.List
}

// bounded reads up to a number of bytes, and fails when there are more.
type bounded struct {
	r    io.Reader
	left int64
	what string
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p[:min(int64(len(p)), b.left+1)]) // one more, to see whether there is more
	if int64(n) > b.left {
		return int(b.left), fail(ErrLimit, "%s has more bytes than are taken", b.what)
	}
	b.left -= int64(n)
	return n, err
}

func (w *wire) refs(ctx context.Context) (*refs, error) {
	body, err := w.advertisement(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	in := &bounded{r: body, left: w.limits.Refs, what: "the remote's list of references"}
	said := packp.NewAdvRefs()
	switch err := said.Decode(in); {
	case errors.Is(err, packp.ErrEmptyAdvRefs):
		return nil, fail(ErrEmpty, "the repository has no commit")
	case errors.Is(err, packp.ErrEmptyInput):
		return nil, w.silent()
	case err != nil:
		return nil, misread(err, "the list of references")
	case said.IsEmpty():
		return nil, fail(ErrEmpty, "the repository has no commit")
	}
	w.caps = said.Capabilities
	if f := w.caps.Get("object-format"); len(f) > 0 && f[0] != "sha1" {
		return nil, fail(ErrProtocol, "the repository's object format is %s: only sha1 is read", f[0])
	}
	out := &refs{names: said.References}
	out.any = w.caps.Supports(capability.AllowReachableSHA1InWant) || w.caps.Supports("allow-any-sha1-in-want")
	if said.Head != nil {
		out.head = *said.Head
	}
	return out, nil
}

// silent is the error for a remote that ends before its first word. SSH servers
// say on the side why.
func (w *wire) silent() error {
	if s, ok := w.transport.(interface{ complaint() error }); ok {
		return s.complaint()
	}
	return fail(ErrProtocol, "it says nothing")
}

// misread is the error for what cannot be decoded.
func misread(err error, what string) error {
	var known *Error
	var line *pktline.ErrorLine
	var odd *packp.ErrUnexpectedData
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &line):
		return fail(ErrNotFound, "the remote says: %s", line.Text)
	case errors.As(err, &odd):
		return fail(ErrProtocol, "%s: %s", what, odd.Msg)
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return fail(ErrUnreachable, "the remote ended within %s", what)
	}
	return fail(ErrProtocol, "%s: %v", what, err)
}

func (w *wire) objects(ctx context.Context, want plumbing.Hash) (storer.EncodedObjectStorer, error) {
	req, err := w.request(want)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := req.UploadRequest.Encode(&out); err != nil {
		return nil, fail(ErrProtocol, "the request: %v", err)
	}
	if err := pktline.NewEncoder(&out).EncodeString("done\n"); err != nil {
		return nil, fail(ErrProtocol, "the request: %v", err)
	}
	body, err := w.exchange(ctx, out.Bytes())
	if err != nil {
		return nil, err
	}
	defer body.Close()
	// Framing takes 5 bytes of at most 65,520; small frames take more.
	in := &bounded{r: body, left: w.limits.Pack + w.limits.Pack/4 + 1<<16, what: "the remote's answer"}
	answer := packp.NewUploadPackResponse(req)
	if err := answer.Decode(io.NopCloser(in)); err != nil {
		return nil, misread(err, "the answer")
	}
	var pack io.Reader = answer
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		pack = sideband.NewDemuxer(sideband.Sideband64k, answer)
	case req.Capabilities.Supports(capability.Sideband):
		pack = sideband.NewDemuxer(sideband.Sideband, answer)
	}
	data, err := io.ReadAll(&bounded{r: pack, left: w.limits.Pack, what: "the pack"})
	if err != nil {
		return nil, misread(err, "the pack")
	}
	return unpack(data, w.limits)
}

// request asks for one commit, or tag, alone.
func (w *wire) request(want plumbing.Hash) (*packp.UploadPackRequest, error) {
	req := packp.NewUploadPackRequest()
	req.Wants = []plumbing.Hash{want}
	use := []capability.Capability{capability.OFSDelta, capability.NoProgress}
	// Without haves these change nothing; some servers answer nobody without them.
	switch {
	case w.caps.Supports(capability.MultiACKDetailed):
		use = append(use, capability.MultiACKDetailed)
	case w.caps.Supports(capability.MultiACK):
		use = append(use, capability.MultiACK)
	}
	switch {
	case w.caps.Supports(capability.Sideband64k):
		use = append(use, capability.Sideband64k)
	case w.caps.Supports(capability.Sideband):
		use = append(use, capability.Sideband)
	}
	if w.caps.Supports(capability.Shallow) {
		use = append(use, capability.Shallow)
		req.Depth = packp.DepthCommits(1)
	}
	for _, c := range use {
		if !w.caps.Supports(c) {
			continue
		}
		if err := req.Capabilities.Set(c); err != nil {
			return nil, fail(ErrProtocol, "the capability %s: %v", c, err)
		}
	}
	return req, nil
}
