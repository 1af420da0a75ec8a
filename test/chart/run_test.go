package chart

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
)

const system = "system"

// build builds the binary.
func build(t *testing.T, dir string) string {
	t.Helper()
	binary := filepath.Join(dir, "federator")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/federator")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// TestImage_NeedsNoCgo: every package of the binary builds without cgo, which is what
// makes it static; `make static` builds it so. Of those that have a part in C, the
// standard library's have another in Go.
func TestImage_NeedsNoCgo(t *testing.T) {
	for cgo, format := range map[string]string{"0": "{{if .Error}}{{.Error}}{{end}}", "1": "{{if and .CgoFiles (not .Standard)}}{{.ImportPath}} is in C{{end}}"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-f", format, "./cmd/federator")
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		out, err := cmd.CombinedOutput()
		if err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("CGO_ENABLED=%s: %v\n%s", cgo, err, out)
		}
	}
}

// mount writes what the Pod would see of ConfigMaps, Secrets and the image below a
// root directory.
func mount(t *testing.T, hub *kube.Hub, pod corev1.PodSpec, root string) {
	t.Helper()
	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	core := hub.Client().CoreV1()
	for _, m := range pod.Containers[0].VolumeMounts {
		files := map[string][]byte{}
		switch v := volumes[m.Name]; {
		case v.ConfigMap != nil:
			c, err := core.ConfigMaps(system).Get(t.Context(), v.ConfigMap.Name, metav1.GetOptions{})
			must(t, err)
			for name, text := range c.Data {
				files[name] = []byte(text)
			}
		case v.Secret != nil:
			s, err := core.Secrets(system).Get(t.Context(), v.Secret.SecretName, metav1.GetOptions{})
			must(t, err)
			files = s.Data
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				s, err := core.Secrets(system).Get(t.Context(), source.Secret.Name, metav1.GetOptions{})
				must(t, err)
				for _, item := range source.Secret.Items {
					files[item.Path] = s.Data[item.Key]
				}
			}
		case v.EmptyDir != nil:
		default:
			t.Fatalf("volume %q is not there", m.Name)
		}
		at := filepath.Join(root, m.MountPath)
		if m.SubPath != "" {
			text, ok := files[m.SubPath]
			if !ok {
				t.Fatalf("volume %q has no %s", m.Name, m.SubPath)
			}
			at, files = filepath.Dir(at), map[string][]byte{filepath.Base(at): text}
		}
		must(t, os.MkdirAll(at, 0o755))
		for name, text := range files {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(at, name)), 0o755))
			must(t, os.WriteFile(filepath.Join(at, name), text, 0o600))
		}
	}
}

// relocate changes what must differ outside of a Pod: the paths below a root, the
// addresses listened on, and how the hub is reached.
func relocate(t *testing.T, root, kubeconfig string) {
	t.Helper()
	file := filepath.Join(root, "etc/federator/config.yaml")
	text, err := os.ReadFile(file)
	must(t, err)
	for _, dir := range []string{"/etc/federator", "/var/lib/federator"} {
		text = bytes.ReplaceAll(text, []byte(" "+dir), []byte(" "+root+dir))
	}
	var config map[string]map[string]any
	must(t, yaml.UnmarshalStrict(text, &config))
	config["webhook"], _ = config["policies"]["webhook"].(map[string]any)
	for _, c := range []struct{ section, key, was string }{{"listen", "serve", ":8080"}, {"query", "listen", ":8443"}, {"webhook", "listen", ":9292"}, {"agents", "listen", ":9443"}} {
		if config[c.section][c.key] != c.was {
			t.Fatalf("%s.%s is %v, want %s", c.section, c.key, config[c.section][c.key], c.was)
		}
		config[c.section][c.key] = "127.0.0.1:0"
	}
	delete(config, "webhook") // it is in policies
	config["listen"]["admin"] = "127.0.0.1:0"
	config["sources"]["kubeconfig"] = kubeconfig
	text, err = yaml.Marshal(config)
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
}

