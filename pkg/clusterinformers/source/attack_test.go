package source

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/test/kube"
)

// TestAttack_ArgoSecretsAnnotationsHoldCredentials: tools other than kubectl keep the whole object in an annotation, too. Of a
// Secret it has the credentials, which reach policies (data.fleet.members) and the index.
func TestAttack_ArgoSecretsAnnotationsHoldCredentials(t *testing.T) {
	for _, key := range []string{"kapp.k14s.io/original", "objectset.rio.cattle.io/applied", "banzaicloud.com/last-applied", "kopf.zalando.org/last-handled-configuration"} {
		u := argoSecret(t, "a", "", map[string]string{"name": "a", "config": `{"bearerToken":"` + kubeconfigtest.Token + `"}`})
		whole, err := json.Marshal(u.Object)
		must(t, err)
		u.SetAnnotations(map[string]string{key: string(whole)})
		s := trimArgoCluster(u).member(secrets{}).Spec
		encoded := base64.StdEncoding.EncodeToString([]byte(`{"bearerToken":"` + kubeconfigtest.Token + `"}`))
		for _, a := range s.Cluster.Annotations {
			if strings.Contains(a.Value, encoded) {
				t.Errorf("annotation %s has the credentials, and policies read it", a.Key)
			}
		}
	}
}

// TestAttack_ProfilesPathByAnotherName: PATH of a profile is refused however it is written: os/exec cuts at the first =.
func TestAttack_ProfilesPathByAnotherName(t *testing.T) {
	_, refused := envOf(t, map[string]string{"PATH=/evil:": "/bin"})
	if refused == nil {
		cmd := exec.Command("/bin/sh", "-c", "echo $PATH")
		cmd.Env = append(os.Environ(), "PATH=/evil:"+"="+"/bin")
		out, err := cmd.Output()
		t.Errorf("a profile sets PATH: a program has PATH=%s (%v)", strings.TrimSpace(string(out)), err)
	}
}

// TestAttack_ProfilesVariableRunsCode: a profile chooses what a program is told, not what it is. Interpreters run what
// variables say.
func TestAttack_ProfilesVariableRunsCode(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	proof, login := filepath.Join(dir, "proof"), filepath.Join(dir, "login")
	writeFile(t, login, []byte("#!/bin/bash\necho '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"x\"}}'\n"))
	must(t, os.Chmod(login, 0o755))
	for name, value := range map[string]string{"BASH_ENV": "$(touch " + proof + ")", "BASH_FUNC_echo%%": "() { touch " + proof + "; }"} {
		env, refused := envOf(t, map[string]string{name: value})
		if refused != nil {
			continue
		}
		_ = os.Remove(proof)
		cmd := exec.Command(login)
		cmd.Env = append(os.Environ(), env...)
		_, err := cmd.Output()
		if _, is := os.Stat(proof); is == nil {
			t.Errorf("%s of a profile has run a command of the profile's (%v)", name, err)
		}
	}
	for _, name := range []string{"PYTHONPATH", "PERL5OPT", "NODE_OPTIONS", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GCONV_PATH", "HTTPS_PROXY", "HOME", "AWS_CONFIG_FILE", "GOMEMLIMIT", "KUBECONFIG"} {
		if _, refused := envOf(t, map[string]string{name: "/evil"}); refused == nil {
			t.Logf("also accepted: %s", name)
		}
	}
}

// envOf returns what a program is run with where a profile has variables.
func envOf(t *testing.T, variables map[string]string) ([]string, *connection.Refusal) {
	t.Helper()
	ca, _ := kubeconfigtest.KeyPair()
	text, err := json.Marshal(variables)
	must(t, err)
	p := providersOf(t, `{"providers": [{"name": "b", "profileSourcedEnvVarsPolicy": "AppendIfNotExists", "execConfig": `+plugin+`}]}`)
	u := objectOf(t, "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ClusterProfile\nmetadata: {namespace: inventory, name: a, uid: u}\nspec: {clusterManager: {name: x}}\nstatus:\n"+
		strings.ReplaceAll(extended("additional-envs", string(text)), "https://b\n", "https://b\n      certificate-authority-data: "+base64.StdEncoding.EncodeToString(ca)+"\n"))
	spec := trimClusterProfile(u, p).member(secrets{}).Spec
	if spec.Refused != nil {
		return nil, spec.Refused
	}
	config, refused := memberclient.ParseKubeconfig(spec.Kubeconfig, memberclient.Allowed{Plugin: spec.Plugin})
	if refused != nil {
		return nil, refused
	}
	var env []string
	for _, v := range config.ExecProvider.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	return env, nil
}

