package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/simulation/apiserver"
)

const crds = "../../../charts/federator/crds"

func newServer(t *testing.T) *apiserver.Server {
	t.Helper()
	custom, err := apiserver.Custom(crds)
	if err != nil {
		t.Fatal(err)
	}
	return apiserver.New(append(slices.Clone(apiserver.Builtins()), custom...), true)
}

// What the simulation answers must be what a kube-apiserver does: the same requests, one
// after the other, get the same statuses and bodies, and the same events are watched.
func TestServer_AnswersAsAKubeAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: starts a real control plane")
	}
	fleet := kube.StartTest(t, kube.Options{})
	if err := fleet.Hub.InstallCRDs(t.Context(), crds); err != nil {
		t.Fatal(err)
	}
	config := fleet.Hub.RESTConfig()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	real := newSubject("kube-apiserver", config.Host, client)
	simulated := newSubject("simulation", "https://simulation", &http.Client{Transport: newServer(t)})
	watched := []string{"/api/v1/configmaps?labelSelector=l", "/apis/federator.dev/v1alpha1/actions", "/apis/federator.dev/v1alpha1/actions?fieldSelector=status.phase!%3DSucceeded"}
	events := map[*subject][]*bufio.Scanner{}
	for _, s := range []*subject{real, simulated} {
		for _, path := range watched {
			events[s] = append(events[s], s.watch(t, path))
		}
	}
	for _, step := range readSteps(t) {
		want, got := real.do(t, step), simulated.do(t, step)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("line %d: %s %s %s\n%s", step.line, step.verb, step.path, step.body, diff)
		}
	}
	if t.Failed() {
		return // the events follow from the answers
	}
	for i, path := range watched {
		for {
			want, got := real.next(t, events[real][i]), simulated.next(t, events[simulated][i])
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("watch of %s:\n%s", path, diff)
			}
			if strings.HasPrefix(want, "DELETED") || t.Failed() {
				break // the last of each
			}
		}
	}
}

// step is a request.
type step struct {
	line             int
	verb, path, body string
}

func readSteps(t *testing.T) (steps []step) {
	t.Helper()
	text, err := os.ReadFile("testdata/contract.txt")
	if err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(string(text), "\n") {
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '{' || line[0] == '[':
			steps[len(steps)-1].body = line
		default:
			verb, path, _ := strings.Cut(line, " ")
			steps = append(steps, step{line: n + 1, verb: verb, path: path})
		}
	}
	return steps
}

// subject is one of the two servers.
type subject struct {
	name, host string
	client     *http.Client
	objects    map[string]map[string]any // rv and uid of the last answers, by name
	names      map[string]string         // of UIDs and resourceVersions, in the order of their first appearance
}

func newSubject(name, host string, client *http.Client) *subject {
	return &subject{name, host, client, map[string]map[string]any{}, map[string]string{}}
}

var contentTypes = map[string]string{
	"merge": "application/merge-patch+json", "json": "application/json-patch+json", "apply": "application/apply-patch+yaml",
}

var accepts = map[string]string{
	"table": "application/json;as=Table;v=v1;g=meta.k8s.io", "meta": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}

var variable = regexp.MustCompile(`\$(rv|uid)\(([^)]*)\)`)

func (s *subject) request(ctx context.Context, st step) (*http.Response, error) {
	verb, kind, _ := strings.Cut(st.verb, "+")
	body := variable.ReplaceAllStringFunc(st.body, func(v string) string {
		m := variable.FindStringSubmatch(v)
		return fmt.Sprint(s.objects[m[2]][m[1]])
	})
	r, err := http.NewRequestWithContext(ctx, verb, s.host+st.path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "contract/1")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	if c := contentTypes[kind]; c != "" {
		r.Header.Set("Content-Type", c)
	}
	if a := accepts[kind]; a != "" {
		r.Header.Set("Accept", a)
	}
	return s.client.Do(r)
}

// do returns the status and the body of an answer, normalised.
func (s *subject) do(t *testing.T, st step) string {
	t.Helper()
	answer, err := s.request(t.Context(), st)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	var body map[string]any
	if json.Unmarshal(text, &body) != nil {
		return fmt.Sprintf("%d %q", answer.StatusCode, text)
	}
	if meta, ok := body["metadata"].(map[string]any); ok && body["kind"] != "Status" && !strings.Contains(st.path, "dryRun") {
		if name, ok := meta["name"].(string); ok {
			s.objects[name] = map[string]any{"rv": meta["resourceVersion"], "uid": meta["uid"]}
		}
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, s.normalise(t, body))
}

// untracked are managed fields of kinds for which they are not simulated.
var untracked = regexp.MustCompile(`federator\.dev/v1alpha1|coordination\.k8s\.io`)

// word is what a UID or a resourceVersion is in a message: not a part of another.
var word = regexp.MustCompile(`[\w-]+`)

var quotedJSON = regexp.MustCompile(`Invalid value: ".*?": `)

// normalise writes a body without what differs between any two servers: times, UIDs and
// resourceVersions, which are numbered as they appear.
func (s *subject) normalise(t *testing.T, body any) string {
	var clean func(field string, v any) any
	clean = func(field string, v any) any {
		switch v := v.(type) {
		case map[string]any:
			if field == "metadata" && untracked.MatchString(fmt.Sprint(v["managedFields"])) {
				delete(v, "managedFields")
			}
			if v["continue"] == "" { // some write it, some do not
				delete(v, "continue")
			}
			for _, k := range slices.Sorted(maps.Keys(v)) {
				v[k] = clean(k, v[k])
			}
			return v
		case []any:
			for i := range v {
				v[i] = clean("", v[i])
			}
			return v
		case string:
			switch field {
			case "resourceVersion", "uid":
				if s.names[v] == "" {
					s.names[v] = fmt.Sprintf("%s-%d", field, len(s.names))
				}
				return s.names[v]
			case "creationTimestamp", "time":
				return "T"
			case "continue":
				return "C"
			case "message":
				v = word.ReplaceAllStringFunc(v, func(w string) string {
					if name := s.names[w]; name != "" {
						return name
					}
					return w
				})
				return quotedJSON.ReplaceAllString(v, "Invalid value: X: ")
			}
		}
		return v
	}
	text, err := json.MarshalIndent(clean("", body), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// watch opens a watch of what is to come.
func (s *subject) watch(t *testing.T, path string) *bufio.Scanner {
	t.Helper()
	list, err := s.request(t.Context(), step{verb: "GET", path: path})
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(list.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	answer, err := s.request(ctx, step{verb: "GET", path: path + sep + "watch=true&resourceVersion=" + body.Metadata.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return lines
}

// next returns the next event of a watch, normalised.
func (s *subject) next(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	if !lines.Scan() {
		t.Fatalf("%s: the watch has ended: %v", s.name, lines.Err())
	}
	var e struct {
		Type   string
		Object map[string]any
	}
	if err := json.NewDecoder(bytes.NewReader(lines.Bytes())).Decode(&e); err != nil {
		t.Fatal(err)
	}
	return e.Type + " " + s.normalise(t, e.Object)
}
