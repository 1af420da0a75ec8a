package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

// command is one command of the stories.
type command struct {
	usage string // arguments; the first word of an optional one has a [
	run   func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error
}

// vocabulary is what stories say. NAME is a Cluster, which has a control plane
// of its own from its first mention; "hub" is the hub.
var vocabulary = map[string]command{
	// hub exchanges the hub for one that serves one version of the Cluster API
	// contract only.
	"hub": {"VERSION", func(_ context.Context, s *story, _ *testscript.TestScript, args []string) error {
		hub, err := shared.hubAt(args[0])
		if err == nil {
			s.hub = hub
			s.clusters["hub"] = hub.ControlPlane
		}
		return err
	}},
	// start starts to watch the Clusters of the story, as CONFIG says.
	"start": {"[CONFIG]", func(_ context.Context, s *story, ts *testscript.TestScript, args []string) error {
		if len(args) == 0 {
			return s.start("")
		}
		return s.start(ts.MkAbs(args[0]))
	}},
	// join makes a Cluster and its kubeconfig Secret on the hub.
	"join": {"NAME [LABEL=VALUE...] [-as USER] [-kubeconfig FILE] [-paused] [-uninitialized] [-no-kubeconfig]", join},
	// leave deletes both, and waits until they are gone.
	"leave": {"NAME", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		delete(s.joined, args[0])
		return s.hub.Unregister(ctx, s.namespace, args[0])
	}},
	// forget says that the story has deleted the Cluster itself.
	"forget": {"NAME", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		delete(s.joined, args[0])
		return s.hub.Client().CoreV1().Secrets(s.namespace).Delete(ctx, args[0]+"-kubeconfig", metav1.DeleteOptions{})
	}},
	// recreate deletes both and creates them again: the Cluster has another UID.
	"recreate": {"NAME", func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
		if err := s.hub.Unregister(ctx, s.namespace, args[0]); err != nil {
			return err
		}
		return join(ctx, s, ts, args)
	}},
	// rotate exchanges the kubeconfig: an administrator's new certificate, or
	// what is requested.
	"rotate": {"NAME [-as USER] [-expired] [-kubeconfig FILE]", func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
		kubeconfig, _, err := s.kubeconfig(ts, args)
		if err != nil {
			return err
		}
		return s.hub.SetKubeconfig(ctx, s.namespace, args[0], kubeconfig)
	}},
	// relabel replaces the Cluster's labels.
	"relabel": {"NAME LABEL=VALUE...", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		return s.hub.SetLabels(ctx, s.namespace, args[0], labelsOf(args[1:]))
	}},
	"pause": {"NAME", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		return s.hub.SetPaused(ctx, s.namespace, args[0], true)
	}},
	"resume": {"NAME", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		return s.hub.SetPaused(ctx, s.namespace, args[0], false)
	}},
	// initialize has the Cluster's status say that its control plane is up.
	"initialize": {"NAME", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		return s.hub.SetInitialized(ctx, s.namespace, args[0])
	}},
	// apply server-side applies a file, around the proxy.
	"apply": {"NAME FILE", func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
		c, err := s.cluster(args[0])
		if err != nil {
			return err
		}
		return c.Apply(ctx, []byte(ts.ReadFile(args[1])))
	}},
	// workloads applies applications of 19 kinds, each in a namespace, and
	// writes some pods as a kubelet leaves them.
	"workloads": {"NAME APPLICATIONS PODS", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		c, err := s.cluster(args[0])
		if err != nil {
			return err
		}
		apps, err1 := strconv.Atoi(args[1])
		pods, err2 := strconv.Atoi(args[2])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if err := kube.Workloads(ctx, c, apps); err != nil {
			return err
		}
		prefix := s.namespace + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
		return kube.BulkPods(ctx, c, pods, kube.BulkOptions{Prefix: prefix, Namespaces: 3})
	}},
	// kubectl runs the real one, around the proxy.
	"kubectl": {"NAME ARG...", func(_ context.Context, s *story, ts *testscript.TestScript, args []string) error {
		file, err := s.direct(args[0])
		if err != nil {
			return err
		}
		return ts.Exec(s.kubectl, append([]string{"--kubeconfig", file}, args[1:]...)...)
	}},
	// proxy changes the network before the API server: pass, cut, blackhole,
	// reset, delay DURATION or throttle BYTES a second.
	"proxy": {"NAME MODE [VALUE]", proxy},
	// crash ends a process with SIGKILL; revive starts it again.
	"crash": {"NAME apiserver|etcd", func(_ context.Context, s *story, _ *testscript.TestScript, args []string) error {
		p, err := s.process(args[0], args[1])
		if err == nil {
			p.Kill()
		}
		return err
	}},
	"revive": {"NAME apiserver|etcd", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		p, err := s.process(args[0], args[1])
		if err != nil {
			return err
		}
		return p.Start(ctx)
	}},
	// credentials sets the variables SERVER, CA, CERT and KEY for kubeconfigs
	// that a story writes itself, and REDIRECTOR and REDIRECTOR_CA, where a
	// server redirects all requests.
	"credentials": {"NAME", credentials},
	// kubeconfig writes one file with a context for each NAME.
	"kubeconfig": {"FILE NAME...", func(_ context.Context, s *story, ts *testscript.TestScript, args []string) error {
		return s.writeKubeconfig(ts.MkAbs(args[0]), args[1:])
	}},
	// ask runs kubectl against the query API as an administrator of the hub or
	// as USER, about the fleet, under its members' keys or flat ones, or the member NAME.
	"ask": {"[-as USER] fleet|flat|NAME ARG...", ask},
	// grant lets USER read resources of all members, of those of this story
	// (here), or of the member NAME; revoke takes all of it back.
	"grant":  {"USER VERBS RESOURCES [all|here|NAME]", grant},
	"revoke": {"USER", revoke},
	// account makes a ServiceAccount of the hub, and USER of it; tool calls a tool of assistants as one, with a token
	// that the hub issues for federator alone.
	"account": {"USER", account},
	"tool":    {"USER http|stdio TOOL [JSON]", tool},
	// watch runs kubectl against the query API, as ask does, until the story
	// ends, and writes what it prints to FILE.
	"watch": {"FILE [-as USER] fleet|flat|NAME ARG...", watchQuery},
	// export writes Parquet files by `federator export`, as an administrator of the hub or as USER.
	"export": {"[-as USER] fleet|NAME ARG...", exportFleet},
	// same-groups compares the groups that DuckDB finds in FILE with those of `federator count RESOURCE --by GROUP`.
	"same-groups": {"[-as USER] fleet|NAME FILE RESOURCE GROUP=EXPRESSION...", sameGroups},
	// eventually waits for what a story expects: see eventually_test.go.
	"eventually": {"[-within DURATION] WHAT ARG...", eventually},
	// index-equals waits until the index holds what fresh lists around the
	// proxy give, of all that is kept or of some kinds: refs, UIDs,
	// resourceVersions and bodies.
	"index-equals": {"NAME [KIND...]", func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
		fed, c, err := s.both(args[0])
		if err != nil {
			return err
		}
		kinds := make([]aggregate.Kind, len(args)-1)
		for i, k := range args[1:] {
			kinds[i] = aggregate.Kind(k)
		}
		n, err := fed.exact(ctx, patience, s.member(args[0]), c, kinds...)
		ts.Logf("%d objects are equal", n)
		return err
	}},
	// relists says how often the scopes were listed again, beyond once each: N
	// times, or N times for one cause.
	"relists": {"NAME [CAUSE] N", relists},
	// members prints a line for each member.
	"members": {"", func(_ context.Context, s *story, ts *testscript.TestScript, _ []string) error {
		for _, m := range s.fed.manager.Members() {
			states := []string{}
			for state, n := range m.Scopes {
				states = append(states, fmt.Sprintf("%s=%d", state, n))
			}
			slices.Sort(states)
			fmt.Fprintf(ts.Stdout(), "%s %s %s objects=%d version=%s readonly=%v %s message=%q error=%q\n",
				m.Name, m.State, m.Reason, m.Objects, m.Version, m.ReadOnly, strings.Join(states, " "), m.Message, m.LastError)
		}
		return nil
	}},
	// body prints an object as the index holds it, once it does.
	"body": {"NAME KIND NAMESPACE/NAME", func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
		var o aggregate.Object
		err := until(ctx, patience, func() (err error) {
			o, err = s.object(args[0], args[1], args[2])
			return err
		})
		if err != nil {
			return err
		}
		raw, err := o.AppendBody(nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(ts.Stdout(), "%s\n", raw)
		return nil
	}},
	// logged says that at most N lines of the log match.
	"logged": {"N PATTERN", func(_ context.Context, s *story, _ *testscript.TestScript, args []string) error {
		most, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		pattern, err := regexp.Compile("(?m)^.*(" + args[1] + ").*$")
		if err != nil {
			return err
		}
		if lines := pattern.FindAllString(s.fed.log.String(), -1); len(lines) > most {
			return fmt.Errorf("%d lines, want at most %d:\n%s", len(lines), most, strings.Join(lines, "\n"))
		}
		return nil
	}},
}

