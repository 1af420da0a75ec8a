package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/sim"
)

// running is a server that was started by `federator serve`.
type running struct {
	public, admin string // base URLs
	kubeconfig    string // of the query API, without a hub
	log           *clitest.Lines
	stop          func() error
}

var listening = regexp.MustCompile(`server=(\w+) address=(\S+)`)

// start runs `federator serve` on free ports until the test ends.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{log: &clitest.Lines{}, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	result := make(chan error, 1)
	go func() {
		result <- execute(ctx, io.Discard, r.log, append([]string{
			"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
			"--query", "127.0.0.1:0", "--query-kubeconfig", r.kubeconfig,
		}, args...)...)
	}()
	stopped := false
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-result
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	clitest.Eventually(t, "serve listens", func() error {
		select {
		case err := <-result:
			result <- err
			t.Fatalf("serve ended: %v\n%s", err, r.log)
		default:
		}
		for _, m := range listening.FindAllStringSubmatch(r.log.String(), -1) {
			switch m[1] {
			case "serve":
				r.public = "http://" + m[2]
			case "admin":
				r.admin = "http://" + m[2]
			}
		}
		if r.public == "" || r.admin == "" {
			return clitest.ErrNotYet
		}
		return nil
	})
	return r
}

func get(ctx context.Context, url, host string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = host
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func mustGet(t *testing.T, url string, want int) string {
	t.Helper()
	code, body, err := get(t.Context(), url, "")
	if err != nil {
		t.Fatal(err)
	}
	if code != want {
		t.Errorf("GET %s: %d, want %d: %s", url, code, want, body)
	}
	return body
}

func ready(t *testing.T, r *running) {
	t.Helper()
	clitest.Eventually(t, "readyz", func() error {
		code, body, err := get(t.Context(), r.public+"/readyz", "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d: %s", code, body)
		}
		return err
	})
}

func TestServe_MetricsOfEveryScopeOnRequest(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 1)
	clitest.CreateConfigMaps(t, members[0], "a", "b")
	r := start(t, "--config", clitest.WriteFile(t, "config.yaml", "metrics: {perScope: true}\n"), "--kubeconfig", kubeconfig, "--contexts", "member-0", "--kinds", "ConfigMap")
	ready(t, r)
	clitest.Eventually(t, "metrics count the objects by kind", func() error {
		if body := mustGet(t, r.public+"/metrics", http.StatusOK); !strings.Contains(body, "\nfederator_scope_objects{kind=\"ConfigMap\",member=\"context/member-0\"} 2\n") {
			return fmt.Errorf("no 2 objects in:\n%s", body)
		}
		return nil
	})
	if err := r.stop(); err != nil {
		t.Errorf("serve: %v", err)
	}
}

