package clusterinformers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// leading writes something before an answer.
type leading struct {
	http.ResponseWriter
	lead string
}

// Write implements http.ResponseWriter.
func (l *leading) Write(b []byte) (int, error) {
	if l.lead != "" {
		if _, err := l.ResponseWriter.Write([]byte(l.lead)); err != nil {
			return 0, err
		}
		l.lead = ""
	}
	return l.ResponseWriter.Write(b)
}

// Unwrap lets answers be flushed.
func (l *leading) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// TestProtobuf_AnsweredInJSONIsReadAsJSON: a member says that it speaks protobuf, and
// answers in JSON what is requested in it, from the start or once it is known.
func TestProtobuf_AnsweredInJSONIsReadAsJSON(t *testing.T) {
	for name, tt := range map[string]struct {
		rule  clusterinformers.KindRule
		later bool
		lead  string // before the first event: white space is JSON
	}{
		"from the start":               {rule: clusterinformers.KindRule{Kind: "Pod"}},
		"later":                        {rule: clusterinformers.KindRule{Kind: "Pod"}, later: true},
		"later, two namespaces":        {rule: clusterinformers.KindRule{Kind: "Pod", Namespaces: []string{"shop", "ops"}}, later: true},
		"from the start, indented":     {rule: clusterinformers.KindRule{Kind: "Pod"}, lead: "\n"},
		"later, indented":              {rule: clusterinformers.KindRule{Kind: "Pod"}, later: true, lead: "\n"},
		"two namespaces, and indented": {rule: clusterinformers.KindRule{Kind: "Pod", Namespaces: []string{"shop", "ops"}}, lead: "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := fewKinds()
			var l *fakeServer
			answer := func(w http.ResponseWriter, req *http.Request) bool {
				if strings.HasSuffix(req.URL.Path, "/pods") && strings.Contains(req.Header.Get("Accept"), "protobuf") {
					req.Header.Set("Accept", "application/json")
					l.forward(&leading{w, tt.lead}, req)
					return true
				}
				return false
			}
			r := follow(t, opts, func(r *rig, o *clusterinformers.Options) {
				m := r.fleet.Members()[0]
				fill(t, m, 10)
				o.Kinds = []clusterinformers.KindRule{tt.rule, {Kind: "Namespace"}}
				first := answer
				if tt.later {
					first = func(http.ResponseWriter, *http.Request) bool { return false }
				}
				l = newFakeServer(t, m, first)
				r.source.view[0] = l.spec
			})
			m := r.fleet.Members()[0]
			want := aggregate.Synced
			if len(tt.rule.Namespaces) > 0 {
				want = aggregate.Partial
			}
			if tt.later {
				l.mu.Lock()
				l.answer = answer
				l.mu.Unlock()
				m.DropWatches(pods)
			}
			r.until("JSON is requested", func() bool { return r.detail(m, "Pod").Encoding == "json" })
			r.untilState(m, "Pod", want)
			for i := range 10 {
				touch(t, m, i, "in JSON")
			}
			r.until("what changes is read", func() bool {
				n := 0
				for _, o := range r.held(m, "Pod") {
					if strings.Contains(o, `"touched":"in JSON"`) {
						n++
					}
				}
				return n == r.scope(m, "Pod").Objects && n > 0
			})
			r.untilState(m, "Pod", want)
			if e := r.status(m).LastError; e != "" {
				t.Errorf("what is read has an error: %s", e)
			}
		})
	}
}

// TestIdentity_AMalformedKubeSystemIsNamedAndTheRestIsRead.
func TestIdentity_AMalformedKubeSystemIsNamedAndTheRestIsRead(t *testing.T) {
	for name, tt := range map[string]struct{ metadata, reported string }{
		"labels":   {`{"name": "kube-system", "uid": "u", "labels": "boom", "creationTimestamp": 7}`, ""},
		"uid":      {`{"name": "kube-system", "uid": {"a": 1}}`, "metadata.uid"},
		"metadata": {`"boom"`, "metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			r := follow(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
				m := r.fleet.Members()[0]
				fill(t, m, 3)
				r.source.view[0] = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
					if req.URL.Path != "/api/v1/namespaces/kube-system" {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"apiVersion": "v1", "kind": "Namespace", "metadata": %s}`, tt.metadata)
					return true
				}).spec
			})
			m := r.fleet.Members()[0]
			touch(t, m, 1, "read")
			r.touched(m, 1, "read")
			st := r.status(m)
			if st.State != connection.Connected || st.Reason != "" {
				t.Errorf("it is %s: %s", st.State, st.Reason)
			}
			if reported := strings.Contains(st.LastError, "/api/v1/namespaces/kube-system") && strings.Contains(st.LastError, tt.reported); reported != (tt.reported != "") {
				t.Errorf("last error %q, want %q", st.LastError, tt.reported)
			}
		})
	}
}
