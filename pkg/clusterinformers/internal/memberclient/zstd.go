package memberclient

import (
	"net/http"
	"strings"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
	"federator.dev/federator/pkg/clusterinformers/internal/zstdstream"
)

// compressed asks for responses in zstd, and decodes those that are. Their limits are of what is decoded.
type compressed struct{ http.RoundTripper }

const encodingZstd = "zstd"

// RoundTrip implements http.RoundTripper.
func (c compressed) RoundTrip(r *http.Request) (*http.Response, error) {
	asking := *r
	asking.Header = r.Header.Clone()
	asking.Header.Set("Accept-Encoding", encodingZstd)
	resp, err := c.RoundTripper.RoundTrip(&asking)
	if err != nil {
		return nil, err
	}
	resp.Request = r
	switch encoding := strings.ToLower(strings.Join(resp.Header["Content-Encoding"], ",")); encoding {
	case "", "identity":
		return resp, nil
	case encodingZstd:
	default:
		_ = resp.Body.Close() // nothing of it is read
		return nil, &h2.EncodingError{}
	}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength, resp.Uncompressed = -1, true
	resp.Body = zstdstream.New(stream.Pump(resp.Body), h2.ChargeOf(r.Context()))
	return resp, nil
}
