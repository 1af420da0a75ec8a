package enforcement

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

// command is one command of the stories.
type command struct {
	usage string // arguments; an optional one begins with [
	run   func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error
}

// storyCommands are the commands of stories. NAME is a Cluster in namespace fleet, which has a
// control plane of its own from its first mention; "hub" is the hub.
var storyCommands = map[string]command{
	// join creates a Cluster and its kubeconfig Secret on the hub.
	"join": {"NAME [LABEL=VALUE...]", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		c, err := s.cluster(ctx, args[0])
		if err != nil {
			return err
		}
		labels := map[string]string{}
		for _, l := range args[1:] {
			key, value, _ := strings.Cut(l, "=")
			labels[key] = value
		}
		s.joined = append(s.joined, args[0])
		return s.fleet.Hub.Register(ctx, kube.Cluster{Namespace: "fleet", Name: args[0], Labels: labels, Kubeconfig: c.Kubeconfig()})
	}},
	// leave deletes both, and waits until they are gone.
	"leave": {"NAME", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		return s.unregister(ctx, args[0])
	}},
	// federator starts, stops or kills a process. Its restarts share one log. KEYs that have
	// signed commits are those of USERs of the hub.
	"federator": {"PROCESS start|stop|kill [KEY=USER...]", federator},
	// commit makes a new commit of the files of DIR alone, or of none.
	"commit": {"[-sign] [KEY] [DIR]", commit},
	// key creates a key to sign commits with, and writes KEY.asc.
	"key": {"KEY", makeKey},
	// git serves the repository over https, to clients with the token if one is given.
	"git": {"[TOKEN]", serveGit},
	// ssh serves the repository over ssh, and writes identity, known_hosts and known_hosts.other.
	"ssh": {"", serveSSH},
	// push notifies PROCESS of a push to the repository, as GitHub does, with its secret or another.
	"push": {"PROCESS [SECRET]", push},
	// sync requests PolicySource git to fetch the repository now.
	"sync": {"", func(ctx context.Context, s *story, _ *testscript.TestScript, _ []string) error {
		s.syncs++
		_, err := s.kubectl(ctx, "hub", "annotate", "--overwrite", "policysource", "git", fmt.Sprintf("federator.dev/sync=%d", s.syncs))
		return err
	}},
	// apply has kubectl apply files, in which $REPO, $COMMIT and other variables of the
	// story are replaced.
	"apply": {"NAME FILE...", func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
		var all []string
		for _, file := range args[1:] {
			all = append(all, os.Expand(ts.ReadFile(file), func(name string) string {
				if v := ts.Getenv(name); v != "" {
					return v
				}
				return "$" + name
			}))
		}
		file := filepath.Join(s.dir, ".apply.yaml")
		if err := os.WriteFile(file, []byte(strings.Join(all, "\n---\n")), 0o600); err != nil {
			return err
		}
		_, err := s.kubectl(ctx, args[0], "apply", "--server-side", "--force-conflicts", "-f", file)
		return err
	}},
	// proxy changes the network before an API server, or before git.
	"proxy": {"NAME|git pass|cut|blackhole|delay [DURATION]", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		p, err := s.network(ctx, args[0])
		if err != nil {
			return err
		}
		switch strings.Join(args[1:min(2, len(args))], "") {
		case "pass":
			return p.Set(tcpproxy.Mode{})
		case "cut":
			return p.Set(tcpproxy.Mode{State: tcpproxy.Cut})
		case "blackhole":
			return p.Set(tcpproxy.Mode{State: tcpproxy.BlackHole})
		case "delay":
			d, err := time.ParseDuration(args[len(args)-1])
			return errors.Join(err, p.Set(tcpproxy.Mode{Latency: d}))
		}
		return fmt.Errorf("unknown mode %q", args[1:])
	}},
	// inbox has the webhook take events, or none until it is back.
	"inbox": {"away|back", func(_ context.Context, s *story, _ *testscript.TestScript, args []string) error {
		if args[0] != "away" && args[0] != "back" {
			return fmt.Errorf("unknown state %q", args[0])
		}
		s.in.setAway(args[0] == "away")
		return nil
	}},
	// eventually waits until the output of a view matches a pattern; ^ and $ match at lines.
	"eventually": {"VIEW [ARG...] REGEXP", eventually},
}

