package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"federator.dev/federator/pkg/policyquery"
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

// truth is what the members' own servers have: uid and resourceVersion of each ConfigMap.
func (f *fleet) truth() map[string]string {
	f.t.Helper()
	out := map[string]string{}
	for i, m := range f.kube.Members {
		if f.left[i] {
			continue
		}
		list, err := m.Client().CoreV1().ConfigMaps("").List(f.t.Context(), metav1.ListOptions{})
		f.do(err)
		for _, cm := range list.Items {
			out[memberName(i)+"/"+cm.Namespace+"/"+cm.Name] = string(cm.UID) + "@" + cm.ResourceVersion
		}
	}
	return out
}

// answer is what a process answers of the same, and the members that it says are not fresh.
func (s *shard) answer(ctx context.Context) (objects map[string]string, old map[string]bool, err error) {
	client, err := kubernetes.NewForConfig(s.config("/fleet"))
	if err != nil {
		return nil, nil, err
	}
	text, err := client.CoreV1().RESTClient().Get().Resource("configmaps").DoRaw(ctx)
	if err != nil {
		return nil, nil, err
	}
	var list struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Items []metav1.PartialObjectMetadata `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, nil, err
	}
	objects, old = map[string]string{}, map[string]bool{}
	for _, cm := range list.Items {
		a := cm.Annotations
		objects[a["federator.dev/member"]+"/"+cm.Namespace+"/"+cm.Name] = string(cm.UID) + "@" + a["federator.dev/resource-version"]
	}
	if text, some := list.Metadata.Annotations["federator.dev/freshness"]; some {
		var scopes []struct {
			Member string `json:"member"`
		}
		if err := json.Unmarshal([]byte(text), &scopes); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", text, err)
		}
		for _, m := range scopes {
			old[m.Member] = true
		}
	}
	return objects, old, nil
}

// sample is an answer of a process.
type sample struct {
	of    *shard
	asked time.Time
	err   error
	whole bool            // it has all objects that never change
	old   map[string]bool // members that it says are not fresh
}

// probe asks all processes again and again, until stop: what never changes must be in each answer, unless the
// answer says that its member is not fresh. It returns the answers, and what was none.
func (f *fleet) probe(ctx context.Context, never map[string]string) (stop func() []sample) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	var mu sync.Mutex
	var all []sample
	for _, s := range f.processes {
		asking.Go(func() {
			last, began := "", time.Now()
			for ctx.Err() == nil {
				asked := time.Now()
				objects, old, err := s.answer(ctx)
				if ctx.Err() != nil {
					return
				}
				if state := fmt.Sprint("error ", err != nil, ", not fresh ", old); state != last {
					f.t.Logf("%s after %s: %s", s.name, time.Since(began).Round(100*time.Millisecond), state)
					last = state
				}
				whole := err == nil
				for key, want := range never {
					if err != nil || objects[key] == want {
						continue
					}
					whole = false
					if parts := strings.SplitN(key, "/", 3); !old[parts[0]+"/"+parts[1]] {
						f.t.Errorf("%s answers without %s, and says nothing of it: not fresh are %v", s.name, key, old)
					}
				}
				mu.Lock()
				all = append(all, sample{s, asked, err, whole, old})
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
	}
	return func() []sample {
		cancel()
		asking.Wait()
		return all
	}
}

// exact waits until all processes answer with what the members have.
func (f *fleet) exact(what string) {
	f.t.Helper()
	for _, s := range f.alive() {
		f.until(what+": "+s.name+" answers for all members", func() error {
			want := f.truth()
			got, _, err := s.answer(f.t.Context())
			if err != nil {
				return err
			}
			return differ(want, got)
		})
	}
}

func differ(want, got map[string]string) error {
	var list []string
	for k, v := range want {
		if got[k] != v {
			list = append(list, fmt.Sprintf("%s: %q, want %q", k, got[k], v))
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			list = append(list, fmt.Sprintf("%s: %q, want none", k, v))
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	return fmt.Errorf("%d differ: %s", len(list), strings.Join(list[:min(3, len(list))], "; "))
}

// list is what a process answers of violations.
func (s *shard) list(ctx context.Context) (list policyquery.ViolationList, err error) {
	c, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: "https://" + s.query, TLSClientConfig: s.config("").TLSClientConfig,
		ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	if err != nil {
		return list, err
	}
	text, err := c.Get().AbsPath("/query/v1/violations").Param("policy", "once").DoRaw(ctx)
	if err != nil {
		return list, fmt.Errorf("%w: %s", err, text)
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return list, err
	}
	if !list.Synced {
		return list, errors.New("not synced")
	}
	return list, nil
}

// violations are what a process answers: by object, the messages, and whether they are known.
func (s *shard) violations(ctx context.Context) (map[string][]string, error) {
	list, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, item := range list.Items {
		key := fmt.Sprintf("%s %s/%s", item.Subject.Member, item.Subject.Namespace, item.Subject.Name)
		for _, v := range item.Violations {
			out[key] = append(out[key], fmt.Sprint(item.State, ": ", v.Msg))
		}
		slices.Sort(out[key])
	}
	return out, nil
}

// wanted are the violations that follow from what the members have.
func (f *fleet) wanted() map[string][]string {
	f.t.Helper()
	type at struct{ member, namespace string }
	has := map[string][]at{}
	for i, m := range f.kube.Members {
		if f.left[i] {
			continue
		}
		list, err := m.Client().CoreV1().ConfigMaps("").List(f.t.Context(), metav1.ListOptions{})
		f.do(err)
		for _, cm := range list.Items {
			if strings.HasPrefix(cm.Name, "once-") {
				has[cm.Name] = append(has[cm.Name], at{memberName(i), cm.Namespace})
			}
		}
	}
	out := map[string][]string{}
	for name, all := range has {
		for _, of := range all {
			key := fmt.Sprintf("%s %s/%s", of.member, of.namespace, name)
			for _, other := range all {
				if text := "Known: " + other.member + f.says; other.member != of.member && !slices.Contains(out[key], text) {
					out[key] = append(out[key], text)
				}
			}
			slices.Sort(out[key])
		}
	}
	for key, list := range out {
		if len(list) == 0 {
			delete(out, key)
		}
	}
	return out
}

// judged waits until the processes together know the right violations, each of the objects that it judges.
func (f *fleet) judged(what string) {
	f.t.Helper()
	f.until(what+": the violations are known", func() error {
		want := f.wanted()
		got := map[string][]string{}
		for _, s := range f.alive() {
			own, err := s.violations(f.t.Context())
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			maps.Copy(got, own)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("violations are\n%v, want\n%v", got, want)
		}
		return nil
	})
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
