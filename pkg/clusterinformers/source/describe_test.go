package source

import (
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

func objectOf(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// secretsOf are Secrets by namespace and name, each with one key.
func secretsOf(t *testing.T, key string, values map[string]string) secrets {
	t.Helper()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for at, value := range values {
		namespace, name, _ := strings.Cut(at, "/")
		must(t, store.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: []byte(value)}}))
	}
	return secrets{Store: store}
}

func refusedFor(t *testing.T, what string, s clusterinformers.Spec, reason connection.Reason, says string) {
	t.Helper()
	if s.Refused == nil || s.Refused.Reason != reason || !strings.Contains(s.Refused.Message, says) {
		t.Errorf("%s: %v, want %s: %s", what, s.Refused, reason, says)
	}
}

func TestMembers_AsTheirSpecSays(t *testing.T) {
	const head = "apiVersion: federator.dev/v1alpha1\nkind: Member\nmetadata: {namespace: edge, name: a, uid: u}\nspec: "
	all := secretsOf(t, kubeconfigKey, map[string]string{"edge/read": "how to read", "edge/write": "how to write", "other/elsewhere": "stolen"})
	of := func(spec string) clusterinformers.Spec { return trimMember(objectOf(t, head+spec)).member(all).Spec }

	s := of("{kubeconfig: {secret: read}, write: {secret: write}, paused: true}")
	if s.Name != "edge/a" || s.UID != "u" || s.Refused != nil || string(s.Kubeconfig) != "how to read" || s.Credentials != "Secret edge/read" ||
		s.Write == nil || string(s.Write.Kubeconfig) != "how to write" || s.Write.Credentials != "Secret edge/write" || !s.Hold.Paused || s.ReadOnly {
		t.Errorf("%+v", s)
	}
	if s := of("{kubeconfig: {secret: read}, readOnly: true}"); !s.ReadOnly || s.Write != nil || s.Hold.Paused {
		t.Errorf("%+v", s)
	}
	// What it is to be written with and is not there is not replaced by what it is read with.
	if s := of("{kubeconfig: {secret: read}, write: {secret: none}}"); s.Refused != nil || s.Write == nil || s.Write.Kubeconfig != nil {
		t.Errorf("%+v", s)
	}
	if s := of("{agent: {}}"); !s.Agent || s.Refused != nil || s.Kubeconfig != nil || s.Credentials != "the agent of Member edge/a" {
		t.Errorf("%+v", s)
	}
	refusedFor(t, "neither kubeconfig nor agent", of("{paused: true}"), connection.NoKubeconfig, "neither")
	refusedFor(t, "no Secret", of("{kubeconfig: {secret: none}}"), connection.NoKubeconfig, `Secret none with key "value" and type federator.dev/kubeconfig not found`)
	refusedFor(t, "another namespace's", of("{kubeconfig: {secret: elsewhere}}"), connection.NoKubeconfig, "not found")
	odd := of("{kubeconfig: {secret: read}, paused: soon}")
	refusedFor(t, "of another schema", odd, connection.InvalidKubeconfig, "not understood")
	if !odd.Hold.Paused {
		t.Error("what is not understood may be written to")
	}
	if s := of(`{agent: {}}
status: {lastContactTime: "2020-01-01t00:00:00z"}`); !s.Agent || s.Refused != nil || s.Hold.Paused {
		t.Errorf("one whose status is odd: %+v", s)
	}
	all.unreadable = true
	refusedFor(t, "forbidden", of("{kubeconfig: {secret: none}}"), connection.NoKubeconfig, "reading Secrets in namespace edge is forbidden")
}