// lines is a log that may be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// process is the binary, running.
type process struct {
	binary                string
	args, env             []string
	serve, query, webhook string // addresses
	agents                string
	log                   *lines
	ended                 chan struct{}
	err                   error // once ended
}

var listening = regexp.MustCompile(`server=(\w+) address=(\S+)`)

// start runs the binary until the test ends.
func start(t *testing.T, binary string, container corev1.Container, root string) *process {
	t.Helper()
	args := make([]string, len(container.Args))
	for i, a := range container.Args {
		args[i] = strings.Replace(a, "/etc/federator", root+"/etc/federator", 1)
	}
	p := &process{binary: binary, args: args, log: &lines{}, ended: make(chan struct{})}
	p.env = []string{"HOME=" + filepath.Join(root, "tmp"), "TMPDIR=" + filepath.Join(root, "tmp"), "POD_NAME=federator-0", "POD_NAMESPACE=" + system}
	for _, e := range container.Env {
		if e.ValueFrom == nil {
			p.env = append(p.env, e.Name+"="+e.Value)
		}
	}
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, p.log, p.log
	must(t, cmd.Start())
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended, which the next lines check
		select {
		case <-p.ended:
		case <-time.After(30 * time.Second): // terminationGracePeriodSeconds
			t.Error("a SIGTERM does not end it within the grace period")
			_ = cmd.Process.Kill()
			<-p.ended
		}
		if p.err != nil {
			t.Errorf("federator: %v", p.err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", p.log)
		}
	})
	must(t, until(t.Context(), func() error {
		select {
		case <-p.ended:
			t.Fatalf("federator ended: %v\n%s", p.err, p.log)
		default:
		}
		for _, m := range listening.FindAllStringSubmatch(p.log.String(), -1) {
			switch m[1] {
			case "serve":
				p.serve = m[2]
			case "query":
				p.query = m[2]
			case "webhook":
				p.webhook = m[2]
			case "agents":
				p.agents = m[2]
			}
		}
		if p.serve == "" || p.query == "" || p.webhook == "" || p.agents == "" {
			return fmt.Errorf("nothing is listened on yet:\n%s", p.log)
		}
		return nil
	}))
	return p
}

func get(ctx context.Context, client *http.Client, url, token string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// caller returns the token of a new caller of the query API.
func caller(t *testing.T, hub *kube.Hub, name string) string {
	t.Helper()
	_, err := hub.Client().CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	return tokenOf(t, hub, name, "federator")
}

// tokenOf returns a token of an account for an audience, "" for the hub itself.
func tokenOf(t *testing.T, hub *kube.Hub, name, audience string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	token, err := hub.Client().CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, request, metav1.CreateOptions{})
	must(t, err)
	return token.Status.Token
}

