package policy_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// bindable are policies to bind: of Pods, with parameters that have defaults; with
// one that is required; of views only; of members; and of the keys of a view.
var bindable = []string{`# METADATA
# title: Pods
# custom:
#   severity: low
#   kinds: ["Pod", "Deployment.apps"]
#   parameters:
#     properties:
#       limit: {type: integer, default: 3, minimum: 1}
#       names: {type: array, items: {type: string}}
#       deep: {type: object, properties: {x: {type: boolean}}}
package pods

violation contains {"msg": "many"} if input.object.spec.n > input.parameters.limit
`, `# METADATA
# title: Needs a team
# custom:
#   severity: low
#   kinds: ["*"]
#   parameters:
#     required: [team]
#     properties:
#       team: {type: string}
package team

violation contains {"msg": "no team"} if not input.object.metadata.labels.team == input.parameters.team
`, `# METADATA
# title: Only a view
# custom: {severity: low, kinds: ["Pod"]}
package seen

view.nodes[input.object.spec.nodeName] contains true
`, `# METADATA
# title: Old members
# custom: {severity: low, subject: member}
package old

violation contains {"msg": "old"} if input.member.labels.old
`, `# METADATA
# title: Crowded nodes
# custom: {severity: low, kinds: ["Pod"], subject: view.nodes}
package crowded

view.nodes[input.object.spec.nodeName] contains true

violation contains {"msg": "crowded"} if count(input.entries) > 100
`}

func bindableSet(t testing.TB) *policy.Set {
	t.Helper()
	var s policy.Source
	for i, text := range bindable {
		s.Files = append(s.Files, policy.File{Path: fmt.Sprintf("p%d.rego", i), Data: []byte(text)})
	}
	set, err := policy.Load([]policy.Source{s}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestParseBindings_SetsDefaults reads one of everything, as YAML and as JSON.
func TestParseBindings_SetsDefaults(t *testing.T) {
	t.Parallel()
	set := bindableSet(t)
	const asYAML = `
bindings:
- name: pods
  package: pods
  members: {names: ["fleet/*"], labels: {matchLabels: {region: eu}}}
  match:
    kinds: [Pod]
    namespaces: ["shop-*", ""]
    labels: {matchExpressions: [{key: app, operator: In, values: [web]}]}
  parameters: {names: [a, b]}
  mode: Enforce
  visibility: {names: [fleet/eu-1]}
  tolerate: {}
  exemptions:
  - names: [web]
    namespaces: [shop]
    members: {names: [fleet/eu-2]}
    labels: {matchLabels: {a: b}}
    reason: it is being moved
    expires: 2027-01-31T00:00:00Z
- {name: again, package: pods, parameters: {limit: 7}}
- {name: old, package: old, exemptions: [{names: [fleet/eu-9], members: {labels: {matchLabels: {old: soon}}}, reason: it is leaving}]}
- {name: crowded, package: crowded, members: {names: ["fleet/*"]}, match: {namespaces: [shop]}, exemptions: [{names: [node-1], reason: it is large}]}
`
	const asJSON = `{"bindings":[{"name":"pods","package":"pods",
		"members":{"names":["fleet/*"],"labels":{"matchLabels":{"region":"eu"}}},
		"match":{"kinds":["Pod"],"namespaces":["shop-*",""],"labels":{"matchExpressions":[{"key":"app","operator":"In","values":["web"]}]}},
		"parameters":{"names":["a","b"]},"mode":"Enforce","visibility":{"names":["fleet/eu-1"]},"tolerate":{},
		"exemptions":[{"names":["web"],"namespaces":["shop"],"members":{"names":["fleet/eu-2"]},"labels":{"matchLabels":{"a":"b"}},
			"reason":"it is being moved","expires":"2027-01-31T00:00:00Z"}]},
		{"name":"again","package":"pods","parameters":{"limit":7}},
		{"name":"old","package":"old","exemptions":[{"names":["fleet/eu-9"],"members":{"labels":{"matchLabels":{"old":"soon"}}},"reason":"it is leaving"}]},
		{"name":"crowded","package":"crowded","members":{"names":["fleet/*"]},"match":{"namespaces":["shop"]},"exemptions":[{"names":["node-1"],"reason":"it is large"}]}]}`
	got, err := policy.ParseBindings(set, "b.yaml", []byte(asYAML))
	if err != nil {
		t.Fatal(err)
	}
	same, err := policy.ParseBindings(set, "b.json", []byte(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, same) {
		t.Errorf("YAML gives %+v\nJSON gives %+v", got, same)
	}
	b := got[0]
	if limit := fmt.Sprint(b.Parameters); limit != "map[limit:3 names:[a b]]" {
		t.Errorf("parameters %s", limit)
	}
	want := policy.Binding{
		Name: "pods", Package: "pods", Mode: policy.Enforce, Parameters: b.Parameters,
		Members: policy.MemberSelector{Names: []string{"fleet/*"}, Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}},
		Match: policy.Match{
			Kinds: []aggregate.Kind{"Pod"}, Namespaces: []string{"shop-*", ""},
			Labels: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"web"}}}},
		},
		Visibility: policy.MemberSelector{Names: []string{"fleet/eu-1"}},
		Tolerate:   &policy.MemberSelector{},
		Exemptions: []policy.Exemption{{
			Members: policy.MemberSelector{Names: []string{"fleet/eu-2"}}, Namespaces: []string{"shop"}, Names: []string{"web"},
			Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Reason: "it is being moved",
			Expires: time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC),
		}},
	}
	if !reflect.DeepEqual(b, want) {
		t.Errorf("got  %+v\nwant %+v", b, want)
	}
	for _, b := range got[1:] {
		if b.Mode != policy.Observe || b.Tolerate != nil || b.Parameters == nil {
			t.Errorf("%+v has not the defaults", b)
		}
	}
	if limit := fmt.Sprint(got[1].Parameters["limit"]); limit != "7" {
		t.Errorf("a default has replaced the limit: %s", limit)
	}
}

