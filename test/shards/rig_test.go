package shards

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/process"
)

// patience bounds what takes a moment on an idle machine.
const patience = 2 * time.Minute

const configuration = `sources:
  kubeconfig: %s
  clusterAPI: {namespaces: [fleet]}
network: {allow: [127.0.0.0/8]}
kinds: [{kind: ConfigMap}, {kind: Namespace}]
query:
  listen: %s
  tls: {certFile: %s, keyFile: %s}
  clientCAFile: %s
shards: {count: %d, replication: %d, name: %s, listen: %s, address: %s}
policies: {namespace: %s, dirs: [%s]%s}
persistence: {%s}
audit: {off: %t}
listen: {serve: %s, admin: %s}
log: {format: text, level: %s}
`

// once is a policy that reads the whole fleet: what it says of an object of one member follows from those of all others.
const once = `# METADATA
# title: One member has it
# description: A name that begins with once- is used in one member only.
# custom: {severity: low, kinds: [ConfigMap]}
package once

view.names[input.object.metadata.name] contains true if startswith(input.object.metadata.name, "once-")

violation contains {"msg": sprintf("%s has it, too", [claim.ref.member])} if {
	some claim in data.fleet.views.once.names[input.object.metadata.name]
	claim.ref.member != input.ref.member
}
`

const (
	tooText    = " has it, too"
	asWellText = " has it as well" // says another version of the policy
)

// fleet is a hub with members, and the processes that share them.
type fleet struct {
	t         *testing.T
	kube      *kube.Fleet
	binary    string
	dir       string
	namespace string // of the processes on the hub
	ca        []byte
	cred      kube.Credentials
	processes []*shard
	left      map[int]bool // members that have left the hub
	says      string       // the policy
}

// shard is one of the processes.
type shard struct {
	fleet *fleet
	name  string
	dir   string
	query string // its address
	peers *tcpproxy.Proxy
	*process.Process
}

func (f *fleet) do(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) until(what string, check func() error) {
	f.t.Helper()
	if err := kube.Until(f.t.Context(), patience, check); err != nil {
		f.t.Fatalf("%s: %v", what, err)
	}
}

// setup is how processes share the fleet.
type setup struct {
	replication int
	persist     bool   // on a disk of their own
	unaudited   bool   // audits list, too: tests that count lists have none
	corrections string // of the hub's policies, in YAML; "": there are none
}

// newFleet configures three processes, which do not run yet.
func newFleet(t *testing.T, with setup) *fleet {
	t.Helper()
	const processes = 3
	f := newHub(t)
	corrections := ""
	if with.corrections != "" {
		f.write("policies/single.rego", []byte(single))
		corrections = ", hub: true, reports: true, reportInterval: 1s, corrections: " + with.corrections
	}
	level := "info"
	if os.Getenv("SHARDS_DEBUG") != "" {
		level = "debug"
	}
	for i := range processes {
		s := f.process(fmt.Sprint("federator-", i))
		listen := kube.FreeAddress(t)
		// Its peers reach it by a proxy, which can be cut.
		var err error
		s.peers, err = tcpproxy.Listen(context.WithoutCancel(t.Context()), "127.0.0.1:0", listen)
		f.do(err)
		f.write(filepath.Join(s.name, "federator.yaml"), fmt.Appendf(nil, configuration, f.kube.Hub.KubeconfigFile(), s.query, f.path("tls.crt"), f.path("tls.key"), f.path("hub.crt"),
			processes, with.replication, s.name, listen, s.peers.Addr(), f.namespace, f.path("policies"), corrections, persistence(s.dir, with.persist), with.unaudited, kube.FreeAddress(t), kube.FreeAddress(t), level))
	}
	return f
}

// newHub returns a fleet without processes, whose namespace of the hub no other test has.
func newHub(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, kube: shared.Start(t), binary: filepath.Join(built, "federator"), dir: t.TempDir(), namespace: strings.ToLower(t.Name()[len("TestShards_"):]), left: map[int]bool{}, says: tooText}
	ctx := t.Context()
	f.do(f.kube.Hub.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+f.namespace+"}\n")))
	crt, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	f.do(err)
	f.ca = crt
	f.cred, err = f.kube.Hub.IssueCert("reader", 24*time.Hour, "system:masters")
	f.do(err)
	f.write("tls.crt", crt)
	f.write("tls.key", key)
	f.write("hub.crt", f.kube.Hub.RESTConfig().CAData)
	f.write("policies/once.rego", []byte(once))
	f.write("policies/fix.rego", []byte(fix))
	t.Cleanup(func() {
		for _, s := range f.processes {
			s.end()
		}
		f.clear()
		for i := range f.left {
			f.do(f.kube.Hub.Register(context.WithoutCancel(ctx), cluster(i, f.kube.Members[i])))
		}
	})
	return f
}