func TestServe_SyncsMembersAndReportsThem(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 2)
	clitest.CreateConfigMaps(t, members[0], "a", "b")
	clitest.CreateConfigMaps(t, members[1], "c")
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0,member-1", "--kinds", "ConfigMap")
	if body := mustGet(t, r.public+"/healthz", http.StatusOK); body != "ok\n" {
		t.Errorf("healthz: %q", body)
	}
	ready(t, r)

	out, err := command(t, "members", "--server", r.admin)
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(out), "\n")
	if len(rows) != 3 {
		t.Fatalf("printed:\n%s", out)
	}
	for i, objects := range []string{"2", "1"} {
		fields := strings.Fields(rows[i+1])
		want := []string{fmt.Sprintf("context/member-%d", i), "Connected", "v1.36.3", "1", "Synced", objects}
		if strings.Join(fields[:6], " ") != strings.Join(want, " ") {
			t.Errorf("row %q, want it to begin with %q", rows[i+1], want)
		}
	}

	clitest.CreateConfigMaps(t, members[1], "d", "e")
	clitest.Eventually(t, "metrics count the objects", func() error {
		if body := mustGet(t, r.public+"/metrics", http.StatusOK); !strings.Contains(body, "\nfederator_index_objects 5\n") {
			return fmt.Errorf("no 5 objects in:\n%s", body)
		}
		return nil
	})
	body := mustGet(t, r.public+"/metrics", http.StatusOK)
	if strings.Contains(body, `kind="ConfigMap"`) {
		t.Error("there are metrics of a kind with nothing wrong")
	}
	for _, want := range []string{
		"\nfederator_index_members 2\n", "\nfederator_index_scopes{state=\"Synced\"} 2\n",
		"\nfederator_member_objects{member=\"context/member-0\"} 2\n", "\nfederator_member_scopes{member=\"context/member-1\",state=\"Synced\"} 1\n",
		"\nfederator_index_bytes ", "\nfederator_index_revision ", "\ngo_goroutines ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %q", want)
		}
	}

	out, err = command(t, "members", "member-1", "--server", r.admin)
	if err != nil || !regexp.MustCompile(`(?m)^ConfigMap +v1 +Synced +3 `).MatchString(out) {
		t.Errorf("members member-1: %v\n%s", err, out)
	}
	out, err = command(t, "members", "--server", r.admin, "-o", "json")
	var answer fleet.Status
	if err != nil || json.Unmarshal([]byte(out), &answer) != nil || len(answer.Members) != 2 || len(answer.Members[0].Details) != 1 || !answer.Ready {
		t.Errorf("members -o json: %v\n%s", err, out)
	}
	for _, c := range []struct {
		flags string
		rows  int
	}{
		{"--state connected", 2}, {"--state Disconnected,Refused", 0}, {"--not-ready", 0}, {"-l env=prod", 0}, {"-l !env", 2},
	} {
		out, err := command(t, append([]string{"members", "--server", r.admin}, strings.Fields(c.flags)...)...)
		if n := strings.Count(out, "context/member-"); err != nil || n != c.rows {
			t.Errorf("members %s: %v, %d members, want %d", c.flags, err, n, c.rows)
		}
	}
	var page fleet.Status
	if err := json.Unmarshal([]byte(mustGet(t, r.admin+"/members?limit=1", http.StatusOK)), &page); err != nil || len(page.Members) != 1 || page.Continue != "context/member-0" || page.Members[0].Details != nil {
		t.Errorf("%+v, %v", page, err)
	}
	for _, bad := range []string{"limit=-1", "limit=x", "state=Gone", "labelSelector=a%20in", "notReady=perhaps", "name=a&name=b"} {
		mustGet(t, r.admin+"/members?"+bad, http.StatusBadRequest)
	}
	if _, err := command(t, "members", "nobody", "--server", r.admin); err == nil || !strings.Contains(err.Error(), `unknown member "nobody"`) {
		t.Errorf("members nobody: %v", err)
	}

	if err := r.stop(); err != nil {
		t.Errorf("serve: %v", err)
	}
	if _, err := command(t, "members", "--server", r.admin); err == nil || !strings.Contains(err.Error(), "no server is running") {
		t.Errorf("after the end: %v", err)
	}
}

func TestReadyz_NamesMembersUntilGivenUp(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 2)
	clear := members[1].Faults().Add(sim.Fault{Verb: "list", Hang: true})
	defer clear()
	defer members[1].Faults().Add(sim.Fault{Verb: "watchlist", Hang: true})()
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0,member-1", "--kinds", "ConfigMap", "--give-up-after", "3s")
	clitest.Eventually(t, "only the second is waited for", func() error {
		code, body, err := get(t.Context(), r.public+"/readyz", "")
		if err == nil && (code != http.StatusServiceUnavailable || body != "waiting for:\ncontext/member-1\n") {
			err = fmt.Errorf("%d: %q", code, body)
		}
		return err
	})
	ready(t, r)
}

func TestAdmin_IsForLocalHostsOnly(t *testing.T) {
	_, kubeconfig := clitest.Fleet(t, 1)
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0", "--kinds", "ConfigMap")
	if code, _, err := get(t.Context(), r.admin+"/members", "rebound.example:8081"); err != nil || code != http.StatusForbidden {
		t.Errorf("with a foreign Host: %d, %v", code, err)
	}
	mustGet(t, r.admin+"/members", http.StatusOK)
	mustGet(t, r.admin+"/members?nonsense=x", http.StatusBadRequest)
	mustGet(t, r.admin+"/debug/pprof/", http.StatusNotFound)
	mustGet(t, r.public+"/members", http.StatusNotFound)
}

func TestPprof_IsServedIfEnabled(t *testing.T) {
	_, kubeconfig := clitest.Fleet(t, 1)
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0", "--kinds", "ConfigMap", "--pprof")
	if body := mustGet(t, r.admin+"/debug/pprof/goroutine?debug=1", http.StatusOK); !strings.Contains(body, "goroutine profile") {
		t.Errorf("got %.100s", body)
	}
	mustGet(t, r.public+"/debug/pprof/", http.StatusNotFound)
}

