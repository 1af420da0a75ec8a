package source

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/kube"
)

var getOptions = metav1.GetOptions{}

func register(t *testing.T, hub *kube.Hub, c kube.Cluster) {
	t.Helper()
	if err := hub.Register(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// passing returns a client that keeps no connection, which would look like one
// that the source has left behind.
func passing(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(cfg)
	must(t, err)
	rt, err := rest.HTTPWrappersForConfig(cfg, &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true})
	must(t, err)
	return &http.Client{Transport: rt}
}

// patchCluster changes a Cluster in a way that the hub has no method for.
func patchCluster(t *testing.T, cfg *rest.Config, version, namespace, name, patch string) {
	t.Helper()
	d, err := dynamic.NewForConfigAndClient(cfg, passing(t, cfg))
	must(t, err)
	gvr := schema.GroupVersionResource{Group: clusterv1.GroupVersion.Group, Version: version, Resource: "clusters"}
	_, err = d.Resource(gvr).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
}

func TestClusterAPI_WatchesClusters(t *testing.T) {
	for _, version := range []string{kube.V1Beta1, kube.V1Beta2} {
		t.Run(version, func(t *testing.T) {
			hub := kube.StartTest(t, kube.Options{ClusterAPI: version}).Hub
			config := []byte("kubeconfig of a")
			register(t, hub, kube.Cluster{Namespace: "fleet", Name: "a", Labels: map[string]string{"tier": "gold", "env": "prod"}, Kubeconfig: config})
			register(t, hub, kube.Cluster{Namespace: "other", Name: "b", Uninitialized: true, Kubeconfig: []byte("b")})
			// Not a kubeconfig by its type.
			_, err := hub.Client().CoreV1().Secrets("fleet").Create(t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "c-kubeconfig"}, Data: map[string][]byte{"value": []byte("forged")},
			}, metav1.CreateOptions{})
			must(t, err)
			register(t, hub, kube.Cluster{Namespace: "fleet", Name: "c"})

			src, err := NewClusterAPI(ClusterAPIOptions{Config: hub.RESTConfig(), Logger: slog.New(newLogs(t))})
			v := watchSource(t, src, err)
			first := v.await("all Clusters", func(view []clusterinformers.Spec) bool { return len(view) == 3 })
			if len(v.all()) != 1 {
				t.Errorf("the first view was not whole: %v", v.all())
			}
			if !slices.IsSortedFunc(first, func(a, b clusterinformers.Spec) int { return strings.Compare(a.Name, b.Name) }) {
				t.Errorf("not sorted: %v", first)
			}
			a := first[0]
			if a.Name != "fleet/a" || a.UID == "" || a.Refused != nil || string(a.Kubeconfig) != string(config) || a.Trusted || a.ReadOnly ||
				!slices.Equal(a.Labels, []aggregate.Label{{Key: "env", Value: "prod"}, {Key: "tier", Value: "gold"}}) {
				t.Errorf("fleet/a is %+v", a)
			}
			v.member("other/b", "not initialised", refusedAs(connection.NotInitialized))
			v.member("fleet/c", "no kubeconfig", refusedAs(connection.NoKubeconfig))

			must(t, hub.SetInitialized(t.Context(), "other", "b"))
			v.member("other/b", "initialised", followed)
			must(t, hub.SetPaused(t.Context(), "fleet", "a", true))
			v.member("fleet/a", "paused", paused)
			must(t, hub.SetPaused(t.Context(), "fleet", "a", false))
			v.member("fleet/a", "resumed", followed)
			patchCluster(t, hub.DirectRESTConfig(), version, "fleet", "a", `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}`)
			v.member("fleet/a", "paused by annotation", paused)
			patchCluster(t, hub.DirectRESTConfig(), version, "fleet", "a", `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`)
			patchCluster(t, hub.DirectRESTConfig(), version, "fleet", "a", `{"metadata":{"annotations":{"federator.dev/freeze-until":"2026-01-02T03:04:05Z"}}}`)
			v.member("fleet/a", "frozen", func(s clusterinformers.Spec) bool {
				return s.Hold.Freeze != nil && *s.Hold.Freeze == "2026-01-02T03:04:05Z" && s.Hold.FrozenBy != "" && !s.Hold.Paused
			})
			patchCluster(t, hub.DirectRESTConfig(), version, "fleet", "a", `{"metadata":{"annotations":{"federator.dev/freeze-until":null}}}`)
			v.member("fleet/a", "thawed", followed)
			must(t, hub.SetKubeconfig(t.Context(), "fleet", "a", []byte("rotated")))
			v.member("fleet/a", "rotated", func(s clusterinformers.Spec) bool { return s.Refused == nil && string(s.Kubeconfig) == "rotated" })
			must(t, hub.SetLabels(t.Context(), "fleet", "a", map[string]string{"env": "test"}))
			v.member("fleet/a", "relabelled", func(s clusterinformers.Spec) bool {
				return slices.Equal(s.Labels, []aggregate.Label{{Key: "env", Value: "test"}})
			})
			must(t, hub.Client().CoreV1().Secrets("fleet").Delete(t.Context(), "a-kubeconfig", metav1.DeleteOptions{}))
			v.member("fleet/a", "without kubeconfig", refusedAs(connection.NoKubeconfig))
			must(t, hub.SetKubeconfig(t.Context(), "fleet", "a", []byte("back")))
			v.member("fleet/a", "with kubeconfig", followed)

			// With a Secret of its own it is written with that, whatever that has.
			created, err := hub.Client().CoreV1().Secrets("fleet").Create(t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "a-federator"}, Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": []byte("less")},
			}, metav1.CreateOptions{})
			must(t, err)
			v.member("fleet/a", "with credentials for writes", func(s clusterinformers.Spec) bool {
				return s.Refused == nil && string(s.Kubeconfig) == "back" && s.Credentials == "Secret fleet/a-kubeconfig" &&
					s.Write != nil && string(s.Write.Kubeconfig) == "less" && s.Write.Credentials == "Secret fleet/a-federator"
			})
			created.Data = map[string][]byte{"other": []byte("x")}
			_, err = hub.Client().CoreV1().Secrets("fleet").Update(t.Context(), created, metav1.UpdateOptions{})
			must(t, err)
			v.member("fleet/a", "with a Secret without a value", func(s clusterinformers.Spec) bool { return s.Write != nil && len(s.Write.Kubeconfig) == 0 })
			must(t, hub.Client().CoreV1().Secrets("fleet").Delete(t.Context(), "a-federator", metav1.DeleteOptions{}))
			v.member("fleet/a", "without credentials for writes", func(s clusterinformers.Spec) bool { return s.Write == nil && s.Refused == nil })

			// Deleted, and kept by a finalizer for a while.
			patchCluster(t, hub.DirectRESTConfig(), version, "other", "b", `{"metadata":{"finalizers":["test.federator.dev/hold"]}}`)
			d, err := dynamic.NewForConfigAndClient(hub.DirectRESTConfig(), passing(t, hub.DirectRESTConfig()))
			must(t, err)
			must(t, d.Resource(schema.GroupVersionResource{Group: clusterv1.GroupVersion.Group, Version: version, Resource: "clusters"}).
				Namespace("other").Delete(t.Context(), "b", metav1.DeleteOptions{}))
			v.member("other/b", "deleting", refusedAs(connection.Deleting))
			patchCluster(t, hub.DirectRESTConfig(), version, "other", "b", `{"metadata":{"finalizers":null}}`)
			v.await("other/b gone", func(view []clusterinformers.Spec) bool { return len(view) == 2 })

			// Recreated under its name: another member.
			must(t, hub.Unregister(t.Context(), "fleet", "a"))
			register(t, hub, kube.Cluster{Namespace: "fleet", Name: "a", Kubeconfig: config})
			v.member("fleet/a", "recreated", func(s clusterinformers.Spec) bool { return s.Refused == nil && s.UID != a.UID })
			v.stop()
		})
	}
}

