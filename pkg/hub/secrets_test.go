package hub_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/git"
)

// putSecret creates or replaces a Secret in namespace git.
func putSecret(t *testing.T, name string, data map[string]string) {
	t.Helper()
	core := realHub(t).Client().CoreV1()
	if _, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "git"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "git"}, StringData: data}
	_, err := core.Secrets("git").Create(t.Context(), s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if err = core.Secrets("git").Delete(t.Context(), name, metav1.DeleteOptions{}); err == nil {
			_, err = core.Secrets("git").Create(t.Context(), s, metav1.CreateOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := core.Secrets("git").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// restricted is a user with the permissions that PolicySources needs, and to read one Secret.
func restricted(t *testing.T, secret string) *rest.Config {
	t.Helper()
	h := realHub(t)
	if err := h.Apply(t.Context(), []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sources}
rules:
- {apiGroups: [federator.dev], resources: [policysources], verbs: [get, list, watch]}
- {apiGroups: [federator.dev], resources: [policysources/status], verbs: [update]}
- {apiGroups: [federator.dev], resources: [fleetpolicies], verbs: [get, list, watch, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sources}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sources}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: sources}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: sources, namespace: git}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [`+secret+`], verbs: [get, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sources, namespace: git}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: sources}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: sources}]
`)); err != nil {
		t.Fatal(err)
	}
	text, err := h.KubeconfigFor("sources")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	cfg.WarningHandler = rest.NoWarnings{}
	t.Cleanup(func() {
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Error(err)
			return
		}
		client.CloseIdleConnections()
	})
	return cfg
}

func TestSecrets_RotationAndMissingSecret(t *testing.T) {
	putSecret(t, "token", map[string]string{"token": "one-one-one\n"})
	r := newRig(t, true, restricted(t, "token"))
	root := t.TempDir()
	repo, free := newRepo(t, root, "r"), newRepo(t, root, "free")
	server, err := git.ServeHTTPS(root)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.RequireToken("one-one-one")
	first, other := commit(t, repo, tree("team", "a", "fp.yaml", fleetPolicy("fp", "team", "Observe"))), commit(t, free, tree("free", "a"))
	putSecret(t, "ca", map[string]string{"ca.crt": string(server.CA)})
	create(t, "free", map[string]any{"url": "file://" + free.Dir})
	create(t, "unreadable", map[string]any{"url": server.URL + "/r", "secretRef": map[string]any{"namespace": "git", "name": "ca"}}) // by this user
	create(t, "team", map[string]any{"url": server.URL + "/r", "secretRef": map[string]any{"namespace": "git", "name": "token"}})
	await(t, "team", "Fetched=False/Unreachable") // a certificate that is not trusted
	putSecret(t, "token", map[string]string{"token": "one-one-one\n", "ca.crt": string(server.CA)})
	awaitActive(t, "team", first)
	awaitActive(t, "free", other)
	await(t, "unreadable", "Ready=False/SecretUnreadable")

	server.RequireToken("two-two-two")
	second := commit(t, repo, tree("team", "b"))
	ask(t, "team", "1")
	ps := await(t, "team", "Fetched=False/Denied", "Ready=Unknown/Denied")
	if ok, why := r.sources.Current("team"); !ok || string(ps.Status.ActiveCommit.Hash) != first {
		t.Errorf("%v, %q, %+v", ok, why, ps.Status)
	}
	putSecret(t, "token", map[string]string{"token": "two-two-two", "ca.crt": string(server.CA)})
	awaitActive(t, "team", second)

	if err := realHub(t).Client().CoreV1().Secrets("git").Delete(t.Context(), "token", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ps = await(t, "team", "Ready=False/SecretNotFound", "Fetched=False/SecretNotFound")
	if set, _ := r.sources.Policies(); string(ps.Status.ActiveCommit.Hash) != second || set.Package("team") == nil {
		t.Errorf("%+v", ps.Status)
	}
	if err := until(func() error {
		if ok, _ := r.sources.Current("team"); ok {
			return errors.New("it is current")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	awaitActive(t, "free", other)
	putSecret(t, "token", map[string]string{"something": "else"})
	await(t, "team", "Ready=False/SecretInvalid")
	putSecret(t, "token", map[string]string{"token": "two-two-two", "ca.crt": string(server.CA)})
	awaitActive(t, "team", second)
	for _, f := range []string{"one-one-one", "two-two-two"} {
		if text := status(ps) + ps.Status.Conditions[0].Message; strings.Contains(text, f) {
			t.Error(text)
		}
	}
}

func TestPolicySources_UntrustedCommitIsNotInEffect(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed, and git signs with it")
	}
	private, public, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	for _, args := range [][]string{{"config", "gpg.format", "ssh"}, {"config", "user.signingkey", key}} {
		if _, err := repo.Run(args...); err != nil {
			t.Fatal(err)
		}
	}
	signed, err := repo.Commit(tree("team", "a"), "-S")
	if err != nil {
		t.Fatal(err)
	}
	putSecret(t, "keys", map[string]string{"keyring.asc": "for another mode"})
	create(t, "team", map[string]any{
		"url": "file://" + repo.Dir, "verification": map[string]any{"mode": "SSH", "secretRef": map[string]any{"namespace": "git", "name": "keys"}},
	})
	await(t, "team", "Ready=False/SecretInvalid") // no key is not "any signature"
	putSecret(t, "keys", map[string]string{"allowed_signers": "ann@example.com " + string(ssh.MarshalAuthorizedKey(public))})
	ps := awaitActive(t, "team", signed)
	if !strings.HasPrefix(ps.Status.ActiveCommit.Signer, "ann@example.com") {
		t.Errorf("%+v", ps.Status.ActiveCommit)
	}
	await(t, "team", "Verified=True/Signed")
	unsigned := commit(t, repo, tree("team", "b"))
	ask(t, "team", "1")
	ps = await(t, "team", "Ready=False/Unsigned", "Fetched=True/Fetched", "Verified=False/Unsigned", "Compiled=Unknown/NotReached")
	if string(ps.Status.ActiveCommit.Hash) != signed || string(ps.Status.ObservedCommit.Hash) != unsigned {
		t.Errorf("%+v", ps.Status)
	}
	if ok, _ := r.sources.Current("team"); ok {
		t.Error("it is current")
	}
}

func TestPolicySources_UnreachableRemoteKeepsPolicies(t *testing.T) {
	r := newRig(t, true, nil)
	root := t.TempDir()
	repo := newRepo(t, root, "r")
	server, err := git.ServeHTTPS(root)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.RequireBasic("ann", "wonderland")
	putSecret(t, "basic", map[string]string{"username": "ann", "password": "wonderland\n", "ca.crt": string(server.CA)})
	hash := commit(t, repo, tree("team", "a"))
	create(t, "team", map[string]any{"url": server.URL + "/r", "secretRef": map[string]any{"namespace": "git", "name": "basic"}})
	awaitActive(t, "team", hash)
	server.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	ask(t, "team", "1")
	ps := await(t, "team", "Ready=Unknown/Unreachable", "Fetched=False/Unreachable", "Applied=True/Applied")
	if ok, why := r.sources.Current("team"); !ok || string(ps.Status.ActiveCommit.Hash) != hash {
		t.Errorf("%v, %q, %+v", ok, why, ps.Status)
	}
	if slices.ContainsFunc(ps.Status.Conditions, func(c metav1.Condition) bool { return strings.Contains(c.Message, "wonderland") }) {
		t.Errorf("%+v", ps.Status.Conditions)
	}
}
