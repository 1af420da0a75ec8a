package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube"
)

// served gives the query API what members say, as the command does.
type served struct{ *clusterinformers.Manager }

func (s served) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	resources, changed := s.Manager.Resources()
	out := make([]queryapi.ServedResource, len(resources))
	for i, r := range resources {
		out[i] = queryapi.ServedResource(r)
	}
	return out, changed
}

// queries is a query API under way over a federator, with a hub's users.
type queries struct {
	hub     *kube.Hub
	address string
	host    string // https://<address>
	ca      []byte
	stop    func() error // ends and joins it; later calls return the first result
}

// serveQueries serves what f holds to users of the hub, at any address.
func serveQueries(f *federator, hub *kube.Hub, dir string, change func(*queryapi.Options)) (*queries, error) {
	return serveQueriesAt(f, hub, dir, "127.0.0.1:0", change)
}

func serveQueriesAt(f *federator, hub *kube.Hub, dir, address string, change func(*queryapi.Options)) (*queries, error) {
	ca := filepath.Join(dir, "hub-ca.pem")
	if err := os.WriteFile(ca, hub.RESTConfig().CAData, 0o600); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	opts := queryapi.Options{
		Index: f.index, Fleet: served{f.manager}, Logger: slog.New(slog.NewTextHandler(f.log, nil)), Listener: listener,
		Hub: hub.RESTConfig(), Authentication: queryapi.Authentication{ClientCAFile: ca},
		Authorization: queryapi.Authorization{AllowTTL: time.Second, DenyTTL: time.Second},
	}
	if change != nil {
		change(&opts)
	}
	server, err := queryapi.New(opts)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	authority := server.CertificateAuthority()
	if authority == nil {
		if authority, err = os.ReadFile(opts.TLS.CertFile); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var ended error
	running.Go(func() { ended = server.Run(ctx) })
	return &queries{
		hub: hub, address: listener.Addr().String(), host: "https://" + listener.Addr().String(), ca: authority,
		stop: sync.OnceValue(func() error {
			cancel()
			running.Wait()
			return ended
		}),
	}, nil
}

// path returns where a target is: the fleet, the same with flat keys, or a member
// <namespace>/<name>.
func path(target string) string {
	if target == "fleet" || target == "flat" {
		return "/" + target
	}
	return "/members/" + target
}

// config returns how a user of the hub asks a target. Groups are theirs.
func (q *queries) config(target, user string, groups ...string) (*rest.Config, error) {
	cred, err := q.hub.IssueCert(user, time.Hour, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: q.host + path(target), QPS: -1, UserAgent: "federator-e2e",
		TLSClientConfig: rest.TLSClientConfig{CAData: q.ca, CertData: cred.Cert, KeyData: cred.Key},
	}, nil
}

// kubeconfig writes a file by which kubectl asks a target, with the credentials
// of c.
func (q *queries) kubeconfig(file, target string, c *rest.Config) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: q.host + path(target), CertificateAuthorityData: c.CAData}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	return clientcmd.WriteToFile(*config, file)
}

// queries returns the story's query API, started with the first question.
func (s *story) queries() (*queries, error) {
	if s.fed == nil {
		return nil, errors.New("federator has not been started")
	}
	if s.api != nil {
		return s.api, nil
	}
	var err error
	s.api, err = serveQueries(s.fed, s.hub, s.dir, withTools)
	return s.api, err
}

// user returns the hub's name of a user that only the story knows.
func (s *story) user(name string) string {
	if s.accounts[name] {
		return "system:serviceaccount:" + s.namespace + ":" + name
	}
	return s.namespace + "-" + name
}