// commands returns the vocabulary as testscript wants it. A command that is to
// fail, as "! COMMAND" says, must.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	out := map[string]func(*testscript.TestScript, bool, []string){}
	for name, c := range vocabulary {
		least := 0
		for _, word := range strings.Fields(c.usage) {
			if strings.HasPrefix(word, "[") {
				break
			}
			least++
		}
		out[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if len(args) < least {
				ts.Fatalf("usage: %s %s", name, c.usage)
			}
			s := ts.Value(storyKey{}).(*story)
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			err := c.run(ctx, s, ts, args)
			switch {
			case err != nil && !neg:
				ts.Fatalf("%s: %v", name, err)
			case err == nil && neg:
				ts.Fatalf("%s should have failed", name)
			}
		}
	}
	return out
}

func join(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
	kubeconfig, rest, err := s.kubeconfig(ts, args)
	if err != nil {
		return err
	}
	c := kube.Cluster{Namespace: s.namespace, Name: args[0], Kubeconfig: kubeconfig}
	for _, flag := range []struct {
		name string
		set  func()
	}{
		{"-paused", func() { c.Paused = true }},
		{"-uninitialized", func() { c.Uninitialized = true }},
		{"-no-kubeconfig", func() { c.Kubeconfig = nil }},
	} {
		if i := slices.Index(rest, flag.name); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
			flag.set()
		}
	}
	c.Labels = labelsOf(rest)
	if err := s.hub.Register(ctx, c); err != nil {
		return err
	}
	s.joined[args[0]] = true
	return nil
}

