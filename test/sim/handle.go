package sim

import (
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
)

type connKey struct{} // context key of a request's net.Conn

func resetConn(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		abort(c)
	}
}

// A target is what a path names.
type target struct {
	gr        schema.GroupResource
	version   string
	namespace string
	name      string
	sub       string
}

// A call is one request on its way through the member.
type call struct {
	target
	table    *table // nil outside of kinds
	verb     string
	protobuf bool
}

// handle keeps its frame small: a watch waits below it, and a stack of which little is
// used shrinks.
func (m *Member) handle(w http.ResponseWriter, r *http.Request) {
	cut, ok := m.enter()
	if !ok {
		panic(http.ErrAbortHandler)
	}
	defer m.done()
	w, c := m.admit(w, r)
	if c == nil {
		return
	}
	if err := m.answer(w, r, c, cut); err != nil {
		writeError(w, r, err)
	}
}

// admit answers what is refused, spoilt or of no kind, and returns no call then.
//
//go:noinline
func (m *Member) admit(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *call) {
	t, isKind := parsePath(r.URL.Path)
	c := &call{target: t, verb: verbOf(r, t, isKind)}
	req := Request{Verb: c.verb, Kind: t.gr}
	m.requests.add(req, readsAll(r, req.Verb))
	if fault := m.faults.take(req); fault != nil {
		if w = fault.spoil(r.Context(), w, r); w == nil {
			return nil, nil
		}
	}
	if err := m.authenticate(r, c); err != nil {
		writeError(w, r, err)
		return nil, nil
	}
	if !isKind {
		m.handleMeta(w, r, c)
		return nil, nil
	}
	if err := m.resolve(c); err != nil {
		writeError(w, r, err)
		return nil, nil
	}
	var ok bool
	if c.protobuf, ok = negotiate(r, c.table.builtin); !ok {
		writeStatus(w, r, notAcceptable(c.table.builtin))
		return nil, nil
	}
	return w, c
}

// answer serves an admitted call.
func (m *Member) answer(w http.ResponseWriter, r *http.Request, c *call, cut <-chan struct{}) error {
	switch c.verb {
	case "get":
		return m.serveGet(w, r, c)
	case "list", "listone":
		return m.serveList(w, r, c)
	case "watch", "watchlist":
		return m.serveWatch(w, r, c, cut)
	case "create", "update", "patch", "delete":
		return m.serveWrite(w, r, c)
	}
	return apierrors.NewMethodNotSupported(c.gr, strings.ToLower(r.Method))
}

// parsePath understands /api/v1/… and /apis/<group>/<version>/… below the version.
func parsePath(path string) (target, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var t target
	switch {
	case parts[0] == "api" && len(parts) > 2:
		t.version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		t.gr.Group, t.version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.gr.Resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.sub = strings.Join(parts[2:], "/")
	}
	return t, true
}

func verbOf(r *http.Request, t target, isKind bool) string {
	switch path := r.URL.Path; {
	case path == "/version":
		return "version"
	case isHealth(path):
		return "healthz"
	case path == "/api" || path == "/apis" || !isKind && (strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")):
		return "discovery"
	case !isKind || t.sub != "":
		return "other"
	}
	switch r.Method {
	case http.MethodGet:
		query := r.URL.Query()
		switch {
		case isTrue(query.Get("watch")) && isTrue(query.Get("sendInitialEvents")):
			return "watchlist"
		case isTrue(query.Get("watch")):
			return "watch"
		case t.name != "":
			return "get"
		case strings.HasPrefix(query.Get("fieldSelector"), "metadata.name="):
			return "listone"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return "other"
}

// readsAll reports whether a request begins to read all that there is of a kind: Requests.Read.
func readsAll(r *http.Request, verb string) bool {
	if verb != "list" {
		return verb == "watchlist"
	}
	query := r.URL.Query()
	return query.Get("continue") == "" && query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact)
}

func isTrue(s string) bool { return s == "true" || s == "1" }

func isHealth(path string) bool {
	return path == "/readyz" || path == "/livez" || path == "/healthz"
}

// authenticate refuses wrong credentials with 401 and none with 403, but for what
// kube-apiserver shows to everybody.
func (m *Member) authenticate(r *http.Request, c *call) error {
	creds := m.credentials()
	if auth := r.Header.Get("Authorization"); auth != "" {
		if auth == "Bearer "+creds.token {
			return nil
		}
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		leaf := r.TLS.PeerCertificates[0]
		if string(leaf.Raw) == creds.leaf {
			return nil
		}
		roots := x509.NewCertPool()
		roots.AddCert(m.ca.cert)
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		m.opts.Log.Debug("client certificate refused", "member", m.name, "subject", leaf.Subject, "rotated", err == nil, "err", err)
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if c.verb == "version" || c.verb == "healthz" {
		return nil
	}
	return apierrors.NewForbidden(c.gr, c.name, errors.New(`User "system:anonymous" cannot do this`))
}

// resolve finds the call's table and checks that the caller may.
func (m *Member) resolve(c *call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[c.gr]
	if m.forbidden[c.gr] {
		where := "at the cluster scope"
		if c.namespace != "" {
			where = fmt.Sprintf("in the namespace %q", c.namespace)
		}
		verb := c.verb
		if verb == "watchlist" {
			verb = "watch"
		}
		return apierrors.NewForbidden(c.gr, c.name, fmt.Errorf("User %q cannot %s resource %q in API group %q %s",
			"admin", verb, c.gr.Resource, c.gr.Group, where))
	}
	if t == nil || c.sub != "" || !serves(t.kind, c.version) || c.namespace != "" && !t.kind.Namespaced {
		return notServed(c.gr)
	}
	c.table = t
	return nil
}

func serves(k Kind, version string) bool {
	for _, v := range k.Versions {
		if v == version {
			return true
		}
	}
	return false
}

// negotiate chooses between JSON and protobuf; ok is false when the client takes neither.
func negotiate(r *http.Request, builtin bool) (protobuf, ok bool) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		return false, true
	}
	for entry := range strings.SplitSeq(accept, ",") {
		media, params, _ := strings.Cut(strings.TrimSpace(entry), ";")
		if strings.Contains(params, "as=") {
			continue // Tables and the like are not made here
		}
		switch strings.TrimSpace(media) {
		case runtime.ContentTypeJSON, "*/*", "application/*":
			return false, true
		case runtime.ContentTypeProtobuf:
			if builtin {
				return true, true
			}
		}
	}
	return false, false
}

func notAcceptable(builtin bool) *metav1.Status {
	accepted := "application/json"
	if builtin {
		accepted += ", application/vnd.kubernetes.protobuf"
	}
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + accepted,
	}
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(s.Details.RetryAfterSeconds))
	}
	writeStatus(w, r, &s)
}

