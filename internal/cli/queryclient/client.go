package queryclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/klauspost/compress/zstd"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Client is a client of one query API.
type Client struct {
	client *http.Client
	Root   string // https://<address>
	Target string // /fleet or /members/<namespace>/<name>
}

func New(config *rest.Config, version string) (*Client, error) {
	config.UserAgent = "federator/" + version
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	// The query API redirects nobody, and the credentials would follow to wherever a redirect leads.
	guarded := *client
	guarded.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	host := config.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil {
		return nil, err
	}
	target := strings.TrimSuffix(u.Path, "/")
	if target == "/flat" { // federator's commands use members and their own names of objects
		target = "/fleet"
	}
	return &Client{client: &guarded, Root: u.Scheme + "://" + u.Host, Target: target}, nil
}

// maxResponse bounds the size of a response, in bytes.
const maxResponse = 256 << 20

// Get requests a path below the root. A Status in the response is returned as the error.
func (a *Client) Get(ctx context.Context, path string, query url.Values, accept string) ([]byte, error) {
	stream, err := a.Open(ctx, path, query, accept)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return readResponse(path, stream)
}

func readResponse(path string, r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxResponse+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxResponse { // a truncated response could look complete
		return nil, fmt.Errorf("%s: the response is larger than %d bytes", path, maxResponse)
	}
	return body, nil
}

// Open is Get for a response that is streamed.
func (a *Client) Open(ctx context.Context, path string, query url.Values, accept string) (io.ReadCloser, error) {
	req, err := a.request(ctx, path, query, accept)
	if err != nil {
		return nil, err
	}
	body, _, err := a.do(path, req)
	return body, err
}

// Stream is Open for a long response, which is compressed by zstd on its way.
func (a *Client) Stream(ctx context.Context, path string, query url.Values, accept string) (io.ReadCloser, error) {
	req, err := a.request(ctx, path, query, accept)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "zstd")
	body, coding, err := a.do(path, req)
	if err != nil || coding == "" {
		return body, err
	}
	if coding != "zstd" {
		return nil, errors.Join(fmt.Errorf("%s: the response is encoded as %q", path, coding), body.Close())
	}
	d, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return nil, errors.Join(err, body.Close())
	}
	return decoded{d.IOReadCloser(), body}, nil
}

// decoded is a body that is decoded on its way.
type decoded struct {
	io.ReadCloser
	body io.Closer
}

func (d decoded) Close() error { return errors.Join(d.ReadCloser.Close(), d.body.Close()) }

func (a *Client) request(ctx context.Context, path string, query url.Values, accept string) (*http.Request, error) {
	target := a.Root + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	return req, nil
}

// Post is Get for a request with a body.
func (a *Client) Post(ctx context.Context, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.Root+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	stream, _, err := a.do(path, req)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return readResponse(path, stream)
}

// do returns the body of a response, and how it is encoded. A Status in the response is returned as the error.
func (a *Client) do(path string, req *http.Request) (body io.ReadCloser, coding string, err error) {
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, resp.Header.Get("Content-Encoding"), nil
	}
	defer resp.Body.Close()
	text, err := readResponse(path, resp.Body)
	if err != nil {
		return nil, "", err
	}
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Kind == "Status" {
		return nil, "", &apierrors.StatusError{ErrStatus: status}
	}
	return nil, "", fmt.Errorf("%s: %s", path, resp.Status)
}