// kubeconfig returns the kubeconfig that NAME's flags ask for, and the
// arguments that are left.
func (s *story) kubeconfig(ts *testscript.TestScript, args []string) ([]byte, []string, error) {
	rest := slices.Clone(args[1:])
	value := func(flag string) string {
		i := slices.Index(rest, flag)
		if i < 0 || i+1 == len(rest) {
			return ""
		}
		v := rest[i+1]
		rest = slices.Delete(rest, i, i+2)
		return v
	}
	file, user := value("-kubeconfig"), value("-as")
	if file != "" {
		text := os.Expand(ts.ReadFile(file), ts.Getenv)
		return []byte(text), rest, nil
	}
	c, err := s.cluster(args[0])
	if err != nil {
		return nil, nil, err
	}
	ttl, groups := 24*time.Hour, []string{}
	if user == "" {
		user, groups = "federator", []string{"system:masters"}
	}
	if i := slices.Index(rest, "-expired"); i >= 0 {
		rest = slices.Delete(rest, i, i+1)
		ttl = -time.Minute
	}
	cred, err := c.IssueCert(user, ttl, groups...)
	if err != nil {
		return nil, nil, err
	}
	return c.KubeconfigWith(cred), rest, nil
}

func labelsOf(args []string) map[string]string {
	out := map[string]string{}
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		out[k] = v
	}
	return out
}

