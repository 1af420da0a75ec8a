package externaldata_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/policysource/externaldata"
)

// rig is a manager with what it reads.
type rig struct {
	*externaldata.Manager

	t *testing.T

	mu         sync.Mutex
	checkout   externaldata.Checkout
	configMaps map[string]map[string]string
	answer     http.HandlerFunc
	requests   []*http.Request
	ca         []byte
}

// pipes is a listener whose connections are dialled in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

func start(t *testing.T, opts externaldata.Options) *rig {
	t.Helper()
	r := &rig{t: t, configMaps: map[string]map[string]string{}}
	listener := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, req)
		answer := r.answer
		r.mu.Unlock()
		answer(w, req)
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	r.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	opts.Checkout = func(string) externaldata.Checkout {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.checkout
	}
	opts.ConfigMap = func(_ context.Context, name string) (map[string]string, string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		data, ok := r.configMaps[name]
		if !ok {
			return nil, "", fmt.Errorf("ConfigMap %s: %w", name, externaldata.ErrNotFound)
		}
		return data, "7", nil
	}
	if opts.Dial == nil {
		opts.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			if address != "example.com:443" {
				return nil, errors.New("another address: " + address)
			}
			a, b := net.Pipe()
			listener.conns <- b
			return a, nil
		}
	}
	var err error
	if r.Manager, err = externaldata.NewManager(opts); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return r
}

func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// seen are the requests that the server was sent.
func (r *rig) seen() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

func (r *rig) sources(documents ...externaldata.Document) {
	r.t.Helper()
	if err := r.SetSources([]externaldata.Source{{Name: "cmdb", Documents: documents}}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// want compares the only document with "reason: JSON", with a ? where verdicts are Unknown, and then what the message has.
func (r *rig) want(want string, message ...string) {
	r.t.Helper()
	synctest.Wait()
	s := r.State()
	of := s.Status["cmdb"][0]
	d, _ := s.External.Document("cmdb", of.Key)
	got := of.Reason + ": " + string(d.JSON)
	if d.Problem != "" {
		got += "?"
	}
	if got != want || (d.Problem == "") != of.Known || (of.Digest == "") != (d.JSON == nil) || of.Bytes != len(d.JSON) {
		r.t.Errorf("%q, want %q: %+v, %+v", got, want, of, d)
	}
	for _, m := range message {
		if !strings.Contains(of.Message, m) {
			r.t.Errorf("message %q and problem %q, want %q", of.Message, d.Problem, m)
		}
	}
}

// https is a document of the server.
func (r *rig) https() externaldata.Document {
	return externaldata.Document{
		Key: "owners", HTTPS: &externaldata.HTTPS{URL: "https://example.com/owners.json", CA: r.ca, Token: policysource.Secret("s3cret")},
		MaxAge: 5 * time.Minute, MaxBytes: 100, Schema: []byte(`{"additionalProperties":{"type":"string"}}`),
	}
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestManager_ServerIsAskedByItsETag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, externaldata.Options{})
		answer := func(version string) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Etag", `"`+version+`"`)
				if req.Header.Get("If-None-Match") == `"`+version+`"` {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				_, _ = fmt.Fprintf(w, `{"web": "v%s"}`, version)
			}
		}
		r.set(func() { r.answer = answer("1") })
		if r.State().External != nil {
			t.Error("before the sources are known, something is")
		}
		r.sources(r.https())
		r.want(`Current: {"web":"v1"}`)
		first := r.State().Status["cmdb"][0]
		if first.From != `https://example.com/owners.json "1"` || !first.At.Equal(time.Now()) {
			t.Errorf("status %+v", first)
		}
		if got := r.seen()[0].Header.Get("Authorization"); got != "Bearer s3cret" {
			t.Errorf("authorization %q", got)
		}
		external := r.State().External
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(r.seen()); n != 3 || r.State().External != external || !r.State().Status["cmdb"][0].At.After(first.At) {
			t.Errorf("%d requests, and what has not changed is published", n)
		}
		r.set(func() { r.answer = answer("2") })
		r.Sync("cmdb")
		r.want(`Current: {"web":"v2"}`)
		// All processes ask at the same times.
		if next := r.State().Status["cmdb"][0].Next; time.Until(next) > time.Minute || next.Second() != first.Next.Second() {
			t.Errorf("it is asked at %v, and then at %v", first.Next, next)
		}
	})
}