// wrongBindings are files with one mistake each, and how it is reported.
var wrongBindings = []struct{ name, text, want string }{
	{"an unknown key", "bindings:\n- name: a\n  package: pods\n  mod: Enforce", "b:4:3: error: bindings[0].mod is not known"},
	{"an unknown key at the top", "bindings: []\npolicies: []", "b:2:1: error: policies is not known"},
	{"an unknown key within", "bindings:\n- name: a\n  package: pods\n  match:\n    kind: [Pod]", "b:5:5: error: bindings[0].match.kind is not known"},
	{"a key of another case", "bindings:\n- Name: a\n  package: pods", "b:2:3: error: bindings[0].Name is not known"},
	{"a name that is a list", "bindings:\n- name: [a]\n  package: pods", "b:2:9: error: bindings[0].name is not a string"},
	{"a name that is a number", "bindings:\n- name: 1\n  package: pods", "b:2:9: error: bindings[0].name is not a string"},
	{"bindings that are a map", "bindings:\n  name: a", "b:2:3: error: bindings is not a list"},
	{"a document that is a list", "- name: a", "b:1:1: error: the document is not a map"},
	{"a label that is a boolean", "bindings:\n- name: a\n  package: pods\n  members: {labels: {matchLabels: {old: true}}}", "b:4:41: error: bindings[0].members.labels.matchLabels.old is not a string"},
	{"a time that is none", "bindings:\n- {name: a, package: pods, exemptions: [{reason: x, expires: tomorrow}]}", "b:2:62: error: bindings[0].exemptions[0].expires is not a time"},
	{"a date without a time", "bindings:\n- {name: a, package: pods, exemptions: [{reason: x, expires: 2027-01-01}]}", "b:2:62: error: bindings[0].exemptions[0].expires is not a time"},
	{"a key twice", "bindings:\n- name: a\n  package: pods\n  package: team", "b:4:3: error: bindings[0].package is there twice"},
	{"a key twice in parameters", "bindings:\n- name: a\n  package: pods\n  parameters: {limit: 1, limit: 2}", "b:4:26: error: bindings[0].parameters.limit is there twice"},
	{"two documents", "bindings: []\n---\nbindings: []", "b:2:1: error: there is a second document"},
	{"an anchor", "bindings:\n- &a {name: a, package: pods}", "b:2:3: error: bindings[0] has an anchor or an alias"},
	{"an alias", "bindings:\n- {name: *n, package: pods}", "b: error: unknown anchor 'n' referenced"},
	{"a merge", "bindings:\n- name: a\n  package: pods\n  <<: {mode: Enforce}", "b:4:3: error: bindings[0] has a key that is no string"},
	{"no YAML", "bindings: [", "b:1:1: error: did not find"},
	{"no UTF-8", "bindings: \xff", "error: invalid"},
	{"a namespace that is null", "bindings:\n- name: a\n  package: pods\n  match: {namespaces: [~]}", "b:4:24: error: bindings[0].match.namespaces[0] is null"},
	{"a label that is null", "bindings:\n- name: a\n  package: pods\n  members: {labels: {matchLabels: {old: }}}", "error: bindings[0].members.labels.matchLabels.old is null"},
	{"no name", "bindings:\n- package: pods", "b:2:3: error: name: required"},
	{"an empty binding", "bindings:\n- {name: a, package: pods}\n-", "b:3:2: error: bindings[1] is null"},
	{"a name twice", "bindings:\n- {name: a, package: pods}\n- {name: a, package: old}", `b:3:10: error: another binding is named "a"`},
	{"no package", "bindings:\n- name: a", `b:2:3: error: there is no package ""`},
	{"a package that is not there", "bindings:\n- name: a\n  package: pod", `b:3:12: error: there is no package "pod"`},
	{"a kind that is not of the package", "bindings:\n- name: a\n  package: pods\n  match: {kinds: [Pod, Service]}", "b:4:24: error: match.kinds has Service, which package pods does not evaluate"},
	{"a kind for a package of members", "bindings:\n- name: a\n  package: old\n  match: {kinds: [Pod]}", "b:4:18: error: match.kinds: package old evaluates members, not objects"},
	{"namespaces for a package of members", "bindings:\n- name: a\n  package: old\n  match: {namespaces: [shop]}", "b:4:23: error: match.namespaces: package old evaluates members, not objects"},
	{"labels for a package of members", "bindings:\n- name: a\n  package: old\n  match: {labels: {matchLabels: {a: b}}}", "b:4:19: error: match.labels: package old evaluates members, not objects"},
	{"an exemption by namespace of a member", "bindings:\n- name: a\n  package: old\n  exemptions: [{reason: x, namespaces: [shop]}]", "b:4:40: error: exemptions[0].namespaces: package old evaluates members, which have no namespace"},
	{"an exemption by labels of objects of a member", "bindings:\n- name: a\n  package: old\n  exemptions: [{reason: x, labels: {matchLabels: {a: b}}}]", "b:4:36: error: exemptions[0].labels: package old evaluates members; their labels are exemptions[0].members.labels"},
	{"an exemption by member of a key", "bindings:\n- name: a\n  package: crowded\n  exemptions: [{reason: x, members: {names: [fleet/eu-1]}}]", "b:4:37: error: exemptions[0].members: package crowded evaluates the keys of view nodes, which are exempted by name only"},
	{"an exemption by namespace of a key", "bindings:\n- name: a\n  package: crowded\n  exemptions: [{reason: x, namespaces: [shop]}]", "b:4:40: error: exemptions[0].namespaces: package crowded evaluates the keys of view nodes, which are exempted by name only"},
	{"an exemption by labels of a key", "bindings:\n- name: a\n  package: crowded\n  exemptions: [{reason: x, labels: {matchLabels: {a: b}}}]", "b:4:36: error: exemptions[0].labels: package crowded evaluates the keys of view nodes, which are exempted by name only"},
	{"a kind that is none", "bindings:\n- name: a\n  package: team\n  parameters: {team: x}\n  match: {kinds: [pods/exec]}", `b:5:19: error: match.kinds: "pods/exec" is not a kind, or has a version`},
	{"a kind with a version", "bindings:\n- name: a\n  package: pods\n  match: {kinds: [Deployment.v1.apps]}", `b:4:19: error: match.kinds: "Deployment.v1.apps" is not a kind, or has a version`},
	{"a pattern of members", "bindings:\n- name: a\n  package: pods\n  members: {names: [ok, 'fleet/[']}", `b:4:25: error: members.names[1]: "fleet/[": syntax error in pattern`},
	{"a pattern of namespaces", "bindings:\n- name: a\n  package: pods\n  match: {namespaces: ['a[b']}", `b:4:24: error: match.namespaces[0]: "a[b": syntax error in pattern`},
	{"a pattern that ends in an escape", "bindings:\n- name: a\n  package: pods\n  match: {namespaces: ['web\\']}", `b:4:24: error: match.namespaces[0]`},
	{"a pattern of visibility", "bindings:\n- name: a\n  package: pods\n  visibility: {names: ['[']}", "b:4:24: error: visibility.names[0]"},
	{"a pattern of tolerate", "bindings:\n- name: a\n  package: pods\n  tolerate: {names: ['[']}", "b:4:22: error: tolerate.names[0]"},
	{"a pattern of an exemption", "bindings:\n- name: a\n  package: pods\n  exemptions: [{reason: x, names: ['[']}]", "b:4:36: error: exemptions[0].names[0]"},
	{"a pattern of an exemption's namespaces", "bindings:\n- name: a\n  package: pods\n  exemptions: [{reason: x, namespaces: ['[']}]", "b:4:41: error: exemptions[0].namespaces[0]"},
	{"a pattern of an exemption's members", "bindings:\n- name: a\n  package: pods\n  exemptions: [{reason: x, members: {names: ['[']}}]", "b:4:46: error: exemptions[0].members.names[0]"},
	{"a selector of members", "bindings:\n- name: a\n  package: pods\n  members: {labels: {matchLabels: {'a b': c}}}", "b:4:21: error: members.labels: "},
	{"a selector of objects", "bindings:\n- name: a\n  package: pods\n  match: {labels: {matchExpressions: [{key: a, operator: Is}]}}", `b:4:19: error: match.labels: "Is" is not a valid`},
	{"a selector of an exemption", "bindings:\n- name: a\n  package: pods\n  exemptions: [{reason: x, labels: {matchExpressions: [{key: a, operator: In}]}}]", "b:4:36: error: exemptions[0].labels: "},
	{"a mode that is none", "bindings:\n- name: a\n  package: pods\n  mode: enforce", `b:4:9: error: mode: "enforce" must be Observe, DryRun or Enforce`},
	{"an exemption without reason", "bindings:\n- name: a\n  package: pods\n  exemptions: [{names: [x]}]", "b:4:16: error: exemptions[0].reason: required"},
	{"an exemption with an empty reason", "bindings:\n- name: a\n  package: pods\n  exemptions: [{reason: ' '}]", "b:4:25: error: exemptions[0].reason: required"},
	{"parameters that a package has not", "bindings:\n- name: a\n  package: old\n  parameters: {x: 1}", "b:4:15: error: parameters: the package takes no parameters"},
	{"a parameter that is unknown", "bindings:\n- name: a\n  package: pods\n  parameters:\n    limt: 1", "b:5:11: error: parameters: Additional property limt is not allowed"},
	{"a parameter of a wrong type", "bindings:\n- name: a\n  package: pods\n  parameters:\n    limit: x", "b:5:12: error: parameters: limit: Invalid type. Expected: integer, given: string"},
	{"a parameter out of its bounds", "bindings:\n- name: a\n  package: pods\n  parameters:\n    limit: 0", "b:5:12: error: parameters: limit: Must be greater than or equal to 1"},
	{"a parameter in a list", "bindings:\n- name: a\n  package: pods\n  parameters:\n    names: [a, 2]", "b:5:16: error: parameters: names.1: Invalid type"},
	{"a parameter within another", "bindings:\n- name: a\n  package: pods\n  parameters:\n    deep:\n      y: 1", "b:6:10: error: parameters: deep: Additional property y is not allowed"},
	{"a parameter that is missing", "bindings:\n- name: a\n  package: team", "b:2:3: error: parameters: team is required"},
	{"a parameter that is null", "bindings:\n- name: a\n  package: pods\n  parameters: {limit: null}", "b:4:23: error: parameters: limit: Invalid type"},
	{"a parameter that JSON has not", "bindings:\n- name: a\n  package: pods\n  parameters: {limit: .inf}", "b:4:23: error: bindings[0].parameters.limit is not a number that JSON has"},
	{"a parameter that is binary", "bindings:\n- name: a\n  package: pods\n  parameters: {limit: !!binary aGk=}", "b:4:23: error: bindings[0].parameters.limit is not a value that JSON has"},
	{"a file that is too large", "#" + strings.Repeat("x", 1<<20), "b: error: the file has 1048577 bytes"},
	{"parameters that nest", "bindings:\n- {name: a, package: pods, parameters: {x: " + strings.Repeat("[", 50) + strings.Repeat("]", 50) + "}}", "nests too deep"},
}