func proxy(_ context.Context, s *story, _ *testscript.TestScript, args []string) error {
	c, err := s.cluster(args[0])
	if err != nil {
		return err
	}
	switch {
	case args[1] == "reset":
		c.Proxy.Reset()
		return nil
	case args[1] == "pass":
		return c.Proxy.Set(tcpproxy.Mode{})
	case args[1] == "cut":
		return c.Proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut})
	case args[1] == "blackhole":
		return c.Proxy.Set(tcpproxy.Mode{State: tcpproxy.BlackHole})
	case args[1] == "delay" && len(args) == 3:
		d, err := time.ParseDuration(args[2])
		return errors.Join(err, c.Proxy.Set(tcpproxy.Mode{Latency: d}))
	case args[1] == "throttle" && len(args) == 3:
		n, err := strconv.Atoi(args[2])
		return errors.Join(err, c.Proxy.Set(tcpproxy.Mode{BytesPerSecond: n}))
	}
	return fmt.Errorf("unknown mode %q", args[1:])
}

func (s *story) process(name, part string) (*kube.Process, error) {
	c, err := s.cluster(name)
	if err != nil {
		return nil, err
	}
	switch part {
	case "apiserver":
		return c.APIServer, nil
	case "etcd":
		return c.Etcd, nil
	}
	return nil, fmt.Errorf("unknown part %q", part)
}

// direct returns a file with an administrator's kubeconfig around the proxy.
func (s *story) direct(name string) (string, error) {
	if file, ok := s.files[name]; ok {
		return file, nil
	}
	c, err := s.cluster(name)
	if err != nil {
		return "", err
	}
	data, err := direct(c)
	if err != nil {
		return "", err
	}
	s.files[name] = filepath.Join(s.dir, name+".direct.kubeconfig")
	return s.files[name], os.WriteFile(s.files[name], data, 0o600)
}

func credentials(_ context.Context, s *story, ts *testscript.TestScript, args []string) error {
	c, err := s.cluster(args[0])
	if err != nil {
		return err
	}
	config := c.RESTConfig()
	url, ca := s.redirector()
	ts.Setenv("SERVER", config.Host)
	ts.Setenv("ADDRESS", c.Proxy.Addr())
	ts.Setenv("REDIRECTOR", url)
	for name, pem := range map[string][]byte{"CA": config.CAData, "CERT": config.CertData, "KEY": config.KeyData, "REDIRECTOR_CA": ca} {
		ts.Setenv(name, base64.StdEncoding.EncodeToString(pem))
	}
	return nil
}

func (s *story) writeKubeconfig(file string, names []string) error {
	var config *clientcmdapi.Config
	for _, name := range names {
		c, err := s.cluster(name)
		if err != nil {
			return err
		}
		one, err := clientcmd.Load(c.Kubeconfig())
		if err != nil {
			return err
		}
		if config == nil {
			config = one
		}
		config.Clusters[c.Name], config.AuthInfos[c.Name] = one.Clusters[c.Name], one.AuthInfos[c.Name]
		config.Contexts[name] = one.Contexts[c.Name]
	}
	return clientcmd.WriteToFile(*config, file)
}

func relists(_ context.Context, s *story, _ *testscript.TestScript, args []string) error {
	want, err := strconv.Atoi(args[len(args)-1])
	if err != nil {
		return err
	}
	m, err := s.fed.member(s.member(args[0]))
	if err != nil {
		return err
	}
	got, which := 0, []string{}
	for _, d := range m.Details {
		for cause, n := range d.Relists {
			if cause == "initial" {
				n -= s.fed.config.lists(d.Kind)
			}
			if len(args) == 3 && cause != args[1] || n == 0 {
				continue
			}
			got += n
			which = append(which, fmt.Sprintf("%s: %d %s", d.Kind, n, cause))
		}
	}
	if got != want {
		return fmt.Errorf("%d, want %d: %s", got, want, strings.Join(which, ", "))
	}
	return nil
}