func TestServe_FailsOnAnAddressInUse(t *testing.T) {
	_, kubeconfig := clitest.Fleet(t, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = command(t, "serve", "--kubeconfig", kubeconfig, "--contexts", "member-0",
		"--listen", "127.0.0.1:0", "--admin", l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "listen.admin") {
		t.Errorf("got %v", err)
	}
}

func TestLog_IncludesClientGo(t *testing.T) {
	var out clitest.Lines
	log, err := config.NewLogger(&out, config.Log{Level: "info", Format: "json"})
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hidden")
	klog.InfoS("From a library", "n", 1)
	var line map[string]any
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil || line["msg"] != "From a library" || line["from"] != "client-go" {
		t.Errorf("%v: %s", err, &out)
	}
}

func TestMembers_WithoutAServer(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 2)
	clitest.CreateConfigMaps(t, members[0], "a")
	members[1].Forbid(schema.GroupResource{Resource: "configmaps"})
	started := time.Now()
	out, err := command(t, "members", "--kubeconfig", kubeconfig, "--contexts", "member-0,member-1", "--kinds", "ConfigMap", "-o", "wide")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^context/member-0 +Connected +v1.36.3 +1 Synced +1 `).MatchString(out) ||
		!regexp.MustCompile(`(?m)^context/member-1 +Connected +v1.36.3 +1 Forbidden +0 `).MatchString(out) {
		t.Errorf("printed:\n%s", out)
	}
	if d := time.Since(started); d > config.InteractiveGiveUpAfter {
		t.Errorf("took %s: it waited for a member that had been given up on", d)
	}
	out, err = command(t, "members", "member-1", "--kubeconfig", kubeconfig, "--contexts", "member-0,member-1", "--kinds", "ConfigMap", "-o", "yaml")
	if err != nil || !strings.Contains(out, "state: Forbidden") || strings.Contains(out, "member-0") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestMembersWatch_PrintsChanges(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 1)
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0", "--kinds", "ConfigMap")
	ready(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	var out clitest.Lines
	done := make(chan error, 1)
	go func() { done <- execute(ctx, &out, io.Discard, "members", "--watch", "--server", r.admin) }()
	shows := func(objects int) func() error {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^context/member-0 +Connected +v1.36.3 +1 Synced +%d `, objects))
		return func() error {
			if !row.MatchString(out.String()) {
				return fmt.Errorf("no %d objects in:\n%s", objects, &out)
			}
			return nil
		}
	}
	clitest.Eventually(t, "the first table", shows(0))
	clitest.CreateConfigMaps(t, members[0], "a")
	clitest.Eventually(t, "the row again", shows(1))
	cancel()
	if err := <-done; err != nil {
		t.Errorf("members --watch: %v", err)
	}
}

// TestAdmin_RefusesWhatWebPagesSend: a page that the user looks at can have the
// browser ask 127.0.0.1, and a CPU profile is started by a GET.
func TestAdmin_RefusesWhatWebPagesSend(t *testing.T) {
	_, kubeconfig := clitest.Fleet(t, 1)
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0", "--kinds", "ConfigMap", "--pprof")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for what, c := range map[string]struct {
		header, value string
		code          int
	}{
		"an image of a page":          {"Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		"a page of another port":      {"Sec-Fetch-Site", "same-site", http.StatusForbidden},
		"a script's, old browser":     {"Origin", "https://page.example", http.StatusForbidden},
		"a script's, of no origin":    {"Origin", "null", http.StatusForbidden},
		"what the user typed":         {"Sec-Fetch-Site", "none", http.StatusOK},
		"a link of pprof's own index": {"Sec-Fetch-Site", "same-origin", http.StatusOK},
	} {
		for _, url := range []string{r.admin + "/debug/pprof/cmdline", r.public + "/metrics"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(c.header, c.value)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != c.code {
				t.Errorf("%s, %s: %d, want %d", what, url, resp.StatusCode, c.code)
			}
		}
	}
}

// TestMetrics_AreForThisMachineWithoutAHub, whatever address is listened on.
func TestMetrics_AreForThisMachineWithoutAHub(t *testing.T) {
	_, kubeconfig := clitest.Fleet(t, 1)
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0", "--kinds", "ConfigMap", "--listen", "0.0.0.0:0")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(r.public, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	mustGet(t, "http://127.0.0.1:"+port+"/metrics", http.StatusOK)
	if code, _, err := get(t.Context(), "http://127.0.0.1:"+port+"/metrics", "rebound.example"); err != nil || code != http.StatusForbidden {
		t.Errorf("with a foreign Host: %d, %v", code, err)
	}
	outside := 0
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP
		if ip.IsLoopback() || ip.To4() == nil {
			continue
		}
		outside++
		mustGet(t, "http://"+net.JoinHostPort(ip.String(), port)+"/metrics", http.StatusForbidden)
		mustGet(t, "http://"+net.JoinHostPort(ip.String(), port)+"/healthz", http.StatusOK)
	}
	if outside == 0 {
		t.Skip("this machine has no address but its loopback's")
	}
}
