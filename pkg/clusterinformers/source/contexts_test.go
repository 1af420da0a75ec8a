package source

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	must(t, os.WriteFile(path, data, 0o600))
}

// merged returns a kubeconfig with a context per control plane.
func merged(t *testing.T, planes map[string]*kube.ControlPlane) *clientcmdapi.Config {
	t.Helper()
	out := clientcmdapi.NewConfig()
	for name, p := range planes {
		c, err := clientcmd.Load(p.Kubeconfig())
		must(t, err)
		out.Clusters[name], out.AuthInfos[name] = c.Clusters[p.Name], c.AuthInfos[p.Name]
		out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	return out
}

func save(t *testing.T, path string, c *clientcmdapi.Config) {
	t.Helper()
	data, err := clientcmd.Write(*c)
	must(t, err)
	writeFile(t, path, data)
}

func TestContexts_FollowTheFile(t *testing.T) {
	fleet := kube.StartTest(t, kube.Options{NoHub: true, Members: 2})
	one, two := fleet.Members[0], fleet.Members[1]
	oneUID, twoUID := uidOf(t, one), uidOf(t, two)
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	const arn = "arn:aws:eks:eu-west-1:1:cluster/Prod"
	good := merged(t, map[string]*kube.ControlPlane{arn: one, "two": two})
	// By path, relative to the kubeconfig; a token in a file as well.
	writeFile(t, filepath.Join(dir, "crt"), good.AuthInfos[arn].ClientCertificateData)
	writeFile(t, filepath.Join(dir, "key"), good.AuthInfos[arn].ClientKeyData)
	writeFile(t, filepath.Join(dir, "ca"), good.Clusters[arn].CertificateAuthorityData)
	good.AuthInfos[arn] = &clientcmdapi.AuthInfo{ClientCertificate: "crt", ClientKey: "key"}
	good.Clusters[arn] = &clientcmdapi.Cluster{Server: good.Clusters[arn].Server, CertificateAuthority: "ca"}
	good.Contexts["plugin"] = &clientcmdapi.Context{Cluster: "two", AuthInfo: "plugin"}
	good.AuthInfos["plugin"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		Command: "/bin/false", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never",
	}}
	save(t, path, good)
	src, err := NewContexts(ContextsOptions{Path: path, Names: []string{arn, "two", "plugin", "missing"}, Logger: slog.New(newLogs(t))})
	v := watchSource(t, src, err)
	const prod = "context/arn-aws-eks-eu-west-1-1-cluster-prod"
	s := v.member(prod, "followed", followed)
	if s.UID != oneUID || !s.Trusted || s.ReadOnly {
		t.Errorf("%+v, want UID %s", s, oneUID)
	}
	if _, refusal := memberclient.ParseKubeconfig(s.Kubeconfig, memberclient.Allowed{}); refusal != nil {
		t.Errorf("files were not read: %v", refusal)
	}
	v.member("context/two", "followed", func(s clusterinformers.Spec) bool { return s.Refused == nil && s.UID == twoUID })
	v.member("context/plugin", "refused", refusedAs(connection.ExecPlugin))
	v.member("context/missing", "refused", refusedAs(connection.InvalidKubeconfig))

	// A certificate that is rotated in its file is taken up.
	cred, err := one.IssueCert("other", time.Hour, "system:masters")
	must(t, err)
	writeFile(t, filepath.Join(dir, "key"), cred.Key)
	writeFile(t, filepath.Join(dir, "crt"), cred.Cert)
	rotated := v.member(prod, "rotated", func(now clusterinformers.Spec) bool {
		return now.Refused == nil && string(now.Kubeconfig) != string(s.Kubeconfig)
	})
	if rotated.UID != oneUID {
		t.Errorf("UID %q after rotation", rotated.UID)
	}

	// A context that leads to another cluster becomes another member.
	moved := good.DeepCopy()
	moved.Contexts["two"] = &clientcmdapi.Context{Cluster: arn, AuthInfo: arn}
	save(t, path, moved)
	v.member("context/two", "another cluster", func(s clusterinformers.Spec) bool { return s.Refused == nil && s.UID == oneUID })

	// What vanishes is refused, and keeps its UID; nobody leaves.
	must(t, os.Remove(path))
	s = v.member("context/two", "refused without a file", refusedAs(connection.InvalidKubeconfig))
	if s.UID != oneUID || !strings.Contains(s.Refused.Message, path) {
		t.Errorf("%+v", s)
	}
	save(t, path, good)
	v.member("context/two", "back", func(s clusterinformers.Spec) bool { return s.Refused == nil && s.UID == twoUID })
	delete(good.Contexts, "two")
	save(t, path, good)
	v.member("context/two", "refused without its context", refusedAs(connection.InvalidKubeconfig))
	v.member(prod, "unaffected", followed)
	for _, view := range v.all() {
		if len(view) != 4 {
			t.Errorf("a view of %d members", len(view))
		}
	}
}

