package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube"
)

// expectation is something that a story waits for.
type expectation struct {
	usage string
	check func(s *story, args []string) error
}

var expectations = map[string]expectation{
	// ready: every member has synced, is refused, or was given up on.
	"ready": {"", func(s *story, _ []string) error {
		if ok, waiting := s.fed.manager.Ready(); !ok {
			return fmt.Errorf("waiting for %s", strings.Join(waiting, ", "))
		}
		return nil
	}},
	// member: the member's state and, where given, its reason.
	"member": {"NAME STATE [REASON]", func(s *story, args []string) error {
		m, err := s.fed.member(s.member(args[0]))
		if err != nil {
			return err
		}
		if string(m.State) != args[1] || len(args) > 2 && string(m.Reason) != args[2] {
			return fmt.Errorf("member is %s %s: %s", m.State, m.Reason, m.Message)
		}
		return nil
	}},
	// synced: the member is connected and all its scopes are complete or
	// narrowed by configuration.
	"synced": {"NAME", func(s *story, args []string) error {
		m, err := s.fed.member(s.member(args[0]))
		if err != nil {
			return err
		}
		if m.State != "Connected" || !m.Synced || m.Scopes[aggregate.Synced]+m.Scopes[aggregate.Partial] == 0 {
			return fmt.Errorf("member is %s %s, synced: %v, scopes: %v", m.State, m.Reason, m.Synced, m.Scopes)
		}
		for _, d := range m.Details {
			if !d.State.Complete() && d.State != aggregate.Partial {
				return fmt.Errorf("%s is %s: %s", d.Kind, d.State, d.Reason)
			}
		}
		return nil
	}},
	// gone: neither the member nor any object of it is there.
	"gone": {"NAME", func(s *story, args []string) error {
		name := s.member(args[0])
		if m, err := s.fed.member(name); err == nil {
			return fmt.Errorf("member is %s %s", m.State, m.Reason)
		}
		snapshot := s.fed.index.Snapshot()
		if _, ok := snapshot.Member(name); ok {
			return errors.New("member is in the index")
		}
		for scope := range snapshot.Scopes(name) {
			return fmt.Errorf("scope %s is in the index", scope.Kind)
		}
		return nil
	}},
	// identity: the member goes by the UID that its Cluster has now.
	"identity": {"NAME", func(s *story, args []string) error {
		path := []string{"/apis/cluster.x-k8s.io/v1beta2/namespaces", s.namespace, "clusters", args[0]}
		raw, err := s.hub.Client().CoreV1().RESTClient().Get().AbsPath(path...).DoRaw(context.Background())
		if err != nil {
			return err
		}
		cluster, err := decode(raw)
		if err != nil {
			return err
		}
		want := (&unstructured.Unstructured{Object: cluster}).GetUID()
		if m, _ := s.fed.index.Snapshot().Member(s.member(args[0])); m.UID != string(want) {
			return fmt.Errorf("UID is %q, the Cluster's %q", m.UID, want)
		}
		return nil
	}},
	// scope: the scope's state and, where given, words of its reason.
	"scope": {"NAME KIND STATE [REASON]", func(s *story, args []string) error {
		scope, _ := s.fed.index.Snapshot().Scope(s.member(args[0]), aggregate.Kind(args[1]))
		if scope.Status.State.String() != args[2] || len(args) > 3 && !strings.Contains(scope.Status.Reason, args[3]) {
			return fmt.Errorf("scope is %s: %s", scope.Status.State, scope.Status.Reason)
		}
		return nil
	}},
	// version: what the scope is held at.
	"version": {"NAME KIND VERSION", func(s *story, args []string) error {
		scope, _ := s.fed.index.Snapshot().Scope(s.member(args[0]), aggregate.Kind(args[1]))
		if scope.Version != args[2] || scope.Status.State != aggregate.Synced {
			return fmt.Errorf("scope is %s at %q: %s", scope.Status.State, scope.Version, scope.Status.Reason)
		}
		return nil
	}},
	// label: the member has the label.
	"label": {"NAME LABEL=VALUE", func(s *story, args []string) error {
		m, _ := s.fed.index.Snapshot().Member(s.member(args[0]))
		k, v, _ := strings.Cut(args[1], "=")
		if !slices.Contains(m.Labels, aggregate.Label{Key: k, Value: v}) {
			return fmt.Errorf("labels are %v", m.Labels)
		}
		return nil
	}},
	// object: it is in the index and, where given, its body has the text.
	"object": {"NAME KIND NAMESPACE/NAME [TEXT]", func(s *story, args []string) error {
		o, err := s.object(args[0], args[1], args[2])
		if err != nil || len(args) == 3 {
			return err
		}
		body, err := o.AppendBody(nil)
		if err == nil && !strings.Contains(string(body), args[3]) {
			err = fmt.Errorf("body is %s", body)
		}
		return err
	}},
	// answers: the member's API server answers, around the proxy.
	"answers": {"NAME", func(s *story, args []string) error {
		c, err := s.cluster(args[0])
		if err != nil {
			return err
		}
		_, err = c.Client().CoreV1().Namespaces().Get(context.Background(), "kube-system", metav1.GetOptions{})
		return err
	}},
	// allowed and denied: what the query API lets USER do in a member.
	"allowed": {"USER NAME VERB RESOURCE", func(s *story, args []string) error { return s.mayAsk(args, true) }},
	"denied":  {"USER NAME VERB RESOURCE", func(s *story, args []string) error { return s.mayAsk(args, false) }},
	// file: a line of it matches.
	"file": {"FILE PATTERN", func(s *story, args []string) error {
		text, err := os.ReadFile(filepath.Join(s.dir, args[0]))
		if err != nil {
			return err
		}
		pattern, err := regexp.Compile("(?m)" + args[1])
		if err == nil && !pattern.Match(text) {
			err = fmt.Errorf("no line matches:\n%s", tail(string(text), 20))
		}
		return err
	}},
	// no-object: it is not in the index.
	"no-object": {"NAME KIND NAMESPACE/NAME", func(s *story, args []string) error {
		if o, err := s.object(args[0], args[1], args[2]); err == nil {
			return fmt.Errorf("%s is there", o.Ref())
		}
		return nil
	}},
}

