package policy_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/policies"
)

// shippedFiles returns the shipped policies, and of them the libraries.
func shippedFiles(f *testing.F) (all, libraries []policy.File) {
	s, err := policy.ReadSource("", policies.FS)
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range s.Files {
		switch {
		case len(file.Data) == 0 || strings.HasSuffix(file.Path, "_test.rego"):
		case strings.HasPrefix(file.Path, "lib/"):
			libraries = append(libraries, file)
		default:
			all = append(all, file)
		}
	}
	if len(all) < 10 {
		f.Fatalf("there are %d policies", len(all))
	}
	return all, libraries
}

// FuzzLoad gives Load what strangers may write: it loads or says where it is wrong,
// and what loads can be linted, bound and prepared.
func FuzzLoad(f *testing.F) {
	all, libraries := shippedFiles(f)
	for _, file := range all {
		f.Add(file.Data)
	}
	for _, text := range bindable {
		f.Add([]byte(text))
	}
	for _, text := range oraclePolicies {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		files := append(slices.Clone(libraries), policy.File{Path: "p.rego", Data: data})
		set, err := policy.Load([]policy.Source{{Files: files}}, policy.LoadOptions{})
		if err != nil {
			list, ok := errors.AsType[policy.LoadErrors](err)
			if !ok || set != nil || len(list) == 0 {
				t.Fatalf("%T, %v", err, set)
			}
			for _, finding := range list {
				if finding.File == "" || finding.Code == "" || finding.Message == "" || finding.Line < 0 || finding.Severity != policy.SeverityError {
					t.Fatalf("%+v", finding)
				}
				if finding.Code == "internal" || finding.Line == 0 && finding.Code != "parse" && finding.Code != "too-many" && finding.Code != "too-large" {
					t.Fatalf("%+v", finding)
				}
			}
			return
		}
		for _, finding := range policy.Lint(set) {
			if finding.File == "" || finding.Line < 1 || finding.Code == "" || finding.Severity != policy.SeverityWarning {
				t.Fatalf("%+v", finding)
			}
		}
		bindings, _ := policy.DefaultBindings(set, nil)
		if _, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings}); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzParseBindings gives it files: what it takes holds, and has all defaults.
func FuzzParseBindings(f *testing.F) {
	set := bindableSet(f)
	for _, test := range wrongBindings {
		if len(test.text) < 1000 {
			f.Add([]byte(test.text))
		}
	}
	f.Add([]byte(`{"bindings":[{"name":"a","package":"pods","members":{"names":["fleet/*"],"labels":{"matchLabels":{"a":"b"}}},"mode":"DryRun"}]}`))
	f.Add([]byte("bindings:\n- {name: a, package: team, parameters: {team: x}, match: {kinds: [Pod], namespaces: ['']}, tolerate: {}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		bindings, err := policy.ParseBindings(set, "b.yaml", data)
		if err != nil {
			list, ok := errors.AsType[policy.LoadErrors](err)
			if !ok || bindings != nil || len(list) == 0 || !errors.Is(err, policy.ErrBinding) {
				t.Fatalf("%T, %v", err, bindings)
			}
			for _, finding := range list {
				if finding.File != "b.yaml" || finding.Message == "" || finding.Line < 0 || finding.Code != "binding" {
					t.Fatalf("%+v", finding)
				}
			}
			return
		}
		again, err := policy.ValidateBindings(set, bindings)
		if err != nil || len(again) != len(bindings) {
			t.Fatalf("what was read is not valid: %v", err)
		}
		for _, b := range again {
			if b.Name == "" || b.Mode == "" || b.Parameters == nil || set.Package(b.Package) == nil {
				t.Fatalf("%+v", b)
			}
		}
		if _, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings}); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzParseKind reads kinds: those that it takes, it writes as they were.
func FuzzParseKind(f *testing.F) {
	for _, s := range []string{
		"Pod", "Deployment.apps", "HTTPRoute.v1.gateway.networking.k8s.io", "Pod.v1", "Pod.v1beta1", "Pod.", ".", "", "Pod.v1.", "a b",
		"Pod.v0", "Pod.v1alpha0", "v1.v1", "v1.v1.v1", "*", "Pod.Apps", "Pod..apps", "Pod.-a", "pods/exec", "é", "Pod.v2.v1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := module.ParseKind(s)
		if err != nil {
			if k != (policy.KindRef{}) || len(err.Error()) > 1000 {
				t.Fatalf("%q: %+v, %v", s, k, err)
			}
			return
		}
		if k.String() != s {
			t.Fatalf("%q is written %q", s, k)
		}
		if kind, group := k.Kind.Split(); kind == "" || strings.ContainsAny(group, "/ ") || !fs.ValidPath(s) {
			t.Fatalf("%q gives kind %q of group %q", s, kind, group)
		}
	})
}
