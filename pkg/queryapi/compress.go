package queryapi

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// minCompressed is the minimum size of a response to be compressed, in bytes; the fastest
// level is used. Both are as in kube-apiserver.
const minCompressed = 128 << 10

// encoder is a reusable compressing writer.
type encoder interface {
	io.WriteCloser
	Reset(io.Writer)
}

// encoders are pools of compressing writers.
type encoders struct{ gzip, zstd sync.Pool }

func newEncoders() *encoders {
	return &encoders{
		gzip: sync.Pool{New: func() any {
			w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
			if err != nil {
				panic("queryapi: gzip: " + err.Error())
			}
			return w
		}},
		zstd: sync.Pool{New: func() any {
			w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
				zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(512<<10))
			if err != nil {
				panic("queryapi: zstd: " + err.Error())
			}
			return w
		}},
	}
}

func (e *encoders) pool(coding string) *sync.Pool {
	if coding == "zstd" {
		return &e.zstd
	}
	return &e.gzip
}

// negotiateCoding returns the content coding of a response: zstd where accepted, which
// costs less, else gzip, else none.
func negotiateCoding(r *http.Request) string {
	if r.Method != http.MethodGet || isWatch(r) {
		return ""
	}
	best := ""
	for clause := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, params, _ := strings.Cut(clause, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name != "gzip" && name != "zstd" || codingRefused(params) {
			continue
		}
		if best != "zstd" {
			best = name
		}
	}
	return best
}

// codingRefused reports whether a quality is zero.
func codingRefused(params string) bool {
	q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
	if !ok {
		return false
	}
	quality, err := strconv.ParseFloat(q, 64)
	return err != nil || quality <= 0
}

// compressor compresses a response that is long enough and not encoded yet.
type compressor struct {
	http.ResponseWriter
	encoders *encoders
	coding   string

	code        int
	buffered    []byte  // until it is known whether to compress
	passThrough bool    // sent as it is
	writer      encoder // set once compressing
}

// Unwrap is for http.ResponseController.
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader implements http.ResponseWriter. The header of a response that may yet be
// compressed is deferred.
func (c *compressor) WriteHeader(code int) {
	if c.code != 0 || code < http.StatusOK {
		if code < http.StatusOK {
			c.ResponseWriter.WriteHeader(code)
		}
		return
	}
	c.code = code
	if h := c.Header(); code != http.StatusOK || h.Get("Content-Encoding") != "" || h.Get("Content-Range") != "" {
		c.passThrough = true
		c.ResponseWriter.WriteHeader(code)
	}
}

func (c *compressor) Write(p []byte) (int, error) {
	if c.code == 0 {
		c.WriteHeader(http.StatusOK)
	}
	switch {
	case c.passThrough:
		return c.ResponseWriter.Write(p)
	case c.writer != nil:
		return c.writer.Write(p)
	}
	if len(c.buffered)+len(p) <= minCompressed {
		c.buffered = append(c.buffered, p...)
		return len(p), nil
	}
	h := c.Header()
	h.Set("Content-Encoding", c.coding)
	h.Add("Vary", "Accept-Encoding")
	h.Del("Content-Length")
	h.Del("Accept-Ranges")
	if etag := h.Get("Etag"); strings.HasPrefix(etag, `"`) {
		h.Set("Etag", "W/"+etag) // the ETag is of the uncompressed content
	}
	c.ResponseWriter.WriteHeader(c.code)
	c.writer = c.encoders.pool(c.coding).Get().(encoder)
	c.writer.Reset(c.ResponseWriter)
	held := c.buffered
	c.buffered = nil
	if _, err := c.writer.Write(held); err != nil {
		return 0, err
	}
	return c.writer.Write(p)
}

// finish sends the rest. It is not called for a response that was aborted, which must not
// look complete.
func (c *compressor) finish() error {
	switch {
	case c.writer != nil:
		err := c.writer.Close()
		c.writer.Reset(nil)
		c.encoders.pool(c.coding).Put(c.writer)
		if err != nil {
			return fmt.Errorf("query API: compress: %w", err)
		}
	case c.code != 0 && !c.passThrough:
		c.ResponseWriter.WriteHeader(c.code)
		if _, err := c.ResponseWriter.Write(c.buffered); err != nil {
			return fmt.Errorf("query API: %w", err)
		}
	}
	return nil
}