func TestClusterAPI_IgnoresIrrelevantChanges(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{}).Hub
	register(t, hub, kube.Cluster{Namespace: "fleet", Name: "a", Kubeconfig: []byte("a")})
	src, err := NewClusterAPI(ClusterAPIOptions{Config: hub.RESTConfig(), Logger: slog.New(newLogs(t))})
	v := watchSource(t, src, err)
	v.member("fleet/a", "followed", followed)
	seen := len(v.all())
	for i := range 20 {
		patchCluster(t, hub.DirectRESTConfig(), kube.V1Beta2, "fleet", "a", fmt.Sprintf(`{"metadata":{"finalizers":["example.com/touched-%d"]}}`, i))
	}
	register(t, hub, kube.Cluster{Namespace: "fleet", Name: "b", Kubeconfig: []byte("b")})
	v.member("fleet/b", "followed", followed)
	// b appears, gets its Secret and is initialised: at most a view each.
	if n := len(v.all()) - seen; n > 3 {
		t.Errorf("%d views of three changes", n)
	}
}

func TestClusterAPI_ForbiddenNamespaceDoesNotBlockOthers(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{}).Hub
	for _, ns := range []string{"open", "closed", "half", "unwatched"} {
		register(t, hub, kube.Cluster{Namespace: ns, Name: "a", Kubeconfig: []byte(ns)})
	}
	allow := func(ns string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		role := metav1.ObjectMeta{Name: "viewer-" + fmt.Sprint(len(rules))}
		_, err := hub.Client().RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: role, Rules: rules}, metav1.CreateOptions{})
		must(t, err)
		_, err = hub.Client().RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: role, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "viewer"}},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	verbs := []string{"get", "list", "watch"}
	clusters := rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusters"}, Verbs: verbs}
	secrets := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: verbs}
	allow("open", clusters, secrets)
	allow("half", clusters)
	cred, err := hub.IssueCert("viewer", time.Hour)
	must(t, err)
	lines := newLogs(t)
	src, err := NewClusterAPI(ClusterAPIOptions{
		Config: hub.RESTConfigWith(cred), Namespaces: []string{"open", "half", "closed"}, Logger: slog.New(lines),
	})
	v := watchSource(t, src, err)
	v.member("open/a", "followed", followed)
	s := v.member("half/a", "without Secrets", refusedAs(connection.NoKubeconfig))
	if !strings.Contains(s.Refused.Message, "is forbidden") {
		t.Errorf("message %q", s.Refused.Message)
	}
	const complaint = "list or watch on the hub failed, retrying"
	await(t, "three complaints", 30*time.Second, func() bool { return lines.count(complaint) == 3 })
	allow("closed", clusters, secrets)
	v.member("closed/a", "followed once allowed", followed)
	allow("half", secrets, secrets)
	v.member("half/a", "followed once allowed", followed)
	if n := lines.count(complaint); n != 3 {
		t.Errorf("%d complaints, want one for each of three informers", n)
	}
	for _, view := range v.all() {
		if slices.ContainsFunc(view, func(s clusterinformers.Spec) bool { return strings.HasPrefix(s.Name, "unwatched/") }) {
			t.Error("a namespace is followed that is not configured")
		}
	}
}

