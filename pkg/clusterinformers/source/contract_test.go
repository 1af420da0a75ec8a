package source

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ocmv1 "open-cluster-management.io/api/cluster/v1"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/test/kube"
)

// project is one that describes clusters on a hub, as it does.
type project struct {
	source func(*rest.Config, *slog.Logger) (clusterinformers.Source, error)
	member string // that the objects describe
	// object has the name of what describes it, objects what it takes, of which the first is that.
	object  schema.GroupVersionResource
	objects func(token string) string
	// rights are what the source may do on the hub, and needs no more than.
	rights []rbacv1.PolicyRule
	// token writes other credentials, gone takes them away; nil: nothing on the hub has them.
	token func(token string) string
	gone  string                       // namespace and name of a Secret
	why   func(connection.Reason) bool // it is refused then
}

// stage is a hub, and one member that all projects describe.
type stage struct {
	*kube.Fleet
	hub    dynamic.Interface
	member *kube.ControlPlane
	uid    string // of the member
	proxy  string // URL of what stands in for the user server of cluster-proxy
	dir    string
}

func startStage(t *testing.T) *stage {
	t.Helper()
	fleet := kube.StartTest(t, kube.Options{Members: 1})
	s := &stage{Fleet: fleet, member: fleet.Members[0], dir: t.TempDir()}
	s.uid = uidOf(t, s.member)
	for _, dir := range []string{
		"../../../charts/federator/crds",
		filepath.Join(moduleDir(t, "sigs.k8s.io/cluster-inventory-api"), "config/crd/bases"),
	} {
		must(t, fleet.Hub.InstallCRDs(t.Context(), dir))
	}
	ocm := t.TempDir()
	writeFile(t, filepath.Join(ocm, "managedclusters.yaml"), readAll(t, filepath.Join(moduleDir(t, "open-cluster-management.io/api"), "cluster/v1/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml")))
	must(t, fleet.Hub.InstallCRDs(t.Context(), ocm))
	var err error
	s.hub, err = dynamic.NewForConfigAndClient(fleet.Hub.DirectRESTConfig(), passing(t, fleet.Hub.DirectRESTConfig()))
	must(t, err)
	s.startClusterProxy(t)
	writeFile(t, filepath.Join(s.dir, "login"), []byte("#!/bin/sh\n"+
		`printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$(cat "$1")"`+"\n"))
	must(t, exec.Command("chmod", "755", filepath.Join(s.dir, "login")).Run())
	writeFile(t, filepath.Join(s.dir, "providers.json"), fmt.Appendf(nil,
		`{"providers": [{"name": "vault", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": %q, "args": [%q], "interactiveMode": "Never", "provideClusterInfo": true}}]}`,
		filepath.Join(s.dir, "login"), filepath.Join(s.dir, "token")))
	return s
}

// startClusterProxy stands in for the user server of Open Cluster Management's cluster-proxy, which forwards
// what comes for /<cluster>: its tunnels are not at hand.
func (s *stage) startClusterProxy(t *testing.T) {
	t.Helper()
	target, err := url.Parse(s.member.DirectRESTConfig().Host)
	must(t, err)
	anonymous := rest.AnonymousClientConfig(s.member.DirectRESTConfig())
	tls, err := rest.TLSConfigFor(anonymous)
	must(t, err)
	transport := &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true} // what it keeps would look like a leak
	server := httptest.NewTLSServer(http.StripPrefix("/eu-1", &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}))
	t.Cleanup(func() { server.Close(); transport.CloseIdleConnections() })
	s.proxy = server.URL
	writeFile(t, filepath.Join(s.dir, "ca.crt"), pemOf(server.Certificate()))
}

