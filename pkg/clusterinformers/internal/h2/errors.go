package h2

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

// ErrClosed is the error of requests and bodies of a transport that was closed.
var ErrClosed = errors.New("h2: transport closed")

var (
	errIdle         = errors.New("h2: connection closed: it was idle")
	errSilent       = errors.New("h2: connection closed: the server does not answer pings")
	errQueueFull    = errors.New("h2: connection closed: the server does not read")
	errDrainedAway  = errors.New("h2: connection closed: too many connections are being drained")
	errGone         = errors.New("h2: connection closed by the server")
	errGoneAway     = errors.New("h2: the server shut the connection down")
	errHeaderList   = errors.New("h2: response headers are too large")
	errHeaderExcess = errors.New("h2: request headers are larger than the server takes")
)

// ProtocolError is a violation of HTTP/2, by the server or, as the server says, by us.
type ProtocolError struct {
	Code   http2.ErrCode
	Reason string // nothing that the server said
}

func (e *ProtocolError) Error() string { return fmt.Sprintf("h2: %s: %s", e.Code, e.Reason) }

func violation(code http2.ErrCode, format string, args ...any) *ProtocolError {
	return &ProtocolError{code, fmt.Sprintf(format, args...)}
}

// ResetError is of a stream that the server reset.
type ResetError struct{ Code http2.ErrCode }

func (e *ResetError) Error() string { return "h2: stream reset by the server: " + e.Code.String() }

// ALPNError is of a server that did not choose HTTP/2 where there is no fallback.
type ALPNError struct{ Host, Protocol string }

func (e *ALPNError) Error() string {
	return fmt.Sprintf("h2: %s chose protocol %q instead of HTTP/2", e.Host, e.Protocol)
}

// EncodingError is of a response in an encoding that was not asked for.
type EncodingError struct{}

func (*EncodingError) Error() string {
	return "h2: the response has a Content-Encoding that was not asked for"
}

// unprocessedError is of a request that the server has not begun to process, which may be
// sent again.
type unprocessedError struct{ err error }

func (e *unprocessedError) Error() string { return e.err.Error() }

func (e *unprocessedError) Unwrap() error { return e.err }

// ours reports whether a code of the server's says that we violated the protocol.
func ours(code http2.ErrCode) bool {
	switch code {
	case http2.ErrCodeProtocol, http2.ErrCodeFlowControl, http2.ErrCodeSettingsTimeout, http2.ErrCodeStreamClosed,
		http2.ErrCodeFrameSize, http2.ErrCodeCompression:
		return true
	}
	return false
}