// pluginStage is members whose ClusterProfiles list one provider, whose program counts its runs.
type pluginStage struct {
	t         *testing.T
	providers *accessProviders
	runs      string // file with a line for each
}

func newPluginStage(t *testing.T, delay string, provideClusterInfo bool) *pluginStage {
	t.Helper()
	dir := t.TempDir()
	p := &pluginStage{t: t, runs: filepath.Join(dir, "runs")}
	writeFile(t, p.runs, nil)
	login := filepath.Join(dir, "login")
	writeFile(t, login, []byte("#!/bin/sh\necho run >> "+p.runs+"\n[ $(wc -l < "+p.runs+") -gt 1 ] && sleep "+delay+"\n"+
		`printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"token-of-all"}}'`+"\n"))
	must(t, os.Chmod(login, 0o755))
	p.providers = providersOf(t, fmt.Sprintf(`{"providers": [{"name": "b", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": %q, "interactiveMode": "Never", "provideClusterInfo": %t}}]}`, login, provideClusterInfo))
	p.providers.runner = []string{"/usr/bin/env"}
	return p
}

// client returns that of a member whose profile lists the provider with a server.
func (p *pluginStage) client(name string, server *httptest.Server, extension string) *http.Client {
	p.t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	text := fmt.Sprintf("apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ClusterProfile\nmetadata: {namespace: inventory, name: %s, uid: u-%s}\nspec: {clusterManager: {name: x}}\nstatus:\n  accessProviders:\n  - name: b\n    cluster:\n      server: %s\n      certificate-authority-data: %s\n",
		name, name, server.URL, base64.StdEncoding.EncodeToString(ca))
	if extension != "" {
		text += "      extensions:\n      - {name: client.authentication.k8s.io/exec, extension: {a: " + extension + "}}\n"
	}
	s := trimClusterProfile(objectOf(p.t, text), p.providers).member(secrets{}).Spec
	if s.Refused != nil {
		p.t.Fatal(s.Refused)
	}
	config, refused := memberclient.ParseKubeconfig(s.Kubeconfig, memberclient.Allowed{Plugin: s.Plugin})
	if refused != nil {
		p.t.Fatal(refused)
	}
	c, err := memberclient.NewHTTPClient(config, memberclient.TransportOptions{Network: connection.Network{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	must(p.t, err)
	p.t.Cleanup(c.CloseIdleConnections)
	return c
}

func (p *pluginStage) countRuns() int {
	return strings.Count(string(readAll(p.t, p.runs)), "\n")
}

// TestAttack_OneProfilesServerBlocksAll: a member that answers 401 has its own program run again, and holds nobody else up:
// client-go shares what logs in between all clusters whose exec configuration is the same.
func TestAttack_OneProfilesServerBlocksAll(t *testing.T) {
	p := newPluginStage(t, "2", false)
	good := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer good.Close()
	evil := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer evil.Close()
	gc, ec := p.client("good", good, ""), p.client("evil", evil, "")
	get := func(c *http.Client, url string) {
		resp, err := c.Get(url + "/api")
		if err != nil {
			t.Error(err)
			return
		}
		_ = resp.Body.Close()
	}
	get(gc, good.URL) // logs in
	var wg sync.WaitGroup
	wg.Go(func() { get(ec, evil.URL) })
	await(t, "the evil one's 401 has the program run again", 5*time.Second, func() bool { return p.countRuns() > 1 })
	began := time.Now()
	get(gc, good.URL)
	if took := time.Since(began); took > time.Second {
		t.Errorf("a request to the good member took %s, while the program ran for the 401 of another", took)
	}
	wg.Wait()
}

// TestAttack_ProfileIsSentTheTokenOfAll: who writes one ClusterProfile has the token that reaches all clusters of the provider
// sent to a server of his own.
func TestAttack_ProfileIsSentTheTokenOfAll(t *testing.T) {
	p := newPluginStage(t, "0", false)
	var stolen atomic.Value
	evil := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen.Store(r.Header.Get("Authorization")) }))
	defer evil.Close()
	resp, err := p.client("evil", evil, "").Get(evil.URL + "/api")
	must(t, err)
	_ = resp.Body.Close()
	if stolen.Load() == "Bearer token-of-all" {
		t.Error("the provider's program is not told of the cluster (provideClusterInfo), so that its token is that of all; a server that a profile names was sent it, and nothing warns of such a provider")
	}
}

