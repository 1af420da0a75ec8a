package policyquery_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/openapi"
)

// description is what a server says of its questions.
type description struct {
	t *testing.T
	j *testServer
	spec3.OpenAPI
}

func describe(t *testing.T, j *testServer) *description {
	t.Helper()
	d := &description{t: t, j: j}
	code, body := d.get("/openapi/v3/query/v1")
	if err := json.Unmarshal(body, &d.OpenAPI); err != nil || code != http.StatusOK {
		t.Fatalf("%d %v: %s", code, err, body)
	}
	if _, err := handler3.ToV3ProtoBinary(body); err != nil {
		t.Errorf("it is no OpenAPI: %v", err)
	}
	return d
}

func (d *description) get(path string) (int, []byte) {
	d.t.Helper()
	resp := d.j.get(d.t.Context(), path)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, body
}

// conforms holds an answer to what is said of it.
func (d *description) conforms(what string, media *spec3.MediaType, body []byte) {
	d.t.Helper()
	if media == nil {
		d.t.Fatalf("%s is not described: %s", what, body)
	}
	if err := openapi.Conforms(&d.OpenAPI, media.Schema, body); err != nil {
		d.t.Errorf("%s: %v: %s", what, err, body)
	}
}

func (d *description) responses(question string) *spec3.Responses {
	name, _, _ := strings.Cut(question, "?")
	return d.Paths.Paths["/query/v1/"+name].Get.Responses
}

// rich is a server with all that findings may have: remedies, exemptions, gaps, errors.
func rich(t *testing.T) *testServer {
	t.Helper()
	j := start(t, nil)
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "all.rego", Data: []byte(`# METADATA
# title: All that findings may have
# custom: {severity: low, kinds: ["Deployment.apps"], remedies: [{action: apply, kind: Deployment.apps}, {action: patch, kind: Deployment.apps}]}
package all

violation contains {"msg": "a patch", "details": {"a": [null]}, "remedy": {"action": "patch", "patch": [{"op": "remove", "path": "/spec"}]}} if input.ref.name == "web"

violation contains {"msg": "an object", "remedy": {"action": "apply", "object": {"spec": {"replicas": 3}}}} if input.ref.name == "web"

violation contains {"msg": sprintf("%d elsewhere", [input.object.spec.replicas])} if {
	input.ref.name == "web"
	some m in data.fleet.names
	not data.fleet.objects["Deployment.apps"][m].shop.none
}

violation contains {"msg": sprintf("%d", [1 / input.object.spec.text])} if input.ref.name == "wrong"
`)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	more := []policy.Binding{{Name: "all", Package: "all", Exemptions: []policy.Exemption{
		{Members: policy.MemberSelector{Names: []string{"fleet/b"}}, Reason: "it is known"},
	}}}
	if err := j.loop.Configure(t.Context(), set, more); err != nil {
		t.Fatal(err)
	}
	j.join("fleet/a")
	j.join("fleet/b")
	j.put("fleet/a", "web", 1, "")
	j.put("fleet/b", "web", 2, "")
	j.put("fleet/a", "wrong", 1, "x")
	j.scopes["fleet/b"].SetStatus(aggregate.Status{State: aggregate.Stale})
	if _, err := j.scopes["fleet/b"].Commit(); err != nil {
		t.Fatal(err)
	}
	j.awaitEvaluation()
	return j
}

func TestDescribe_AnswersAreAsOpenAPISays(t *testing.T) {
	j := rich(t)
	d := describe(t, j)
	j.series.Tick(time.Now())
	var all strings.Builder
	for _, question := range []string{
		"violations", "violations?limit=1", "violations?groupBy=policy&groupBy=kind", "violations?policy=none",
		"series", "series?hours=1&metric=violations",
		"policies", "policies?policy=all", "explain?policy=all&member=fleet/a&kind=Deployment.apps&namespace=shop&name=web",
		"explain?policy=all&member=fleet/a&kind=Deployment.apps&namespace=shop&name=wrong", "explain?policy=all&member=fleet/b&kind=Deployment.apps&namespace=shop&name=web",
		"rego?query=" + url.QueryEscape(`x := data.fleet.objects["Deployment.apps"][m][_][_].spec; y := null`),
		"rego?query=" + url.QueryEscape(`data.fleet.objects["Deployment.apps"].none`), "rego?query=" + url.QueryEscape("1 + 1; [null]"),
	} {
		code, body := d.get("/query/v1/" + question)
		if code != http.StatusOK {
			t.Errorf("%s: %d %s", question, code, body)
		}
		d.conforms(question, d.responses(question).StatusCodeResponses[http.StatusOK].Content["application/json"], body)
		all.Write(body)
	}
	for _, wrong := range []string{"violations?x=y", "policies?x=y", "policies?policy=no", "explain", "explain?policy=all&key=x", "explain?policy=all&member=fleet/a&x=y", "explain?policy=none&key=x", "violations?watch=true&resourceVersion=9", "rego", "rego?query=("} {
		code, body := d.get("/query/v1/" + wrong)
		if code < 400 {
			t.Errorf("%s: %d %s", wrong, code, body)
		}
		d.conforms(wrong, d.responses(wrong).Default.Content["application/json"], body)
	}
	for _, sign := range []string{
		`"details":{"a":[null]}`, `"action":"patch"`, `"object":{"spec"`, `"exempt":"it is known"`, `"state":"Unknown"`, `"gaps":[`, `"state":"Error"`, `"message":"`,
		`"continue":"`, `"groups":[`, `"rows":[]`, `"bindings":{`, `null`,
		`"values":[`, `"exemptions":[`, `"rego":[`, `"lines":[`, `"freshness":[`, `"changes":[`,
	} {
		if !strings.Contains(all.String(), sign) {
			t.Errorf("the test has seen no answer with %s: %s", sign, all.String())
		}
	}
}

