package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Server is a server with its objects. It is safe for concurrent use.
type Server struct {
	kinds   []*Kind
	byPath  map[string]*Kind // by group, version and resource
	deliver bool             // events of watches at once

	mu       sync.Mutex
	revision uint64
	objects  map[*Kind]map[string]*item // by namespace/name
	log      []event                    // by revision
	last     map[*Kind]uint64           // revision of the last change
	forgot   uint64                     // revisions up to this one are not in the log
	watches  []*Watch                   // that are open, by their start
	nextUID  uint64
}

// item is an object in one version. It does not change.
type item struct {
	key      string // namespace/name
	revision uint64
	object   map[string]any
	text     []byte // JSON of it
}

// event is a change of one object.
type event struct {
	revision      uint64
	kind          *Kind
	before, after *item // nil: there was none, there is none
}

// firstRevision is that of an empty server; a real one has written its own objects.
const firstRevision = 100

// New returns a server of kinds without objects. It delivers events of watches at once if
// deliver says so, else by Watch.Deliver.
func New(kinds []*Kind, deliver bool) *Server {
	s := &Server{kinds: kinds, byPath: map[string]*Kind{}, deliver: deliver, objects: map[*Kind]map[string]*item{}, last: map[*Kind]uint64{}, revision: firstRevision, forgot: firstRevision}
	for _, k := range kinds {
		s.byPath[k.Group+"/"+k.Version+"/"+k.Resource] = k
		s.objects[k] = map[string]*item{}
	}
	return s
}

// call is a request that is being executed.
type call struct {
	kind                    *Kind
	verb                    string // of HTTP
	namespace, name, status string // status: "status" for that subresource
	query                   url.Values
	header                  http.Header
	body                    []byte
	ctx                     context.Context // of a watch's request: it ends the watch
}

func (c *call) key() string  { return c.namespace + "/" + c.name }
func (c *call) dryRun() bool { return slices.Contains(c.query["dryRun"], metav1.DryRunAll) }
func (c *call) strict() bool { return c.query.Get("fieldValidation") == metav1.FieldValidationStrict }

func (c *call) manager() string { // as kube-apiserver names those that do not say
	if m := c.query.Get("fieldManager"); m != "" {
		return m
	}
	agent, _, _ := strings.Cut(c.header.Get("User-Agent"), "/")
	return agent
}

// RoundTrip implements http.RoundTripper: it executes a request.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	c, err := s.parse(r)
	if err != nil {
		return statusResponse(r, err), nil
	}
	if c == nil {
		return response(r, http.StatusNotFound, "text/plain; charset=utf-8", []byte("404 page not found\n")), nil
	}
	c.body = body
	if r.Method == http.MethodGet && c.name == "" {
		if w := c.query.Get("watch"); w == "true" || w == "1" {
			return s.watch(r, c)
		}
	}
	s.mu.Lock()
	code, answer, err := s.execute(c)
	s.mu.Unlock()
	if err != nil {
		return statusResponse(r, err), nil
	}
	return response(r, code, "application/json", answer), nil
}

// parse returns the request's call, nil for a path that is not served.
func (s *Server) parse(r *http.Request) (*call, error) {
	c := &call{verb: r.Method, query: r.URL.Query(), header: r.Header, ctx: r.Context()}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[1:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[2:]
	default:
		return nil, nil
	}
	version, parts := parts[0], parts[1:]
	if len(parts) > 2 && parts[0] == "namespaces" {
		c.namespace, parts = parts[1], parts[2:]
	}
	c.kind = s.byPath[group+"/"+version+"/"+parts[0]]
	if c.kind == nil || c.namespace != "" && !c.kind.Namespaced || len(parts) > 3 {
		return nil, nil
	}
	if len(parts) > 1 {
		c.name = parts[1]
	}
	if len(parts) > 2 {
		if c.status = parts[2]; c.status != "status" || !c.kind.Status {
			return nil, nil
		}
	}
	return c, nil
}

// execute executes a call, with the lock held.
func (s *Server) execute(c *call) (code int, answer []byte, err error) {
	switch {
	case c.verb == http.MethodGet && c.name == "":
		answer, err = s.listLocked(c)
		return http.StatusOK, answer, err
	case c.verb == http.MethodGet:
		found := s.objects[c.kind][c.key()]
		if found == nil {
			return 0, nil, apierrors.NewNotFound(c.kind.groupResource(), c.name)
		}
		return http.StatusOK, found.text, nil
	case c.verb == http.MethodPost && c.name == "":
		answer, err = s.createLocked(c)
		return http.StatusCreated, answer, err
	case c.verb == http.MethodPut && c.name != "":
		return s.updateLocked(c)
	case c.verb == http.MethodPatch && c.name != "":
		return s.patchLocked(c)
	case c.verb == http.MethodDelete && c.name != "":
		answer, err = s.deleteLocked(c)
		return http.StatusOK, answer, err
	}
	return 0, nil, apierrors.NewMethodNotSupported(c.kind.groupResource(), strings.ToLower(c.verb))
}

func response(r *http.Request, code int, contentType string, body []byte) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/2.0", ProtoMajor: 2, Request: r,
		Header:        http.Header{"Content-Type": {contentType}},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
}

func statusResponse(r *http.Request, err error) *http.Response {
	return StatusResponse(r, statusOf(err))
}

// StatusResponse is a response with a Status.
func StatusResponse(r *http.Request, status *metav1.Status) *http.Response {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	text, err := json.Marshal(status)
	if err != nil {
		panic(err) // it has no cycles
	}
	return response(r, int(status.Code), "application/json", text)
}

// statusOf returns an error as kube-apiserver writes it.
func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	}
	out := status.Status()
	return &out
}
