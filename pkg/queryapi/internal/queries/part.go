package queries

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// partResult is what a process answers of a query for the members that it judges.
type partResult struct {
	Result json.RawMessage       `json:"result"`
	Stale  []selection.NotSynced `json:"stale,omitempty"`
	More   int                   `json:"more,omitempty"` // that are not fresh
	Asked  []asked               `json:"asked,omitempty"`
	// Unsure are members of which it is not known whether they serve what is unknown.
	Unsure []string `json:"unsure,omitempty"`
}

// asked is a resource that a query asks for.
type asked struct {
	Name      string         `json:"name"` // as the parameter has it
	Kind      aggregate.Kind `json:"kind,omitempty"`
	Resource  string         `json:"resource,omitempty"`
	Unknown   bool           `json:"unknown,omitempty"`
	Forbidden bool           `json:"forbidden,omitempty"` // in the members of the part
}

// asked resolves the resources of a query, each once. In a part those that its members do not
// serve are left out.
func (s *Handler) asked(snapshot *aggregate.Snapshot, p params) ([]Resource, []asked, error) {
	names := p.values["resource"]
	resources, err := s.resources(snapshot, names)
	if p.ask == nil || len(names) == 0 || len(names) > maxResources || slices.Contains(names, "") {
		return resources, nil, err
	}
	resources = nil
	view := s.options.View(snapshot)
	var of []asked
	for _, name := range names {
		r, ok := view.ByName(name)
		switch {
		case !ok:
			of = append(of, asked{Name: name, Unknown: true})
		case !slices.ContainsFunc(of, func(o asked) bool { return o.Kind == r.Kind }):
			of = append(of, asked{Name: name, Kind: r.Kind, Resource: r.String()})
			resources = append(resources, r)
		}
	}
	return resources, of, nil
}

// forbid notes that a resource may be listed nowhere in the part.
func forbid(of []asked, r Resource) {
	for i := range of {
		if of[i].Kind == r.Kind {
			of[i].Forbidden = true
		}
	}
}

// members are those that the result is of; nil is all.
func (p params) members(s *aggregate.Snapshot) []string {
	if p.ask == nil {
		return nil
	}
	return p.ask.Members(s)
}

func writePart(w http.ResponseWriter, a result, stale freshness) error {
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("queries: encode: %w", err)
	}
	body, err := json.Marshal(partResult{text, stale.first, stale.more, stale.asked, stale.unsure})
	if err != nil {
		return fmt.Errorf("queries: encode: %w", err)
	}
	w.Header().Set("Content-Type", part.ContentType)
	_, _ = w.Write(body) // it is held
	return nil
}

// unsure returns the members of which it is not known whether they serve a resource that is unknown.
func (p params) unsure(s *aggregate.Snapshot, of []asked) []string {
	if p.ask == nil || !slices.ContainsFunc(of, func(o asked) bool { return o.Unknown }) {
		return nil
	}
	return p.ask.Unsure(s, "*")
}
