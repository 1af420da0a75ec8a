package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/seed"
)

// childEnv is the environment variable with the childConfig of a process.
const childEnv = "FEDERATOR_NOTIFY_CHILD"

// childConfig says what a process tells: ConfigMaps that have the label.
type childConfig struct{ Hub, Namespace, URL string }

const (
	factLabel    = "test/fact"
	pollInterval = 10 * time.Millisecond
)

// runChild tells until its input ends, as it does when its parent is gone.
func runChild(text string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	hub, err := clientcmd.BuildConfigFromFlags("", c.Hub)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source := &facts{}
	n, err := notify.New(options(hub, c.Namespace, source, c.URL))
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is what counts
		cancel()
	}()
	var polling sync.WaitGroup
	polling.Go(func() {
		for sleep.For(ctx, pollInterval) == nil {
			list, err := client.CoreV1().ConfigMaps(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: factLabel})
			if err != nil {
				continue // tried again
			}
			source.set(true, toFacts(list.Items)...)
			n.Trigger()
		}
	})
	_ = n.Run(ctx) // its error is that of ctx
	polling.Wait()
	return nil
}

func toFacts(maps []corev1.ConfigMap) (out []notify.Fact) {
	for i := range maps {
		m := &maps[i]
		out = append(out, notify.Fact{
			UID: string(m.UID), Transition: "stop", Type: notify.StopBegan, Until: notify.StopEnded, Subject: "ConfigMap/" + m.Name, At: m.CreationTimestamp.Time,
		})
	}
	return out
}

// TestNotifier_SurvivesKills kills processes that tell what happens, sometimes two that both
// take themselves for the leader: nothing is lost, and what is told twice has one id.
func TestNotifier_SurvivesKills(t *testing.T) {
	kills := 20
	if text := os.Getenv("KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatalf("KILLS: %v", err)
		}
	}
	hub := shared.Start(t).Hub
	random := rand.New(rand.NewPCG(seed.Of(t), 2)) // A test's.
	w := &killWorld{T: t, hub: hub, namespace: namespaceOf(t, hub), in: newInbox(t), random: random, began: map[string]bool{}, ended: map[string]bool{}}
	for range kills {
		processes := []*exec.Cmd{w.start()}
		if random.IntN(5) == 0 {
			processes = append(processes, w.start())
		}
		w.in.mu.Lock()
		w.in.refuse = random.IntN(2)
		w.in.mu.Unlock()
		for range 1 + random.IntN(4) {
			w.change()
		}
		w.await(random.IntN(3))
		for _, p := range processes {
			_ = p.Process.Kill() // it may have ended
			_ = p.Wait()         // killed
		}
	}
	last := w.start()
	defer func() { _ = last.Process.Kill(); _ = last.Wait() }() // it is of no use any more
	eventually(t, "everything is told", func() bool { return len(w.missing()) == 0 })
	w.compare(kills)
}

// killWorld is what happens, and what was told of it.
type killWorld struct {
	*testing.T

	hub          *kube.Hub
	namespace    string
	in           *inbox
	random       *rand.Rand
	made         int
	began, ended map[string]bool // UIDs
	open         []corev1.ConfigMap
}

func (w *killWorld) start() *exec.Cmd {
	w.Helper()
	text, err := json.Marshal(childConfig{w.hub.KubeconfigFile(), w.namespace, w.in.URL})
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(os.Args[0]) // It is this test.
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	if _, err := cmd.StdinPipe(); err != nil { // ends with this process
		w.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	return cmd
}

// change creates a ConfigMap, or deletes one that was told.
func (w *killWorld) change() {
	w.Helper()
	maps := w.hub.Client().CoreV1().ConfigMaps(w.namespace)
	told := w.told()
	for n, m := range w.open {
		if _, known := told[string(m.UID)+"/stop"]; known && w.random.IntN(2) == 0 {
			if err := maps.Delete(w.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
				w.Fatal(err)
			}
			w.ended[string(m.UID)] = true
			w.open = append(w.open[:n], w.open[n+1:]...)
			return
		}
	}
	w.made++
	m, err := maps.Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", w.made), Labels: map[string]string{factLabel: ""}}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.began[string(m.UID)] = true
	w.open = append(w.open, *m)
}

// await waits until so many events more are told, or for a while: then the process is killed
// at another point.
func (w *killWorld) await(more int) {
	w.Helper()
	before := len(w.in.got(w.T))
	_ = kube.Until(w.Context(), time.Duration(300+w.random.IntN(700))*time.Millisecond, func() error { // which point that is does not matter
		if len(w.in.got(w.T)) < before+more+1 {
			return fmt.Errorf("no more events")
		}
		return nil
	})
}

// told returns how often each id was told.
func (w *killWorld) told() map[string]int {
	w.Helper()
	out := map[string]int{}
	for _, e := range w.in.got(w.T) {
		out[e.ID]++
	}
	return out
}

func (w *killWorld) missing() (ids []string) {
	told := w.told()
	for uid := range w.began {
		if told[uid+"/stop"] == 0 {
			ids = append(ids, uid+"/stop")
		}
	}
	for uid := range w.ended {
		if told[uid+"/stop/ended"] == 0 {
			ids = append(ids, uid+"/stop/ended")
		}
	}
	return ids
}

// compare checks that nothing was told that has not happened, and prints how often what was
// told twice.
func (w *killWorld) compare(kills int) {
	w.Helper()
	twice := 0
	for id, n := range w.told() {
		uid, ended := id, false
		if k := len(id) - len("/stop"); k > 0 && id[k:] == "/stop" {
			uid = id[:k]
		} else if k := len(id) - len("/stop/ended"); k > 0 && id[k:] == "/stop/ended" {
			uid, ended = id[:k], true
		}
		if !w.began[uid] || ended && !w.ended[uid] {
			w.Errorf("event %s was told, which has not happened", id)
		}
		twice += n - 1
	}
	w.Logf("%d kills: %d events, none lost, %d told more than once, with the same id", kills, len(w.began)+len(w.ended), twice)
}
