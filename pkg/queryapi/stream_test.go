package queryapi_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

// streamLine is a line of a stream.
type streamLine struct {
	ID    string `json:"id"`
	Event *struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	} `json:"event"`
	Value   json.RawMessage         `json:"value"`
	Error   *metav1.Status          `json:"error"`
	Retry   *metav1.Status          `json:"retry"`
	End     bool                    `json:"end"`
	Session *struct{ Ended string } `json:"session"`
}

func streamPath(subscriptions ...string) string {
	return "/query/v1/stream?" + url.Values{"watch": {"true"}, "s": subscriptions}.Encode()
}

// stream opens a stream, and returns what reads its next line; nil at its end.
func (s *server) stream(t *testing.T, token string, subscriptions ...string) func() *streamLine {
	t.Helper()
	c := s.client(t)
	c.Timeout = 0
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Address+streamPath(subscriptions...), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the stream has status %s", resp.Status)
	}
	lines := bufio.NewReader(resp.Body)
	return func() *streamLine {
		t.Helper()
		text, err := lines.ReadString('\n')
		if err != nil {
			return nil
		}
		var line streamLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return &line
	}
}

// next returns the next line of a stream that is of a subscription.
func next(t *testing.T, lines func() *streamLine, id string) *streamLine {
	t.Helper()
	for {
		switch line := lines(); {
		case line == nil:
			t.Fatalf("the stream ended before %s", id)
		case line.ID == id:
			return line
		}
	}
}

func total(t *testing.T, line *streamLine) int {
	t.Helper()
	var count struct{ Total int }
	if err := json.Unmarshal(line.Value, &count); err != nil || line.Value == nil {
		t.Fatalf("%+v is no count: %v", line, err)
	}
	return count.Total
}