func TestManagedClusters_AsTheirStatusSays(t *testing.T) {
	const text = `
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: eu-1, uid: u}
spec: {hubAcceptsClient: ACCEPTED}
status:
  version: {kubernetes: v1.36.3}
  conditions: [{type: ManagedClusterJoined, status: "JOINED", reason: Is, message: so, lastTransitionTime: "2026-01-02T03:04:05Z"}]`
	dir := t.TempDir()
	ca, _ := kubeconfigtest.KeyPair()
	proxy := &clusterProxy{url: "https://proxy.example:9092", file: filepath.Join(dir, "ca.crt"), account: "federator", log: slog.New(newLogs(t))}
	all := secretsOf(t, "token", map[string]string{"eu-1/federator": " t0ken\n", "eu-2/federator": "of another"})
	of := func(accepted, joined string) clusterinformers.Spec {
		return trimManagedCluster(objectOf(t, strings.NewReplacer("ACCEPTED", accepted, "JOINED", joined).Replace(text)), proxy).member(all).Spec
	}
	proxy.reload()
	refusedFor(t, "no certificates", of("true", "True"), connection.NoCA, "the certificates of cluster-proxy cannot be read")
	writeFile(t, proxy.file, ca)
	proxy.reload()
	s := of("true", "True")
	config, refused := memberclient.ParseKubeconfig(s.Kubeconfig, memberclient.Allowed{})
	if s.Name != "managedcluster/eu-1" || s.Refused != nil || refused != nil || config.Host != "https://proxy.example:9092/eu-1" || config.BearerToken != "t0ken" || string(config.CAData) != string(ca) || s.Cluster.Version != "v1.36.3" || s.Uninitialized {
		t.Errorf("%+v: %v, %v", s, config, refused)
	}
	for joined, s := range map[string]clusterinformers.Spec{"no": of("false", "False"), "not yet": of("true", "Unknown")} {
		if refusedFor(t, joined, s, connection.NotInitialized, "has not joined"); !s.Uninitialized {
			t.Errorf("%s: it belongs to the fleet", joined)
		}
	}
	denied := of("false", "True")
	if refusedFor(t, "denied", denied, connection.NotAccepted, "spec.hubAcceptsClient"); denied.Uninitialized || denied.Kubeconfig != nil {
		t.Errorf("%+v", denied)
	}
	must(t, all.Delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "eu-1", Name: "federator"}}))
	refusedFor(t, "no token", of("true", "True"), connection.NoKubeconfig, "Secret federator of a ManagedServiceAccount")
	// A file that is being written keeps what was read.
	must(t, os.Remove(proxy.file))
	proxy.reload()
	if string(proxy.ca) != string(ca) || proxy.err != nil {
		t.Errorf("after the file has gone: %d bytes, %v", len(proxy.ca), proxy.err)
	}
}

