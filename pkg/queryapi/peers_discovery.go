package queryapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/route"
)

// factsPath is where processes ask each other for what their members serve: as a query, which has
// parts, of a name that no query can have.
const factsPath = route.Query + "/-facts"

// factsOf is what a process says of its members, with Facts where the asker does not have them.
type factsOf struct {
	Process string          `json:"process"`
	Hash    string          `json:"hash"`
	Facts   json.RawMessage `json:"facts,omitempty"`
}

// serveFacts serves what the members of this process serve, unless its hash is known.
func (s *Server) serveFacts(w http.ResponseWriter, r *http.Request, ask *part.Ask) error {
	snapshot := s.options.Index.Snapshot()
	facts, hash, err := s.catalog.Facts(snapshot)
	if err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	of := factsOf{Process: s.options.Peers.Assignment().Self, Hash: hash, Facts: facts}
	if slices.Contains(r.URL.Query()["known"], hash) {
		of.Facts = nil
	}
	text, err := json.Marshal(of)
	if err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	out, err := part.AppendHeader(nil, part.NewHeader(s.options.Index.First(), snapshot, ask))
	if err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	w.Header().Set("Content-Type", part.ContentType)
	_, _ = w.Write(part.Append(part.Append(out, part.ItemFrame, text), part.End, nil)) // the peer may be gone
	return nil
}

// unions keeps the union of what all processes' members serve. What a process said last stays while it
// does not answer.
type unions struct {
	mu    sync.Mutex
	known map[string]factsOf // by process
	made  string             // hashes that union is of
	union *catalog.Union
}

// update takes what processes said, and returns the union.
func (u *unions) update(said []factsOf, fleet []string) (*catalog.Union, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.known == nil {
		u.known = map[string]factsOf{}
	}
	for _, of := range said {
		if of.Facts != nil || u.known[of.Process].Hash != of.Hash {
			if of.Facts == nil { // another process has the same
				for _, o := range u.known {
					if o.Hash == of.Hash {
						of.Facts = o.Facts
					}
				}
			}
			u.known[of.Process] = of
		}
	}
	maps.DeleteFunc(u.known, func(process string, of factsOf) bool { return of.Facts == nil || !slices.Contains(fleet, process) })
	var hashes []string
	var facts [][]byte
	for _, process := range slices.Sorted(maps.Keys(u.known)) {
		hashes = append(hashes, u.known[process].Hash)
		facts = append(facts, u.known[process].Facts)
	}
	made := strings.Join(hashes, " ")
	if u.union != nil && u.made == made {
		return u.union, nil
	}
	union, err := catalog.NewUnion(facts)
	if err != nil {
		return nil, fmt.Errorf("query API: %w", err)
	}
	u.union, u.made = union, made
	return union, nil
}

func (u *unions) hashes() (out []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, of := range u.known {
		out = append(out, of.Hash)
	}
	return out
}

// serveUnion serves discovery of the whole fleet.
func (s *Server) serveUnion(w http.ResponseWriter, r *http.Request, target route.Target, u user.Info) error {
	ask := r.Clone(r.Context())
	ask.URL = &url.URL{Path: factsPath}
	a, err := s.shared.Ask(ask, u, url.Values{"known": s.unions.hashes()}, 0, aggregate.Position{})
	if err != nil {
		return err
	}
	said := make([]factsOf, len(a.Bodies))
	for i, body := range a.Bodies {
		if err := json.Unmarshal(body, &said[i]); err != nil {
			return fmt.Errorf("query API: what a process says that its members serve: %w", err)
		}
	}
	now := s.options.Peers.Assignment()
	fleet := []string{now.Self}
	for _, judge := range now.Judges {
		fleet = append(fleet, judge)
	}
	union, err := s.unions.update(said, fleet)
	if err != nil {
		return err
	}
	if len(a.Absent) > 0 {
		warning.AddWarning(r.Context(), "", "it is not known what all members serve now")
	}
	view, snapshot := union.View()
	return view.ServeDiscovery(w, r, snapshot, target)
}

// isHealthPath reports whether a path is of this process alone.
func isHealthPath(path string) bool {
	first, _, _ := strings.Cut(strings.Trim(path, "/"), "/")
	return first == "healthz" || first == "livez" || first == "readyz"
}
