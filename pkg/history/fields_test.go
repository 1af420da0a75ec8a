package history_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
)

// changed returns the line of what an update of a Pod changes, given rules; "" where it is not recorded.
func changed(t *testing.T, rules []history.Rule, kind aggregate.Kind, before, after string) string {
	t.Helper()
	r := newRig(t, t.TempDir(), 1, func(o *history.Options, _ *aggregate.Options) { o.Kinds = rules })
	r.begin(t)
	defer r.stop()
	item := func(version, body string) func(*aggregate.Scope) aggregate.Item {
		return func(s *aggregate.Scope) aggregate.Item {
			return s.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: version, Body: []byte(body)})
		}
	}
	s := r.scope(t, "fleet/a", kind, item("1", before))
	put(t, s, item("2", after))
	r.release(t)
	lines := r.read(t, history.Query{Name: "web"})
	if len(lines) == 0 {
		return ""
	}
	text, _ := strings.CutPrefix(lines[0], "Object Changed fleet/a "+string(kind)+" shop web 2")
	return strings.TrimPrefix(text, " ")
}

func TestFields(t *testing.T) {
	for name, c := range map[string]struct {
		fields        []string
		before, after string
		want          string
	}{
		"a scalar":                {[]string{"spec.replicas"}, `{"spec":{"replicas":2}}`, `{"spec":{"replicas":3}}`, "spec.replicas:2>3"},
		"added":                   {[]string{"spec.replicas"}, `{"spec":{}}`, `{"spec":{"replicas":3}}`, "spec.replicas:>3"},
		"gone":                    {[]string{"spec.replicas"}, `{"spec":{"replicas":3}}`, `{}`, "spec.replicas:3>"},
		"null":                    {[]string{"spec.replicas"}, `{"spec":{"replicas":3}}`, `{"spec":{"replicas":null}}`, "spec.replicas:3>null"},
		"not selected":            {[]string{"spec.replicas"}, `{"spec":{"other":3}}`, `{"spec":{"other":4}}`, ""},
		"all below":               {[]string{"spec"}, `{"spec":{"a":{"b":1,"c":[1]}}}`, `{"spec":{"a":{"b":2,"c":[1,2]}}}`, "spec.a.b:1>2 spec.a.c[1]:>2"},
		"an empty object":         {[]string{"spec"}, `{"spec":{"a":1}}`, `{"spec":{}}`, "spec:>{} spec.a:1>"},
		"an empty list":           {[]string{"spec"}, `{"spec":[]}`, `{"spec":[1]}`, "spec:[]> spec[0]:>1"},
		"of another type":         {[]string{"spec"}, `{"spec":1}`, `{"spec":{"a":1}}`, "spec:1> spec.a:>1"},
		"a label":                 {[]string{"metadata.labels"}, `{"metadata":{"labels":{"app.kubernetes.io/name":"a"}}}`, `{"metadata":{"labels":{"app.kubernetes.io/name":"b"}}}`, `metadata.labels[app.kubernetes.io/name]:"a">"b"`},
		"one label":               {[]string{"metadata.labels[a.b/c]"}, `{"metadata":{"labels":{"a.b/c":"1","d":"1"}}}`, `{"metadata":{"labels":{"a.b/c":"2","d":"2"}}}`, `metadata.labels[a.b/c]:"1">"2"`},
		"a condition":             {[]string{"status.conditions.status"}, `{"status":{"conditions":[{"lastHeartbeatTime":"1","status":"True","type":"Ready"}]}}`, `{"status":{"conditions":[{"lastHeartbeatTime":"2","status":"False","type":"Ready"}]}}`, `status.conditions[Ready].status:"True">"False"`},
		"a heartbeat":             {[]string{"status.conditions.status"}, `{"status":{"conditions":[{"lastHeartbeatTime":"1","status":"True","type":"Ready"}]}}`, `{"status":{"conditions":[{"lastHeartbeatTime":"2","status":"True","type":"Ready"}]}}`, ""},
		"one condition":           {[]string{"status.conditions[Ready].status"}, `{"status":{"conditions":[{"status":"T","type":"Old"},{"status":"T","type":"Ready"}]}}`, `{"status":{"conditions":[{"status":"F","type":"Old"},{"status":"F","type":"Ready"}]}}`, `status.conditions[Ready].status:"T">"F"`},
		"items move":              {[]string{"spec.containers.image"}, `{"spec":{"containers":[{"image":"a","name":"x"},{"image":"b","name":"y"}]}}`, `{"spec":{"containers":[{"image":"b","name":"y"},{"image":"a","name":"x"}]}}`, ""},
		"an image":                {[]string{"spec.containers.image"}, `{"spec":{"containers":[{"image":"a","name":"x"}]}}`, `{"spec":{"containers":[{"image":"b","name":"x"}]}}`, `spec.containers[x].image:"a">"b"`},
		"below a selected object": {[]string{"spec", "spec.a"}, `{"spec":{"a":1,"b":1}}`, `{"spec":{"a":2,"b":2}}`, "spec.a:1>2 spec.b:1>2"},
		"an escaped key":          {[]string{"metadata.annotations"}, `{"metadata":{"annotations":{"a\"b":"1"}}}`, `{"metadata":{"annotations":{"a\"b":"2"}}}`, `metadata.annotations[a"b]:"1">"2"`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := changed(t, []history.Rule{{Kind: "Pod", Fields: c.fields}}, "Pod", c.before, c.after); got != c.want {
				t.Errorf("recorded is %q, want %q", got, c.want)
			}
		})
	}
}