func (f *fleet) path(name string) string { return filepath.Join(f.dir, name) }

// write writes a file.
func (f *fleet) write(name string, text []byte) {
	f.t.Helper()
	f.do(os.MkdirAll(filepath.Dir(f.path(name)), 0o700))
	f.do(os.WriteFile(f.path(name), text, 0o600))
}

// process adds a process, which has no configuration yet.
func (f *fleet) process(name string) *shard {
	s := &shard{fleet: f, name: name, dir: f.path(name), query: kube.FreeAddress(f.t)}
	f.processes = append(f.processes, s)
	return s
}

// end ends a process, and prints the end of its log where the test has failed.
func (s *shard) end() {
	t := s.fleet.t
	if s.Process != nil {
		if err := s.Stop(patience); err != nil && !strings.Contains(err.Error(), "killed") {
			t.Errorf("%s: %v", s.name, err)
		}
		if t.Failed() {
			t.Logf("the log of %s:\n%s", s.name, s.Tail(60))
		}
	}
	if s.peers != nil {
		_ = s.peers.Close()
	}
}

func persistence(dir string, on bool) string {
	if !on {
		return "off: true"
	}
	return "directory: " + filepath.Join(dir, "kept")
}

// clear deletes what a test has put into the members.
func (f *fleet) clear() {
	f.t.Helper()
	ctx := context.WithoutCancel(f.t.Context())
	for _, m := range f.kube.Members {
		maps := m.Client().CoreV1().ConfigMaps("default")
		list, err := maps.List(ctx, metav1.ListOptions{})
		f.do(err)
		for _, cm := range list.Items {
			if strings.HasPrefix(cm.Name, "once-") || strings.HasPrefix(cm.Name, "fix-") {
				f.do(maps.Delete(ctx, cm.Name, metav1.DeleteOptions{}))
			}
		}
	}
}

// leader is the process that leads: the one that says what the others hold, and corrects.
func (f *fleet) leader() (leader *shard) {
	f.t.Helper()
	f.until("one process leads", func() error {
		lease, err := f.kube.Hub.Client().CoordinationV1().Leases(f.namespace).Get(f.t.Context(), "federator", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil {
			return errors.New("nobody leads")
		}
		for _, s := range f.alive() {
			if *lease.Spec.HolderIdentity == s.name || strings.Contains(*lease.Spec.HolderIdentity, fmt.Sprintf("_%d_", s.PID())) {
				leader = s
				return nil
			}
		}
		return fmt.Errorf("%s leads, which does not live", *lease.Spec.HolderIdentity)
	})
	return leader
}

// start starts a process.
func (s *shard) start() {
	s.fleet.t.Helper()
	p, err := process.Serve(s.binary(), s.dir)
	s.fleet.do(err)
	s.Process = p
}

func (s *shard) binary() string { return s.fleet.binary }

// alive are the processes that run.
func (f *fleet) alive() (out []*shard) {
	for _, s := range f.processes {
		if s.Process != nil && s.Alive() {
			out = append(out, s)
		}
	}
	return out
}

// config is how a client reads all members at a process.
func (s *shard) config(path string) *rest.Config {
	return &rest.Config{
		Host: "https://" + s.query + path, QPS: -1, Timeout: 30 * time.Second,
		Dial:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.fleet.ca, CertData: s.fleet.cred.Cert, KeyData: s.fleet.cred.Key},
	}
}

// put creates a ConfigMap in a member.
func (f *fleet) put(member int, name string) {
	f.t.Helper()
	_, err := f.kube.Members[member].Client().CoreV1().ConfigMaps("default").Create(f.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	f.do(err)
}

// drop deletes it.
func (f *fleet) drop(member int, name string) {
	f.t.Helper()
	f.do(f.kube.Members[member].Client().CoreV1().ConfigMaps("default").Delete(f.t.Context(), name, metav1.DeleteOptions{}))
}