// TestAttack_ProfilesChangesAreKeptForGood: client-go keeps what logs in for each configuration that there ever was.
func TestAttack_ProfilesChangesAreKeptForGood(t *testing.T) {
	p := newPluginStage(t, "0", true)
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const changes, size = 40, 256 << 10
	p.client("a", server, "x")
	before := heap()
	for i := range changes {
		p.client("a", server, fmt.Sprintf("%d%s", i, strings.Repeat("x", size))).CloseIdleConnections()
	}
	if grown := int64(heap()) - int64(before); grown > changes*size/2 {
		t.Errorf("after %d changes of one ClusterProfile with %d KiB each the heap has %d KiB more", changes, size>>10, grown>>10)
	}
}

// TestAttack_CAFileTruncated: a file that is being written is empty for a moment, which takes no certificates away.
func TestAttack_CAFileTruncated(t *testing.T) {
	ca, _ := kubeconfigtest.KeyPair()
	p := &clusterProxy{file: filepath.Join(t.TempDir(), "ca.crt")}
	writeFile(t, p.file, ca)
	p.reload()
	for _, text := range []string{"", "-----BEGIN CERT", "\n"} {
		writeFile(t, p.file, []byte(text))
		if p.reload(); string(p.ca) != string(ca) {
			t.Errorf("after %q in the file no ManagedCluster can be reached: NoCA", text)
		}
		p.ca = ca
	}
}

// TestAttack_NewSecretTakesAMembersName: a Secret that is created later takes the name of a member that there is.
func TestAttack_NewSecretTakesAMembersName(t *testing.T) {
	s := &hubObjects{hubOptions: hubOptions{log: slog.New(newLogs(t))}, renamed: map[string]bool{}}
	of := func(name, cluster, created string) found {
		c := trimArgoCluster(argoSecret(t, name, created, map[string]string{"name": cluster, "server": kubeconfigtest.Server, "config": "{}"}))
		return found{c.member(secrets{}), c.GetCreationTimestamp().Time, c.GetNamespace(), c.GetName()}
	}
	victim := of("cluster-eu-1-4711", "eu-1", "2026-01-01T00:00:00Z")
	thief := of("eu-1", "anything", "2026-02-01T00:00:00Z")
	name := func(members ...found) string {
		for _, spec := range s.named(corev1.SchemeGroupVersion, members) {
			if spec.UID == "uid-of-cluster-eu-1-4711" {
				return spec.Name
			}
		}
		return ""
	}
	if before, after := name(victim), name(thief, victim); before != after {
		t.Errorf("member %s is called %s since somebody has created a newer Secret", before, after)
	}
	// One that prefers no name at all, too: it needs no more than its own name.
	for _, spec := range s.named(corev1.SchemeGroupVersion, []found{victim, of("eu-1", "", "2026-02-01T00:00:00Z")}) {
		if spec.Name == "argocd/eu-1" && spec.UID != "uid-of-cluster-eu-1-4711" {
			t.Errorf("argocd/eu-1 is %s", spec.UID)
		}
	}
}

// TestAttack_ReservedNamespaces: managedcluster/<name>, context/<name> and hub/local are not names that a namespaced object
// makes, which is described by an earlier source and so has them.
func TestAttack_ReservedNamespaces(t *testing.T) {
	all := secretsOf(t, kubeconfigKey, map[string]string{"managedcluster/own": "x", "hub/own": "x", "context/own": "x"})
	for _, at := range []string{"managedcluster/eu-1", "hub/local", "context/laptop"} {
		namespace, name, _ := strings.Cut(at, "/")
		m := trimMember(objectOf(t, "apiVersion: federator.dev/v1alpha1\nkind: Member\nmetadata: {namespace: "+namespace+", name: "+name+", uid: u}\nspec: {kubeconfig: {secret: own}}")).member(all)
		if m.Name == at && m.Refused == nil {
			t.Errorf("a Member takes the name %s", at)
		}
	}
}

