package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/test/clitest"
)

// following is a command that runs until it is interrupted.
type following struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
	unread func() error // closes what is not read
	err    error        // once ended
	ended  chan struct{}
}

func follow(t *testing.T, args ...string) *following {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	f := &following{t: t, lines: bufio.NewScanner(r), cancel: cancel, unread: r.Close, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		f.err = execute(ctx, w, &clitest.Lines{}, args...)
		_ = w.Close()
	}()
	t.Cleanup(f.interrupt)
	return f
}

// interrupt acts like Ctrl-C.
func (f *following) interrupt() {
	f.t.Helper()
	f.cancel()
	_ = f.unread() // it may be about to print
	<-f.ended
	if f.err != nil {
		f.t.Errorf("interrupted, it returns %v", f.err)
	}
}

// line reads a line whose words are wanted.
func (f *following) line(want string) {
	f.t.Helper()
	if !f.lines.Scan() {
		f.t.Fatalf("the end, want %q", want)
	}
	if got := wordsOf(f.lines.Text()); got != want {
		f.t.Errorf("printed %q, want %q", got, want)
	}
}

func TestViolations_AreWatched(t *testing.T) {
	members, args := membersWithViolations(t)
	r := start(t, args...)
	ready(t, r)
	clitest.Eventually(t, "all policies are evaluated", func() error {
		out, err := command(t, "violations", "--kubeconfig", r.kubeconfig, "--policy", "acme.owner")
		if err == nil && strings.Count(out, "\n") != 7 {
			err = fmt.Errorf("printed %q", out)
		}
		return err
	})
	rows := follow(t, "violations", "-w", "--kubeconfig", r.kubeconfig, "--policy", "acme.owner", "--member", "context/member-0")
	events := follow(t, "violations", "--watch", "--kubeconfig", r.kubeconfig, "--policy", "acme.names", "-o", "json")
	rows.line("EVENT POLICY SEVERITY MEMBER SUBJECT STATE AGE VIOLATION")
	for _, name := range []string{"a", "b", "c"} {
		rows.line("ADDED acme.owner high context/member-0 ConfigMap shop/" + name + " Known 0s " + name + " has no owner")
	}
	event := func(kind string) {
		t.Helper()
		for events.lines.Scan() {
			var e struct{ Type string }
			if err := json.Unmarshal(events.lines.Bytes(), &e); err != nil {
				t.Fatalf("%v: %s", err, events.lines.Text())
			}
			if e.Type == kind {
				return
			}
			if e.Type != "BOOKMARK" {
				t.Fatalf("%s, want %s", events.lines.Text(), kind)
			}
		}
		t.Fatalf("the end, want %s", kind)
	}
	event("ADDED")
	if err := members[0].Delete(schema.GroupResource{Resource: "configmaps"}, "shop", "a"); err != nil {
		t.Fatal(err)
	}
	rows.line("DELETED acme.owner high context/member-0 ConfigMap shop/a Known 0s a has no owner")
	event("DELETED")
	rows.interrupt()
	events.interrupt()
	for flags, says := range map[string]string{"-o yaml": "yaml", "--by policy": "by", "--severity odd": "severity"} {
		all := slices.Concat([]string{"violations", "--watch", "--kubeconfig", r.kubeconfig}, strings.Fields(flags))
		if out, err := command(t, all...); err == nil || !strings.Contains(err.Error(), says) || out != "" {
			t.Errorf("%s: %q, %v", flags, out, err)
		}
	}
}

// TestViolationsWatch_OutlivesItsConnection: it resumes where it ended.
func TestViolationsWatch_OutlivesItsConnection(t *testing.T) {
	members, args := membersWithViolations(t)
	r := start(t, args...)
	ready(t, r)
	// A proxy ends each watch after a second.
	server, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(server)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	var watches, resumed atomic.Int32
	proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host})
		query := p.Out.URL.Query()
		query.Set("timeoutSeconds", "1")
		p.Out.URL.RawQuery = query.Encode()
		watches.Add(1)
		if query.Get("resourceVersion") != "" {
			resumed.Add(1)
		}
	}})
	defer proxy.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["fleet"] = &clientcmdapi.Cluster{Server: proxy.URL + "/fleet"}
	config.AuthInfos["fleet"] = &clientcmdapi.AuthInfo{}
	config.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "fleet", AuthInfo: "fleet"}
	path := filepath.Join(t.TempDir(), "proxied")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	out := &clitest.Lines{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- execute(ctx, out, &clitest.Lines{}, "violations", "--watch", "--policy", "acme.owner", "--kubeconfig", path)
	}()
	clitest.Eventually(t, "all is printed, and the watch resumed", func() error {
		if got := strings.Count(out.String(), "ADDED"); got != 6 || resumed.Load() == 0 {
			return fmt.Errorf("%d watches, %d resumed, printed %q", watches.Load(), resumed.Load(), out)
		}
		return nil
	})
	before := resumed.Load()
	if err := members[1].Delete(schema.GroupResource{Resource: "configmaps"}, "shop", "d"); err != nil {
		t.Fatal(err)
	}
	clitest.Eventually(t, "the change is printed, and the watch resumed again", func() error {
		if !strings.Contains(out.String(), "DELETED") || resumed.Load() == before {
			return fmt.Errorf("printed %q", out)
		}
		return nil
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 8 || strings.Count(got, "EVENT") != 1 {
		t.Errorf("printed %q, want one header, 6 rows and one", got)
	}
}