// TestBinary_RunsWithTheChartsPermissions runs the binary with the chart's
// ServiceAccount, permissions, arguments, environment and files: it becomes ready,
// evaluates, and answers, and is refused nothing.
func TestBinary_RunsWithTheChartsPermissions(t *testing.T) {
	f := fleet(t)
	told := newReceiver(t)
	must(t, f.Hub.InstallCRDs(t.Context(), "../../pkg/hub/testdata/openreports"))
	helm(t, append([]string{
		"install", "federator", chartDir, "--namespace", system, "--create-namespace",
		"--values", "testdata/run.yaml", "--set", "notify.receivers[0].url=" + told.URL,
	}, least()...)...)
	t.Cleanup(func() { uninstall(t, "federator", system) })
	for name, data := range map[string]map[string]string{
		"webhook": {"secret": hookSecret + "\n"}, "chat": {"key": receiverKey + "\n", "ca.crt": told.ca()},
	} {
		_, err := f.Hub.Client().CoreV1().Secrets(system).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}, metav1.CreateOptions{})
		must(t, err)
	}
	must(t, f.Hub.Register(t.Context(), kube.Cluster{Namespace: "fleet", Name: "one", Kubeconfig: f.Members[0].Kubeconfig()}))
	must(t, f.Members[0].Apply(t.Context(), []byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}
`)))
	must(t, f.Hub.Apply(t.Context(), []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ask}
rules: [{apiGroups: [members.federator.dev], resources: [deployments.apps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ask}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ask}
subjects: [{kind: ServiceAccount, name: asker, namespace: default}]
`)))
	deployment, err := f.Hub.Client().AppsV1().StatefulSets(system).Get(t.Context(), "federator", metav1.GetOptions{})
	must(t, err)
	p, root := asDeployed(t, f.Hub, deployment)

	ca, err := os.ReadFile(filepath.Join(root, "etc/federator/tls/ca.crt"))
	must(t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("ca.crt is no certificate")
	}
	asking := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "federator.system.svc"}}}
	for _, path := range []string{"/healthz", "/readyz"} { // without a token, as kubelets ask
		must(t, until(t.Context(), func() error {
			code, body, err := get(t.Context(), asking, "https://"+p.serve+path, "")
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%s: %d: %s", path, code, body)
			}
			return err
		}))
	}
	const path = "/fleet/apis/apps/v1/namespaces/default/deployments"
	code, body, err := get(t.Context(), asking, "https://"+p.query+path, caller(t, f.Hub, "asker"))
	must(t, err)
	var list appsv1.DeploymentList
	if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK || len(list.Items) != 1 || list.Items[0].Name != "web" {
		t.Errorf("a query: %d, %v: %s", code, err, body)
	}
	if code, body, err := get(t.Context(), asking, "https://"+p.query+path, caller(t, f.Hub, "stranger")); err != nil || code != http.StatusForbidden {
		t.Errorf("a query of somebody without grants: %d, %v: %s", code, err, body)
	}
	if code, body, err := get(t.Context(), asking, "https://"+p.query+path, "nobody"); err != nil || code != http.StatusUnauthorized {
		t.Errorf("a query of nobody: %d, %v: %s", code, err, body)
	}
	must(t, f.Hub.Apply(t.Context(), []byte(`
apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: two-replicas}
spec: {package: extra.replicas, match: {namespaces: [default]}}
`)))
	scraper := scraper(t, f.Hub)
	for what, c := range map[string]struct {
		token string
		code  int
	}{
		"without a token": {"", http.StatusUnauthorized}, "of nobody": {"nobody", http.StatusUnauthorized},
		"of somebody who may not": {tokenOf(t, f.Hub, "stranger", ""), http.StatusForbidden},
		// A token that is meant for the query API is not meant for the hub.
		"of a token for the query API": {tokenOf(t, f.Hub, "prometheus", "federator"), http.StatusUnauthorized},
	} {
		if code, body, err := get(t.Context(), asking, "https://"+p.serve+"/metrics", c.token); err != nil || code != c.code || strings.Contains(body, "federator_") {
			t.Errorf("metrics %s: %d, %v: %.200s", what, code, err, body)
		}
	}
	var metrics string
	must(t, until(t.Context(), func() error {
		if _, metrics, err = get(t.Context(), asking, "https://"+p.serve+"/metrics", scraper); err != nil {
			return err
		}
		// A policy of the chart's values, that is evaluated with the library.
		for _, want := range []string{`federator_policy_member_violations{member="fleet/one",policy="two-replicas",severity="low"} 1`, `federator_policy_evaluations_total{binding="federator.`} {
			if !strings.Contains(metrics, want) {
				return fmt.Errorf("/metrics has no %s", want)
			}
		}
		return nil
	}))
	t.Run("names are proven", func(t *testing.T) { namesAreProven(t, f.Hub) })
	t.Run("a kubeconfig is written for users", func(t *testing.T) { kubeconfigIsWritten(t, f.Hub, p) })
	t.Run("budgets follow the chart's memory limit", func(t *testing.T) { budgetsFollowTheChart(t, p, metrics) })
	t.Run("what is set to enforce is corrected", func(t *testing.T) { corrected(t, f) })
	t.Run("what is found is reported", func(t *testing.T) { reported(t, f.Hub) })
	t.Run("a push is received", func(t *testing.T) { pushed(t, f.Hub, p.webhook) })
	notifies(t, f.Hub, told)
	t.Run("a stop is told", func(t *testing.T) { stopIsTold(t, f.Hub, told) })
	t.Run("a Notification is sent", func(t *testing.T) {
		must(t, until(t.Context(), func() error { return told.told("/federator/chart dev.federator.policy.stopped none") }))
	})
	t.Run("an agent joins", func(t *testing.T) {
		agentJoins(t, f, p)
		must(t, until(t.Context(), func() error {
			code, body, err := get(t.Context(), asking, "https://"+p.query+strings.Replace(path, "/fleet", "/members/edge/far", 1), tokenOf(t, f.Hub, "asker", "federator"))
			if err == nil && (code != http.StatusOK || !strings.Contains(body, `"name":"web"`)) {
				err = fmt.Errorf("%d: %s", code, body)
			}
			return err
		}))
	})
	t.Run("alerts and dashboard ask for metrics that there are", func(t *testing.T) {
		must(t, until(t.Context(), func() error {
			_, metrics, err := get(t.Context(), asking, "https://"+p.serve+"/metrics", scraper)
			if err != nil {
				return err
			}
			return metricsExist(t, metrics)
		}))
	})
	if refused := regexp.MustCompile(`(?i).*(forbidden|unauthorized|cannot (get|list|watch|create|update|patch)).*`).FindAllString(p.log.String(), -1); len(refused) > 0 {
		t.Errorf("the hub refuses requests:\n%s", strings.Join(refused, "\n"))
	}
}

