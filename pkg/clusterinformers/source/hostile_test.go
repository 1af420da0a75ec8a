package source

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
	"federator.dev/federator/test/kube"
)

// TestArgoCD_AnnotationsWithCredentialsAreNotKept: tools other than kubectl keep the whole object in an annotation, too. Of a
// Secret it has the credentials, which would reach policies.
func TestArgoCD_AnnotationsWithCredentialsAreNotKept(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte(`{"bearerToken":"` + kubeconfigtest.Token + `"}`))
	u := argoSecret(t, "a", "", map[string]string{"name": "a", "config": `{"bearerToken":"` + kubeconfigtest.Token + `"}`})
	whole, err := json.Marshal(u.Object)
	must(t, err)
	annotations := map[string]string{"federator.dev/note": "ours", "argocd.argoproj.io/refresh": "theirs"}
	for _, key := range []string{"kapp.k14s.io/original", "objectset.rio.cattle.io/applied", "kopf.zalando.org/last-handled-configuration", "federator.development/x"} {
		annotations[key] = string(whole)
	}
	u.SetAnnotations(annotations)
	kept := trimArgoCluster(u).member(secrets{}).Cluster.Annotations
	if len(kept) != 2 || strings.Contains(fmt.Sprint(kept), encoded) {
		t.Errorf("policies read %v", kept)
	}
}

// TestManagedClusters_CAFileThatIsBeingWritten: a file is empty for a moment, which takes no certificates away.
func TestManagedClusters_CAFileThatIsBeingWritten(t *testing.T) {
	ca, _ := kubeconfigtest.KeyPair()
	lines := newLogs(t)
	p := &clusterProxy{file: filepath.Join(t.TempDir(), "ca.crt"), log: slog.New(lines)}
	writeFile(t, p.file, ca)
	p.reload()
	for _, text := range []string{"", "-----BEGIN CERT", "\n"} {
		writeFile(t, p.file, []byte(text))
		if p.reload(); string(p.ca) != string(ca) || p.err != nil {
			t.Errorf("after %q in the file: %d bytes, %v", text, len(p.ca), p.err)
		}
	}
	if n := lines.count("the certificates of cluster-proxy cannot be read: those read before are used"); n != 3 {
		t.Errorf("%d warnings", n)
	}
}

// namedBy returns what members are called by UID, as a source names them that has known them for a while.
func namedBy(s *hubObjects, members ...found) map[string]string {
	got := map[string]string{}
	for _, spec := range s.named(corev1.SchemeGroupVersion, slices.Clone(members)) {
		got[spec.UID] = spec.Name
	}
	return got
}

// TestNamed_ByAge: what others call their clusters, or their objects, takes nobody's name away.
func TestNamed_ByAge(t *testing.T) {
	lines := newLogs(t)
	s := &hubObjects{hubOptions: hubOptions{log: slog.New(lines)}, names: map[string]string{}, warned: map[string]bool{}}
	member := func(object, preferred string, minute int) found {
		f := found{described: described{Spec: clusterinformers.Spec{Name: "argocd/" + object, UID: object}}, created: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC), name: object}
		if preferred != "" {
			f.preferred = "argocd/" + preferred
		}
		return f
	}
	members := []found{member("first", "eu", 1), member("second", "eu", 2), member("eu", "", 3), member("own", "own", 5)}
	want := map[string]string{"first": "argocd/eu", "second": "argocd/second", "eu": "argocd/eu-eu", "own": "argocd/own"}
	for range 2 { // again and again
		if got := namedBy(s, members...); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	// One that is older and comes later takes nothing from who is there; one that stays keeps what it was called.
	if got := namedBy(s, append(members, member("late", "eu", 0))...); got["first"] != "argocd/eu" || got["late"] != "argocd/late" {
		t.Errorf("%v", got)
	}
	if got := namedBy(s, members[1:]...); got["second"] != "argocd/second" {
		t.Errorf("a member is called otherwise as another has left: %v", got)
	}
	if n := lines.count("two members would have the same name: the one of the newer object has another"); n != 2 {
		t.Errorf("%d warnings, want one for each of two", n)
	}
}

// TestHubObjects_ReservedNamespaces: managedcluster/<name> and context/<name> are others' names.
func TestHubObjects_ReservedNamespaces(t *testing.T) {
	lines := newLogs(t)
	s := &hubObjects{hubOptions: hubOptions{log: slog.New(lines)}, warned: map[string]bool{}}
	var all []found
	for _, namespace := range []string{"managedcluster", "context", "edge"} {
		all = append(all, found{described: described{Spec: clusterinformers.Spec{Name: namespace + "/a"}}, namespace: namespace, name: "a"})
	}
	for range 2 {
		if got := s.allowed(slices.Clone(all)); len(got) != 1 || got[0].namespace != "edge" {
			t.Errorf("%+v", got)
		}
	}
	if n := lines.count("the namespace is reserved: the object describes no member"); n != 2 {
		t.Errorf("%d warnings, want one for each", n)
	}
	s.objects.clusterScoped = true
	if got := s.allowed(slices.Clone(all)); len(got) != 3 {
		t.Errorf("of objects without a namespace: %+v", got)
	}
}

