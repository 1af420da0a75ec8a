package clusterinformers

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// maxDiscovery bounds all answers to one discovery together: servers that do not
// aggregate are asked for each group and version, and all is kept until the last has come.
const maxDiscovery = maxBody

// failures remembers which path a call of the discovery client failed at, as its
// errors do not say, and bounds what it reads.
type failures struct {
	base http.RoundTripper
	left atomic.Int64 // bytes that may be read

	mu   sync.Mutex
	path string
}

// RoundTrip notes a request that is answered with an error.
func (f *failures) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.left.Load() <= 0 {
		return nil, errBodyTooLarge
	}
	resp, err := f.base.RoundTrip(r)
	switch {
	case err != nil:
	case resp.StatusCode >= http.StatusBadRequest: // in any format, and small
		f.mu.Lock()
		f.path = r.URL.Path
		f.mu.Unlock()
	default:
		resp.Body = &shared{ReadCloser: resp.Body, left: &f.left}
	}
	return resp, err
}

// shared is one of several JSON bodies that have a limit in sum, which is of what they
// become in memory: a struct is made of each object and null, however little it says.
type shared struct {
	io.ReadCloser
	left *atomic.Int64

	begun, quoted, escaped bool
}

// madeBytes is about what is made of an object or null beside its text.
const madeBytes = 128

// errNotJSON is the error of a discovery in what nobody asked for: the client decodes
// what comes by how it looks.
var errNotJSON = errors.New("the answer is not JSON")

// Read implements io.Reader.
func (s *shared) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	cost := int64(n)
	for _, c := range p[:n] {
		switch {
		case !s.begun && c != ' ' && c != '\n' && c != '\r' && c != '\t':
			if c != '{' {
				return 0, errNotJSON
			}
			s.begun = true
		case s.escaped:
			s.escaped = false
		case s.quoted:
			s.quoted, s.escaped = c != '"', c == '\\'
		case c == '"':
			s.quoted = true
		case c == '{' || c == 'n': // only null has an n
			cost += madeBytes
		}
	}
	if s.left.Add(-cost) < 0 {
		return n, errBodyTooLarge
	}
	return n, err
}

func (f *failures) name(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		return err
	}
	return requestError(f.path, err)
}