// eventually waits for an expectation.
func eventually(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
	within := patience
	if args[0] == "-within" && len(args) > 2 {
		var err error
		if within, err = time.ParseDuration(args[1]); err != nil {
			return err
		}
		args = args[2:]
	}
	e, ok := expectations[args[0]]
	if !ok {
		return fmt.Errorf("unknown expectation %q", args[0])
	}
	if s.fed == nil {
		return errors.New("federator is not started")
	}
	least := strings.Count(e.usage, " ") + 1 - strings.Count(e.usage, "[")
	if e.usage == "" {
		least = 0
	}
	if len(args)-1 < least {
		return fmt.Errorf("usage: eventually %s %s", args[0], e.usage)
	}
	if err := until(ctx, within, func() error { return e.check(s, args[1:]) }); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// object returns an object in the index.
func (s *story) object(member, kind, key string) (aggregate.Object, error) {
	namespace, name, _ := strings.Cut(key, "/")
	ref := aggregate.Ref{Member: s.member(member), Kind: aggregate.Kind(kind), Namespace: namespace, Name: name}
	o, ok := s.fed.index.Snapshot().Get(ref)
	if !ok {
		return o, fmt.Errorf("%s is not in the index", ref)
	}
	return o, nil
}

// both returns the federator and the control plane behind a member.
func (s *story) both(name string) (*federator, *kube.ControlPlane, error) {
	if s.fed == nil {
		return nil, nil, errors.New("federator is not started")
	}
	if name == "hub/local" {
		return s.fed, s.hub.ControlPlane, nil
	}
	c, err := s.cluster(strings.TrimPrefix(name, "context/"))
	return s.fed, c, err
}