func TestClusterAPI_UsesTheVersionThatTheHubServes(t *testing.T) {
	fleet := kube.StartTest(t, kube.Options{Members: 1})
	like, err := apiextensions.NewForConfigAndClient(fleet.Hub.DirectRESTConfig(), passing(t, fleet.Hub.DirectRESTConfig()))
	must(t, err)
	crd, err := like.CustomResourceDefinitions().Get(t.Context(), "clusters."+clusterv1.GroupVersion.Group, getOptions)
	must(t, err)
	bare := fleet.Members[0] // a hub before Cluster API is installed
	lines := newLogs(t)
	src, err := NewClusterAPI(ClusterAPIOptions{Config: bare.RESTConfig(), Logger: slog.New(lines)})
	v := watchSource(t, src, err)
	await(t, "the source says that Cluster API is missing", 20*time.Second, func() bool {
		return lines.count("Cluster API not found on the hub, retrying") == 1
	})
	if all := v.all(); len(all) != 1 || len(all[0]) > 0 || !v.partial() {
		t.Errorf("views before Cluster API is installed: %v", all)
	}
	crds, err := apiextensions.NewForConfigAndClient(bare.DirectRESTConfig(), passing(t, bare.DirectRESTConfig()))
	must(t, err)
	_, err = crds.CustomResourceDefinitions().Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: crd.Name, Labels: crd.Labels, Annotations: crd.Annotations}, Spec: crd.Spec,
	}, metav1.CreateOptions{})
	must(t, err)
	v.await("no Clusters", func(view []clusterinformers.Spec) bool { return len(view) == 0 && !v.partial() })

	d, err := dynamic.NewForConfigAndClient(bare.DirectRESTConfig(), passing(t, bare.DirectRESTConfig()))
	must(t, err)
	gvr := clusterv1.GroupVersion.WithResource("clusters")
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": clusterv1.ClusterKind, "metadata": map[string]any{"name": "a", "namespace": "default"},
		"spec": map[string]any{"paused": true, "clusterNetwork": map[string]any{"services": map[string]any{"cidrBlocks": []any{"10.0.0.0/16"}}}},
	}}
	_, err = d.Resource(gvr).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{})
	must(t, err)
	v.member("default/a", "there", func(s clusterinformers.Spec) bool { return s.Hold.Paused && refusedAs(connection.NotInitialized)(s) })
	seen := len(v.all())

	// The version in use goes away: the source follows the other, and nobody
	// leaves meanwhile.
	unserve := `[{"op":"test","path":"/spec/versions/%d/name","value":"v1beta2"},{"op":"replace","path":"/spec/versions/%d/served","value":false}]`
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == "v1beta2" })
	_, err = crds.CustomResourceDefinitions().Patch(t.Context(), crd.Name, types.JSONPatchType, fmt.Appendf(nil, unserve, i, i), metav1.PatchOptions{})
	must(t, err)
	await(t, "v1beta1 is followed", 60*time.Second, func() bool { return lines.count("Cluster API version is no longer served") > 0 })
	gvr.Version = "v1beta1"
	await(t, "v1beta1 is writable", 20*time.Second, func() bool {
		_, err := d.Resource(gvr).Namespace("default").Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"paused":false}}`), metav1.PatchOptions{})
		return err == nil
	})
	v.member("default/a", "followed at v1beta1", func(s clusterinformers.Spec) bool { return !s.Hold.Paused && refusedAs(connection.NotInitialized)(s) })
	for _, view := range v.all()[seen:] {
		if len(view) != 1 {
			t.Errorf("the member left when the version changed: %v", view)
		}
	}
}

func TestNewClusterAPI_ValidatesOptions(t *testing.T) {
	cfg, log := &rest.Config{Host: "https://h"}, slog.New(slog.DiscardHandler)
	for want, o := range map[string]ClusterAPIOptions{
		"Logger is required": {Config: cfg},
		"Config is required": {Logger: log},
		"must have a name":   {Config: cfg, Logger: log, Namespaces: []string{"a", ""}},
		`"a" is named twice`: {Config: cfg, Logger: log, Namespaces: []string{"a", "b", "a"}},
	} {
		if _, err := NewClusterAPI(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
