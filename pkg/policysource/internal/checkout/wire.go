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

// transport performs git-upload-pack's two exchanges (gitprotocol-pack(5)).
type transport interface {
	// advertisement returns the remote's ref advertisement, to be closed.
	advertisement(ctx context.Context) (io.ReadCloser, error)
	// exchange sends a request and returns the response, to be closed.
	exchange(ctx context.Context, request []byte) (io.ReadCloser, error)
	close()
}

// wire is a remote that is accessed through a transport.
type wire struct {
	transport
	limits Limits
	caps   *capability.List
}

// limitedReader reads up to a number of bytes, and fails if there are more.
type limitedReader struct {
	r    io.Reader
	left int64
	what string
}

func (b *limitedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p[:min(int64(len(p)), b.left+1)]) // one more, to detect that there are more
	if int64(n) > b.left {
		return int(b.left), fail(ErrLimit, "%s is larger than allowed", b.what)
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
	in := &limitedReader{r: body, left: w.limits.Refs, what: "the remote's list of refs"}
	adv := packp.NewAdvRefs()
	switch err := adv.Decode(in); {
	case errors.Is(err, packp.ErrEmptyAdvRefs):
		return nil, fail(ErrEmpty, "the repository has no commit")
	case errors.Is(err, packp.ErrEmptyInput):
		return nil, w.emptyResponseError()
	case err != nil:
		return nil, decodeError(err, "the list of refs")
	case adv.IsEmpty():
		return nil, fail(ErrEmpty, "the repository has no commit")
	}
	w.caps = adv.Capabilities
	if f := w.caps.Get("object-format"); len(f) > 0 && f[0] != "sha1" {
		return nil, fail(ErrProtocol, "the repository's object format is %s: only sha1 is supported", f[0])
	}
	out := &refs{names: adv.References}
	out.anyHash = w.caps.Supports(capability.AllowReachableSHA1InWant) || w.caps.Supports("allow-any-sha1-in-want")
	if adv.Head != nil {
		out.head = *adv.Head
	}
	return out, nil
}

// emptyResponseError is the error for a remote that sends nothing. SSH servers report the
// reason on standard error.
func (w *wire) emptyResponseError() error {
	if s, ok := w.transport.(interface{ stderrError() error }); ok {
		return s.stderrError()
	}
	return fail(ErrProtocol, "the response is empty")
}

// decodeError is the error for a response that cannot be decoded.
func decodeError(err error, what string) error {
	var known *Error
	var line *pktline.ErrorLine
	var odd *packp.ErrUnexpectedData
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &line):
		return fail(ErrNotFound, "the remote reports: %s", line.Text)
	case errors.As(err, &odd):
		return fail(ErrProtocol, "%s: %s", what, odd.Msg)
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return fail(ErrUnreachable, "the connection ended within %s", what)
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
	// Framing adds 5 bytes to at most 65,520; small frames add more.
	in := &limitedReader{r: body, left: w.limits.Pack + w.limits.Pack/4 + 1<<16, what: "the remote's response"}
	response := packp.NewUploadPackResponse(req)
	if err := response.Decode(io.NopCloser(in)); err != nil {
		return nil, decodeError(err, "the response")
	}
	var pack io.Reader = response
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		pack = sideband.NewDemuxer(sideband.Sideband64k, response)
	case req.Capabilities.Supports(capability.Sideband):
		pack = sideband.NewDemuxer(sideband.Sideband, response)
	}
	data, err := io.ReadAll(&limitedReader{r: pack, left: w.limits.Pack, what: "the pack"})
	if err != nil {
		return nil, decodeError(err, "the pack")
	}
	return unpack(data, w.limits)
}

// request returns a request for one commit or tag only.
func (w *wire) request(want plumbing.Hash) (*packp.UploadPackRequest, error) {
	req := packp.NewUploadPackRequest()
	req.Wants = []plumbing.Hash{want}
	use := []capability.Capability{capability.OFSDelta, capability.NoProgress}
	// Without haves these have no effect; some servers require them.
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
