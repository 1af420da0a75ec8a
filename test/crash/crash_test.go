package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/seed"
)

// TestCrash kills processes while they correct. In the end every object is corrected,
// and the Actions of the hub are the writes in the member's audit log, one for one.
func TestCrash(t *testing.T) {
	kills, failovers, corrections := envInt(t, "KILLS", 12), envInt(t, "FAILOVERS", 2), envInt(t, "CORRECTIONS", 60)
	if testing.Short() && os.Getenv("KILLS") == "" {
		t.Skip("takes half a minute")
	}
	t.Logf("KILLS=%d FAILOVERS=%d CORRECTIONS=%d", kills, failovers, corrections)
	r := newHarness(t, seed.Of(t))
	started := time.Now()
	for n := range kills {
		r.startAndKill(corrections * (n + 1) / (kills + failovers + 1))
	}
	r.failovers(failovers, func(n int) int { return corrections * (kills + n + 1) / (kills + failovers + 1) })
	took := time.Since(started)
	r.violateUpTo(corrections)
	r.finish()
	r.compare()
	r.judgeLasting()
	t.Logf("%d kills and %d failovers in %v: they left %d unfinished actions, %d of them written", kills, failovers, took.Round(time.Second), r.open, r.written)
}

func envInt(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

const namespace = "crash"

// harness is a hub, a member and the correcting processes.
type harness struct {
	*testing.T

	hub        *kube.Hub
	member     *kube.ControlPlane   // the first
	members    []*kube.ControlPlane // in the order of members
	random     *rand.Rand
	violations int // created so far
	watcher    *watcher
	children   []*child
	lasting    []lasting
	wishes     wishes
	ending     bool // people do nothing new

	unanswered    int // writes that were executed and answered with an error
	open, written int // actions that killed processes have left, counted at each kill
}

func newHarness(t *testing.T, seed uint64) *harness {
	t.Helper()
	f := kube.StartTest(t, kube.Options{Members: len(members), Audit: true})
	r := &harness{T: t, hub: f.Hub, member: f.Members[0], members: f.Members, random: rand.New(rand.NewPCG(seed, 3))} // A test's.
	if err := r.hub.InstallCRDs(t.Context(), "../../charts/federator/crds"); err != nil {
		t.Fatal(err)
	}
	for _, c := range append([]*kube.ControlPlane{r.hub.ControlPlane}, r.members...) {
		for _, name := range []string{namespace, haltBinding, waveBinding, budgetBinding} {
			if err := c.Apply(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n")); err != nil {
				t.Fatal(err)
			}
		}
		// As distant as real clusters: a correction takes a while.
		if err := c.Proxy.Set(tcpproxy.Mode{Latency: 15 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	r.watcher = newWatcher(t, r.member)
	r.lasting = []lasting{&haltChecks{harness: r, acked: map[string]acknowledged{}}, &waveChecks{harness: r}, &budgetChecks{harness: r}}
	r.wish(func(*wishes) {})
	t.Cleanup(func() {
		for _, p := range r.children {
			if p.kill(); t.Failed() {
				t.Logf("%s", p.log.String())
			}
		}
	})
	return r
}

// until polls until a check passes.
func (r *harness) until(what string, check func() error) {
	r.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			r.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// violateUpTo creates violations until there were so many in total.
func (r *harness) violateUpTo(sum int) {
	r.Helper()
	for ; r.violations < sum; r.violations++ {
		sort := violationKinds[r.violations%len(violationKinds)]
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", sort, r.violations)}, Data: map[string]string{"a": "b"}}
		if _, err := r.member.Client().CoreV1().ConfigMaps(namespace).Create(r.Context(), m, metav1.CreateOptions{}); err != nil {
			r.Fatal(err)
		}
	}
}

// child is a process from its start to its end.
type child struct {
	cmd   *exec.Cmd
	input io.Closer
	log   strings.Builder
	leads chan struct{} // closed when it leads
	ended chan struct{}
	err   error // once ended
}

func (r *harness) start() *child {
	r.Helper()
	config := childConfig{Hub: r.hub.KubeconfigFile()}
	for _, m := range r.members {
		config.Members = append(config.Members, m.KubeconfigFile())
	}
	text, err := json.Marshal(config)
	if err != nil {
		r.Fatal(err)
	}
	p := &child{cmd: exec.Command(os.Args[0]), leads: make(chan struct{}), ended: make(chan struct{})} // It is this test.
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = &p.log
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		r.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		led := false
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if lines.Text() == leadingLine && !led {
				led = true
				close(p.leads)
			}
		}
		p.err = p.cmd.Wait()
	}()
	r.children = append(r.children, p)
	return p
}

// kill ends a process by SIGKILL.
func (p *child) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

func (r *harness) reap(p *child) {
	r.Helper()
	select {
	case <-p.ended:
		r.Fatalf("a process has ended by itself: %v\n%s", p.err, p.log.String())
	default:
	}
	p.kill()
	for n, other := range r.children {
		if other == p {
			r.children = append(r.children[:n], r.children[n+1:]...)
			break
		}
	}
	r.countOpen()
	r.stepLasting()
}

// countOpen counts the actions that a killed process has left.
func (r *harness) countOpen() {
	r.Helper()
	actions, err := r.actions()
	if err != nil {
		r.Fatal(err)
	}
	for _, a := range actions {
		if a.Ended() || a.Spec.Binding != binding {
			continue
		}
		r.open++
		t := a.Spec.Target
		m, err := r.member.Client().CoreV1().ConfigMaps(namespace).Get(r.Context(), t.Name, metav1.GetOptions{})
		if a.Spec.Verb == "delete" && err != nil || err == nil && m.Annotations["federator.dev/action"] == a.Name {
			r.written++
		}
	}
}

// waitForLead waits for a process to lead, or for a while.
func (r *harness) waitForLead(p *child, most time.Duration) {
	r.Helper()
	select {
	case <-p.leads:
	case <-time.After(most):
	}
}

// startAndKill starts a process and kills it once there were so many violations in total.
func (r *harness) startAndKill(sum int) {
	r.Helper()
	before := r.violations + r.random.IntN(max(sum-r.violations, 0)+1)
	r.violateUpTo(before) // the others come while it leads
	p := r.start()
	if r.random.IntN(8) == 0 {
		r.waitForLead(p, time.Duration(r.random.IntN(1500))*time.Millisecond)
		r.violateUpTo(sum)
	} else {
		r.mustLead(p)
		r.waitToKill(sum)
	}
	r.reap(p)
}

// waitToKill returns when the leader is to be killed: after a while, or right after it has
// written.
func (r *harness) waitToKill(sum int) {
	r.Helper()
	written := r.watcher.next()
	r.violateUpTo(sum)
	if r.random.IntN(2) == 0 {
		r.stepLasting()
	}
	if r.random.IntN(2) == 0 {
		r.pause(time.Duration(r.random.IntN(1000)) * time.Millisecond)
		return
	}
	select {
	case <-written:
		r.pause(time.Duration(r.random.IntN(40)) * time.Millisecond)
	case <-time.After(2 * time.Second): // there may be nothing to write
	}
}

func (r *harness) mustLead(p *child) {
	r.Helper()
	select {
	case <-p.leads:
	case <-p.ended:
		r.Fatalf("a process has ended by itself: %v\n%s", p.err, p.log.String())
	case <-time.After(2 * time.Minute):
		p.kill()
		r.Fatalf("a process does not become the leader\n%s", p.log.String())
	}
}

// pause lets a process reach a random point.
func (r *harness) pause(d time.Duration) {
	select {
	case <-r.Context().Done():
	case <-time.After(d):
	}
}

// failovers kills the leader while another process stands by. Every other leader is only
// frozen until the next one leads, and then continues.
func (r *harness) failovers(times int, sum func(int) int) {
	r.Helper()
	if times == 0 {
		return
	}
	leader := r.start()
	r.mustLead(leader)
	for n := range times {
		next := r.start()
		r.waitToKill(sum(n))
		if n%2 == 1 {
			r.signal(leader, syscall.SIGSTOP)
			r.mustLead(next)
			r.pause(time.Duration(r.random.IntN(300)) * time.Millisecond)
			r.signal(leader, syscall.SIGCONT)
			r.pause(time.Duration(r.random.IntN(300)) * time.Millisecond)
			r.reap(leader)
		} else {
			r.reap(leader)
			r.mustLead(next)
		}
		leader = next
	}
	r.reap(leader)
}

func (r *harness) signal(p *child, s syscall.Signal) {
	r.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		r.Fatal(err)
	}
}

// finish has a last process correct the rest, and ends it regularly.
func (r *harness) finish() {
	r.Helper()
	p := r.start()
	r.until("all is corrected, and recorded", func() error {
		list, err := r.member.Client().CoreV1().ConfigMaps(namespace).List(r.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		all := make([]*corev1.ConfigMap, len(list.Items))
		for n := range list.Items {
			all[n] = &list.Items[n]
		}
		if left := evaluate(all); len(left) > 0 {
			return fmt.Errorf("%d violate, %s", len(left), left[0].Remedy.Target)
		}
		if err := r.settleLasting(); err != nil {
			return err
		}
		actions, err := r.actions()
		for _, a := range actions {
			if !a.Ended() {
				return fmt.Errorf("action %s is %q: %s", a.Name, a.Status.Phase, a.Status.Message)
			}
		}
		return err
	})
	p.input.Close()
	select {
	case <-p.ended:
		if p.err != nil {
			r.Errorf("regular end of a process: %v\n%s", p.err, p.log.String())
		}
	case <-time.After(time.Minute):
		p.kill()
		r.Errorf("a process does not end regularly\n%s", p.log.String())
	}
}

// actions are those of the hub.
func (r *harness) actions() ([]v1alpha1.Action, error) {
	body, err := r.hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/federator.dev/v1alpha1/actions").Do(context.WithoutCancel(r.Context())).Raw()
	if err != nil {
		return nil, err
	}
	var list v1alpha1.ActionList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	return list.Items, nil
}