// corrected sets the policy to enforce: the member is corrected, the hub has the Action,
// and the policy's status says so.
func corrected(t *testing.T, f *kube.Fleet) {
	t.Helper()
	hub := f.Hub.Client().CoreV1().RESTClient()
	must(t, hub.Patch(types.MergePatchType).AbsPath("/apis/federator.dev/v1alpha1/fleetpolicies/two-replicas").
		Body([]byte(`{"spec":{"mode":"Enforce"}}`)).Do(t.Context()).Error())
	must(t, until(t.Context(), func() error {
		d, err := f.Members[0].Client().AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err == nil && *d.Spec.Replicas != 2 {
			err = fmt.Errorf("%d replicas", *d.Spec.Replicas)
		}
		return err
	}))
	must(t, until(t.Context(), func() error {
		var actions v1alpha1.ActionList
		var fp v1alpha1.FleetPolicy
		for path, into := range map[string]any{"actions": &actions, "fleetpolicies/two-replicas": &fp} {
			body, err := hub.Get().AbsPath("/apis/federator.dev/v1alpha1/" + path).Do(t.Context()).Raw()
			if err != nil {
				return err
			}
			if err := json.Unmarshal(body, into); err != nil {
				return err
			}
		}
		if len(actions.Items) != 1 || actions.Items[0].Status.Phase != v1alpha1.PhaseSucceeded || fp.Status.Actions == nil || fp.Status.Actions.Succeeded != 1 {
			return fmt.Errorf("actions %+v, status %+v", actions.Items, fp.Status)
		}
		return nil
	}))
}

// reported waits for the member's Report beside its Cluster, and an Event of the policy.
func reported(t *testing.T, hub *kube.Hub) {
	t.Helper()
	must(t, until(t.Context(), func() error {
		var report struct {
			Summary struct{ Pass int }
		}
		text, err := hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/openreports.io/v1alpha1/namespaces/fleet/reports/federator-one-1").Do(t.Context()).Raw()
		if err == nil {
			err = json.Unmarshal(text, &report)
		}
		if err == nil && report.Summary.Pass == 0 {
			err = fmt.Errorf("report %s", text)
		}
		return err
	}))
	must(t, until(t.Context(), func() error {
		events, err := hub.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=FleetPolicy,involvedObject.name=two-replicas,reason=Corrected",
		})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("no Event reports the correction")
		}
		return err
	}))
}