func TestManager_FaultsOfServers(t *testing.T) {
	for what, c := range map[string]struct {
		answer  http.HandlerFunc
		certain bool // what was read before does not count any more
		reason  string
		message string
	}{
		"another document": {text(200, `{"web": 1}`), true, "Invalid", "it does not match its schema: web: Invalid type. Expected: string, given: integer"},
		"no JSON":          {text(200, "{\n \"web\": }"), true, "Invalid", "line 2, column 9: invalid character '}' looking for beginning of value"},
		"YAML":             {text(200, "web: x"), true, "Invalid", "line 1, column 1"},
		"too large":        {text(200, `{"web": "`+strings.Repeat("x", 100)+`"}`), true, "TooLarge", "it has more than 100 bytes"},
		"not there":        {text(404, ""), true, "NotFound", "404"},
		"gone":             {text(410, ""), true, "NotFound", "410"},
		"denied":           {text(401, ""), false, "Denied", "does not accept the token"},
		"broken":           {text(500, ""), false, "Unreachable", "500"},
		"no content":       {text(204, ""), false, "Unreachable", "204"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "50")
			_, _ = io.WriteString(w, "{")
		}, false, "Unreachable", "unexpected EOF"},
		"elsewhere": {func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "https://example.com/other", http.StatusFound)
		}, false, "Redirect", "the server redirects, which is refused"},
		"slow": {func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }, false, "Unreachable", "the server takes too long"},
		"304 unasked": {func(w http.ResponseWriter, req *http.Request) {
			w.WriteHeader(http.StatusNotModified)
		}, false, "Unreachable", "304"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, externaldata.Options{})
				good := text(200, `{"web": "x"}`)
				r.set(func() { r.answer = c.answer })
				r.sources(r.https())
				time.Sleep(30 * time.Second)
				r.want(c.reason+": ?", c.message)
				r.set(func() { r.answer = good })
				time.Sleep(time.Minute)
				r.want(`Current: {"web":"x"}`)
				r.set(func() { r.answer = c.answer })
				time.Sleep(2 * time.Minute)
				if c.certain {
					r.want(c.reason+`: {"web":"x"}?`, c.message)
				} else {
					r.want(c.reason+`: {"web":"x"}`, c.message)
					time.Sleep(4 * time.Minute)
					r.want(`TooOld: {"web":"x"}?`, "it is too old: it was last read at ", c.message)
				}
				r.set(func() { r.requests = nil })
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := len(r.seen()); n > 8 {
					t.Errorf("it is asked %d times in an hour of failures", n)
				}
				r.set(func() { r.answer = good })
				r.Sync("cmdb")
				r.want(`Current: {"web":"x"}`)
			})
		})
	}
}

