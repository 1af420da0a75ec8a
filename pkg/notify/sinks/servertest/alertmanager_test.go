package servertest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/alertmanager/api/v2/models"
	"golang.org/x/crypto/bcrypt"

	"federator.dev/federator/pkg/notify/sinks"
)

// buildAlertmanager returns the binary of the version that go.mod requires. It is built by its own go.mod from a
// copy of its tree: the module has no web UI, without which it does not compile.
func buildAlertmanager(t *testing.T) string {
	t.Helper()
	var module struct{ Dir, Version string }
	text, err := exec.Command("go", "list", "-m", "-json", "github.com/prometheus/alertmanager").Output()
	if err = errors.Join(err, json.Unmarshal(text, &module)); err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(cache, "federator", "alertmanager-"+module.Version)
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	began, tree := time.Now(), t.TempDir()
	if err := copyTree(tree, module.Dir); err != nil {
		t.Fatal(err)
	}
	for _, ui := range []string{"elm", "mantine"} {
		page := filepath.Join(tree, "ui", "app", "dist", ui, "index.html")
		if err := errors.Join(os.MkdirAll(filepath.Dir(page), 0o755), os.WriteFile(page, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	built := filepath.Join(tree, "built")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-w", "-o", built, "./cmd/alertmanager")
	cmd.Dir, cmd.Env = tree, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("Alertmanager %s is built in %v", module.Version, time.Since(began).Round(time.Second))
	if err := keep(binary, built); err != nil {
		t.Fatal(err)
	}
	return binary
}

// copyTree copies what a module has, writable.
func copyTree(to, from string) error {
	root := os.DirFS(from)
	return filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		in, err := root.Open(filepath.ToSlash(name))
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(filepath.Join(to, name), os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Close())
	})
}

// keep copies a file into the cache, whole or not at all.
func keep(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(to), ".alertmanager-*")
	if err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(part, in)
	return errors.Join(err, part.Chmod(0o755), part.Close(), os.Rename(part.Name(), to))
}

var listening = regexp.MustCompile(`msg="Listening on" address=(127\.0\.0\.1:\d+)`)

// startAlertmanager starts one with TLS and a user, and returns its address.
func startAlertmanager(t *testing.T, binary string, authority ca, user, password string) string {
	t.Helper()
	dir := t.TempDir()
	cert, key := authority.issue()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"alertmanager.yml": "route: {receiver: none}\nreceivers: [{name: none}]\n",
		"web.yml":          fmt.Sprintf("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\nbasic_auth_users: {%s: %s}\n", user, hash),
		"cert.pem":         string(cert),
		"key.pem":          string(key),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(binary, "--config.file=alertmanager.yml", "--storage.path=data", "--web.listen-address=127.0.0.1:0",
		"--web.config.file=web.yml", "--cluster.listen-address=", "--log.format=logfmt")
	cmd.Dir = dir
	logs, err := cmd.StderrPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	found, ended := make(chan string, 1), make(chan struct{})
	var tail []string // read by others after ended
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			tail = append(tail, lines.Text())
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		_ = cmd.Wait()
	})
	select {
	case at := <-found:
		return at
	case <-ended:
		t.Fatalf("Alertmanager does not start:\n%s", strings.Join(tail, "\n"))
	case <-time.After(time.Minute):
		t.Fatal("Alertmanager does not start")
	}
	return ""
}

// TestAlertmanager_FiringThenResolved posts to the real one, and reads what it shows.
func TestAlertmanager_FiringThenResolved(t *testing.T) {
	if testing.Short() {
		t.Skip("the first time Alertmanager is built, which takes minutes")
	}
	authority := newCA(t)
	at := startAlertmanager(t, buildAlertmanager(t), authority, "ann", "right")
	var d dials
	opts := sinks.AlertmanagerOptions{URLs: []string{"https://" + at}, Username: "ann", Password: "right", CA: authority.pem(), Dial: d.dial}
	a, err := sinks.NewAlertmanager(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	alerts := make([]sinks.Alert, 1200)
	for i := range alerts {
		alerts[i] = sinks.Alert{
			Labels:      map[string]string{"alertname": "FederatorViolation", "violation": fmt.Sprint("v-", i), "severity": "high"},
			Annotations: map[string]string{"summary": "host a.example.com is also served from fleet/eu-1"},
			StartsAt:    time.Now().Add(-time.Minute).Truncate(time.Millisecond), EndsAt: time.Now().Add(time.Hour).Truncate(time.Millisecond),
			GeneratorURL: "https://federator.example.com/violations",
		}
	}
	if err := a.Post(t.Context(), alerts); err != nil {
		t.Fatal(err)
	}
	got := active(t, authority, at)
	if len(got) != len(alerts) {
		t.Fatalf("%d alerts are active, want %d", len(got), len(alerts))
	}
	i := slices.IndexFunc(got, func(g *models.GettableAlert) bool { return g.Labels["violation"] == "v-7" })
	if g := got[i]; g.Labels["severity"] != "high" || g.Annotations["summary"] != alerts[7].Annotations["summary"] || g.GeneratorURL.String() != alerts[7].GeneratorURL ||
		!time.Time(*g.StartsAt).Equal(alerts[7].StartsAt) || !time.Time(*g.EndsAt).Equal(alerts[7].EndsAt) {
		t.Errorf("alert %+v, want %+v", g, alerts[7])
	}
	for i := range alerts[1:] {
		alerts[i+1].EndsAt = time.Now().Add(-time.Second)
	}
	if err := a.Post(t.Context(), alerts[1:]); err != nil {
		t.Fatal(err)
	}
	if got := active(t, authority, at); len(got) != 1 || got[0].Labels["violation"] != "v-0" {
		t.Errorf("%d alerts are active, want the one that is not resolved", len(got))
	}
	if len(d.addresses) != 1 || d.addresses[0] != at {
		t.Errorf("dialed %v, want one connection", d.addresses)
	}
	testRefusals(t, a, opts)
}

// testRefusals: what Alertmanager refuses it says, and alerts beside a bad one are taken.
func testRefusals(t *testing.T, a *sinks.Alertmanager, opts sinks.AlertmanagerOptions) {
	t.Helper()
	var refused *sinks.RefusedError
	good := sinks.Alert{Labels: map[string]string{"alertname": "Beside"}, StartsAt: time.Now()}
	if err := a.Post(t.Context(), []sinks.Alert{{Labels: map[string]string{}}, good}); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("an alert without labels: %v", err)
	}
	opts.Password = "hidden"
	other, err := sinks.NewAlertmanager(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Post(t.Context(), []sinks.Alert{good}); !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized || strings.Contains(err.Error(), "hidden") {
		t.Errorf("a wrong password: %v", err)
	}
}

// active returns the alerts that Alertmanager shows as firing.
func active(t *testing.T, authority ca, at string) models.GettableAlerts {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: authority.tls()}
	transport.TLSClientConfig.RootCAs = transport.TLSClientConfig.ClientCAs
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at+"/api/v2/alerts", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("ann", "right")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var alerts models.GettableAlerts
	if err := json.NewDecoder(resp.Body).Decode(&alerts); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return alerts
}
