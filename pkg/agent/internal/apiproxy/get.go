package apiproxy

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
)

// acceptsZstd reports whether a response may be compressed.
func acceptsZstd(r *http.Request) bool {
	for _, v := range r.Header["Accept-Encoding"] {
		for name := range strings.SplitSeq(v, ",") {
			if strings.TrimSpace(name) == "zstd" {
				return true
			}
		}
	}
	return false
}

// isWatch reports whether a response lasts.
func isWatch(r *http.Request) bool {
	v := r.URL.Query().Get("watch")
	return v != "" && v != "0" && v != "false"
}

// get answers a request that only reads, compressed if it may be. Unlike an httputil.ReverseProxy it holds no buffer for a
// watch of which nothing comes.
func (p *Proxy) get(w http.ResponseWriter, r *http.Request) {
	out := r.Clone(r.Context())
	out.Body, out.ContentLength, out.RequestURI = nil, 0, ""
	rewrite(&httputil.ProxyRequest{In: r, Out: out}, p.target)
	resp, err := p.transport.RoundTrip(out)
	if err != nil {
		p.proxy.ErrorHandler(w, r, err)
		return
	}
	defer resp.Body.Close() //nolint:errcheck // it was read, or is given up
	header := w.Header()
	for name, values := range resp.Header {
		header[name] = values
	}
	for _, name := range ofConnection {
		header.Del(name)
	}
	if p.respond(w, r, resp, p.budget.Slow(r.Context(), resp.Body)) != nil {
		panic(http.ErrAbortHandler) // what was sent is not all
	}
}

// ofConnection are headers that say something of a connection, and not of what comes over it.
var ofConnection = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// respond sends a response whose headers are w's already.
func (p *Proxy) respond(w http.ResponseWriter, r *http.Request, resp *http.Response, body io.Reader) error {
	header := w.Header()
	compressed := acceptsZstd(r) && header.Get("Content-Encoding") == "" && resp.StatusCode != http.StatusNotModified && resp.StatusCode != http.StatusNoContent
	if compressed {
		header.Set("Content-Encoding", "zstd")
		header.Del("Content-Length")
	}
	w.WriteHeader(resp.StatusCode)
	lasts := isWatch(r) && resp.StatusCode == http.StatusOK
	switch {
	case !compressed && !lasts:
		_, err := io.Copy(w, body)
		return err
	case !lasts:
		return p.zstd.Copy(w, body)
	}
	flush := http.NewResponseController(w).Flush
	if err := flush(); err != nil {
		return err
	}
	if !compressed {
		return p.copyWatch(w, flush, body)
	}
	return p.zstd.CopyWatch(w, body, resp.Header.Get("Content-Type"))
}

// copyWatch sends the body of a watch as it is.
func (p *Proxy) copyWatch(w io.Writer, flush func() error, body io.Reader) error {
	for {
		if _, err := body.Read(nil); err != nil { // with HTTP/2 it waits for something to come
			return ended(err)
		}
		b := p.buffers.Get()
		n, err := body.Read(b)
		_, failed := w.Write(b[:n])
		p.buffers.Put(b)
		if failed == nil {
			failed = flush()
		}
		if failed != nil || err != nil {
			return cmp.Or(failed, ended(err))
		}
	}
}

// ended returns what is wrong with how a body has ended.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
