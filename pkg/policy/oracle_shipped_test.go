package policy_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/policies"
)

// fixture is what histories take from a fleet fixture of a shipped policy.
type fixture struct {
	Now        string           `json:"now"`
	Parameters map[string]any   `json:"parameters"`
	Bindings   []policy.Binding `json:"bindings"`
	Members    []struct {
		Version string            `json:"version"`
		Labels  map[string]string `json:"labels"`
		APIs    []string          `json:"apis"`
		Objects []map[string]any  `json:"objects"`
	} `json:"members"`
}

// shipped is a land of the objects, members and parameters that the fixtures of the
// shipped policies have.
type shipped struct {
	members    []op
	objects    map[aggregate.Kind][]map[string]any
	parameters map[string][]map[string]any // by directory of the policy, which is its package
	now        map[string]int64            // of fixtures, by the same
	texts      map[string]string
	set        *policy.Set
}

func readShipped() (*shipped, error) {
	s := &shipped{objects: map[aggregate.Kind][]map[string]any{}, parameters: map[string][]map[string]any{}, now: map[string]int64{}, texts: map[string]string{}}
	src := policy.Source{}
	err := fs.WalkDir(policies.FS, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, "_test.rego") {
			return err
		}
		data, err := fs.ReadFile(policies.FS, p)
		if err != nil {
			return err
		}
		if strings.HasSuffix(p, ".rego") {
			s.texts[p] = string(data)
			src.Files = append(src.Files, policy.File{Path: p, Data: data})
			return nil
		}
		part := strings.Split(p, "/")
		for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
			var f fixture
			if err := yaml.Unmarshal(doc, &f); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
			s.add("federator."+part[0]+"."+part[1], &f)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.set, err = policy.Load([]policy.Source{src}, policy.LoadOptions{})
	return s, err
}

func (s *shipped) add(pkg string, f *fixture) {
	if at, err := time.Parse(time.RFC3339, f.Now); err == nil {
		s.now[pkg] = at.Unix()
	}
	if f.Parameters != nil {
		s.parameters[pkg] = append(s.parameters[pkg], f.Parameters)
	}
	for _, b := range f.Bindings {
		if b.Parameters != nil {
			s.parameters[b.Package] = append(s.parameters[b.Package], b.Parameters)
		}
	}
	for _, m := range f.Members {
		s.members = append(s.members, op{Version: m.Version, Labels: m.Labels, APIs: m.APIs})
		for _, o := range m.Objects {
			version, _ := o["apiVersion"].(string)
			kind, _ := o["kind"].(string)
			group, _, ok := strings.Cut(version, "/")
			if !ok {
				group = ""
			}
			k := aggregate.MakeKind(kind, group)
			s.objects[k] = append(s.objects[k], o)
		}
	}
}

// land is the land of some kinds.
func (s *shipped) land(kinds []aggregate.Kind) *land {
	l := &land{versions: map[aggregate.Kind]string{}}
	for _, kind := range kinds {
		if len(s.objects[kind]) > 0 {
			l.kinds = append(l.kinds, kind)
			l.versions[kind], _ = s.objects[kind][0]["apiVersion"].(string)
		}
	}
	if len(l.kinds) == 0 && len(kinds) == 0 { // members are textVerdict; they have something
		return s.land(slices.Sorted(maps.Keys(s.objects))[:3])
	}
	l.object = func(r *rand.Rand, kind aggregate.Kind) (namespace, name string, object map[string]any) {
		from := pick(r, s.objects[kind]...)
		meta, _ := from["metadata"].(map[string]any)
		namespace, _ = meta["namespace"].(string)
		name, _ = meta["name"].(string)
		object, _ = mutated(r, from).(map[string]any)
		delete(object, "apiVersion")
		delete(object, "kind")
		if meta, _ = object["metadata"].(map[string]any); meta != nil {
			for _, key := range []string{"name", "namespace", "uid", "resourceVersion"} {
				delete(meta, key)
			}
		}
		return namespace, name, object
	}
	l.member = func(r *rand.Rand, o *op) {
		from := pick(r, s.members...)
		o.Version, o.Labels, o.APIs, o.Cluster = from.Version, from.Labels, from.APIs, smallCluster(r)
	}
	l.parameters = func(r *rand.Rand, pkg *policy.Package) map[string]any {
		if known := s.parameters[pkg.Name]; len(known) > 0 {
			return pick(r, known...)
		}
		return nil
	}
	return l
}

// mutated is a copy in which now and then something is missing or of another type.
func mutated(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, x := range v {
			switch {
			case key == "labels" || key == "metadata": // as the index has them
				out[key] = x
				if key == "metadata" {
					out[key] = shallow(x)
				}
			case r.IntN(40) == 0:
			case r.IntN(80) == 0:
				out[key] = pick[any](r, nil, "", 0, true, []any{}, map[string]any{})
			default:
				out[key] = mutated(r, x)
			}
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			if r.IntN(20) > 0 {
				out = append(out, mutated(r, x))
			}
		}
		return out
	}
	return v
}

func shallow(v any) any {
	out := map[string]any{}
	from, _ := v.(map[string]any)
	for key, x := range from {
		out[key] = x
	}
	return out
}

// TestEngine_EqualsFullEvaluationOfShippedPolicies plays histories of objects
// like those of the fixtures.
func TestEngine_EqualsFullEvaluationOfShippedPolicies(t *testing.T) {
	t.Parallel()
	s, err := readShipped()
	if err != nil {
		t.Fatal(err)
	}
	sets := []policySet{{s.set, s.texts}}
	o, err := newOracle(sets[0])
	if err != nil {
		t.Fatal(err)
	}
	oracles := []*oracle{o}
	// A land of the kinds of a few policies, so that their objects meet.
	of := map[string]*land{}
	for _, pkg := range s.set.Packages {
		var kinds []aggregate.Kind
		kinds = append(kinds, pkg.Evaluates().Among(maps.Keys(s.objects))...)
		for _, k := range pkg.Reads.ByName {
			kinds = append(kinds, k.Kind)
		}
		for _, k := range pkg.Reads.Objects {
			kinds = append(kinds, k.Kind)
		}
		if of[pkg.Name] = s.land(kinds); len(of[pkg.Name].kinds) == 0 {
			t.Fatalf("no fixture of %s has an object", pkg.Name)
		}
		of[pkg.Name].packages, of[pkg.Name].share = []string{pkg.Name}, len(s.set.Packages)
		if of[pkg.Name].start = s.now[pkg.Name]; pkg.Reads.Time {
			of[pkg.Name].passes = func(r *rand.Rand) int64 { return int64(r.IntN(14*86400)) - 2*86400 }
		}
	}
	for _, pkg := range s.set.Packages {
		t.Run(pkg.Name, func(t *testing.T) {
			t.Parallel()
			of[pkg.Name].playAll(t, 100, func(uint64) ([]policySet, []*oracle) { return sets, oracles })
		})
	}
}
