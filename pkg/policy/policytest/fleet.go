package policytest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// fleet is the content of the index of a case.
type fleet struct {
	members []aggregate.Member
	// scopes returns the scopes of a member: of the kinds that the policies name, and
	// of its objects.
	scopes []scope
}

// scope is one scope with its objects.
type scope struct {
	member  string
	kind    aggregate.Kind
	version string
	state   aggregate.State
	records []*aggregate.Record
}

// reads returns the kinds that the bound policies name, with the versions that they pin, and
// those that they name by a wildcard.
func (c *caseReader) reads() (kinds map[aggregate.Kind]string, open policy.KindSet) {
	kinds = map[aggregate.Kind]string{}
	add := func(lists ...[]policy.KindRef) {
		for _, k := range slices.Concat(lists...) {
			kinds[k.Kind] = max(kinds[k.Kind], k.Version)
		}
	}
	for _, p := range c.bound {
		add(p.KindsRead())
		open.Add(p.Evaluates())
		for _, v := range p.Reads.Views {
			if of := c.set.Package(v.Package); of != nil {
				add(of.Kinds)
				open.Add(of.Evaluates())
			}
		}
	}
	return kinds, open
}

// addOpen adds the kinds of the case that policies name by a wildcard: a member that has none
// of one that another has is known to have none.
func addOpen(kinds map[aggregate.Kind]string, open *policy.KindSet, members []member) {
	add := func(kind aggregate.Kind) {
		if _, named := kinds[kind]; !named && open.Has(kind) {
			kinds[kind] = ""
		}
	}
	for i := range members {
		for _, o := range members[i].Objects {
			apiVersion, _ := o["apiVersion"].(string)
			kind, _ := o["kind"].(string)
			gv, err := schema.ParseGroupVersion(apiVersion)
			if err == nil && kind != "" {
				add(aggregate.MakeKind(kind, gv.Group))
			}
		}
		for kind := range members[i].Scopes {
			add(aggregate.Kind(kind))
		}
	}
}

// fleet checks the members of a case.
func (c *caseReader) fleet(members []member) fleet {
	var f fleet
	kinds, open := c.reads()
	addOpen(kinds, &open, members)
	names := map[string]bool{}
	for i := range members {
		m, at := &members[i], fmt.Sprintf("members[%d]", i)
		switch {
		case m.Name == "":
			c.at(at, "a member has a name")
			continue
		case strings.Count(m.Name, "/") != 1 || strings.ContainsAny(m.Name, " \t\n"):
			c.at(at+".name", "%q is not NAMESPACE/NAME", m.Name)
		case names[m.Name]:
			c.at(at+".name", "another member is named %q", m.Name)
		}
		names[m.Name] = true
		apis := slices.Sorted(slices.Values(m.APIs))
		for j, a := range m.APIs {
			if gv, err := schema.ParseGroupVersion(a); err != nil || gv.Version == "" {
				c.at(fmt.Sprintf("%s.apis[%d]", at, j), "%q is not GROUP/VERSION, or v1", a)
			}
		}
		f.members = append(f.members, aggregate.Member{
			Name: m.Name, UID: m.Name, Labels: labelList(m.Labels), Version: m.Version, APIs: slices.Compact(apis), Cluster: m.cluster(),
		})
		f.scopes = append(f.scopes, c.scopes(m, at, kinds)...)
	}
	return f
}

// scopes returns the scopes of a member: of what the policies name, of what it has
// objects of.
func (c *caseReader) scopes(m *member, at string, kinds map[aggregate.Kind]string) []scope {
	byKind := map[aggregate.Kind]*scope{}
	for kind, pin := range kinds {
		version := cmp.Or(pin, "v1")
		if _, group := kind.Split(); group != "" {
			version = group + "/" + version
		}
		byKind[kind] = &scope{member: m.Name, kind: kind, version: version, state: aggregate.Synced}
	}
	seen := map[aggregate.Ref]bool{}
	for i, o := range m.Objects {
		where := fmt.Sprintf("%s.objects[%d]", at, i)
		e := encoder{object: o}
		rec, kind, version, err := e.record(fmt.Sprintf("%s/%d", m.Name, i))
		if err != nil {
			c.at(where, "%v", err)
			continue
		}
		ref := aggregate.Ref{Member: m.Name, Kind: kind, Namespace: rec.Namespace, Name: rec.Name}
		s := byKind[kind]
		switch {
		case seen[ref]:
			c.at(where, "%s exists twice", ref)
		case s == nil:
			byKind[kind] = &scope{member: m.Name, kind: kind, version: version, state: aggregate.Synced, records: []*aggregate.Record{rec}}
		case len(s.records) > 0 && s.version != version:
			c.at(where, "%s is at %s, another %s of the member at %s: a scope is held at one version", ref, version, kind, s.version)
		default:
			s.version = version
			s.records = append(s.records, rec)
		}
		seen[ref] = true
	}
	for _, name := range slices.Sorted(maps.Keys(m.Scopes)) {
		where := at + ".scopes." + name
		s := byKind[aggregate.Kind(name)]
		if s == nil {
			c.at(where, "no bound policy is about %q, and the member has no such object", name)
			continue
		}
		if err := s.state.UnmarshalText([]byte(m.Scopes[name])); err != nil {
			c.at(where, "%v", err)
		}
		if s.state == aggregate.NotServed && len(s.records) > 0 {
			c.at(where, "%s is NotServed, but there are objects of it", name)
		}
	}
	var out []scope
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		out = append(out, *byKind[kind])
	}
	return out
}

func labelList(m map[string]string) []aggregate.Label {
	var out []aggregate.Label
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, aggregate.Label{Key: key, Value: m[key]})
	}
	return out
}

// canonicalJSON writes JSON as the index stores it.
func canonicalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