func moduleDir(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

func (s *stage) projects(t *testing.T) map[string]project {
	t.Helper()
	server, ca := "https://"+s.member.Proxy.Addr(), s.member.DirectRESTConfig().CAData
	ca64 := base64.StdEncoding.EncodeToString(ca)
	kubeconfig := func(token string) string {
		return base64.StdEncoding.EncodeToString(s.member.KubeconfigWith(kube.Credentials{Token: token}))
	}
	read := func(group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"}}
	}
	secretsOnly := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}}
	noKubeconfig := func(r connection.Reason) bool { return r == connection.NoKubeconfig }

	clusterSecret := func(token string) string {
		return "apiVersion: v1\nkind: Secret\ntype: cluster.x-k8s.io/secret\nmetadata: {namespace: capi, name: eu-1-kubeconfig}\ndata: {value: " + kubeconfig(token) + "}\n"
	}
	memberSecret := func(token string) string {
		return "apiVersion: v1\nkind: Secret\ntype: federator.dev/kubeconfig\nmetadata: {namespace: edge, name: eu-1-read}\ndata: {value: " + kubeconfig(token) + "}\n"
	}
	argoSecret := func(token string) string {
		config, err := json.Marshal(map[string]any{"bearerToken": token, "tlsClientConfig": map[string]any{"caData": ca}})
		must(t, err)
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata:\n  namespace: argocd\n  name: cluster-eu-1-4711\n  labels: {argocd.argoproj.io/secret-type: cluster}\nstringData: {name: EU 1, server: %q, config: '%s'}\n", server, config)
	}
	account := func(token string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata:\n  namespace: eu-1\n  name: federator\n  labels: {authentication.open-cluster-management.io/is-managed-serviceaccount: \"true\"}\nstringData: {ca.crt: x, token: " + token + "}\n"
	}
	return map[string]project{
		"Cluster API": {
			source: func(c *rest.Config, l *slog.Logger) (clusterinformers.Source, error) {
				return NewClusterAPI(ClusterAPIOptions{Config: c, Logger: l})
			},
			member: "capi/eu-1", object: clusterVersions[0].WithResource("clusters"),
			objects: func(token string) string {
				return "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {namespace: capi, name: eu-1}\nspec: {clusterNetwork: {services: {cidrBlocks: [10.0.0.0/16]}}}\nstatus: {initialization: {controlPlaneInitialized: true}}\n---\n" + clusterSecret(token)
			},
			rights: []rbacv1.PolicyRule{read("cluster.x-k8s.io", "clusters"), secretsOnly},
			token:  clusterSecret, gone: "capi/eu-1-kubeconfig", why: noKubeconfig,
		},
		"Member": {
			source: func(c *rest.Config, l *slog.Logger) (clusterinformers.Source, error) {
				return NewMembers(MembersOptions{Config: c, Logger: l})
			},
			member: "edge/eu-1", object: v1alpha1.Resource(v1alpha1.Members),
			objects: func(token string) string {
				return "apiVersion: federator.dev/v1alpha1\nkind: Member\nmetadata: {namespace: edge, name: eu-1}\nspec: {kubeconfig: {secret: eu-1-read}}\n---\n" + memberSecret(token)
			},
			rights: []rbacv1.PolicyRule{read("federator.dev", "members"), secretsOnly},
			token:  memberSecret, gone: "edge/eu-1-read", why: noKubeconfig,
		},
		"Argo CD": {
			source: func(c *rest.Config, l *slog.Logger) (clusterinformers.Source, error) {
				return NewArgoCD(ArgoCDOptions{Config: c, Namespaces: []string{"argocd"}, Logger: l})
			},
			member: "argocd/eu-1", object: schema.GroupVersionResource{Version: "v1", Resource: "secrets"},
			objects: argoSecret, rights: []rbacv1.PolicyRule{secretsOnly}, token: argoSecret,
		},
		"Open Cluster Management": {
			source: func(c *rest.Config, l *slog.Logger) (clusterinformers.Source, error) {
				return NewManagedClusters(ManagedClustersOptions{Config: c, ProxyURL: s.proxy, CAFile: filepath.Join(s.dir, "ca.crt"), ServiceAccount: "federator", Logger: l})
			},
			member: "managedcluster/eu-1", object: ocmv1.GroupVersion.WithResource("managedclusters"),
			objects: func(token string) string {
				return "apiVersion: cluster.open-cluster-management.io/v1\nkind: ManagedCluster\nmetadata: {name: eu-1}\nspec: {hubAcceptsClient: true}\nstatus:\n  version: {kubernetes: v1.36.3}\n  conditions: [{type: ManagedClusterJoined, status: \"True\", reason: Joined, message: joined, lastTransitionTime: \"2026-01-02T03:04:05Z\"}]\n---\n" + account(token)
			},
			rights: []rbacv1.PolicyRule{
				read("cluster.open-cluster-management.io", "managedclusters"),
				{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"federator"}, Verbs: []string{"list", "watch"}},
			},
			token: account, gone: "eu-1/federator", why: noKubeconfig,
		},
		"Cluster Inventory API": {
			source: func(c *rest.Config, l *slog.Logger) (clusterinformers.Source, error) {
				return NewClusterProfiles(ClusterProfilesOptions{Config: c, ProvidersFile: filepath.Join(s.dir, "providers.json"), PluginRunner: []string{"/usr/bin/env"}, Logger: l})
			},
			member: "inventory/eu-1", object: inventoryv1alpha1.GroupVersion.WithResource("clusterprofiles"),
			objects: func(token string) string {
				writeFile(t, filepath.Join(s.dir, "token"), []byte(token))
				return "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ClusterProfile\nmetadata: {namespace: inventory, name: eu-1}\nspec: {clusterManager: {name: capz}}\nstatus:\n  conditions: []\n  accessProviders:\n  - {name: other, cluster: {server: https://elsewhere.example}}\n  - {name: vault, cluster: {server: \"" + server + "\", certificate-authority-data: " + ca64 + "}}\n"
			},
			rights: []rbacv1.PolicyRule{read("multicluster.x-k8s.io", "clusterprofiles")},
		},
	}
}

