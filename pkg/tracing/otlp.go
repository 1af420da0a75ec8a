package tracing

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Receiver is where traces are sent by OTLP over gRPC.
type Receiver struct {
	Endpoint string // host:port
	// CAFile has the certificates (PEM) that the receiver is verified with. "": the system's.
	CAFile string
	// Insecure says that nothing is encrypted.
	Insecure bool
	// HeadersFile has metadata of each request, such as a token: a line "name: value" for each. It is read
	// again for each request, since what is in it may rotate. "": none.
	HeadersFile string
}

// Errors of a Receiver, of the field that they are of.
var (
	ErrEndpoint = errors.New("is not a host and a port, such as collector.monitoring:4317")
	ErrHeaders  = errors.New("cannot be sent unencrypted")
	ErrCA       = errors.New("has no effect where nothing is encrypted")
)

// Validate returns the errors of the receiver's fields, by their names.
func (r *Receiver) Validate() map[string]error {
	errs := map[string]error{}
	if host, port, err := net.SplitHostPort(r.Endpoint); err != nil || host == "" || !isPort(port) || strings.ContainsAny(host, "/@ ") {
		errs["endpoint"] = fmt.Errorf("%q %w", r.Endpoint, ErrEndpoint)
	}
	if r.Insecure && r.HeadersFile != "" {
		errs["headersFile"] = ErrHeaders
	}
	if r.Insecure && r.CAFile != "" {
		errs["caFile"] = ErrCA
	}
	return errs
}

func isPort(text string) bool {
	n, err := net.LookupPort("tcp", text)
	return err == nil && n > 0 && text[0] >= '0' && text[0] <= '9'
}

// NewExporter returns an exporter to a receiver, which need not be there yet.
func NewExporter(ctx context.Context, r Receiver) (sdk.SpanExporter, error) {
	errs := r.Validate()
	if fields := slices.Sorted(maps.Keys(errs)); len(fields) > 0 {
		return nil, fmt.Errorf("%s: %w", fields[0], errs[fields[0]])
	}
	options := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(r.Endpoint), otlptracegrpc.WithTimeout(exportTimeout), otlptracegrpc.WithCompressor("gzip"),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: exportTimeout}),
	}
	if r.Insecure {
		options = append(options, otlptracegrpc.WithInsecure())
	} else {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if r.CAFile != "" {
			pool, err := readCAs(r.CAFile)
			if err != nil {
				return nil, fmt.Errorf("caFile: %w", err)
			}
			config.RootCAs = pool
		}
		options = append(options, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(config)))
	}
	if r.HeadersFile != "" {
		if _, err := readHeaders(r.HeadersFile); err != nil {
			return nil, fmt.Errorf("headersFile: %w", err)
		}
		options = append(options, otlptracegrpc.WithDialOption(grpc.WithPerRPCCredentials(headers(r.HeadersFile))))
	}
	return otlptracegrpc.New(ctx, options...)
}

func readCAs(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return pool, nil
}

// headers is a file of headers, as credentials of requests.
type headers string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (h headers) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return readHeaders(string(h))
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (headers) RequireTransportSecurity() bool { return true }

// maxHeaders bounds a file of headers, in bytes.
const maxHeaders = 64 << 10

func readHeaders(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseHeaders(text)
}

// parseHeaders returns the headers of a text. Its errors name lines and never what is in them.
func parseHeaders(text []byte) (map[string]string, error) {
	if len(text) > maxHeaders {
		return nil, fmt.Errorf("has %d bytes, at most %d are read", len(text), maxHeaders)
	}
	out := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxHeaders+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		switch {
		case !ok || !httpguts.ValidHeaderFieldName(name) || !isPrintable(value):
			return nil, fmt.Errorf("line %d is not of the form \"name: value\"", n)
		case strings.HasPrefix(name, "grpc-") || strings.HasSuffix(name, "-bin"):
			return nil, fmt.Errorf("line %d: names that begin with grpc- or end with -bin are gRPC's own", n)
		case out[name] != "":
			return nil, fmt.Errorf("line %d: the same header is given twice", n)
		}
		out[name] = value
	}
	return out, lines.Err()
}

// isPrintable reports whether gRPC may send a value: printable ASCII, and not empty.
func isPrintable(value string) bool {
	for _, c := range []byte(value) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return value != ""
}
