package apiproxy

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// hidden are Secrets that are the agent's own. Federator is neither shown them nor changes them, whatever the agent's
// ServiceAccount may do, since it must be able to read and write them itself.
type hidden []types.NamespacedName

// apply returns a request as it is sent, or why it is refused: a list or watch leaves these Secrets out. Check has let it through.
func (h hidden) apply(r *http.Request) (*http.Request, string) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if len(h) == 0 || parts[0] != "api" || len(parts) < 3 {
		return r, ""
	}
	namespace, rest := "", parts[2:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		namespace, rest = rest[1], rest[2:]
	}
	if rest[0] != "secrets" {
		return r, ""
	}
	var of []string
	for _, s := range h {
		if namespace == "" || namespace == s.Namespace {
			of = append(of, s.Name)
		}
	}
	switch {
	case len(of) == 0:
		return r, ""
	case len(rest) > 1:
		for _, name := range of {
			if name == rest[1] {
				return nil, "this Secret is the agent's own"
			}
		}
		return r, ""
	case r.Method != http.MethodGet: // its name is in the body
		return nil, "no Secrets are created in the agent's own namespace"
	}
	return without(r, of)
}

// without returns a list or watch that leaves out what has these names. In all namespaces it leaves out those of other
// namespaces, too: selectors have no or.
func without(r *http.Request, names []string) (*http.Request, string) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(q["fieldSelector"]) > 1 {
		return nil, "the query is written in another way than federator does"
	}
	var terms []string
	if s := q.Get("fieldSelector"); s != "" {
		terms = append(terms, s)
	}
	for _, name := range names {
		terms = append(terms, "metadata.name!="+name)
	}
	q.Set("fieldSelector", strings.Join(terms, ","))
	u := *r.URL
	u.RawQuery = q.Encode()
	out := r.WithContext(r.Context())
	out.URL = &u
	return out, ""
}