func TestDescribe_EventsAreAsOpenAPISays(t *testing.T) {
	j := rich(t)
	d := describe(t, j)
	media := d.responses("violations").StatusCodeResponses[http.StatusOK].Content["application/json;stream=watch"]
	// What an object is follows from its event's type, which a schema cannot say.
	of := map[string]string{"ADDED": "Finding", "MODIFIED": "Finding", "DELETED": "Finding", "BOOKMARK": "Mark"}
	s := j.watch("", nil)
	receive := func(until string) {
		for e := (event{}); e.Type != until; {
			line, err := s.lines.ReadBytes('\n')
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil {
				t.Fatal(err)
			}
			d.conforms("an event", media, line)
			object := &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: d.Components.Schemas[of[e.Type]]}}
			d.conforms(e.Type, object, e.Object)
		}
	}
	receive("ADDED")
	receive("BOOKMARK")
	j.put("fleet/a", "web", 2, "")
	receive("MODIFIED")
	j.put("fleet/a", "web", 0, "")
	receive("DELETED")
}

func TestDescribe_OpenAPIListsTheParametersThatAreAccepted(t *testing.T) {
	j := rich(t)
	d := describe(t, j)
	first, _ := j.list("limit=1")
	value := map[string]string{
		"policy": "all", "package": "all", "severity": "low", "member": "fleet/a", "namespace": "shop", "kind": "Deployment.apps", "state": "Known",
		"groupBy": "member", "exempt": "false", "limit": "5", "continue": first.Continue, "orderBy": "policy", "watch": "false", "resourceVersion": "0", "timeoutSeconds": "0",
		"query": "true", "name": "web", "key": "", "metric": "deltas", "hours": "3", "firstSeenSince": "24h", "search": "elsewhere", "pretty": "true", "labelSelector": "a=b", "timeout": "30s",
	}
	for _, path := range []string{"/query/v1/violations", "/query/v1/rego", "/query/v1/policies", "/query/v1/series"} {
		known, needed := map[string]*spec3.Parameter{}, url.Values{}
		for _, p := range d.Paths.Paths[path].Get.Parameters {
			known[p.Name] = p
			if value[p.Name] == "" || p.Description == "" {
				t.Errorf("%s: nothing is said of %s, or the test has no value for it", path, p.Name)
			}
			if p.Required {
				needed.Set(p.Name, value[p.Name])
			}
		}
		with := func(name string, values ...string) int {
			query := maps.Clone(needed)
			query[name] = values
			code, _ := d.get(path + "?" + query.Encode())
			return code
		}
		for name, v := range value {
			want := map[bool]int{true: http.StatusOK, false: http.StatusBadRequest}
			p := known[name]
			if code := with(name, v); code != want[p != nil] {
				t.Errorf("%s with %s: %d", path, name, code)
			}
			if p == nil {
				continue
			}
			if code := with(name); p.Required && code != http.StatusBadRequest {
				t.Errorf("%s without %s: %d", path, name, code)
			}
			schema, many := p.Schema, p.Schema.Type.Contains("array")
			if code := with(name, v, v); code != want[many] {
				t.Errorf("%s with %s twice: %d", path, name, code)
			}
			if many {
				schema = schema.Items.Schema
			}
			for _, one := range schema.Enum {
				if code := with(name, one.(string)); code != http.StatusOK {
					t.Errorf("%s with %s %v: %d", path, name, one, code)
				}
			}
			if schema.Enum != nil || !schema.Type.Contains("string") {
				if code := with(name, "else"); code != http.StatusBadRequest {
					t.Errorf("%s with another %s: %d", path, name, code)
				}
			}
		}
	}
}
