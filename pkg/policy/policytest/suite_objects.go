package policytest

import (
	"fmt"
	"maps"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/expansion"
)

// suiteScopes are the scopes of a member that objects of a case are in.
type suiteScopes struct {
	member string
	byKind map[aggregate.Kind]*scope
	seen   map[aggregate.Ref]bool
}

func newSuiteScopes(set *policy.Set, member string) *suiteScopes {
	s := &suiteScopes{member: member, byKind: map[aggregate.Kind]*scope{}, seen: map[aggregate.Ref]bool{}}
	kinds, _ := set.Kinds()
	for _, k := range kinds {
		version := k.Version
		if version == "" {
			version = "v1"
		}
		if _, group := k.Kind.Split(); group != "" {
			version = group + "/" + version
		}
		s.byKind[k.Kind] = &scope{member: s.member, kind: k.Kind, version: version, state: aggregate.Synced}
	}
	return s
}

// add adds an object. Of two that are the same, the first is taken.
func (s *suiteScopes) add(o map[string]any) (aggregate.Ref, error) {
	e := encoder{object: o, keep: true}
	rec, kind, version, err := e.record(fmt.Sprintf("%s/%d", s.member, len(s.seen)))
	if err != nil {
		return aggregate.Ref{}, err
	}
	ref := aggregate.Ref{Member: s.member, Kind: kind, Namespace: rec.Namespace, Name: rec.Name}
	if s.seen[ref] {
		return ref, nil
	}
	s.seen[ref] = true
	of := s.byKind[kind]
	if of == nil {
		of = &scope{member: s.member, kind: kind, version: version, state: aggregate.Synced}
		s.byKind[kind] = of
	}
	if len(of.records) > 0 && of.version != version {
		return ref, notJudged("%s is at %s, another %s of the case at %s: a member's are all held at one version", ref, version, kind, of.version)
	}
	of.version, of.records = version, append(of.records, rec)
	return ref, nil
}

func (s *suiteScopes) list() []scope {
	var out []scope
	for _, kind := range slices.Sorted(maps.Keys(s.byKind)) {
		out = append(out, *s.byKind[kind])
	}
	return out
}

// expansions reads the ExpansionTemplates of a file.
func (r *suiteRun) expansions(s *suite, name string) (out expansion.Templates, err error) {
	list, err := r.objects(s, name)
	if err != nil {
		return nil, err
	}
	for _, o := range list {
		if mutator, ok := expansion.Mutator(o); ok {
			return nil, notJudged("mutators are not applied: %s has %s", name, mutator)
		}
		if !expansion.IsTemplate(o) {
			return nil, notJudged("%s has a %v: only ExpansionTemplates are applied", name, o["kind"])
		}
		if err := out.Add(o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}