func TestManager_RefusesOtherServers(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*externaldata.Document)
		dial   func(context.Context, string, string) (net.Conn, error)
		want   string
	}{
		"a certificate of nobody known": {func(d *externaldata.Document) { d.HTTPS.CA = nil }, nil, "certificate signed by unknown authority"},
		"another name":                  {func(d *externaldata.Document) { d.HTTPS.URL = "https://other.test:443/" }, nil, "another address: other.test:443"},
		"an address that is refused":    {func(*externaldata.Document) {}, func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("loopback is refused") }, "loopback is refused"},
		"http":                          {func(d *externaldata.Document) { d.HTTPS.URL = "http://example.com/" }, nil, "the URL does not begin with https://"},
		"a password":                    {func(d *externaldata.Document) { d.HTTPS.URL = "https://a:b@example.com/" }, nil, "the URL has credentials"},
		"no URL":                        {func(d *externaldata.Document) { d.HTTPS.URL = "https://%zz" }, nil, "the URL is malformed"},
		"no host":                       {func(d *externaldata.Document) { d.HTTPS.URL = "https:///x" }, nil, "the URL names no host"},
		"no CA":                         {func(d *externaldata.Document) { d.HTTPS.CA = []byte("x") }, nil, "the CA contains no PEM certificate"},
		"no schema":                     {func(d *externaldata.Document) { d.Schema = []byte(`{"type":"x"}`) }, nil, "schema"},
		"two places":                    {func(d *externaldata.Document) { d.File = "x" }, nil, "it has to have one of file, configMap and https"},
		"too often":                     {func(d *externaldata.Document) { d.Interval = time.Second }, nil, "at least 10s"},
		"too much":                      {func(d *externaldata.Document) { d.MaxBytes = 1 << 30 }, nil, "maxBytes"},
		"never":                         {func(d *externaldata.Document) { d.MaxAge = -1 }, nil, "maxAge is negative"},
		"above":                         {func(d *externaldata.Document) { d.HTTPS, d.File = nil, "../x" }, nil, "file is no path"},
		"what is not known yet":         {func(d *externaldata.Document) { d.Problem, d.Pending = "Secret x has not been read yet", true }, nil, "it has not been read yet"},
		"what its caller says":          {func(d *externaldata.Document) { d.Problem = "Secret x does not exist" }, nil, "Secret x does not exist"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, externaldata.Options{Dial: c.dial})
				r.set(func() { r.answer = text(200, `{"web": "x"}`) })
				d := r.https()
				c.change(&d)
				r.sources(d)
				synctest.Wait()
				s := r.State().Status["cmdb"][0]
				if s.Known || s.Digest != "" || !strings.Contains(s.Message, c.want) || strings.Contains(s.Message, "s3cret") {
					t.Errorf("%+v, want %q", s, c.want)
				}
				if len(r.seen()) != 0 {
					t.Error("the server was asked")
				}
			})
		})
	}
}

// TestManager_DialsAsFederatorDoes: the addresses that members and repositories may not have are refused to documents, too.
func TestManager_DialsAsFederatorDoes(t *testing.T) {
	server := httptest.NewTLSServer(text(200, `{}`))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for allow, want := range map[string]string{"": "Unreachable", "127.0.0.0/8": "Current"} {
		var network connection.Network
		if allow != "" {
			network.Allow = []netip.Prefix{netip.MustParsePrefix(allow)}
		}
		m, err := externaldata.NewManager(externaldata.Options{
			Dial: network.Dialer().DialContext, Checkout: func(string) externaldata.Checkout { return externaldata.Checkout{} },
			ConfigMap: func(context.Context, string) (map[string]string, string, error) {
				return nil, "", externaldata.ErrNotFound
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		err = m.SetSources([]externaldata.Source{{Name: "cmdb", Documents: []externaldata.Document{{Key: "k", HTTPS: &externaldata.HTTPS{URL: server.URL, CA: ca}}}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = m.Run(ctx)
		}()
		var s externaldata.Status
		for ctx.Err() == nil {
			at := m.State()
			if list := at.Status["cmdb"]; len(list) == 1 && list[0].Reason != "NotRead" {
				s = list[0]
				break
			}
			select {
			case <-ctx.Done():
			case <-at.Replaced():
			}
		}
		cancel()
		<-done
		if s.Reason != want || want != "Current" && !strings.Contains(s.Message, "loopback") {
			t.Errorf("with %q: %+v", allow, s)
		}
	}
}

func TestManager_ReadsConfigMaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, externaldata.Options{})
		r.sources(externaldata.Document{Key: "owners", ConfigMap: &externaldata.ConfigMapKey{Name: "cmdb", Key: "owners.yaml"}})
		r.want("NotFound: ?", "ConfigMap cmdb: not found")
		r.set(func() { r.configMaps["cmdb"] = map[string]string{"other": ""} })
		r.TriggerConfigMap("another")
		r.want("NotFound: ?", "ConfigMap cmdb: not found")
		r.TriggerConfigMap("cmdb")
		r.want("NotFound: ?", `ConfigMap cmdb has no key "owners.yaml"`)
		r.set(func() { r.configMaps["cmdb"] = map[string]string{"owners.yaml": "web: x\n"} })
		r.TriggerConfigMap("cmdb")
		r.want(`Current: {"web":"x"}`)
		if s := r.State().Status["cmdb"][0]; s.From != "ConfigMap cmdb/owners.yaml at 7" {
			t.Errorf("%+v", s)
		}
		r.set(func() { r.configMaps["cmdb"] = map[string]string{"owners.yaml": "web: y\nweb: z\n"} })
		time.Sleep(time.Minute) // nobody says so
		r.want(`Invalid: {"web":"x"}?`, "line 2, column 1")
	})
}

func TestManager_ReadsFilesOfTheActiveCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, externaldata.Options{})
		commit := func(hash, body string) {
			tree := fstest.MapFS{"data/owners.json": {Data: []byte(body)}}
			r.set(func() { r.checkout = externaldata.Checkout{Commit: hash, Path: "policies", Tree: tree, At: time.Now()} })
			r.Trigger()
		}
		r.checkout.Pending = true
		doc := externaldata.Document{Key: "owners", File: "data/owners.json", MaxAge: time.Hour}
		r.sources(doc)
		r.want("NotRead: ?", "it has not been read yet")
		if d, _ := r.State().External.Document("cmdb", "owners"); !d.Pending {
			t.Error("it is not waited for")
		}
		r.set(func() { r.checkout.Pending = false })
		r.Trigger()
		r.want("NoCommit: ?")
		if d, _ := r.State().External.Document("cmdb", "owners"); d.Pending {
			t.Error("it is waited for")
		}
		commit("c1", `{"web":"x"}`)
		r.want(`Current: {"web":"x"}`)
		commit("c2", "{\n  x")
		r.want(`Invalid: {"web":"x"}?`, "line 2, column 3")
		commit("c3", `{"web":"y"}`)
		r.want(`Current: {"web":"y"}`)
		if s := r.State().Status["cmdb"][0]; s.From != "policies/data/owners.json of commit c3" {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Hour + time.Second) // nobody has reached the remote
		r.want(`TooOld: {"web":"y"}?`, "and may be 1h0m0s old")
		r.set(func() { r.checkout.At = time.Now() })
		r.Trigger()
		r.want(`Current: {"web":"y"}`)
		doc.File = "data/none.json"
		r.sources(doc)
		r.want("NotFound: ?", "commit c3 has no file policies/data/none.json")
		if err := r.SetSources(nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, ok := r.State().External.Keys("cmdb"); ok || r.State().External == nil {
			t.Error("a source that is gone is there")
		}
	})
}