// A value that is too long is recorded as its beginning, and of many changes some.
func TestFields_AreBounded(t *testing.T) {
	rules := []history.Rule{{Kind: "Pod", Fields: []string{"spec"}}}
	got := changed(t, rules, "Pod", `{}`, `{"spec":"`+strings.Repeat("x", 100_000)+`"}`)
	if len(got) > 2000 || !strings.HasPrefix(got, `spec:>"\"xxx`) {
		t.Errorf("recorded are %d bytes: %.50q", len(got), got)
	}
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, `,"f%05d":%d`, i, i)
	}
	r := newRig(t, t.TempDir(), 1, func(o *history.Options, _ *aggregate.Options) { o.Kinds = rules })
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod")
	put(t, s, func(s *aggregate.Scope) aggregate.Item {
		return s.Item(&aggregate.Record{Name: "web", UID: "u", ResourceVersion: "2", Body: []byte(`{"spec":{` + b.String()[1:] + `}}`)})
	})
	r.release(t)
	if x := r.records(t, history.Query{Name: "web"})[0]; len(x.Changes) != 256 || x.More == 0 {
		t.Errorf("recorded are %d changes and %d more", len(x.Changes), x.More)
	}
}

// What Secrets and ConfigMaps hold is never recorded, whatever is asked for.
func TestFields_NeverHaveValues(t *testing.T) {
	for _, r := range []history.Rule{
		{Kind: "Secret", Fields: []string{"data"}},
		{Kind: "Secret", Fields: []string{"data.password"}},
		{Kind: "Secret", Fields: []string{"[stringData].x"}},
		{Kind: "ConfigMap", Fields: []string{"metadata.labels", "binaryData"}},
	} {
		_, err := history.Open(history.Options{Directory: t.TempDir(), Kinds: []history.Rule{r}})
		var path *history.PathError
		if !errors.As(err, &path) || !strings.Contains(err.Error(), "never recorded") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	got := changed(t, []history.Rule{{Kind: "Secret", Fields: []string{"type"}}}, "Secret", `{"data":{"a":"1"},"type":"x"}`, `{"data":{"a":"2"},"type":"y"}`)
	if got != `type:"x">"y"` {
		t.Errorf("recorded is %q", got)
	}
}

func TestRule_Validate(t *testing.T) {
	for _, path := range []string{"", ".", "spec.", ".spec", "spec..replicas", "spec[", "spec[]", "spec[a]b", "a" + strings.Repeat(".a", 20)} {
		var of *history.PathError
		if err := (&history.Rule{Kind: "Pod", Fields: []string{path}}).Validate(); !errors.As(err, &of) || of.Path != path {
			t.Errorf("%q: %v", path, err)
		}
	}
	if err := (&history.Rule{Kind: "Pod", Fields: make([]string, 100)}).Validate(); err == nil {
		t.Error("100 fields are accepted")
	}
	for _, kind := range history.DefaultKinds {
		if err := (&history.Rule{Kind: kind, Fields: history.DefaultFields(kind)}).Validate(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func FuzzRule(f *testing.F) {
	for _, path := range []string{"spec.replicas", "metadata.labels[a.b/c]", "a[b][c].d", "[", "a]"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		var of *history.PathError
		if err := (&history.Rule{Kind: "Pod", Fields: []string{path}}).Validate(); err != nil && !errors.As(err, &of) {
			t.Errorf("%q: %v", path, err)
		}
	})
}

// What the last kubectl apply wrote of a Secret is in an annotation, values included.
func TestFields_NeverHaveValuesOfAnnotations(t *testing.T) {
	body := func(value string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"a\":\"secret-%s\"}}","n":%q}}}`, value, value)
	}
	for _, field := range []string{"metadata", "metadata.annotations", "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]"} {
		got := changed(t, []history.Rule{{Kind: "Secret", Fields: []string{field, "metadata.annotations.n"}}}, "Secret", body("1"), body("2"))
		if got != `metadata.annotations.n:"1">"2"` {
			t.Errorf("%s: recorded is %q", field, got)
		}
	}
}

// However many fields an object has, what is recorded is what has changed, and all that could be.
func TestFields_OfLargeObjects(t *testing.T) {
	body := func(first, phase string) string {
		var b strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&b, `,"l%05d":"x"`, i)
		}
		return `{"metadata":{"labels":{` + first + b.String()[1:] + `}},"status":{"phase":"` + phase + `"}}`
	}
	got := changed(t, nil, "Pod", body("", "Pending"), body(`"a":"x",`, "Running"))
	if want := `metadata.labels.a:>"x" status.phase:"Pending">"Running"`; got != want {
		t.Errorf("recorded is %.300q, want %q", got, want)
	}
}

// Items of a list with one name are compared as a set.
func TestFields_OfItemsWithOneName(t *testing.T) {
	body := func(effects ...string) string {
		var b strings.Builder
		for _, e := range effects {
			fmt.Fprintf(&b, `,{"effect":%q,"key":"k"}`, e)
		}
		return `{"spec":{"taints":[` + b.String()[1:] + `]}}`
	}
	rules := []history.Rule{{Kind: "Node", Fields: []string{"spec.taints.effect"}}}
	for name, c := range map[string]struct{ before, after, want string }{
		"one goes":  {body("NoExecute", "NoSchedule"), body("NoSchedule"), `spec.taints[k].effect:"NoExecute">`},
		"one comes": {body("NoSchedule"), body("NoExecute", "NoSchedule"), `spec.taints[k].effect:>"NoExecute"`},
		"they move": {body("NoSchedule", "NoExecute"), body("NoExecute", "NoSchedule"), ""},
		"a change":  {body("A", "B"), body("A", "C"), `spec.taints[k].effect:"B">"C"`},
	} {
		if got := changed(t, rules, "Node", c.before, c.after); got != c.want {
			t.Errorf("%s: recorded is %q, want %q", name, got, c.want)
		}
	}
}

// An object whose names and values are as large as can be is recorded, and so is what comes after it.
func TestFields_OfHostileObjects(t *testing.T) {
	rules := []history.Rule{{Kind: "Pod", Fields: []string{"spec"}}}
	r := newRig(t, t.TempDir(), 1, func(o *history.Options, _ *aggregate.Options) { o.Kinds = rules })
	r.begin(t)
	s := r.scope(t, "fleet/a", "Pod")
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, `,"%s%d":"%s"`, strings.Repeat("k", 900), i, strings.Repeat(`<\"`, 1000))
	}
	fmt.Fprintf(&b, `,"%s":1`, strings.Repeat("n", 200_000))
	text := []byte(`{"spec":{` + b.String()[1:] + `}}`)
	for i := range 100 {
		put(t, s, func(s *aggregate.Scope) aggregate.Item {
			return s.Item(&aggregate.Record{Name: fmt.Sprint("web", i), UID: fmt.Sprint("u", i), ResourceVersion: "2", Body: text})
		})
	}
	put(t, s, pod("last", 3, `{"phase":"Running"}`))
	r.release(t)
	if err := r.Failure(); err != nil {
		t.Error(err)
	}
	if got := r.records(t, history.Query{Name: "web99"}); len(got) != 1 || len(got[0].Changes) == 0 || got[0].More == 0 {
		t.Errorf("recorded are %d", len(got))
	}
	if got := r.records(t, history.Query{Name: "last"}); len(got) != 1 {
		t.Errorf("of what comes after it %d are recorded", len(got))
	}
}
