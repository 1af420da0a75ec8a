package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/test/clitest"
)

// console is a job with a user who runs commands.
type console struct {
	*job

	r          *running
	kubeconfig string
}

// actions runs `federator actions`.
func (c *console) actions(args ...string) (string, error) {
	c.t.Helper()
	return command(c.t, append([]string{"actions", "--kubeconfig", c.kubeconfig}, args...)...)
}

func (c *console) must(args ...string) string {
	c.t.Helper()
	out, err := c.actions(args...)
	if err != nil {
		c.t.Fatalf("actions %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// refused runs a command that must fail, for a reason.
func (c *console) refused(want string, args ...string) {
	c.t.Helper()
	if out, err := c.actions(args...); err == nil || !strings.Contains(err.Error(), want) {
		c.t.Errorf("actions %s: %q, %v; want an error with %q", strings.Join(args, " "), out, err, want)
	}
}

// prints runs a command whose output must match.
func (c *console) prints(want string, args ...string) string {
	c.t.Helper()
	out := c.must(args...)
	if !regexp.MustCompile(want).MatchString(out) {
		c.t.Errorf("actions %s: printed\n%swant %s", strings.Join(args, " "), out, want)
	}
	return out
}

func (c *console) merge(path, patch string) {
	c.t.Helper()
	err := c.hub.Client().CoreV1().RESTClient().Patch(types.MergePatchType).
		AbsPath("/apis/federator.dev/v1alpha1/" + path).Body([]byte(patch)).Do(c.t.Context()).Error()
	if err != nil {
		c.t.Fatal(err)
	}
}

// awaitState waits until the policy is enforced, or not, for a reason.
func (c *console) awaitState(reason string, also func(*v1alpha1.FleetPolicy) bool) metav1.Condition {
	c.t.Helper()
	var found metav1.Condition
	c.awaitPolicy("the policy is "+reason, func(fp *v1alpha1.FleetPolicy) bool {
		for _, cond := range fp.Status.Conditions {
			if cond.Type == v1alpha1.Enforcing && cond.Reason == reason && fp.Status.ObservedGeneration == fp.Generation {
				found = cond
				return also == nil || also(fp)
			}
		}
		return false
	})
	return found
}

// suspend suspends or resumes the policy, and waits until that is in effect.
func (c *console) suspend(yes bool) {
	c.t.Helper()
	c.merge("fleetpolicies/tier", fmt.Sprintf(`{"spec":{"suspend":%t}}`, yes))
	if yes {
		c.awaitState("Suspended", nil)
	}
}

// content is what a rollback restores.
func (c *console) content(name string) string {
	c.t.Helper()
	m, err := c.member.Client().CoreV1().ConfigMaps("default").Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	notes := maps.Clone(m.Annotations)
	delete(notes, api.ActionKey)
	if len(notes) == 0 {
		notes = nil
	}
	text, err := json.Marshal([]any{m.Labels, notes, m.Data})
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// last is the newest action that is selected.
func (c *console) last(args ...string) string {
	c.t.Helper()
	names := strings.Fields(c.must(append([]string{"list", "-o", "name"}, args...)...))
	if len(names) == 0 {
		c.t.Fatalf("no action for %v", args)
	}
	return strings.TrimPrefix(names[len(names)-1], "action.federator.dev/")
}

func (c *console) action(name string) *v1alpha1.Action {
	c.t.Helper()
	a := &v1alpha1.Action{}
	if err := c.get(a, "actions", name); err != nil {
		c.t.Fatal(err)
	}
	return a
}

// corrected waits until ConfigMap one is, and until all actions have ended: the member
// shows a write before its record does.
func (c *console) corrected() {
	c.t.Helper()
	c.awaitTier("one", "gold")
	clitest.Eventually(c.t, "all actions have ended", func() error {
		var list v1alpha1.ActionList
		if err := c.get(&list, "actions"); err != nil {
			return err
		}
		for _, a := range list.Items {
			if !a.Ended() {
				return fmt.Errorf("%s is %q", a.Name, a.Status.Phase)
			}
		}
		return nil
	})
}

// oldAction ended before the retention period.
const oldAction = `apiVersion: federator.dev/v1alpha1
kind: Action
metadata: {name: %s}
spec:
  binding: old
  package: acme.old
  revision: "1"
  verb: delete
  target: {member: fleet/eu-1, apiVersion: v1, kind: ConfigMap, namespace: default, name: gone, uid: u, resourceVersion: "1"}
`

// TestActions_StopAcknowledgeAndRollBack: all that `federator actions` does, on a
// fleet that is corrected.
func TestActions_StopAcknowledgeAndRollBack(t *testing.T) {
	c := &console{job: newJob(t)}
	c.kubeconfig = clitest.WriteFile(t, "hub.kubeconfig", string(c.hub.Kubeconfig()))
	c.configMap("one")
	c.applyHub(fmt.Sprintf(oldAction, "old-1"))
	long := time.Now().Add(-2 * time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z")
	c.merge("actions/old-1/status", fmt.Sprintf(`{"status":{"phase":"Failed","startedAt":%q,"endedAt":%q}}`, long, long))
	c.refused("not found", "show", "nothing")
	c.refused("the request is withdrawn", "rollback", "old-1", "--timeout", "200ms") // nobody acts
	if a := c.action("old-1"); a.Labels[api.RollbackKey] != "" {
		c.t.Errorf("not withdrawn: %v", a.Labels)
	}
	c.prints(`^all actions are stopped by \S+ since \S+: an incident\n$`, "stop", "--reason", "an\tincident")
	c.prints(`^all actions were already stopped by \S+ since \S+: an incident\n$`, "stop", "--reason", "another")
	c.r = start(t, "--config", clitest.WriteFile(t, "federator.yaml", fmt.Sprintf(`
sources: {kubeconfig: %s, clusterAPI: {namespaces: [fleet]}}
network: {allow: [127.0.0.0/8]}
query: {priority: false}
policies: {hub: true, allowFile: true, actionRetention: 1h, actionsKept: 0}
`, c.kubeconfig)))
	c.applyHub(fmt.Sprintf(`apiVersion: federator.dev/v1alpha1
kind: PolicySource
metadata: {name: git}
spec:
  url: file://%s
  interval: 10s
  ceiling: {maxMode: Enforce, actions: [{verbs: [patch], kinds: [ConfigMap]}]}
`, c.repo.Dir))
	c.applyHub(fmt.Sprintf(fleetPolicy, 2))

	c.stopped()
	c.listed()
	c.rolledBack()
	c.acknowledged()
	clitest.Eventually(t, "old actions are collected", func() error {
		if out, err := c.actions("show", "old-1"); err == nil {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// outstanding waits until the policy's violations are known, and as many corrections wait.
func outstanding(n int64) func(*v1alpha1.FleetPolicy) bool {
	return func(fp *v1alpha1.FleetPolicy) bool {
		return fp.Status.Totals != nil && fp.Status.Totals.Violations == n && fp.Status.Actions != nil && fp.Status.Actions.Pending == n
	}
}

// stopped: a stop from before the start holds, and so does one that comes while all is
// being corrected.
func (c *console) stopped() {
	c.t.Helper()
	if cond := c.awaitState("Stopped", outstanding(1)); !strings.Contains(cond.Message, "an incident") || !strings.Contains(cond.Message, "by ") || !strings.Contains(cond.Message, "since ") {
		c.t.Errorf("condition %+v", cond)
	}
	if got := c.tier("one"); got != "" {
		c.t.Errorf("a stop from before the start does not hold: tier %q", got)
	}
	c.prints(`^actions are resumed; they were stopped by \S+ since \S+: an incident\n$`, "resume")
	c.corrected()
	c.prints(`^actions are not stopped\n$`, "resume")

	const logged = "all actions are stopped"
	before := strings.Count(c.r.log.String(), logged)
	began := time.Now()
	c.must("stop")
	returned := time.Now()
	clitest.Eventually(c.t, "the stop takes effect", func() error {
		if strings.Count(c.r.log.String(), logged) == before {
			return clitest.ErrNotYet
		}
		return nil
	})
	c.t.Logf("actions stop: in effect at most %v after the command began, %v after it ended", time.Since(began).Round(time.Millisecond), time.Since(returned).Round(time.Millisecond))
	c.relabel("one", "silver")
	c.awaitState("Stopped", outstanding(1))
	c.refused("all actions are stopped", "rollback", c.last("--phase", "succeeded"))
	if got := c.tier("one"); got != "silver" {
		c.t.Errorf("corrected while all actions are stopped: tier %q", got)
	}
	// Stops of less, each in effect before the one before it ends.
	lift := []string{"resume"}
	for _, of := range [][2]string{{"--policy", "tier"}, {"--member", "fleet/eu-1"}, {"--source", "git"}} {
		name := strings.TrimPrefix(of[0], "--") + " " + of[1]
		c.prints(`^actions of `+name+` are stopped by \S+ since \S+: less\n$`, "stop", of[0], of[1], "--reason", "less")
		c.must(lift...)
		c.awaitPolicy("a stop of "+name+" holds", func(fp *v1alpha1.FleetPolicy) bool {
			cond := meta.FindStatusCondition(fp.Status.Conditions, v1alpha1.Enforcing)
			return cond != nil && strings.Contains(cond.Message, "is stopped: by") && (of[0] == "--policy" || strings.Contains(cond.Message, of[1]))
		})
		if got := c.tier("one"); got != "silver" {
			c.t.Errorf("corrected while actions of %s are stopped: tier %q", name, got)
		}
		lift = []string{"resume", of[0], of[1]}
	}
	c.refused("is not <namespace>/<name>", "stop", "--member", "eu-1")
	c.refused("is not the name of a policy", "resume", "--policy", "")
	c.prints(`^actions of source git are resumed; they were stopped by \S+ since \S+: less\n$`, lift...)
	returned = time.Now()
	c.corrected()
	c.t.Logf("actions resume: corrected at most %v after it ended", time.Since(returned).Round(time.Millisecond))
}

// listed: what list and show print, and what they refuse.
func (c *console) listed() {
	c.t.Helper()
	c.prints(`(?m)\ANAME +POLICY +MEMBER +VERB +KIND +NAMESPACE +TARGET +PHASE +AGE\n(tier-\S+ +tier +fleet/eu-1 +patch +ConfigMap +default +one +Succeeded +(?:\d+m)?(?:\d+s)?\n){2}\z`, "list", "--policy", "tier")
	c.prints(`ATTEMPTS +COMMIT +VIOLATION +MESSAGE\n.* 0 +[0-9a-f]{12} +no tier `, "list", "--member", "fleet/eu-1", "--since", "1h", "-o", "wide", "--phase", "Succeeded")
	for _, none := range [][]string{{"--policy", "other"}, {"--member", "fleet/eu-2"}, {"--phase", "Contended"}, {"--policy", "tier", "--since", "1ns"}} {
		c.prints(`^No actions\.\n$`, append([]string{"list"}, none...)...)
	}
	for _, bad := range [][]string{{"--phase", "Done"}, {"--member", "eu-1"}, {"--since", "-1h"}, {"-o", "xml"}} {
		_, err := c.actions(append([]string{"list"}, bad...)...)
		if err == nil || exit.Code(err) != exit.CodeUsage {
			c.t.Errorf("list %v: %v", bad, err)
		}
	}
	var list v1alpha1.ActionList
	if err := json.Unmarshal([]byte(c.must("list", "--policy", "tier", "-o", "json")), &list); err != nil || len(list.Items) != 2 {
		c.t.Fatalf("%d actions, %v", len(list.Items), err)
	}
	if list.Kind != "ActionList" || list.Items[1].Status.EndedAt.Before(list.Items[0].Status.EndedAt) {
		c.t.Errorf("the newest is not the last of a list of kind %q", list.Kind)
	}
	name := list.Items[1].Name
	out := c.must("show", name)
	for _, want := range []string{
		`Phase: +Succeeded`, `Policy: +tier \(package acme\.tier\)`, `Origin: +\S*tier\.rego at [0-9a-f]{40} of git`, `Violation: +no tier`,
		`Target: +ConfigMap default/one`, `Version: +\d+ -> \d+`, `Audit ID: +[0-9a-f-]{36}\n`, `  - metadata\.labels\.tier: "silver"\n  \+ metadata\.labels\.tier: "gold"\n`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			c.t.Errorf("show does not print %s:\n%s", want, out)
		}
	}
	c.prints(`kind: Action\n(?s:.*)name: `+name, "show", "action.federator.dev/"+name, "-o", "yaml")
}

// rolledBack: a rollback restores the content, is refused if the target has changed, and
// says that the policy still corrects it.
func (c *console) rolledBack() {
	c.t.Helper()
	c.suspend(true)
	c.relabel("one", "silver")
	before := c.content("one")
	c.suspend(false)
	c.corrected()
	c.suspend(true)
	name := c.last("--phase", "Succeeded")
	c.prints(`^`+name+` is rolled back by \S+\n$`, "rollback", name, "--reason", "it was\nwrong")
	if got := c.content("one"); got != before {
		c.t.Errorf("before %s, after %s", before, got)
	}
	of, back := c.action(name), c.action(c.last())
	if of.Status.Phase != v1alpha1.PhaseRolledBack || of.Labels[api.RollbackKey] != "" || of.Annotations[api.RollbackOutcomeKey] != "Succeeded by "+back.Name {
		c.t.Errorf("action %+v %+v", of.ObjectMeta, of.Status)
	}
	if back.Spec.RollbackOf != name || back.Spec.AfterHash != of.Spec.BeforeHash || !regexp.MustCompile(`^rolled back by \S+: it was wrong$`).MatchString(back.Spec.Reason) {
		c.t.Errorf("rollback %+v", back.Spec)
	}
	c.refused("is already rolled back", "rollback", name)
	// As for a process that ended between the rollback and its answer.
	c.merge("actions/"+name, `{"metadata":{"labels":{"federator.dev/rollback":"true"},"annotations":{"federator.dev/rollback-outcome":null}}}`)
	clitest.Eventually(c.t, "it is answered", func() error {
		if a := c.action(name); a.Labels[api.RollbackKey] != "" || a.Annotations[api.RollbackOutcomeKey] != "Succeeded by "+back.Name {
			return fmt.Errorf("%+v", a.ObjectMeta)
		}
		return nil
	})
	c.prints(`Rollback of: +`+name+`\n`, "show", back.Name)

	// It can be rolled back itself; then the target changes.
	c.prints(`is rolled back by`, "rollback", back.Name)
	last := c.last()
	c.relabel("one", "bronze")
	c.refused("Refused", "rollback", last)
	c.refused("changed since", "rollback", last)
	if of := c.action(last); !strings.Contains(of.Status.Message, "changed since") || of.Status.Phase != v1alpha1.PhaseSucceeded || of.Labels[api.RollbackKey] != "" {
		c.t.Errorf("action %+v %+v", of.ObjectMeta, of.Status)
	}
	if got := c.tier("one"); got != "bronze" {
		c.t.Errorf("a refused rollback has written: tier %q", got)
	}
	c.prints(`is rolled back by`, "rollback", last, "--force")
	if got := c.content("one"); got != before {
		c.t.Errorf("before %s, after %s", before, got)
	}

	// By a label alone, which says nothing that is known.
	last = c.last()
	c.merge("actions/"+last, `{"metadata":{"labels":{"federator.dev/rollback":"maybe"}}}`)
	clitest.Eventually(c.t, "it is answered", func() error {
		if a := c.action(last); !strings.HasPrefix(a.Annotations[api.RollbackOutcomeKey], "Refused ") {
			return fmt.Errorf("%+v", a.ObjectMeta)
		}
		return nil
	})

	c.suspend(false)
	c.corrected()
	c.prints(`FleetPolicy tier still enforces`, "rollback", c.last("--phase", "Succeeded"))
	c.corrected()
}

// acknowledged: a policy resumes when its halt is acknowledged, and by no other halt's ID.
func (c *console) acknowledged() {
	c.t.Helper()
	c.refused("not halted", "ack", "tier")
	c.refused("not found", "ack", "other")
	for _, name := range []string{"two", "three", "four"} {
		c.configMap(name)
	}
	c.awaitPolicy("the policy is halted", func(fp *v1alpha1.FleetPolicy) bool { return fp.Status.Halted != nil })
	c.refused("not by", "ack", "tier", "another")
	var printed []string
	clitest.Eventually(c.t, "what is acknowledged is corrected", func() error {
		var fp v1alpha1.FleetPolicy
		if err := c.get(&fp, "fleetpolicies", "tier"); err != nil {
			return err
		}
		if fp.Status.Halted != nil && fp.Annotations[api.AcknowledgeKey] != fp.Status.Halted.ID {
			out, err := c.actions("ack", "tier", fp.Status.Halted.ID)
			if err != nil {
				return err // it has changed meanwhile
			}
			printed = append(printed, out)
		}
		for _, name := range []string{"two", "three", "four"} {
			if got := c.tier(name); got != "gold" {
				return fmt.Errorf("%s has tier %q", name, got)
			}
		}
		return nil
	})
	want := regexp.MustCompile(`^acknowledged halt [0-9a-f]+ of tier, since \S+: OverLimit: .*\nallowed: [34] targets within 1h0m0s, where the limit is 2 \(of \d\)\n$`)
	if len(printed) == 0 || slices.ContainsFunc(printed, func(s string) bool { return !want.MatchString(s) }) {
		c.t.Errorf("printed %q", printed)
	}
	c.awaitPolicy("the status says who", func(fp *v1alpha1.FleetPolicy) bool {
		return fp.Status.Acknowledged != nil && fp.Status.Acknowledged.By != "" && fp.Status.Halted == nil
	})
}
