package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

// Facts are what a process knows of what its members serve, for discovery of a fleet that several
// processes share.
type Facts struct {
	Served []ServedResource
	// Held are the API versions at which kinds are held, each by how many members.
	Held map[aggregate.Kind]map[string]int
	// Definitions are the CustomResourceDefinitions of kinds: of each, that of most members.
	Definitions []json.RawMessage
	Version     string // the lowest of the API servers, "" where none is known
}

// Facts returns them as of a snapshot, and a hash of them.
func (c *Catalog) Facts(snapshot *aggregate.Snapshot) (facts []byte, hash string, err error) {
	v := c.View(snapshot)
	lowest := ""
	if version := lowestVersion(snapshot, ""); version != libraryVersion {
		lowest = version
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.known; k != nil && k.of == v && k.lowest == lowest {
		return k.text, k.hash, nil
	}
	f := Facts{Served: v.served, Held: map[aggregate.Kind]map[string]int{}, Version: lowest}
	for scope := range snapshot.Scopes("") {
		if isServed(scope) || scope.Status.State == aggregate.Unknown && scope.Version != "" {
			if f.Held[scope.Kind] == nil {
				f.Held[scope.Kind] = map[string]int{}
			}
			f.Held[scope.Kind][scope.Version]++
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(v.definitions.byKind)) {
		body, err := v.definitions.byKind[kind].common.object.AppendBody(nil)
		if err != nil {
			return nil, "", fmt.Errorf("catalog: %w", err)
		}
		f.Definitions = append(f.Definitions, body)
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil, "", fmt.Errorf("catalog: %w", err)
	}
	c.known = &knownFacts{v, lowest, text, etagOf(string(text))}
	return text, c.known.hash, nil
}

// knownFacts are the Facts of a View.
type knownFacts struct {
	of     *View
	lowest string
	text   []byte
	hash   string
}

// Union is a catalog of what the members of several processes serve.
type Union struct {
	view     *View
	snapshot *aggregate.Snapshot
}

// NewUnion returns a Union of facts, which are in the order of the processes.
func NewUnion(facts [][]byte) (*Union, error) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	var served united
	for i, text := range facts {
		var f Facts
		if err := json.Unmarshal(text, &f); err != nil {
			return nil, fmt.Errorf("catalog: %w", err)
		}
		served.add(f.Served)
		if err := f.fill(index, "process-"+strconv.Itoa(i)); err != nil {
			return nil, fmt.Errorf("catalog: %w", err)
		}
	}
	snapshot := index.Snapshot()
	return &Union{New(served.list).View(snapshot), snapshot}, nil
}

// View returns the view and its snapshot.
func (u *Union) View() (*View, *aggregate.Snapshot) { return u.view, u.snapshot }

// fill puts the facts into an index: a member for each of the versions that a kind is held at, as most members
// decide.
func (f *Facts) fill(index *aggregate.Index, process string) error {
	put := map[string]bool{}
	open := func(n int, kind aggregate.Kind, version string) (*aggregate.Scope, error) {
		member := process + "/" + strconv.Itoa(n)
		if !put[member] {
			put[member] = true
			if err := index.PutMember(aggregate.Member{Name: member, Version: f.Version}); err != nil {
				return nil, err
			}
		}
		s, err := index.OpenScope(member, kind, version)
		if err == nil {
			s.SetStatus(aggregate.Status{State: aggregate.Synced})
		}
		return s, err
	}
	for _, kind := range slices.Sorted(maps.Keys(f.Held)) {
		n := 0
		for _, version := range slices.Sorted(maps.Keys(f.Held[kind])) {
			for range min(f.Held[kind][version], maxVotes) {
				s, err := open(n, kind, version)
				if err != nil {
					return err
				}
				if kind == crdKind && n == 0 {
					err = f.define(s)
				}
				if err != nil {
					return err
				}
				if _, err := s.Commit(); err != nil {
					return err
				}
				n++
			}
		}
	}
	return nil
}

// maxVotes bounds the members of a process that count for a version.
const maxVotes = 16

// define adds the definitions.
func (f *Facts) define(s *aggregate.Scope) error {
	for _, body := range f.Definitions {
		var of struct {
			Metadata struct{ Name, UID string }
		}
		if err := json.Unmarshal(body, &of); err != nil {
			return err
		}
		s.Upsert(s.Item(&aggregate.Record{Name: of.Metadata.Name, UID: of.Metadata.UID, ResourceVersion: "1", Body: body}))
	}
	return nil
}

// united is a Source of what several processes know.
type united struct{ list servedList }

type servedList []ServedResource

var neverChanges = make(chan struct{})

// Resources implements Source.
func (s servedList) Resources() ([]ServedResource, <-chan struct{}) { return s, neverChanges }

// add adds what another process knows. What one serves the fleet does; the names are those of the first.
func (u *united) add(served []ServedResource) {
	at := map[aggregate.Kind]map[schema.GroupVersionResource]int{}
	for i, s := range u.list {
		if at[s.Kind] == nil {
			at[s.Kind] = map[schema.GroupVersionResource]int{}
		}
		at[s.Kind][s.Resource] = i
	}
	for _, s := range served {
		s.Members = nil // they decide nothing in discovery of a fleet
		i, known := at[s.Kind][s.Resource]
		if !known {
			u.list = append(u.list, s)
			continue
		}
		have := &u.list[i]
		if have.Shadowed && !s.Shadowed {
			*have = s
		}
		if have.Namespaced != s.Namespaced || len(s.ScopeDiffers) > 0 {
			have.ScopeDiffers = append(have.ScopeDiffers, s.ScopeDiffers...)
		}
	}
}