func TestContexts_SayWhyAMemberIsUnknown(t *testing.T) {
	fleet := kube.StartTest(t, kube.Options{NoHub: true, Members: 1})
	m := fleet.Members[0]
	uid := uidOf(t, m)
	expired, err := m.IssueCert("late", -time.Minute, "system:masters")
	must(t, err)
	nobody, err := m.IssueCert("nobody", time.Hour)
	must(t, err)
	config := merged(t, map[string]*kube.ControlPlane{"dead": m})
	for name, cred := range map[string]kube.Credentials{"expired": expired, "nobody": nobody} {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cred.Cert, ClientKeyData: cred.Key}
		config.Clusters[name] = config.Clusters["dead"].DeepCopy()
		config.Clusters[name].Server = m.DirectRESTConfig().Host
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	config.Contexts["metadata"] = &clientcmdapi.Context{Cluster: "metadata", AuthInfo: "dead"}
	config.Clusters["metadata"] = config.Clusters["dead"].DeepCopy()
	config.Clusters["metadata"].Server = "https://169.254.169.254"
	path := filepath.Join(t.TempDir(), "config")
	save(t, path, config)
	must(t, m.Proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut}))
	t.Setenv("KUBECONFIG", path)
	src, err := NewContexts(ContextsOptions{Names: []string{"dead", "expired", "nobody", "metadata"}, Logger: slog.New(newLogs(t))})
	v := watchSource(t, src, err)
	v.member("context/dead", "unreachable", refusedAs(connection.Unreachable))
	v.member("context/expired", "unauthorized", refusedAs(connection.Unauthorized))
	v.member("context/nobody", "unauthorized", refusedAs(connection.Unauthorized))
	v.member("context/metadata", "forbidden address", refusedAs(connection.ForbiddenAddress))
	if n := len(v.all()[0]); n != 4 {
		t.Errorf("the first view has %d members", n)
	}
	must(t, m.Proxy.Set(tcpproxy.Mode{}))
	v.member("context/dead", "followed", func(s clusterinformers.Spec) bool { return s.Refused == nil && s.UID == uid })
}

func TestContexts_RereadAFileThatIsBeingWritten(t *testing.T) {
	now := []credentials{{name: "context/a", kubeconfig: kubeconfigtest.New(t, kubeconfigtest.Server, nil)}}
	gone := []credentials{{name: "context/a", refused: connection.Refuse(connection.InvalidKubeconfig, "not there")}}
	l := &kubeconfigSource{log: slog.New(slog.DiscardHandler), members: map[string]*fileMember{}, results: make(chan identification)}
	l.members["context/a"] = &fileMember{newest: now[0], spec: clusterinformers.Spec{Name: "context/a", UID: "1", Kubeconfig: now[0].kubeconfig}}
	if again := l.update(t.Context(), gone); !again || l.view()[0].Refused != nil {
		t.Errorf("believed at once: again %t, %+v", again, l.view())
	}
	if again := l.update(t.Context(), now); again || l.view()[0].Refused != nil {
		t.Errorf("not forgotten: again %t, %+v", again, l.view())
	}
	l.update(t.Context(), gone)
	if again := l.update(t.Context(), gone); again || l.view()[0].Refused == nil || l.view()[0].UID != "1" {
		t.Errorf("not believed: again %t, %+v", again, l.view())
	}
}

// TestContexts_WarnOfFiles names each file when it comes into use, and not at each look
// or rotation.
func TestContexts_WarnOfFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := kubeconfigtest.KeyPair()
	for name, data := range map[string][]byte{"ca": cert, "crt": cert, "key": key, "token": []byte("first"), "token-2": []byte("second")} {
		writeFile(t, filepath.Join(dir, name), data)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["a"] = &clientcmdapi.Cluster{Server: kubeconfigtest.Server, CertificateAuthority: "ca"}
	config.AuthInfos["a"] = &clientcmdapi.AuthInfo{ClientCertificate: "crt", ClientKey: "key", TokenFile: "token"}
	config.Contexts["a"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "a"}
	path := filepath.Join(dir, "config")
	save(t, path, config)
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	src, err := NewContexts(ContextsOptions{Path: path, Names: []string{"a"}, Logger: logger})
	must(t, err)
	gone, cancel := context.WithCancel(t.Context())
	cancel() // no server is queried
	l := &kubeconfigSource{log: logger, own: true, members: map[string]*fileMember{}, results: make(chan identification)}
	defer l.identifying.Wait()
	look := func(adopted int, files ...string) {
		t.Helper()
		log.Reset()
		l.update(gone, src.(*contexts).load().members)
		if got := l.members["context/a"].attempt; got != adopted {
			t.Errorf("adopted %d times, want %d", got, adopted)
		}
		if got := strings.Count(log.String(), "\n"); got != len(files) {
			t.Errorf("%d warnings, want %d", got, len(files))
		}
		for _, f := range files {
			if !strings.Contains(log.String(), filepath.Join(dir, f)+`\"`) {
				t.Errorf("no warning names %s:\n%s", f, &log)
			}
		}
	}
	look(1, "ca", "crt", "key", "token")
	look(1)
	writeFile(t, filepath.Join(dir, "token"), []byte("second"))
	look(2)
	config.AuthInfos["a"].TokenFile = "token-2" // which holds the same
	save(t, path, config)
	look(3, "token-2")
}

func TestNewContexts_ValidatesOptions(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for want, o := range map[string]ContextsOptions{
		"Logger is required":      {Names: []string{"a"}},
		"at least one":            {Logger: log},
		"no letter or digit":      {Logger: log, Names: []string{"//"}},
		"map to the same member":  {Logger: log, Names: []string{"A_b", "a/b"}},
		`"a" and "a" map to the `: {Logger: log, Names: []string{"a", "a"}},
	} {
		if _, err := NewContexts(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestDNSLabel(t *testing.T) {
	for in, want := range map[string]string{
		"kind-eu_1": "kind-eu-1", "admin@Prod.example.com": "admin-prod-example-com", "--x--": "x", "é": "",
		strings.Repeat("a", 62) + "/b": strings.Repeat("a", 62), strings.Repeat("a", 99): strings.Repeat("a", 63),
	} {
		if got := dnsLabel(in); got != want {
			t.Errorf("slug(%q) = %q, want %q", in, got, want)
		}
	}
}
