package module_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/internal/module"
)

// schemaOf returns the schema of a package with parameters.
func schemaOf(t *testing.T, parameters string) *module.Schema {
	t.Helper()
	set, err := load(t, "p.rego", custom("parameters: "+parameters))
	if err != nil {
		t.Fatal(err)
	}
	return set.Packages[0].Parameters
}

func TestSchema_SetsDefaultsAtEveryLevel(t *testing.T) {
	s := schemaOf(t, `{properties: {a: {properties: {b: {type: integer, default: 1}, c: {}}}, list: {items: {properties: {d: {default: [2]}}}}, e: {default: {f: x}, properties: {f: {}, g: {default: y}}}, h: {additionalProperties: true, properties: {}}}}`)
	for _, test := range []struct{ given, want string }{
		{`null`, `{"e":{"f":"x","g":"y"}}`},
		{`{}`, `{"e":{"f":"x","g":"y"}}`},
		{`{"a":{}}`, `{"a":{"b":1},"e":{"f":"x","g":"y"}}`},
		{`{"a":{"b":2,"c":null},"e":{}}`, `{"a":{"b":2,"c":null},"e":{"g":"y"}}`},
		{`{"list":[{},{"d":[]}],"e":{"g":1}}`, `{"e":{"g":1},"list":[{"d":[2]},{"d":[]}]}`},
		{`{"h":{"any":{"thing":[1]}},"e":{"f":1,"g":2}}`, `{"e":{"f":1,"g":2},"h":{"any":{"thing":[1]}}}`},
		{`{"i":1}`, `Additional property i is not allowed`},
		{`{"a":{"x":1}}`, `a: Additional property x is not allowed`},
		{`{"list":[{"x":1}]}`, `list.0: Additional property x is not allowed`},
		{`{"a":{"b":"1"},"i":1}`, `Additional property i is not allowed; a.b: Invalid type. Expected: integer, given: string`},
		{strings.Repeat(`{"h":`, 40) + "1" + strings.Repeat("}", 40), `the parameters are too large`},
		{`{"list":[` + strings.Repeat("{},", 5000) + `{}]}`, `the parameters are too large`},
	} {
		var given map[string]any
		if err := json.Unmarshal([]byte(test.given), &given); err != nil {
			t.Fatal(err)
		}
		before := fmt.Sprint(given)
		got, problems := s.Resolve(given)
		text := strings.Join(problems, "; ")
		if len(problems) == 0 {
			b, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if text != test.want {
			t.Errorf("%.100s\ngot  %s\nwant %s", test.given, text, test.want)
		}
		if fmt.Sprint(given) != before {
			t.Errorf("%s has become %v", test.given, given)
		}
	}
	// What one caller does to its parameters, no other sees.
	first, _ := s.Resolve(nil)
	first["e"].(map[string]any)["f"] = "changed"
	if second, _ := s.Resolve(nil); fmt.Sprint(second) != "map[e:map[f:x g:y]]" {
		t.Errorf("the defaults are now %v", second)
	}
}

// TestSchema_PanicsAreProblems: the validator decodes numbers as float64, and does not expect that to fail.
func TestSchema_PanicsAreProblems(t *testing.T) {
	s := schemaOf(t, `{properties: {list: {uniqueItems: true}}}`)
	if _, problems := s.Resolve(map[string]any{"list": []any{json.Number("1e400")}}); len(problems) != 1 || !strings.Contains(problems[0], "json.match_schema panicked") {
		t.Error(problems)
	}
}

// TestSchema_CombinedSchemasStayOpen, as none of those that they combine names all.
func TestSchema_CombinedSchemasStayOpen(t *testing.T) {
	s := schemaOf(t, `{anyOf: [{required: [a]}, {required: [b]}], properties: {a: {}, b: {}}}`)
	if _, problems := s.Resolve(map[string]any{"a": 1, "c": 2}); len(problems) > 0 {
		t.Error(problems)
	}
	if _, problems := s.Resolve(map[string]any{"c": 2}); len(problems) == 0 {
		t.Error("neither a nor b, and no problem")
	}
}

// TestAnalysis_ReadsEverythingWhenItGivesUp has more places than are followed.
func TestAnalysis_ReadsEverythingWhenItGivesUp(t *testing.T) {
	var b strings.Builder
	b.WriteString(header)
	b.WriteString("violation contains {\"msg\": \"x\"} if { data.fleet.members[input.ref.member].version; data.fleet.by_name.Pod.x.y[input.ref.member].spec; input.member.labels.x; f0(input.object) }\n")
	for i := range 2600 {
		fmt.Fprintf(&b, "f%d(x) if {", i)
		for _, field := range "abcdefgh" {
			fmt.Fprintf(&b, "x.%c%d;", field, i)
		}
		fmt.Fprintf(&b, "f%d(x)}\n", i+1)
	}
	b.WriteString("f2600(_) if true\n")
	set, err := load(t, "p.rego", b.String())
	if err != nil {
		t.Fatal(err)
	}
	r := set.Packages[0].Reads
	got := fmt.Sprintf("%s %s %s %v", r.Object, r.Members, r.Member, r.Fleet)
	if want := "** ** ** map[Pod:**]"; got != want {
		t.Errorf("got  %.300s\nwant %s", got, want)
	}
}

// TestAnalysis_MembersAsAValueAreReadWhole lists what is read of each of them.
func TestAnalysis_MembersAsAValueAreReadWhole(t *testing.T) {
	for body, want := range map[string]string{
		"count(data.fleet.members) > 1":                               ".",
		"some m in data.fleet.members; m.labels.x":                    "labels.x",
		"some m in data.fleet.members; m == 1":                        "**",
		"data.fleet.members[input.ref.member].version.major == \"1\"": "version.major.**",
	} {
		set, err := load(t, "p.rego", holds("{ "+body+" }"))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(set.Packages[0].Reads.Members); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}
