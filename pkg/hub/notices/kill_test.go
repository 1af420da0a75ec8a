package notices_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/notices"
	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/seed"
)

// childEnv is the environment variable with the childConfig of a process.
const childEnv = "FEDERATOR_NOTICES_CHILD"

// childConfig says where a process halts policies, and whom it tells.
type childConfig struct{ Hub, Namespace, URL string }

var key = []byte("0123456789abcdef")

// nowhere provides no members: what is halted reaches none.
type nowhere struct{}

func (nowhere) Client(string, policy.Kind, string) (*remediate.Client, error) {
	return nil, errors.New("no member")
}

// runChild halts policies and ends halts as its input says, and tells of them, until the input
// ends, as it does when its parent is gone.
func runChild(text string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Hub)
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	d, err := remediate.New(remediate.Options{Clients: nowhere{}, Hub: client.CoreV1().RESTClient()})
	if err != nil {
		return err
	}
	var n *notify.Notifier
	source, err := notices.New(notices.Options{
		Config: config, Stops: func() ([]hub.ActiveStop, bool) { return nil, true }, Changed: func() { n.Trigger() },
	})
	if err != nil {
		return err
	}
	n, err = notify.New(notify.Options{
		Hub: config, Namespace: c.Namespace, Origin: "/federator/test", Source: source, IsLeader: func() bool { return true },
		Receivers: []notify.Receiver{{Name: "chat", URL: c.URL, Keys: func() ([][]byte, error) { return [][]byte{key}, nil }}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, run := range []func(context.Context) error{d.Run, source.Run, n.Run} {
		wg.Go(func() { _ = run(ctx) }) // its error is that of ctx
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var what, policy, generation string
		if _, err := fmt.Sscan(in.Text(), &what, &policy, &generation); err != nil {
			return err
		}
		if err := kube.Until(ctx, time.Minute, func() error { return change(d, what, policy, generation) }); err != nil {
			return err
		}
	}
	return nil
}

// change halts a policy, or ends its halt.
func change(d *remediate.Dispatcher, what, name, generation string) error {
	spec := remediate.RolloutSpec{Generation: generation, Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}, Window: time.Hour}}
	var intents []remediate.Intent
	for n := range 2 {
		if what == "halt" {
			target := policy.Ref{Member: "fleet/eu-1", Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("%s-%d", name, n)}
			intents = append(intents, remediate.Intent{
				Binding: name, UID: "u", ResourceVersion: "1", Remedy: policy.Remedy{Action: "patch", Target: target, Patch: []byte(`{"data":{"a":"b"}}`)},
			})
		}
	}
	if err := d.SetIntents(name, spec, remediate.Totals{Fleet: 20}, intents, true); err != nil {
		return err
	}
	status, _ := d.Status(name)
	switch {
	case what == "halt" && status.Halted == nil:
		return errors.New("it is not halted yet")
	case what == "ack" && status.Halted == nil:
		return errors.New("its halt is not restored yet")
	case what == "ack":
		return d.Acknowledge(name, status.Halted.ID, "ann")
	case what == "change" && status.Halted != nil:
		return errors.New("it is halted still")
	}
	return nil
}

// inbox is a receiver that refuses some events.
type inbox struct {
	mu     sync.Mutex
	refuse int
	order  []string          // ids, in the order in which they came first
	times  map[string]int    // how often each came
	bodies map[string]string // what each says
	bad    []error
}

func (in *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.refuse > 0 {
		in.refuse--
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	hook, keyErr := standardwebhooks.NewWebhookRaw(key)
	if err := errors.Join(err, keyErr, hook.Verify(body, r.Header)); err != nil {
		in.bad = append(in.bad, err)
		return
	}
	id := r.Header.Get("webhook-id")
	if in.times[id]++; in.times[id] == 1 {
		in.order, in.bodies[id] = append(in.order, id), string(body)
	} else if in.bodies[id] != string(body) {
		in.bad = append(in.bad, fmt.Errorf("event %s says\n%s\nand\n%s", id, in.bodies[id], body))
	}
}

func (in *inbox) count() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.order)
}

// killWorld is what happens on a hub, and what was told of it.
type killWorld struct {
	*testing.T

	in         *inbox
	url        string
	random     *rand.Rand
	generation int
	policy     int
	left       int // how many transitions its history has room for
	halted     bool
}