// apply writes objects, and the status of those that have it apart.
func (s *stage) apply(t *testing.T, manifests string) {
	t.Helper()
	for _, text := range strings.Split(manifests, "---\n") {
		u := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(text), &u.Object))
		r := s.resource(u.GroupVersionKind(), u.GetNamespace())
		made, err := r.Create(t.Context(), u, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			delete(u.Object, "status")
			var patch []byte
			patch, err = u.MarshalJSON()
			must(t, err)
			_, err = r.Patch(t.Context(), u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
			must(t, err)
			continue
		}
		must(t, err)
		if status, ok := u.Object["status"]; ok {
			made.Object["status"] = status
			_, err = r.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
			must(t, err)
		}
	}
}

func (s *stage) resource(kind schema.GroupVersionKind, namespace string) dynamic.ResourceInterface {
	gvr := kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
	return objectsIn(s.hub.Resource(gvr), namespace, namespace == "")
}

// TestSources_Contract: what every source of a hub does, with the rights that it needs and no more.
func TestSources_Contract(t *testing.T) {
	s := startStage(t)
	for _, namespace := range []string{"capi", "edge", "argocd", "eu-1", "inventory"} {
		s.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")
	}
	for name, p := range s.projects(t) {
		t.Run(name, func(t *testing.T) { s.contract(t, p) })
	}
}