// addMember adds a member with a pod.
func addMember(t *testing.T, x *aggregate.Index, member, name string) {
	t.Helper()
	if err := x.PutMember(aggregate.Member{Name: member, UID: member, Version: "v1.36.3"}); err != nil {
		t.Fatal(err)
	}
	scope, err := x.OpenScope(member, "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	body := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","namespace":"shop","resourceVersion":"8","uid":"u"}}`
	scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: name, UID: "u", ResourceVersion: "8", Body: []byte(body)}))
	scope.SetStatus(aggregate.Status{State: aggregate.Synced})
	if _, err := scope.Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestStream_CarriesWatchesAndAnswers(t *testing.T) {
	var x *aggregate.Index
	s := start(t, func(o *queryapi.Options) { local(o); x = o.Index })
	lines := s.stream(
		t, s.Token(),
		"pods /fleet/api/v1/pods?watch=true&as=Table", "count /query/v1/count?resource=pods",
		"nothing /query/v1/nothing", "table /query/v1/count?resource=pods&as=Table",
	)
	events, first := 0, map[string]*streamLine{}
	for events < 3 || len(first) < 3 {
		line := lines()
		switch {
		case line == nil:
			t.Fatal("the stream ended")
		case line.ID == "pods":
			if line.Event == nil || line.Event.Type != "ADDED" || !strings.Contains(string(line.Event.Object), `"kind":"Table"`) {
				t.Errorf("the watch sent %+v", line)
			}
			events++
		default:
			first[line.ID] = line
		}
	}
	if n := total(t, first["count"]); n != 3 {
		t.Errorf("there are %d pods, want 3", n)
	}
	if e := first["nothing"].Error; e == nil || e.Code != http.StatusNotFound {
		t.Errorf("what is not served says %+v", first["nothing"])
	}
	if !strings.Contains(string(first["table"].Value), `"kind":"Table"`) {
		t.Errorf("as=Table gives %s", first["table"].Value)
	}
	addMember(t, x, "red/us-1", "more")
	if line := next(t, lines, "pods"); line.Event == nil || line.Event.Type != "ADDED" || !strings.Contains(string(line.Event.Object), "more") {
		t.Errorf("the watch sent %+v", line)
	}
	if n := total(t, next(t, lines, "count")); n != 4 {
		t.Errorf("there are %d pods, want 4", n)
	}
}

func TestStream_RefusesWhatIsNotASubscription(t *testing.T) {
	s := start(t, local)
	many := make([]string, 65)
	for i := range many {
		many[i] = string(rune('a'+i%26)) + string(rune('a'+i/26)) + " /query/v1/members"
	}
	for what, subscriptions := range map[string][]string{
		"none": nil, "no path": {"a"}, "no id": {"/query/v1/members"}, "bad id": {"a\"b /query/v1/members"}, "another host": {"a //example.com/query/v1/members"},
		"a URL": {"a https://example.com/query/v1/members"}, "itself": {"a /query/v1/stream?watch=true&s=b"}, "itself with a slash": {"a /query/v1/stream/"},
		"a file": {"a /ui/index.html"}, "an id twice": {"a /query/v1/members", "a /query/v1/members"}, "too many": many, "too long": {"a /query/v1/" + strings.Repeat("x", 9000)},
		"another form": {"a /fleet/api/v1/pods?as=Yaml"}, "a strange watch": {"a /fleet/api/v1/pods?watch=perhaps"},
	} {
		resp, body := s.get(t, streamPath(subscriptions...), s.Token())
		if status := wantStatus(t, what, resp, body, http.StatusBadRequest); !strings.Contains(status.Message, "parameter s ") {
			t.Errorf("%s: %s", what, status.Message)
		}
	}
	resp, body := s.get(t, "/query/v1/stream?s=a+/query/v1/members", s.Token())
	wantStatus(t, "without watch=true", resp, body, http.StatusBadRequest)
	resp, body = s.get(t, streamPath("a /query/v1/members")+"&limit=1", s.Token())
	wantStatus(t, "with another parameter", resp, body, http.StatusBadRequest)
	// What a path within is refused for is its own matter.
	lines := s.stream(t, s.Token(), "a /query/v1/count?resource=pods&bogus=1", "b /fleet/api/v1/../secrets", "c /query/v1/members")
	for range 3 {
		switch line := lines(); {
		case line == nil:
			t.Fatal("the stream ended")
		case line.ID == "c" && line.Value == nil, line.ID != "c" && (line.Error == nil || line.Error.Code != http.StatusBadRequest):
			t.Errorf("%+v", line)
		}
	}
}

func TestStream_IsWithinTheGrantsOfTheCaller(t *testing.T) {
	who := fresh("stream")
	token := tokenFor(t, who, "federator")
	rule := members("list", "pods")
	rule.Verbs = []string{"list", "watch"}
	allow(t, queryserver.UserOf(who), "red", rule)
	s := start(t, func(o *queryapi.Options) { o.Authorization.DenyTTL = time.Nanosecond })
	lines := s.stream(t, token, "pods /fleet/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"count /query/v1/count?resource=pods&groupBy=member", "deployments /fleet/apis/apps/v1/deployments?watch=true", "member /members/blue/eu-1/api/v1/pods?watch=true")
	got := map[string][]*streamLine{}
	for len(got["pods"]) < 2 || len(got["count"]) < 1 || len(got["deployments"]) < 1 || len(got["member"]) < 1 {
		line := lines()
		if line == nil {
			t.Fatal("the stream ended")
		}
		if text, err := json.Marshal(line); err != nil || line.ID != "member" && strings.Contains(string(text), "blue") {
			t.Errorf("the caller got %s, %v", text, err)
		}
		got[line.ID] = append(got[line.ID], line)
	}
	if n := total(t, got["count"][0]); n != 1 {
		t.Errorf("the caller counts %d pods, want 1", n)
	}
	for _, id := range []string{"deployments", "member"} {
		if e := got[id][0].Error; e == nil || e.Code != http.StatusForbidden {
			t.Errorf("%s: %+v", id, got[id][0])
		}
	}
}

func TestStream_EndsWithTheSession(t *testing.T) {
	who := fresh("leaver")
	token := tokenFor(t, who, "federator")
	s := start(t, func(o *queryapi.Options) { o.Authentication.TokenTTL = 100 * time.Millisecond })
	lines := s.stream(t, token, "me /query/v1/whoami")
	// An answer that is no JSON is none.
	if line := lines(); line == nil || line.Retry == nil || line.Retry.Code != http.StatusInternalServerError {
		t.Fatalf("%+v", line)
	}
	if err := hub.Client().CoreV1().ServiceAccounts("default").Delete(t.Context(), who, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		line := lines()
		if line == nil {
			t.Fatal("the stream ended without a word")
		}
		if line.Session != nil {
			if line.Session.Ended == "" || lines() != nil {
				t.Errorf("%+v is not the last line", line)
			}
			return
		}
	}
}

func TestStream_NotifiersSayWhenToAskAgain(t *testing.T) {
	n := &notifier{changed: make(chan struct{}), asked: make(chan struct{}, 100)}
	s := start(t, func(o *queryapi.Options) { local(o); o.Queries["told"] = n })
	lines := s.stream(t, s.Token(), "told /query/v1/told")
	if line := lines(); line == nil || string(line.Value) != `"1"` {
		t.Fatalf("%+v", line)
	}
	close(n.changed)
	if line := lines(); line == nil || string(line.Value) != `"2"` {
		t.Fatalf("%+v", line)
	}
}

// notifier is a query whose answer is how often it was asked.
type notifier struct {
	changed, asked chan struct{}
}

func (n *notifier) Changes() <-chan struct{} { return n.changed }

func (n *notifier) Serve(w http.ResponseWriter, _ *http.Request, _ queryapi.Caller) error {
	n.asked <- struct{}{}
	_, err := w.Write([]byte(`"` + string(rune('0'+len(n.asked))) + "\"\n"))
	return err
}

func TestStream_EndsAtOnceWithTheServer(t *testing.T) {
	s := start(t, local)
	lines := s.stream(t, s.Token(), "pods /fleet/api/v1/pods?watch=true", "members /query/v1/members")
	if lines() == nil {
		t.Fatal("there is nothing")
	}
	began := time.Now()
	if err := s.End(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("a stream keeps the server up for %v", took)
	}
}

func TestStream_IsDescribed(t *testing.T) {
	s := start(t, local)
	if _, body := s.get(t, "/openapi/v3/query/v1", s.Token()); !strings.Contains(body, `"/query/v1/stream"`) {
		t.Error("OpenAPI has no stream")
	}
}