// TestSource_SurvivesKills kills processes that halt policies, at random points: each
// transition that the hub has recorded is told, in order, and none that it has not; what is
// told twice has one key and says the same.
func TestSource_SurvivesKills(t *testing.T) {
	shared.Start(t)
	kills := 10
	if text := os.Getenv("KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatalf("KILLS: %v", err)
		}
	}
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: kills}\n"
	if err := shared.Fleet.Hub.Apply(t.Context(), []byte(namespace)); err != nil {
		t.Fatal(err)
	}
	in := &inbox{times: map[string]int{}, bodies: map[string]string{}}
	server := httptest.NewServer(in)
	t.Cleanup(server.Close)
	w := &killWorld{T: t, in: in, url: server.URL, random: rand.New(rand.NewPCG(seed.Of(t), 3))} // A test's.
	before := w.recorded()
	for range kills {
		p, commands := w.start()
		in.mu.Lock()
		in.refuse = w.random.IntN(2)
		in.mu.Unlock()
		for range w.random.IntN(4) {
			if _, err := fmt.Fprintln(commands, w.next()); err != nil {
				t.Fatal(err)
			}
		}
		w.await()
		_ = p.Process.Kill() // it may have ended
		_ = p.Wait()         // killed
		w.look()
	}
	p, _ := w.start()
	defer func() { _ = p.Process.Kill(); _ = p.Wait() }() // it is of no use any more
	eventually(t, func() error {
		for id := range w.recorded() {
			if _, old := before[id]; !old && !w.told(id) {
				return fmt.Errorf("event %s is lost", id)
			}
		}
		return nil
	})
	w.compare(kills, before)
}

func (w *killWorld) start() (*exec.Cmd, io.Writer) {
	w.Helper()
	text, err := json.Marshal(childConfig{shared.Fleet.Hub.KubeconfigFile(), "kills", w.url})
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(os.Args[0]) // It is this test.
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = w.Output()
	commands, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	return cmd, commands
}

// next is a command: the present policy is halted, or its halt ends. Its history keeps all of
// its transitions.
func (w *killWorld) next() string {
	if w.left < 6 {
		w.policy++
		w.left, w.halted = 50, false
	}
	w.generation++
	w.left--
	what := "halt"
	if w.halted {
		if what = "ack"; w.random.IntN(3) == 0 {
			what = "change"
		}
	}
	w.halted = !w.halted
	return fmt.Sprintf("%s killed-%d %d", what, w.policy, w.generation)
}

// look finds out whether the present policy is halted: a killed process may not have done what
// it was told.
func (w *killWorld) look() {
	w.Helper()
	w.halted, w.left = false, 50
	if s := w.states()[fmt.Sprintf("killed-%d", w.policy)]; s != nil {
		w.halted, w.left = len(s.Status.Halts) > 0, 50-len(s.Status.History)
	}
}

// await waits until some events more are told, or for a while: the process is killed at
// another point each time.
func (w *killWorld) await() {
	before, more := w.in.count(), w.random.IntN(4)
	_ = kube.Until(w.Context(), time.Duration(300+w.random.IntN(1200))*time.Millisecond, func() error { // which point that is does not matter
		if w.in.count() < before+more+1 {
			return errors.New("no more events")
		}
		return nil
	})
}

func (w *killWorld) states() map[string]*v1alpha1.PolicyState {
	w.Helper()
	list, err := resource(v1alpha1.PolicyStates).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]*v1alpha1.PolicyState{}
	for n := range list.Items {
		s := &v1alpha1.PolicyState{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[n].Object, s); err != nil {
			w.Fatal(err)
		}
		out[s.Name] = s
	}
	return out
}

// recorded are the ids of the events of all transitions that the hub has.
func (w *killWorld) recorded() map[string]v1alpha1.PolicyTransition {
	w.Helper()
	out := map[string]v1alpha1.PolicyTransition{}
	for _, s := range w.states() {
		for _, t := range s.Status.History {
			out[fmt.Sprintf("%s/%s/%s", s.UID, t.Type, t.ID)] = t
		}
	}
	return out
}

func (w *killWorld) told(id string) bool {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	return w.in.times[id] > 0
}

// compare checks that nothing was told that was not recorded, the end of a halt after its
// beginning, and prints how much was told twice.
func (w *killWorld) compare(kills int, before map[string]v1alpha1.PolicyTransition) {
	w.Helper()
	recorded := w.recorded()
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	for _, err := range w.in.bad {
		w.Error(err)
	}
	twice, ended := 0, 0
	began := map[string]bool{}
	for _, id := range w.in.order {
		twice += w.in.times[id] - 1
		if _, is := before[id]; is {
			continue
		}
		if _, is := recorded[id]; !is {
			w.Errorf("event %s was told, which the hub has not recorded", id)
		}
		if halt, is := strings.CutPrefix(id[strings.IndexByte(id, '/'):], "/HaltEnded/"); is {
			if ended++; !began[halt] {
				w.Errorf("event %s was told before the halt began", id)
			}
		}
		began[id[strings.LastIndexByte(id, '/')+1:]] = true
	}
	if len(recorded) == len(before) {
		w.Error("nothing has happened")
	}
	w.Logf("%d kills: %d transitions of halts (%d ended), none lost, %d told more than once, with the same key", kills, len(recorded)-len(before), ended, twice)
}
