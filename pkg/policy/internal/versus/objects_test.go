package versus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/policies"
	"federator.dev/federator/test/sim/siblings"
)

// realObjects are beside the repository; a small sample is used where they are not.
const realObjects = "../../../../../shared/corpus"

// object is an object of the fleet.
type object struct {
	ref    aggregate.Ref
	fields map[string]any
	body   []byte
}

// memberNames are the members of the fleet, two in each region but the last.
var memberNames = []string{"fleet/ap-1", "fleet/eu-1", "fleet/eu-2", "fleet/us-1", "fleet/us-2"}

func region(member string) string { return member[len("fleet/"):len("fleet/eu")] }

func members() map[string]any {
	out := map[string]any{}
	for _, m := range memberNames {
		out[m] = map[string]any{"labels": map[string]any{"region": region(m), "env": "prod"}, "name": m, "version": "v1.36.3"}
	}
	return out
}

func (o *object) meta() map[string]any { return child(o.fields, "metadata") }

func (o *object) spec() map[string]any { return child(o.fields, "spec") }

// child returns an object's field that is an object, which it makes.
func child(of map[string]any, name string) map[string]any {
	c, _ := of[name].(map[string]any)
	if c == nil {
		c = map[string]any{}
		of[name] = c
	}
	return c
}

// pod returns the spec of the Pod, or of the template.
func (o *object) pod() map[string]any {
	switch o.ref.Kind {
	case "Pod":
		return o.spec()
	case "CronJob.batch":
		return child(child(child(child(o.spec(), "jobTemplate"), "spec"), "template"), "spec")
	}
	return child(child(o.spec(), "template"), "spec")
}

// containers calls f with the containers of a Pod or a template.
func (o *object) containers(f func(c map[string]any)) {
	for _, field := range containerLists {
		list, _ := o.pod()[field].([]any)
		for _, x := range list {
			if c, ok := x.(map[string]any); ok {
				f(c)
			}
		}
	}
}

// seal writes the body as the index holds it.
func (o *object) seal(tb testing.TB) {
	tb.Helper()
	delete(o.meta(), "managedFields")
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(o.fields); err != nil {
		tb.Fatal(err)
	}
	o.body = bytes.TrimSpace(b.Bytes())
}

// copied is a copy whose fields can be changed.
func (o *object) copied(tb testing.TB) *object {
	tb.Helper()
	c := &object{ref: o.ref}
	text, err := json.Marshal(o.fields)
	if err == nil {
		err = json.Unmarshal(text, &c.fields)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// newObject takes an object, in the i-th member.
func newObject(fields map[string]any, i int) *object {
	version, _ := fields["apiVersion"].(string)
	kind, _ := fields["kind"].(string)
	group, _, ok := strings.Cut(version, "/")
	if !ok {
		group = ""
	}
	o := &object{fields: fields}
	name, _ := o.meta()["name"].(string)
	namespace, _ := o.meta()["namespace"].(string)
	o.ref = aggregate.Ref{Member: memberNames[i%len(memberNames)], Kind: aggregate.MakeKind(kind, group), Namespace: namespace, Name: name}
	return o
}

// jsonObjects are what siblings makes.
type jsonObjects interface {
	JSON(i int) ([]byte, error)
	Len() int
}

// fromCorpus are siblings of real objects of kinds, such as apps_Deployment.
func fromCorpus(tb testing.TB, files ...string) (list []*object) {
	tb.Helper()
	corpus := siblings.Open(realObjects)
	for _, file := range files {
		var from jsonObjects
		var err error
		if file == "core_Pod" {
			from, err = corpus.Pods(200, 20, 1)
		} else {
			from, err = corpus.Objects(file, 150, 1)
		}
		if errors.Is(err, siblings.ErrNoTemplates) {
			continue
		}
		if err != nil {
			tb.Fatal(err)
		}
		for i := range from.Len() {
			text, err := from.JSON(i)
			fields := map[string]any{}
			if err == nil {
				err = json.Unmarshal(text, &fields)
			}
			if err != nil {
				tb.Fatal(err)
			}
			list = append(list, newObject(fields, i))
		}
	}
	return list
}

// fixture is what is taken from a fleet fixture of a policy.
type fixture struct {
	Parameters map[string]any `json:"parameters"`
	Members    []struct {
		Objects []map[string]any `json:"objects"`
	} `json:"members"`
}

// fromFixtures are the objects and the parameters of a policy's fixtures.
func fromFixtures(tb testing.TB, policy string) (list []*object, parameters []map[string]any) {
	tb.Helper()
	category, name, _ := strings.Cut(policy, ".")
	data, err := fs.ReadFile(policies.FS, fmt.Sprintf("%s/%s/%s_fleet.yaml", category, name, name))
	if err != nil {
		tb.Fatal(err)
	}
	for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var f fixture
		if err := yaml.Unmarshal(doc, &f); err != nil {
			tb.Fatal(err)
		}
		if f.Parameters != nil {
			parameters = append(parameters, f.Parameters)
		}
		for i, m := range f.Members {
			for _, fields := range m.Objects {
				list = append(list, newObject(fields, i))
			}
		}
	}
	return list, parameters
}