// view prints something: as a command to stdout, or to eventually.
type view struct {
	usage string
	show  func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) (string, error)
}

var views = map[string]view{
	// kubectl runs the real one, around the proxy.
	"kubectl": {"NAME ARG...", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) (string, error) {
		return s.kubectl(ctx, args[0], args[1:]...)
	}},
	// audit shows what federator has written to a member, dry runs aside, by the member's
	// audit log: a line each, with verb, resource, object and code.
	"audit": {"NAME", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) (string, error) {
		c, err := s.cluster(ctx, args[0])
		if err != nil {
			return "", err
		}
		events, err := c.Audit()
		if err != nil {
			return "", err
		}
		var out strings.Builder
		for _, e := range events[s.events[args[0]]:] {
			if strings.HasPrefix(e.UserAgent, "federator") && !strings.Contains(e.RequestURI, "dryRun=All") {
				fmt.Fprintln(&out, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace+"/"+e.ObjectRef.Name, e.ResponseStatus.Code)
			}
		}
		return out.String(), nil
	}},
	// condition shows status, reason and message of a condition of a FleetPolicy or PolicySource.
	"condition": {"fleetpolicy|policysource|notification/NAME TYPE", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) (string, error) {
		kind, name, _ := strings.Cut(args[0], "/")
		path, ok := map[string]string{"fleetpolicy": v1alpha1.FleetPolicies, "policysource": v1alpha1.PolicySources, "notification": v1alpha1.Notifications}[kind]
		if !ok {
			return "", fmt.Errorf("unknown: %s", kind)
		}
		var o struct {
			Status struct{ Conditions []metav1.Condition }
		}
		if err := s.read(ctx, "hub", &o, "/apis/federator.dev/v1alpha1", path, name); err != nil {
			return "", err
		}
		c := meta.FindStatusCondition(o.Status.Conditions, args[1])
		if c == nil {
			return "", nil
		}
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
	}},
	// outcomes shows the Actions of a FleetPolicy: a line each, with target, phase and message.
	"outcomes": {"POLICY", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) (string, error) {
		var list v1alpha1.ActionList
		err := s.read(ctx, "hub", &list, "/apis/federator.dev/v1alpha1", v1alpha1.Actions)
		var out strings.Builder
		for _, a := range list.Items {
			if a.Spec.Binding == args[0] {
				fmt.Fprintln(&out, a.Spec.Target.Name, a.Status.Phase, a.Status.Message)
			}
		}
		return out.String(), err
	}},
	// violations shows how many a FleetPolicy's status has.
	"violations": {"POLICY", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) (string, error) {
		var fp v1alpha1.FleetPolicy
		if err := s.read(ctx, "hub", &fp, "/apis/federator.dev/v1alpha1", v1alpha1.FleetPolicies, args[0]); err != nil || fp.Status.Totals == nil {
			return "", err
		}
		return fmt.Sprint(fp.Status.Totals.Violations), nil
	}},
	// tier shows the label tier of a ConfigMap in namespace shop.
	"tier": {"NAME CONFIGMAP", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) (string, error) {
		var o metav1.PartialObjectMetadata
		err := s.read(ctx, args[0], &o, "/api/v1/namespaces/shop/configmaps", args[1])
		return o.Labels["tier"], err
	}},
	// told shows the events that a webhook was told, once each: source, type, subject and data.
	"told": {"", func(_ context.Context, s *story, _ *testscript.TestScript, _ []string) (string, error) {
		return s.in.told()
	}},
	// sent shows how many transitions a webhook was told of by Notifications, by the type of the event.
	"sent": {"", func(_ context.Context, s *story, _ *testscript.TestScript, _ []string) (string, error) {
		return s.in.sent()
	}},
	// log shows what a process has logged.
	"log": {"PROCESS", func(_ context.Context, s *story, _ *testscript.TestScript, args []string) (string, error) {
		p, err := s.process(args[0])
		if err != nil {
			return "", err
		}
		text, err := os.ReadFile(p.LogFile)
		return string(text), err
	}},
	// ctl runs the federator command as a user, with an administrator's access to the hub.
	"ctl": {"ARG...", func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) (string, error) {
		return s.exec(ctx, "federator", []string{"KUBECONFIG=" + ts.Getenv("KUBECONFIG")}, args...)
	}},
}