func TestNewManagedClusters_ValidatesOptions(t *testing.T) {
	good := ManagedClustersOptions{Config: &rest.Config{Host: "https://h"}, ProxyURL: "https://proxy:9092", CAFile: "ca.crt", ServiceAccount: "federator", Logger: slog.New(slog.DiscardHandler)}
	if _, err := NewManagedClusters(good); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*ManagedClustersOptions){
		"ProxyURL is not":                     func(o *ManagedClustersOptions) { o.ProxyURL = "http://proxy" },
		"ProxyURL is not a URL such as":       func(o *ManagedClustersOptions) { o.ProxyURL = "https://u:p@proxy" },
		"CAFile is required":                  func(o *ManagedClustersOptions) { o.CAFile = "" },
		`ServiceAccount "a/b" is not the`:     func(o *ManagedClustersOptions) { o.ServiceAccount = "a/b" },
		"ManagedClusters: Config is required": func(o *ManagedClustersOptions) { o.Config = nil },
		"ManagedClusters: Logger is required": func(o *ManagedClustersOptions) { o.Logger = nil },
	} {
		o := good
		change(&o)
		if _, err := NewManagedClusters(o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// argoSecret is the Secret of a cluster, as an API server has it.
func argoSecret(t testing.TB, name, created string, data map[string]string) *unstructured.Unstructured {
	t.Helper()
	encoded := map[string]any{}
	for k, v := range data {
		encoded[k] = base64.StdEncoding.EncodeToString([]byte(v))
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "data": encoded,
		"metadata": map[string]any{"namespace": "argocd", "name": name, "uid": "uid-of-" + name, "creationTimestamp": created},
	}}
}

func TestArgoCD_Refusals(t *testing.T) {
	ca, _ := kubeconfigtest.KeyPair()
	ca64 := base64.StdEncoding.EncodeToString(ca)
	tls := `"tlsClientConfig":{"caData":"` + ca64 + `"}`
	for what, tc := range map[string]struct {
		config string
		reason connection.Reason
		says   string
	}{
		"good":          {`{"bearerToken":"` + kubeconfigtest.Token + `",` + tls + `}`, "", ""},
		"no JSON":       {`{"bearerToken":"` + kubeconfigtest.Token + `",`, connection.InvalidKubeconfig, "config of the Secret: it is not JSON at byte"},
		"two values":    {`{} {"bearerToken":"` + kubeconfigtest.Token + `"}`, connection.InvalidKubeconfig, "more than one JSON value"},
		"another type":  {`{"bearerToken":{"a":"` + kubeconfigtest.Token + `"}}`, connection.InvalidKubeconfig, "bearerToken is not of type string"},
		"exec":          {`{"execProviderConfig":{"command":"` + kubeconfigtest.Token + `"},` + tls + `}`, connection.ExecPlugin, "execProviderConfig"},
		"aws":           {`{"awsAuthConfig":{"clusterName":"` + kubeconfigtest.Token + `"},` + tls + `}`, connection.ExecPlugin, "awsAuthConfig"},
		"null programs": {`{"awsAuthConfig":null,"execProviderConfig":null,` + tls + `}`, "", ""},
		"insecure":      {`{"tlsClientConfig":{"insecure":true}}`, connection.InsecureTLS, ""},
		"no CA":         {`{"bearerToken":"x"}`, connection.NoCA, ""},
		"proxy":         {`{"proxyUrl":"http://u:` + kubeconfigtest.Token + `@proxy",` + tls + `}`, connection.ProxyURL, ""},
	} {
		s := trimArgoCluster(argoSecret(t, "a", "", map[string]string{"name": "a", "server": kubeconfigtest.Server, "config": tc.config})).member(secrets{}).Spec
		refused := s.Refused
		if refused == nil {
			_, refused = memberclient.ParseKubeconfig(s.Kubeconfig, memberclient.Allowed{})
		}
		switch {
		case tc.reason == "" && refused != nil, tc.reason != "" && (refused == nil || refused.Reason != tc.reason || !strings.Contains(refused.Message, tc.says)):
			t.Errorf("%s: %v, want %s %s", what, refused, tc.reason, tc.says)
		case refused != nil && strings.Contains(refused.Message, kubeconfigtest.Token):
			t.Errorf("%s: it repeats what is secret: %v", what, refused)
		}
	}
	narrowed := trimArgoCluster(argoSecret(t, "a", "", map[string]string{"server": kubeconfigtest.Server, "config": `{` + tls + `}`, "namespaces": "a,b"})).member(secrets{})
	refusedFor(t, "narrowed", narrowed.Spec, connection.InvalidKubeconfig, "narrowed to some namespaces")
	if narrowed.preferred != "" || narrowed.Name != "argocd/a" {
		t.Errorf("without a name it is called %q, %q", narrowed.preferred, narrowed.Name)
	}
}

// FuzzArgoCluster: whatever a Secret holds, it is refused or makes a kubeconfig that the checks decide on.
func FuzzArgoCluster(f *testing.F) {
	ca, _ := kubeconfigtest.KeyPair()
	f.Add("eu 1", kubeconfigtest.Server, `{"bearerToken":"x","tlsClientConfig":{"caData":"`+base64.StdEncoding.EncodeToString(ca)+`"}}`)
	f.Add("", "", `null`)
	f.Add("A", "http://h", `{"execProviderConfig":{}}`)
	f.Fuzz(func(t *testing.T, name, server, config string) {
		d := trimArgoCluster(argoSecret(t, "a", "", map[string]string{"name": name, "server": server, "config": config})).member(secrets{})
		if d.Name != "argocd/a" || d.preferred != "" && dnsLabel(strings.TrimPrefix(d.preferred, "argocd/")) != strings.TrimPrefix(d.preferred, "argocd/") {
			t.Errorf("it is called %q, %q", d.Name, d.preferred)
		}
		if d.Refused != nil {
			if d.Kubeconfig != nil {
				t.Error("it is refused, and has a kubeconfig")
			}
			return
		}
		if _, err := clientcmd.Load(d.Kubeconfig); err != nil {
			t.Errorf("it does not parse: %v", err)
		}
		parsed, refused := memberclient.ParseKubeconfig(d.Kubeconfig, memberclient.Allowed{})
		if (parsed == nil) == (refused == nil) || parsed != nil && parsed.ExecProvider != nil {
			t.Errorf("%v, %v", parsed, refused)
		}
	})
}