func TestParseBindings_ReportsErrorsWithTheirPosition(t *testing.T) {
	t.Parallel()
	set := bindableSet(t)
	for _, test := range wrongBindings {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := policy.ParseBindings(set, "b", []byte(test.text))
			var list policy.LoadErrors
			if !errors.As(err, &list) || !errors.Is(err, policy.ErrBinding) {
				t.Fatalf("got %v, which is no LoadErrors that is ErrBinding", err)
			}
			if got != nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

// TestParseBindings_ReportsAllErrorsAtOnce has several in one binding, whose
// package is not there either, and in two.
func TestParseBindings_ReportsAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	set := bindableSet(t)
	const text = `bindings:
- name: a
  package: none
  mode: Force
  members: {names: ['[', ok, 'b[']}
  exemptions:
  - labels: {matchLabels: {'a b': c}}
  - names: ['[']
- name: a
  package: pods
  parameters: {limit: x, more: 1}
  match: {kinds: [Node]}
  mode: Force
`
	_, err := policy.ParseBindings(set, "b.yaml", []byte(text))
	var list policy.LoadErrors
	if !errors.As(err, &list) {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		got = append(got, fmt.Sprintf("%d:%d", f.Line, f.Col))
	}
	want := []string{"3:12", "4:9", "5:21", "5:30", "7:5", "7:13", "8:5", "8:13", "9:9", "11:23", "11:32", "12:19", "13:9"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v\n%v", got, want, err)
	}
}

func TestParseBindings_RefusesTooManyBindings(t *testing.T) {
	t.Parallel()
	set := bindableSet(t)
	var text strings.Builder
	text.WriteString("bindings:\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "- {name: b%d, package: old}\n", i)
	}
	got, err := policy.ParseBindings(set, "b", []byte(text.String()))
	if err != nil || len(got) != 10_000 {
		t.Fatalf("%d bindings, %v", len(got), err)
	}
	text.WriteString("- {name: b, package: old}\n")
	if _, err = policy.ParseBindings(set, "b", []byte(text.String())); err == nil || err.Error() != "b:10002:3: error: there are more than 10000 bindings [binding]" {
		t.Errorf("got %v", err)
	}
}

// TestParseBindings_AcceptsFilesWithoutBindings reads files that say nothing.
func TestParseBindings_AcceptsFilesWithoutBindings(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "---\n", "bindings:", "bindings: []", "{}", "null", "bindings: null"} {
		if got, err := policy.ParseBindings(bindableSet(t), "b", []byte(text)); err != nil || len(got) != 0 {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestParseBindings_RefusesAliases holds what would be gigabytes to the time of reading it.
func TestParseBindings_RefusesAliases(t *testing.T) {
	t.Parallel()
	text := "a0: &a0 [x, x]\n"
	for i := range 60 {
		text += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	if _, err := policy.ParseBindings(bindableSet(t), "b", []byte(text)); !errors.Is(err, policy.ErrBinding) {
		t.Errorf("got %v", err)
	}
}

func TestValidateBindings_NamesTheBinding(t *testing.T) {
	t.Parallel()
	set := bindableSet(t)
	given := []policy.Binding{{Name: "x", Package: "pods", Parameters: map[string]any{"names": []any{"a"}}}, {Name: "old", Package: "old"}}
	got, err := policy.ValidateBindings(set, given)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got[0].Parameters) != "map[limit:3 names:[a]]" || len(given[0].Parameters) != 1 || given[0].Mode != "" {
		t.Errorf("given %+v\ngot   %+v", given[0], got[0])
	}
	got[0].Parameters["names"].([]any)[0] = "b"
	if given[0].Parameters["names"].([]any)[0] != "a" {
		t.Error("the result shares its parameters with what was given")
	}
	given[1] = policy.Binding{Name: "y", Package: "pods", Mode: "Force"}
	_, err = policy.ValidateBindings(set, given)
	if !errors.Is(err, policy.ErrBinding) || !strings.Contains(err.Error(), `error: binding "y": mode: "Force"`) {
		t.Errorf("got %v", err)
	}
	if got, err := policy.ValidateBindings(set, nil); err != nil || len(got) != 0 {
		t.Errorf("of nothing it makes %v, %v", got, err)
	}
}

// TestDefaultBindings_ObservePackagesWithoutABinding has none for views only, and a warning for
// what needs parameters.
func TestDefaultBindings_ObservePackagesWithoutABinding(t *testing.T) {
	t.Parallel()
	set := bindableSet(t)
	got, warnings := policy.DefaultBindings(set, nil)
	var names []string
	for _, b := range got {
		names = append(names, b.Name)
		if b.Name != b.Package || b.Mode != policy.Observe {
			t.Errorf("%+v", b)
		}
	}
	if !slices.Equal(names, []string{"crowded", "old", "pods"}) || fmt.Sprint(got[2].Parameters) != "map[limit:3]" {
		t.Errorf("bindings %+v", got)
	}
	if len(warnings) != 1 || warnings[0].String() != "p1.rego:1:1: warning: package team has no binding and is not evaluated: team is required [needs-binding]" {
		t.Errorf("warnings %v", warnings)
	}
	if _, err := policy.ValidateBindings(set, got); err != nil {
		t.Error(err)
	}
	// One that is bound has no other, and a name is given once.
	given := []policy.Binding{{Name: "old", Package: "pods"}, {Name: "teams", Package: "team", Parameters: map[string]any{"team": "x"}}, {Name: "nodes", Package: "crowded"}}
	got, warnings = policy.DefaultBindings(set, given)
	if len(got) != 0 || len(warnings) != 1 || !strings.Contains(warnings[0].Message, "package old has no binding and is not evaluated: a binding of package pods has the same name") {
		t.Errorf("bindings %v, warnings %v", got, warnings)
	}
}

func TestBinding_AtDropsExpiredExemptions(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	b := policy.Binding{Exemptions: []policy.Exemption{{Reason: "always"}, {Reason: "until", Expires: at}, {Reason: "later", Expires: at.Add(time.Hour)}}}
	for _, test := range []struct {
		now  time.Time
		want string
	}{{at.Add(-time.Nanosecond), "always until later"}, {at, "always later"}, {at.In(time.FixedZone("CET", 3600)), "always later"}, {at.Add(time.Hour), "always"}} {
		var got []string
		for _, e := range b.At(test.now).Exemptions {
			got = append(got, e.Reason)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("at %v: %v, want %s", test.now, got, test.want)
		}
	}
	if len(b.Exemptions) != 3 || b.Exemptions[1].Reason != "until" {
		t.Errorf("the binding has changed: %+v", b.Exemptions)
	}
}
