package multiplex

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Bounds of what one stream subscribes to.
const (
	maxSubscriptions = 64
	maxPath          = 8 << 10 // bytes of a subscription, with its parameters
)

// Parameter is the name of the query parameter that has a subscription: <id> <path>.
const Parameter = "s"

// subscription is one read that a stream carries.
type subscription struct {
	id     string
	url    *url.URL
	accept string
	watch  bool
}

var validID = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// prefixes are those of paths that can be subscribed to.
var prefixes = []string{"/fleet/", "/flat/", "/members/", "/query/v1/"}

// tableAccept asks for a Table, which a path does by as=Table: it has no headers.
const tableAccept = "application/json;as=Table;g=meta.k8s.io;v=v1"

// parse returns the subscriptions of a request. Errors are 400.
func parse(values url.Values) ([]subscription, error) {
	given := values[Parameter]
	switch {
	case len(given) == 0:
		return nil, badRequest("is required: <id> <path>, such as %q", "pods /fleet/api/v1/pods?watch=true")
	case len(given) > maxSubscriptions:
		return nil, badRequest("is given %d times, %d at most", len(given), maxSubscriptions)
	}
	for name := range values {
		if name != Parameter && name != "watch" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("parameter %.64q is not supported", name))
		}
	}
	out := make([]subscription, 0, len(given))
	seen := make(map[string]bool, len(given))
	for _, text := range given {
		s, err := parseOne(text)
		if err != nil {
			return nil, err
		}
		if seen[s.id] {
			return nil, badRequest("has the id %q twice", s.id)
		}
		seen[s.id] = true
		out = append(out, s)
	}
	return out, nil
}

func parseOne(text string) (subscription, error) {
	if len(text) > maxPath {
		return subscription{}, badRequest("has %d bytes, %d at most", len(text), maxPath)
	}
	id, path, _ := strings.Cut(text, " ")
	if !validID.MatchString(id) {
		return subscription{}, badRequest("is %.64q, must be an id of letters, digits, dots, dashes and underscores, a blank, and a path", text)
	}
	u, err := url.ParseRequestURI(path)
	if err != nil || u.Host != "" || !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(u.Path, p) }) {
		return subscription{}, badRequest("%s: %.128q is not a path of the query API", id, path)
	}
	if strings.TrimSuffix(u.Path, "/") == "/query/v1/stream" {
		return subscription{}, badRequest("%s: a stream cannot carry a stream", id)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return subscription{}, badRequest("%s: cannot parse its query: %v", id, err)
	}
	s := subscription{id: id, url: u, accept: "application/json"}
	switch as := query["as"]; {
	case len(as) == 1 && as[0] == "Table":
		s.accept = tableAccept
	case as != nil:
		return subscription{}, badRequest("%s: as must be Table", id)
	}
	query.Del("as")
	// API servers take an empty one for true: what has no end is no question.
	if w := query["watch"]; len(w) > 0 {
		if s.watch, err = strconv.ParseBool(w[0]); err != nil || len(w) > 1 {
			return subscription{}, badRequest("%s: watch is %.64q", id, w)
		}
	}
	u.RawQuery = query.Encode()
	return s, nil
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest("parameter " + Parameter + " " + fmt.Sprintf(format, args...))
}

// request returns the request of a subscription, made by the caller of the stream.
func (s subscription) request(stream *http.Request) *http.Request {
	r := stream.Clone(stream.Context())
	u := *s.url
	r.Method, r.URL, r.RequestURI = http.MethodGet, &u, u.RequestURI()
	r.Body, r.ContentLength, r.Form, r.PostForm, r.MultipartForm = http.NoBody, 0, nil, nil, nil
	r.Header = http.Header{"Accept": {s.accept}}
	if agent := stream.Header.Get("User-Agent"); agent != "" {
		r.Header.Set("User-Agent", agent)
	}
	return r
}