// TestManager_BoundsAllTogether: what comes last is refused, and the rest stays.
func TestManager_BoundsAllTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, externaldata.Options{})
		var documents []externaldata.Document
		for i := range 18 {
			name := fmt.Sprintf("c%02d", i)
			r.configMaps[name] = map[string]string{"x.json": `"` + strings.Repeat("x", 4<<20-100) + `"`}
			documents = append(documents, externaldata.Document{Key: name, MaxBytes: 4 << 20, ConfigMap: &externaldata.ConfigMapKey{Name: name, Key: "x.json"}})
		}
		r.sources(documents...)
		synctest.Wait()
		refused := 0
		for _, s := range r.State().Status["cmdb"] {
			if s.Reason != "TooLarge" {
				continue
			}
			if refused++; s.From != "" || s.Bytes != 0 || !s.At.IsZero() {
				t.Errorf("of what is refused it is said: %+v", s)
			}
		}
		if refused != 2 {
			t.Errorf("%d are refused", refused)
		}
	})
}

func TestManager_RefusesSourcesThatAreAmbiguous(t *testing.T) {
	r, err := externaldata.NewManager(externaldata.Options{Checkout: func(string) externaldata.Checkout { return externaldata.Checkout{} }, ConfigMap: func(context.Context, string) (map[string]string, string, error) { return nil, "", nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, sources := range [][]externaldata.Source{
		{{Name: "a"}, {Name: "a"}},
		{{Name: "a", Documents: []externaldata.Document{{Key: "x"}, {Key: "x"}}}},
		{{Name: "a", Documents: []externaldata.Document{{}}}},
		{{Name: "a", Documents: make([]externaldata.Document, 40)}},
	} {
		if err := r.SetSources(sources); err == nil {
			t.Errorf("%+v is taken", sources)
		}
	}
	for _, opts := range []externaldata.Options{{}, {Timeout: -1}, {MinBackoff: time.Hour, MaxBackoff: time.Second}} {
		if _, err := externaldata.NewManager(opts); err == nil {
			t.Errorf("%+v is taken", opts)
		}
	}
}