// commands returns storyCommands and views as commands of testscript.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	out := map[string]func(*testscript.TestScript, bool, []string){}
	add := func(name, usage string, run func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error) {
		least := 0
		for _, word := range strings.Fields(usage) {
			if !strings.HasPrefix(word, "[") {
				least++
			}
		}
		out[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if len(args) < least {
				ts.Fatalf("usage: %s %s", name, usage)
			}
			s, ok := ts.Value(storyKey{}).(*story)
			if !ok {
				ts.Fatalf("there is no story")
			}
			switch err := run(context.Background(), s, ts, args); {
			case neg && err == nil:
				ts.Fatalf("%s %s: no error", name, strings.Join(args, " "))
			case neg:
				fmt.Fprintln(ts.Stderr(), err)
			case err != nil:
				ts.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
			}
		}
	}
	for _, words := range []map[string]command{storyCommands, actionCommands, peopleCommands, planCommands, traceCommands} {
		for name, c := range words {
			add(name, c.usage, c.run)
		}
	}
	for _, words := range []map[string]view{views, planViews, traceViews} {
		for name, v := range words {
			add(name, v.usage, func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
				text, err := v.show(ctx, s, ts, args)
				fmt.Fprintln(ts.Stdout(), strings.TrimSuffix(text, "\n"))
				return err
			})
		}
	}
	return out
}

func federator(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
	if args[1] == "start" {
		corrections, err := os.ReadFile(filepath.Join(s.dir, "corrections.yaml"))
		if err != nil {
			return err
		}
		signers, err := s.usersOf(args[2:])
		if err != nil {
			return err
		}
		p, err := startFederator(ctx, filepath.Join(s.dir, "federator-"+args[0]), s.fleet.Hub.ControlPlane, s.in, strings.TrimSpace(string(corrections)), signers, s.traces)
		if err == nil {
			s.processes[args[0]] = p
		}
		return err
	}
	p, err := s.process(args[0])
	if err != nil {
		return err
	}
	switch args[1] {
	case "stop":
		return p.stop()
	case "kill":
		p.Kill()
		return nil
	}
	return fmt.Errorf("unknown: %s", args[1])
}

// pollInterval is the time between two polls.
const pollInterval = 100 * time.Millisecond

func eventually(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
	v, ok := views[args[0]]
	if !ok {
		v, ok = traceViews[args[0]]
	}
	if !ok || len(args) < 2 {
		return fmt.Errorf("%q is not a view", args)
	}
	last := len(args) - 1
	want, err := regexp.Compile("(?m)" + args[last])
	if err != nil {
		return err
	}
	text, next := "", time.Now()
	var unlike error
	err = kube.Until(ctx, timeout, func() error {
		if time.Now().Before(next) {
			return unlike
		}
		if text, unlike = v.show(ctx, s, ts, args[1:last]); unlike == nil && !want.MatchString(text) {
			unlike = errors.New("it shows:\n" + text)
		}
		next = time.Now().Add(pollInterval) // each process slows down what it observes
		return unlike
	})
	fmt.Fprintln(ts.Stdout(), text)
	return err
}

// kubectl runs kubectl and returns its output.
func (s *story) kubectl(ctx context.Context, name string, args ...string) (string, error) {
	file, err := s.kubeconfig(ctx, name)
	if err != nil {
		return "", err
	}
	return s.exec(ctx, "kubectl", []string{"KUBECACHEDIR=" + filepath.Join(shared.dir, "kubectl")}, append([]string{"--kubeconfig", file}, args...)...)
}

// read reads an object around the proxy.
func (s *story) read(ctx context.Context, name string, into any, path ...string) error {
	c, err := s.cluster(ctx, name)
	if err != nil {
		return err
	}
	text, err := c.Client().CoreV1().RESTClient().Get().AbsPath(path...).Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// exec runs a program and returns its output; an error has its standard error.
func (s *story) exec(ctx context.Context, program string, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(shared.dir, "bin", program), args...)
	cmd.Dir, cmd.Env = s.dir, append(env, "HOME="+s.dir, "PATH="+os.Getenv("PATH"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}