// asker returns the kubeconfig by which a story asks, and the rest of its
// arguments: [-as USER] fleet|flat|NAME ARG...
func (s *story) asker(args []string) (string, []string, error) {
	user, groups := "administrator", []string{"system:masters"}
	if len(args) > 1 && args[0] == "-as" {
		user, groups, args = s.user(args[1]), nil, args[2:]
	}
	if len(args) == 0 {
		return "", nil, errors.New("whom to ask is missing")
	}
	target := args[0]
	if target != "fleet" && target != "flat" {
		target = s.member(target)
	}
	api, err := s.queries()
	if err != nil {
		return "", nil, err
	}
	file := filepath.Join(s.dir, "asker-"+user+"-"+strings.ReplaceAll(target, "/", "-"))
	if _, err := os.Stat(file); err == nil {
		return file, args[1:], nil
	}
	// What may be read is remembered by credentials: a user has the same ones for
	// all targets, so that what a story has waited for holds with the next.
	if s.askers[user] == nil {
		if s.askers[user], err = api.config(target, user, groups...); err != nil {
			return "", nil, err
		}
	}
	return file, args[1:], api.kubeconfig(file, target, s.askers[user])
}

// ask runs kubectl against the query API.
func ask(_ context.Context, s *story, ts *testscript.TestScript, args []string) error {
	file, rest, err := s.asker(args)
	if err != nil {
		return err
	}
	return ts.Exec(s.kubectl, append([]string{"--kubeconfig", file, "--cache-dir", filepath.Join(s.dir, "kubectl-cache")}, rest...)...)
}

// grant lets a user of the story read resources: in all members, in those of
// a hub's namespace, or in one of them.
func grant(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
	user, verbs, resources := s.user(args[0]), strings.Split(args[1], ","), strings.Split(args[2], ",")
	where := "all"
	if len(args) > 3 {
		where = args[3]
	}
	return s.hubGrant(ctx, user, verbs, resources, where)
}

func (s *story) hubGrant(ctx context.Context, user string, verbs, resources []string, where string) error {
	rule := rbacv1.PolicyRule{APIGroups: []string{"members.federator.dev"}, Resources: resources, Verbs: verbs}
	name := fmt.Sprintf("%s-%d", user, time.Now().UnixNano())
	subject := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	rbac := s.hub.Client().RbacV1()
	if where == "all" {
		_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}, metav1.CreateOptions{})
		return err
	}
	if where != "here" {
		rule.ResourceNames = []string{where}
	}
	_, err := rbac.Roles(s.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = rbac.RoleBindings(s.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	return err
}

// revoke takes back all that a user of the story was granted.
func revoke(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
	rbac := s.hub.Client().RbacV1()
	mine := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(x rbacv1.Subject) bool { return x.Name == s.user(args[0]) })
	}
	var errs []error
	all, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, b := range all.Items {
		if mine(b.Subjects) {
			errs = append(errs, rbac.ClusterRoleBindings().Delete(ctx, b.Name, metav1.DeleteOptions{}))
		}
	}
	some, err := rbac.RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, b := range some.Items {
		if mine(b.Subjects) {
			errs = append(errs, rbac.RoleBindings(b.Namespace).Delete(ctx, b.Name, metav1.DeleteOptions{}))
		}
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil || apierrors.IsNotFound(err) })
	return errors.Join(errs...)
}

// watchQuery runs kubectl in the background until the story ends.
func watchQuery(_ context.Context, s *story, ts *testscript.TestScript, args []string) error {
	file, rest, err := s.asker(args[1:])
	if err != nil {
		return err
	}
	out, err := os.Create(ts.MkAbs(args[0]))
	if err != nil {
		return err
	}
	cmd := exec.Command(s.kubectl, append([]string{"--kubeconfig", file, "--cache-dir", filepath.Join(s.dir, "kubectl-cache")}, rest...)...) // the story's end ends it
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return errors.Join(err, out.Close())
	}
	s.watches = append(s.watches, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed is how it ends
		_ = out.Close()
	})
	return nil
}

// mayAsk says whether a user may do what args name: USER fleet|flat|NAME VERB
// RESOURCE. It tries: what is remembered of a review is so for both.
func (s *story) mayAsk(args []string, want bool) error {
	file, _, err := s.asker([]string{"-as", args[0], args[1]}) // by its credentials are reviews remembered
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	resource, group, _ := strings.Cut(args[3], ".")
	objects := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource})
	switch args[2] {
	case "list":
		_, err = objects.List(context.Background(), metav1.ListOptions{Limit: 1})
	default:
		return fmt.Errorf("%q cannot be tried", args[2])
	}
	if want == apierrors.IsForbidden(err) {
		return fmt.Errorf("may: %v, want %v", !want, want)
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	return nil
}