func (s *stage) contract(t *testing.T, p project) {
	user := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	src, err := p.source(s.reader(t, user, p.rights), slog.New(newLogs(t)))
	v := watchSource(t, src, err)
	v.await("a view of nothing", func(view []clusterinformers.Spec) bool { return len(view) == 0 })
	objects := p.objects(s.token(t, user, "first"))
	s.apply(t, objects)
	first := v.member(p.member, "described", followed)
	u := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(strings.Split(objects, "---\n")[0]), &u.Object))
	object := s.resource(u.GroupVersionKind(), u.GetNamespace())
	is, err := object.Get(t.Context(), u.GetName(), getOptions)
	must(t, err)
	if first.UID != string(is.GetUID()) || first.Trusted || first.Own || first.ReadOnly || first.Credentials == "" {
		t.Errorf("%+v", first)
	}
	if o := first.Object; o == nil || o.UID != is.GetUID() || o.Name != is.GetName() || o.Namespace != is.GetNamespace() || o.Kind != is.GetKind() || o.APIVersion != is.GetAPIVersion() {
		t.Errorf("described by %+v, want %s %s/%s", first.Object, is.GetKind(), is.GetNamespace(), is.GetName())
	}
	s.leadsToMember(t, first)

	patch := func(text string) {
		_, err := object.Patch(t.Context(), u.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{})
		must(t, err)
	}
	patch(`{"metadata":{"labels":{"tier":"gold"},"annotations":{"federator.dev/note":"for policies"}}}`)
	v.member(p.member, "labelled and annotated", func(m clusterinformers.Spec) bool {
		return slices.Contains(m.Labels, aggregate.Label{Key: "tier", Value: "gold"}) && slices.Contains(m.Cluster.Annotations, aggregate.Label{Key: "federator.dev/note", Value: "for policies"})
	})
	patch(`{"metadata":{"annotations":{"federator.dev/freeze-until":"2026-01-02T03:04:05Z"}}}`)
	v.member(p.member, "frozen", func(m clusterinformers.Spec) bool {
		return m.Hold.Freeze != nil && *m.Hold.Freeze == "2026-01-02T03:04:05Z"
	})
	if p.token != nil {
		s.apply(t, p.token(s.token(t, user, "second")))
		s.leadsToMember(t, v.member(p.member, "with other credentials", func(m clusterinformers.Spec) bool {
			return m.Refused == nil && !bytes.Equal(m.Kubeconfig, first.Kubeconfig)
		}))
	}
	if p.gone != "" {
		namespace, name, _ := strings.Cut(p.gone, "/")
		must(t, s.Hub.Client().CoreV1().Secrets(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		m := v.member(p.member, "without credentials", func(m clusterinformers.Spec) bool { return m.Refused != nil })
		if !p.why(m.Refused.Reason) || m.UID != first.UID {
			t.Errorf("%+v", m)
		}
	}
	must(t, object.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}))
	v.await("the member has left", func(view []clusterinformers.Spec) bool { return len(view) == 0 })
	s.apply(t, p.objects(s.token(t, user, "third")))
	v.member(p.member, "another", func(m clusterinformers.Spec) bool { return m.Refused == nil && m.UID != "" && m.UID != first.UID })
	must(t, object.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}))
	v.await("that has left, too", func(view []clusterinformers.Spec) bool { return len(view) == 0 })
}

// reader returns the configuration of a user who may do on the hub what the rules say.
func (s *stage) reader(t *testing.T, user string, rules []rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	user = strings.ReplaceAll(strings.ReplaceAll(user, "_", "-"), " ", "-")
	rbac, meta := s.Hub.Client().RbacV1(), metav1.ObjectMeta{Name: user}
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	must(t, err)
	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	must(t, err)
	cred, err := s.Hub.IssueCert(user, time.Hour)
	must(t, err)
	return s.Hub.RESTConfigWith(cred)
}

// token returns a token of the member, of an account that may read it all.
func (s *stage) token(t *testing.T, user, which string) string {
	t.Helper()
	account := strings.Map(func(r rune) rune {
		if r == '_' || r == ' ' {
			return '-'
		}
		return r
	}, user) + "-" + which
	cred, err := s.member.IssueToken(t.Context(), "default", account, time.Hour)
	must(t, err)
	_, err = s.member.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: account}},
	}, metav1.CreateOptions{})
	must(t, err)
	return cred.Token
}

// leadsToMember checks that a member is reached as its description says, by the rules for kubeconfigs.
func (s *stage) leadsToMember(t *testing.T, m clusterinformers.Spec) {
	t.Helper()
	config, refused := memberclient.ParseKubeconfig(m.Kubeconfig, memberclient.Allowed{Plugin: m.Plugin})
	if refused != nil {
		t.Fatal(refused)
	}
	client, err := memberclient.NewHTTPClient(config, memberclient.TransportOptions{Network: connection.Network{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	must(t, err)
	defer client.CloseIdleConnections()
	await(t, m.Name+" leads to the member, once that knows what the account may do", 10*time.Second, func() bool {
		uid, err := memberclient.New(config, client).ClusterUID(t.Context(), "")
		if err != nil && !apierrors.IsForbidden(err) || err == nil && uid != s.uid {
			t.Fatalf("%s leads to %q, %v; want %q", m.Name, uid, err, s.uid)
		}
		return err == nil
	})
}