func writeStatus(w http.ResponseWriter, r *http.Request, s *metav1.Status) {
	protobuf, _ := negotiate(r, true)
	contentType, body := encodeStatus(s, protobuf)
	writeBody(w, r, int(s.Code), contentType, body)
}

func encodeStatus(s *metav1.Status, protobuf bool) (contentType string, body []byte) {
	if protobuf {
		raw, err := s.Marshal()
		if err == nil {
			codec := kindCodec{kind: Kind{Kind: "Status"}}
			if body, err = codec.envelope(raw, "v1"); err == nil {
				return runtime.ContentTypeProtobuf, body
			}
		}
	}
	return runtime.ContentTypeJSON, mustJSON(withKind(s, "Status", "v1"))
}

// withKind sets the TypeMeta of an object of API machinery.
func withKind[T runtime.Object](obj T, kind, apiVersion string) T {
	obj.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	return obj
}

// mustJSON encodes types of our own choice, which always can be.
func mustJSON(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return body
}

// gzipAbove is the size from which kube-apiserver compresses, in bytes.
const gzipAbove = 128 << 10

func writeBody(w http.ResponseWriter, r *http.Request, code int, contentType string, body []byte) {
	out, finish := startBody(w, r, code, contentType, len(body))
	_, _ = out.Write(body) // the client may be gone, and then nobody needs to know
	finish()
}

// startBody sends the header of a body of about size bytes; finish must be called after the last write.
func startBody(w http.ResponseWriter, r *http.Request, code int, contentType string, size int) (out io.Writer, finish func()) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache, private")
	if size <= gzipAbove || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(code)
		return w, func() {}
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	w.WriteHeader(code)
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is right
	}
	return zip, func() { _ = zip.Close() }
}

func (m *Member) handleMeta(w http.ResponseWriter, r *http.Request, c *call) {
	switch c.verb {
	case "healthz":
		writeBody(w, r, http.StatusOK, "text/plain; charset=utf-8", []byte("ok"))
	case "version":
		major, minor, _ := strings.Cut(strings.TrimPrefix(m.opts.Version, "v"), ".")
		minor, _, _ = strings.Cut(minor, ".")
		writeBody(w, r, http.StatusOK, runtime.ContentTypeJSON, mustJSON(apiversion.Info{
			Major: major, Minor: minor, GitVersion: m.opts.Version, GitTreeState: "clean",
			GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64",
		}))
	case "discovery":
		m.serveDiscovery(w, r)
	default:
		writeError(w, r, notServed(schema.GroupResource{}))
	}
}

func (m *Member) serveGet(w http.ResponseWriter, r *http.Request, c *call) error {
	m.mu.Lock()
	it, ok := c.table.objects.Get(objectKey(c.namespace, c.name))
	newest := m.rv
	m.mu.Unlock()
	if rv, err := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64); err == nil && rv > newest {
		return tooLarge(rv, newest)
	}
	if !ok || (c.namespace != "") != c.table.kind.Namespaced {
		return apierrors.NewNotFound(c.gr, c.name)
	}
	return c.respond(w, r, http.StatusOK, it)
}

func (c *call) respond(w http.ResponseWriter, r *http.Request, code int, it *item) error {
	body, err := c.table.wire(it, c.version, c.protobuf)
	if err != nil {
		return err
	}
	writeBody(w, r, code, contentType(c.protobuf), body)
	return nil
}

func contentType(protobuf bool) string {
	if protobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// decodeBody reads an object that a client sends, in JSON or protobuf.
func (c *call) decodeBody(r *http.Request) (Object, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 3<<20)) // kube-apiserver's limit
	if err != nil {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	raw := body
	if bytes.HasPrefix(body, []byte(protoPrefix)) {
		var u runtime.Unknown
		if err := u.Unmarshal(body[len(protoPrefix):]); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		raw = u.Raw
	} else if c.table.builtin {
		msg, err := c.table.empty()
		if err == nil {
			err = json.Unmarshal(body, msg)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return msg, nil
	}
	obj, err := c.table.object(&item{raw: raw})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return obj, nil
}
