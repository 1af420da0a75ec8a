package route

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// maxPath bounds a path in bytes, percent-encoded. The longest valid one is under 1,500: a group, a resource, a namespace and
// a name, each of at most 253 bytes, and a member.
const maxPath = 4096

// Prefixes of paths.
const (
	Fleet   = "/fleet"
	Flat    = "/flat"
	Members = "/members"
	Query   = "/query/v1"
)

// Target is the target of a request: the fleet or a member, and a Kubernetes path.
type Target struct {
	// Prefix is what precedes the Kubernetes path: "/fleet", "/flat" or
	// "/members/<namespace>/<name>"; "" for every other path.
	Prefix string
	// Member is <namespace>/<name>, "" for the whole fleet.
	Member string
	// Path is what follows the prefix, without a trailing slash: "/api/v1/pods",
	// or "/" for the prefix itself.
	Path string
}

type contextKey struct{}

// Flat reports whether objects have keys that are unique in the fleet.
func (t Target) Flat() bool { return t.Prefix == Flat }

// WithTarget returns a context that carries t.
func WithTarget(ctx context.Context, t Target) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// TargetFrom returns the target that WithTarget put into ctx.
func TargetFrom(ctx context.Context) (Target, bool) {
	t, ok := ctx.Value(contextKey{}).(Target)
	return t, ok
}

// Parse parses a URL's path. Errors are *apierrors.StatusError: 400 for what is
// malformed, 414 for what is too long.
func Parse(u *url.URL) (Target, error) {
	if err := checkPath(u); err != nil {
		return Target{}, err
	}
	path := u.Path
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	for _, prefix := range []string{Fleet, Flat} {
		if rest, ok := trimPrefix(path, prefix); ok {
			return Target{Prefix: prefix, Path: rest}, nil
		}
	}
	rest, ok := trimPrefix(path, Members)
	if !ok {
		return Target{Path: path}, nil
	}
	parts := strings.SplitN(rest, "/", 4) // "", namespace, name, the rest
	if len(parts) < 3 {
		return Target{Path: path}, nil
	}
	namespace, name := parts[1], parts[2]
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return Target{}, badRequest("%q is not a valid namespace of a member: %s", namespace, problems[0])
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return Target{}, badRequest("%q is not a valid name of a member: %s", name, problems[0])
	}
	member := namespace + "/" + name
	t := Target{Prefix: Members + "/" + member, Member: member, Path: "/"}
	if len(parts) == 4 {
		t.Path = "/" + parts[3]
	}
	return t, nil
}

// trimPrefix returns the part of path after prefix, "/" when there is none.
func trimPrefix(path, prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(path, prefix)
	switch {
	case !ok:
		return "", false
	case rest == "":
		return "/", true
	}
	return rest, rest[0] == '/'
}

// checkPath refuses paths that two parsers could interpret differently.
func checkPath(u *url.URL) error {
	escaped := u.EscapedPath()
	if len(escaped) > maxPath {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestURITooLong, Reason: metav1.StatusReasonInvalid,
			Message: fmt.Sprintf("the path is longer than %d bytes", maxPath),
		}}
	}
	if !strings.HasPrefix(u.Path, "/") {
		return badRequest("the path does not start with a slash")
	}
	lower := strings.ToLower(escaped)
	if strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c") {
		return badRequest("the path has an encoded slash or a backslash")
	}
	if !utf8.ValidString(u.Path) || strings.ContainsFunc(u.Path, func(r rune) bool { return r == '%' || unicode.IsControl(r) }) {
		return badRequest("the path has a percent sign, a control character or bytes that are not UTF-8")
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(u.Path[1:], "/"), "/") {
		switch segment {
		case "":
			if u.Path != "/" {
				return badRequest("the path has an empty segment")
			}
		case ".", "..":
			return badRequest("the path has a segment %q", segment)
		}
	}
	if _, err := url.ParseQuery(u.RawQuery); err != nil {
		return badRequest("cannot parse the query: %v", err)
	}
	return nil
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

var requestInfoFactory = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// resolve returns the RequestInfo of the Kubernetes path of a request. Paths outside
// /fleet, /flat and /members are not resource requests. Errors are
// *apierrors.StatusError.
func resolve(r *http.Request, t Target) (*request.RequestInfo, error) {
	if t.Prefix == "" {
		return &request.RequestInfo{Path: r.URL.Path, Verb: nonResourceVerb(r, t, strings.ToLower(r.Method))}, nil
	}
	if verb := pathVerb(t.Path); verb != "" {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: fmt.Sprintf("the verb %q in a path is not served: use ?watch=true; for proxies, connect to the member", verb),
		}}
	}
	stripped := *r
	u := *r.URL
	u.Path, u.RawPath = t.Path, ""
	stripped.URL = &u
	info, err := requestInfoFactory.NewRequestInfo(&stripped)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	info.Path = r.URL.Path
	if !info.IsResourceRequest {
		info.Verb = nonResourceVerb(r, t, info.Verb)
	}
	return info, nil
}

// nonResourceVerb is the verb of a non-resource request: queries may be watched.
func nonResourceVerb(r *http.Request, t Target, otherwise string) string {
	if r.Method == http.MethodGet && t.Member == "" && strings.HasPrefix(t.Path, Query+"/") {
		if yes, err := strconv.ParseBool(r.URL.Query().Get("watch")); err == nil && yes {
			return "watch"
		}
	}
	return otherwise
}

// pathVerb returns the verb in place of the resource in a path: the deprecated form of
// watches and proxies.
func pathVerb(path string) string {
	parts := strings.Split(path[1:], "/")
	at := map[string]int{"api": 2, "apis": 3}[parts[0]]
	if at == 0 || len(parts) <= at {
		return ""
	}
	if verb := parts[at]; verb == "watch" || verb == "proxy" {
		return verb
	}
	return ""
}

// Filter puts Target and RequestInfo into the context of requests, and passes those that
// cannot be parsed to fail.
func Filter(next http.Handler, fail func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, err := Parse(r.URL)
		if err != nil {
			fail(w, r, err)
			return
		}
		info, err := resolve(r, t)
		if err != nil {
			fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(request.WithRequestInfo(WithTarget(r.Context(), t), info)))
	})
}
