package webui

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// index is the page of all addresses that are no file's.
const index = "index.html"

// codings are those that files are built in, the best first, and the suffixes of their files.
var codings = []struct{ name, suffix string }{{"br", ".br"}, {"gzip", ".gz"}}

// contentTypes are those of the files that a build may have. That of the system differs from one to
// another.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".ico": "image/x-icon",
	".js": "text/javascript; charset=utf-8", ".json": "application/json", ".map": "application/json", ".mjs": "text/javascript; charset=utf-8",
	".png": "image/png", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8", ".webmanifest": "application/manifest+json",
	".woff2": "font/woff2",
}

// variant is a file in one coding.
type variant struct {
	coding, etag string
	body         []byte
}

// file is a file that is served, in all its codings: identity is the last.
type file struct {
	contentType string
	immutable   bool
	variants    []variant
}

// files are the built files by path.
type files map[string]*file

// readFiles reads a build: index.html, and assets whose names change with their content.
func readFiles(dir fs.FS) (files, error) {
	out := files{}
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || isCoded(name) {
			return err
		}
		f, err := readFile(dir, name)
		if err != nil {
			return err
		}
		out[name] = f
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("web UI: %w", err)
	}
	if out[index] == nil {
		return nil, errors.New("web UI: the build has no " + index)
	}
	return out, nil
}

func isCoded(name string) bool {
	for _, c := range codings {
		if strings.HasSuffix(name, c.suffix) {
			return true
		}
	}
	return false
}

func readFile(dir fs.FS, name string) (*file, error) {
	f := &file{contentType: contentTypes[path.Ext(name)], immutable: strings.HasPrefix(name, "assets/")}
	if f.contentType == "" {
		f.contentType = "application/octet-stream"
	}
	for _, c := range append(codings[:len(codings):len(codings)], struct{ name, suffix string }{"identity", ""}) {
		body, err := fs.ReadFile(dir, name+c.suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(body)
		f.variants = append(f.variants, variant{c.name, `"` + hex.EncodeToString(sum[:16]) + `"`, body})
	}
	return f, nil
}

// serve serves the file at a path below /ui/: the index where there is none.
func (f files) serve(w http.ResponseWriter, r *http.Request, name string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		methodNotAllowed(w, "GET, HEAD")
		return
	}
	served := f[name]
	switch {
	case served == nil && strings.HasPrefix(name, "assets/"):
		notFound(w)
		return
	case served == nil:
		served = f[index]
	}
	served.serve(w, r)
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	v := f.choose(r.Header.Values("Accept-Encoding"))
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	if f.immutable {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("ETag", v.etag)
	h.Add("Vary", "Accept-Encoding")
	if hasETag(r.Header.Values("If-None-Match"), v.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Length", strconv.Itoa(len(v.body)))
	if v.coding != "identity" {
		h.Set("Content-Encoding", v.coding)
	}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(v.body) // the client may be gone
	}
}

// choose returns the first variant that a client accepts. Identity is accepted by all.
func (f *file) choose(accepted []string) variant {
	last := f.variants[len(f.variants)-1]
	for _, v := range f.variants {
		if v.coding == last.coding || accepts(accepted, v.coding) {
			return v
		}
	}
	return last
}

// accepts reports whether Accept-Encoding names a coding, with a weight above 0.
func accepts(values []string, coding string) bool {
	for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, parameters, _ := strings.Cut(one, ";")
		if !strings.EqualFold(strings.TrimSpace(name), coding) {
			continue
		}
		weight, weighted := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q=")
		q, err := strconv.ParseFloat(weight, 64)
		return !weighted || err == nil && q > 0
	}
	return false
}

// hasETag reports whether If-None-Match names an ETag.
func hasETag(values []string, etag string) bool {
	for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == etag {
			return true
		}
	}
	return false
}