// TestAttack_SecretsOfNoMemberAreKept: what no Member names is not worth its memory.
func TestAttack_SecretsOfNoMemberAreKept(t *testing.T) {
	src, err := NewMembers(MembersOptions{Config: &rest.Config{Host: "https://h"}, Logger: slog.New(newLogs(t))})
	must(t, err)
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	var kept int
	for i := range 50 {
		obj, err := trimSecret(src.(*hubObjects).objects.keepOf)(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: fmt.Sprint("useless-", i)}, Data: map[string][]byte{kubeconfigKey: make([]byte, 1<<20)},
		})
		must(t, err)
		must(t, store.Add(obj))
		kept += len(obj.(*corev1.Secret).Data[kubeconfigKey])
	}
	if kept > 1<<20 {
		t.Errorf("%d MiB are kept of Secrets that no Member names, in each replica", kept>>20)
	}
}

// TestAttack_CostOfOneChange: one object's change costs what that object takes, not what all of the fleet do.
func TestAttack_CostOfOneChange(t *testing.T) {
	ca, _ := kubeconfigtest.KeyPair()
	const members = 2000
	tls := base64.StdEncoding.EncodeToString(ca)
	list := make([]*argoCluster, members)
	for i := range list {
		list[i] = trimArgoCluster(argoSecret(t, fmt.Sprint("c", i), "2026-01-01T00:00:00Z", map[string]string{"name": fmt.Sprint("eu", i), "server": kubeconfigtest.Server, "config": `{"bearerToken":"x","tlsClientConfig":{"caData":"` + tls + `"}}`}))
	}
	s := &hubObjects{hubOptions: hubOptions{log: slog.New(slog.DiscardHandler)}, renamed: map[string]bool{}}
	best := time.Hour
	for range 3 {
		began := time.Now()
		merged := make([]found, 0, members)
		for _, c := range list {
			merged = append(merged, found{c.member(secrets{}), c.GetCreationTimestamp().Time, c.GetNamespace(), c.GetName()})
		}
		s.named(corev1.SchemeGroupVersion, merged)
		best = min(best, time.Since(began))
	}
	t.Logf("one change of one of %d Secrets: %s", members, best)
	if best > 100*time.Millisecond {
		t.Errorf("one change of one of %d Secrets costs %s of CPU: all are written down as kubeconfigs again", members, best)
	}
}

// TestAttack_StartForbidden: a source that may not read anything at its start does not know that there is nothing. Saying so
// has the manager drop what was kept on disk of its members.
func TestAttack_StartForbidden(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{ClusterAPI: kube.V1Beta2}).Hub
	register(t, hub, kube.Cluster{Namespace: "fleet", Name: "a", Kubeconfig: []byte("a")})
	cred, err := hub.IssueCert("nobody", time.Hour)
	must(t, err)
	src, err := NewClusterAPI(ClusterAPIOptions{Config: hub.RESTConfigWith(cred), Namespaces: []string{"fleet"}, Logger: slog.New(newLogs(t))})
	v := watchSource(t, src, err)
	deadline := time.Now().Add(5 * time.Second)
	for len(v.all()) == 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if all := v.all(); len(all) > 0 && len(all[0]) == 0 {
		t.Error("the source says that there are no members, of a namespace that it may not read")
	}
}

// TestAttack_SourceWithoutItsKindSaysNothing is the other half: a kind that the hub, which answers, does not serve is silence
// for good, while one that is forbidden is an empty view.
func TestAttack_SourceWithoutItsKindSaysNothing(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{ClusterAPI: kube.V1Beta2}).Hub
	src, err := NewMembers(MembersOptions{Config: hub.DirectRESTConfig(), Namespaces: []string{"fleet"}, Logger: slog.New(newLogs(t))})
	v := watchSource(t, src, err)
	time.Sleep(5 * time.Second)
	if len(v.all()) == 0 {
		t.Error("the hub answers that it has no Members, and after 5s the source has said nothing, which the whole fleet waits for")
	}
}
