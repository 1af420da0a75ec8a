package agent_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/agent"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
	"federator.dev/federator/pkg/clusterinformers"
)

// through returns a client of the member that sends by its agent: as federator, and as it never does.
func (h *hub) through(member, uid string) (*kubernetes.Clientset, http.RoundTripper) {
	h.t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return h.server.Load().DialAgent(ctx, member, uid)
	}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	h.t.Cleanup(transport.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://agent", QPS: -1}, &http.Client{Transport: transport})
	ok(h.t, err)
	until(h.t, "the agent answers", func() error {
		_, err := client.Discovery().ServerVersion()
		return err
	})
	return client, transport
}

// TestAgent_CorrectionsAreWithinItsRights: the hub has no credentials of the member, and RBAC there decides.
func TestAgent_CorrectionsAreWithinItsRights(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	own := credentials(t, nameOf(t), readAll, rbacv1.PolicyRule{Verbs: []string{"patch"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})
	h.runAgent(own, h.token(member, uid, time.Hour), agent.InDirectory(t.TempDir()))
	f := h.follow([]string{"ConfigMap", "Namespace"}, clusterinformers.Spec{Name: member, UID: uid, Agent: true})
	f.synced(member)
	put(t, "corrected")
	f.has(member, "corrected", true)
	c, resource, _, err := f.manager.Writer(member, "ConfigMap", "v1")
	ok(t, err)
	patch := []byte(`{"metadata":{"labels":{"corrected":"true"}}}`)
	err = c.Patch(types.MergePatchType).Namespace("default").Resource(resource).Name("corrected").Body(patch).MaxRetries(0).Do(t.Context()).Error()
	ok(t, err)
	now, err := shared.Fleet.Members[0].Client().CoreV1().ConfigMaps("default").Get(t.Context(), "corrected", metav1.GetOptions{})
	ok(t, err)
	if now.Labels["corrected"] != "true" {
		t.Error("the correction did not reach the member")
	}
	err = c.Delete().Namespace("default").Resource(resource).Name("corrected").MaxRetries(0).Do(t.Context()).Error()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), nameOf(t)) {
		t.Errorf("a delete that its account may not do: %v", err)
	}
	c, resource, _, err = f.manager.Writer(member, "Namespace", "v1")
	ok(t, err)
	err = c.Patch(types.MergePatchType).Resource(resource).Name("default").Body(patch).MaxRetries(0).Do(t.Context()).Error()
	if !apierrors.IsForbidden(err) {
		t.Errorf("a patch that its account may not do: %v", err)
	}
}

// TestAgent_ItsOwnSecretsStayInItsCluster, though it may read and write them itself, and is asked for all others.
func TestAgent_ItsOwnSecretsStayInItsCluster(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	name, other := nameOf(t), nameOf(t)+"-other"
	own := shared.Fleet.Members[0].Client().CoreV1().Secrets("default")
	_, err := own.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{})
	ok(t, err)
	t.Cleanup(func() {
		for _, s := range []string{name, other} {
			ok(t, own.Delete(context.WithoutCancel(t.Context()), s, metav1.DeleteOptions{}))
		}
	})
	account := credentials(t, name, readAll, rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"secrets"}})
	client, err := kubernetes.NewForConfig(account)
	ok(t, err)
	h.runAgent(account, h.token(member, uid, time.Hour), agent.InSecret(client, "default", name))
	c, _ := h.through(member, uid)
	for _, namespace := range []string{"", "default"} {
		for _, selector := range []string{"", "metadata.name=" + name, "type!=a"} {
			all, err := c.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: selector})
			ok(t, err)
			var names []string
			for _, s := range all.Items {
				names = append(names, s.Name)
			}
			if slices.Contains(names, name) || strings.HasPrefix(selector, "metadata.name") == slices.Contains(names, other) {
				t.Errorf("in %q by %q are %v", namespace, selector, names)
			}
		}
	}
	secrets := c.CoreV1().Secrets("default")
	_, get := secrets.Get(t.Context(), name, metav1.GetOptions{})
	_, patch := secrets.Patch(t.Context(), name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	_, create := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name + "-new"}}, metav1.CreateOptions{})
	for what, err := range map[string]error{"get": get, "patch": patch, "create": create, "delete": secrets.Delete(t.Context(), name, metav1.DeleteOptions{})} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "agent refuses") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAgent_RefusesWhatFederatorDoesNotNeed, though its account may do everything.
func TestAgent_RefusesWhatFederatorDoesNotNeed(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	admin := credentials(t, nameOf(t), rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}, rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}})
	h.runAgent(admin, h.token(member, uid, time.Hour), agent.InDirectory(t.TempDir()))
	c, transport := h.through(member, uid)
	core := c.CoreV1().RESTClient()
	for name, r := range map[string]*rest.Request{
		"exec":             core.Post().AbsPath("/api/v1/namespaces/default/pods/a/exec"),
		"a log":            core.Get().AbsPath("/api/v1/namespaces/default/pods/a/log"),
		"a token":          core.Post().AbsPath("/api/v1/namespaces/default/serviceaccounts/default/token"),
		"a node's proxy":   core.Get().AbsPath("/api/v1/nodes/a/proxy/metrics"),
		"an eviction":      core.Post().AbsPath("/api/v1/namespaces/default/pods/a/eviction"),
		"metrics":          core.Get().AbsPath("/metrics"),
		"impersonation":    core.Get().AbsPath("/api/v1/namespaces/default").SetHeader("Impersonate-User", "system:admin"),
		"a review of self": core.Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews"),
		"a collection":     core.Delete().AbsPath("/api/v1/namespaces/default/configmaps"),
	} {
		err := r.MaxRetries(0).Do(t.Context()).Error()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "agent refuses") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Credentials of a request do not reach the API server, which would refuse these.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://agent/api/v1/namespaces/default", http.NoBody)
	ok(t, err)
	req.Header.Set("Authorization", "Bearer nonsense")
	resp, err := transport.RoundTrip(req)
	ok(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("with other credentials: %s", resp.Status)
	}
}

// TestAgent_AStolenCertificateReadsNothing: federator answers three requests, and none has anything of a member.
func TestAgent_AStolenCertificateReadsNothing(t *testing.T) {
	j := join(t, 0)
	kept, err := j.store.Load(t.Context())
	ok(t, err)
	stolen, err := tls.X509KeyPair(kept.Certificate, kept.Key)
	ok(t, err)
	c := client(stolen)
	for _, path := range []string{"/", "/api", "/version", "/metrics", "/fleet/api/v1/pods", "/members", "/agent/v1/"} {
		resp, err := c.Get("https://" + j.address + path)
		ok(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if code, text := post(t, c, j.address, joining.HelloPath, joining.Request{}); code != http.StatusOK || text != fmt.Sprintf("{\"member\":%q}\n", j.member) {
		t.Errorf("%d %q", code, text)
	}
	// Nor can it take the place of federator: agents do not take it for a server's.
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{stolen}})
	ok(t, err)
	defer l.Close()
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_ = c.(*tls.Conn).Handshake()
			c.Close()
		}
	})
	defer l.Close()
	authorities, err := identity.Certificates(kept.Authorities)
	ok(t, err)
	_, err = tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: identity.Pool(authorities), ServerName: "127.0.0.1"})
	if err == nil {
		t.Error("a client takes it for federator")
	}
}