// counted is a description that counts how often a member is made of it.
type counted struct {
	metav1.ObjectMeta

	secret string
	made   *int
	fails  bool
}

func (c *counted) member(all secrets) described {
	*c.made++
	if c.fails {
		panic("odd")
	}
	data, _ := all.get(c.Namespace, c.secret)
	return described{Spec: clusterinformers.Spec{Name: c.Namespace + "/" + c.Name, UID: c.Name, Kubeconfig: data[kubeconfigKey]}}
}

// TestMembers_AreMadeOnceForEachChange: a change of one object, or of a Secret, costs what that takes, and not what all do.
func TestMembers_AreMadeOnceForEachChange(t *testing.T) {
	made := 0
	p := &namespaceInformers{log: slog.New(newLogs(t)), made: map[string]*madeMember{}}
	with := secretsOf(t, kubeconfigKey, map[string]string{"edge/one": "1", "edge/unused": "2"})
	object := func(name, secret string) *counted {
		return &counted{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name}, secret: secret, made: &made}
	}
	list := []description{object("a", "one"), object("b", "none"), object("c", "one")}
	expect := func(what string, times, loads int) {
		t.Helper()
		before := made
		p.membersOf(list, with, loads)
		if made-before != times {
			t.Errorf("%s: %d members were made, want %d", what, made-before, times)
		}
	}
	expect("at first", 3, 1)
	expect("nothing has changed", 0, 1)
	list[1] = object("b", "none")
	expect("an object", 1, 1)
	must(t, with.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "one"}}))
	expect("a Secret of two", 2, 1)
	must(t, with.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "unused"}}))
	expect("one of nobody", 0, 1)
	must(t, with.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "none"}}))
	expect("one that was missed", 1, 1)
	expect("the files", 3, 2)
	with.unreadable = true
	expect("the right to read Secrets", 3, 2)
	list = list[:1]
	expect("others have gone", 0, 2)
	if len(p.made) != 1 {
		t.Errorf("%d members are kept of objects that have gone", len(p.made)-1)
	}
}

// TestMembers_OddObjectHarmsNoOther: an object that makes us panic is a member that is refused.
func TestMembers_OddObjectHarmsNoOther(t *testing.T) {
	made := 0
	p := &namespaceInformers{log: slog.New(newLogs(t)), made: map[string]*madeMember{}}
	odd := trimmed(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "edge", "name": "odd", "uid": "u"}}}, func(*unstructured.Unstructured) description { panic("odd") })
	list := []description{
		odd, &counted{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "fails"}, made: &made, fails: true},
		&counted{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "good"}, made: &made},
	}
	all := p.membersOf(list, secrets{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}, 0)
	for i, name := range []string{"odd", "fails", "good"} {
		refused := all[i].Refused
		if all[i].Name != "" && all[i].Spec.Name != "edge/"+name || (refused != nil) != (name != "good") || refused != nil && refused.Reason != connection.Panicked {
			t.Errorf("%s: %+v", name, all[i])
		}
	}
}

// TestHubObjects_WhatIsNotKnownIsPartial: a source that may read nothing, or whose kind is not installed, does not say that
// there is nothing: what an earlier process had read of its members would be dropped.
func TestHubObjects_WhatIsNotKnownIsPartial(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{ClusterAPI: kube.V1Beta2}).Hub
	register(t, hub, kube.Cluster{Namespace: "fleet", Name: "a", Kubeconfig: []byte("a")})
	cred, err := hub.IssueCert("nobody", time.Hour)
	must(t, err)
	forbidden, err := NewClusterAPI(ClusterAPIOptions{Config: hub.RESTConfigWith(cred), Namespaces: []string{"fleet"}, Logger: slog.New(newLogs(t))})
	must(t, err)
	missing, err := NewMembers(MembersOptions{Config: hub.DirectRESTConfig(), Namespaces: []string{"fleet"}, Logger: slog.New(newLogs(t))})
	must(t, err)
	for what, src := range map[string]clusterinformers.Source{"forbidden": forbidden, "not installed": missing} {
		v := watchSource(t, src, nil)
		v.await(what+": no members are known", func(view []clusterinformers.Spec) bool { return len(view) == 0 })
		if !v.partial() {
			t.Errorf("%s: it says that there are no members", what)
		}
		v.stop()
	}
	must(t, hub.InstallCRDs(t.Context(), "../../../charts/federator/crds"))
	v := watchSource(t, missing, nil)
	v.await("there are none", func([]clusterinformers.Spec) bool { return !v.partial() })
}
