package siblings_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/sim/siblings"
)

const realObjects = "../../../../shared/corpus"

// corpora runs a test on the sample, and on real objects where they are.
func corpora(t *testing.T, test func(*testing.T, *siblings.Corpus)) {
	t.Run("sample", func(t *testing.T) { test(t, siblings.Open("")) })
	t.Run("real", func(t *testing.T) {
		if _, err := os.Stat(realObjects); err != nil {
			t.Skipf("no real objects beside the project: %v", err)
		}
		test(t, siblings.Open(realObjects))
	})
}

func makePods(t *testing.T, c *siblings.Corpus, n, nodes int, seed uint64) *siblings.Pods {
	t.Helper()
	pods, err := c.Pods(n, nodes, seed)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func TestSiblings_PodsDifferAsSiblingsDo(t *testing.T) {
	corpora(t, func(t *testing.T, c *siblings.Corpus) {
		pods := makePods(t, c, 5000, 50, 7)
		nodes, err := c.Nodes(50, 7)
		if err != nil {
			t.Fatal(err)
		}
		isNode := map[string]bool{}
		for i := range nodes.Len() {
			_, name := nodes.Name(i)
			isNode[name] = true
		}
		unique := map[string]map[string]bool{"name": {}, "uid": {}, "container": {}}
		see := func(what, value string) {
			if unique[what][value] {
				t.Errorf("%s %q twice", what, value)
			}
			unique[what][value] = true
		}
		for i := range pods.Len() {
			pod := pods.Pod(i)
			if ns, name := pods.Name(i); ns != pod.Namespace || name != pod.Name {
				t.Fatalf("pod %d is %s/%s, Name says %s/%s", i, pod.Namespace, pod.Name, ns, name)
			}
			see("name", pod.Namespace+"/"+pod.Name)
			see("uid", string(pod.UID))
			for _, s := range pod.Status.ContainerStatuses {
				if s.ContainerID != "" {
					see("container", s.ContainerID)
				}
			}
			if pod.Spec.NodeName != "" && !isNode[pod.Spec.NodeName] {
				t.Errorf("pod %d runs on %q, which is not a node", i, pod.Spec.NodeName)
			}
			if len(pod.ManagedFields) == 0 {
				t.Errorf("pod %d has no managedFields", i)
			}
		}
	})
}

func TestSiblings_PodsOfOneReplicaSetShareIt(t *testing.T) {
	corpora(t, func(t *testing.T, c *siblings.Corpus) {
		pods := makePods(t, c, 2000, 50, 7)
		owners := map[string][]*corev1.Pod{}
		for i := range pods.Len() {
			pod := pods.Pod(i)
			if o := metav1.GetControllerOf(pod); o != nil && o.Kind == "ReplicaSet" {
				owners[string(o.UID)] = append(owners[string(o.UID)], pod)
				if !strings.HasPrefix(pod.Name, o.Name+"-") {
					t.Errorf("pod %s of ReplicaSet %s", pod.Name, o.Name)
				}
			}
		}
		if len(owners) < 10 {
			t.Errorf("%d ReplicaSets", len(owners))
		}
		for uid, siblings := range owners {
			if len(siblings) != 10 {
				t.Errorf("ReplicaSet %s has %d pods", uid, len(siblings))
			}
			for _, pod := range siblings[1:] {
				if diff := cmp.Diff(siblings[0].Labels, pod.Labels); diff != "" {
					t.Errorf("labels differ within a ReplicaSet: %s", diff)
				}
				if siblings[0].Spec.Containers[0].Image != pod.Spec.Containers[0].Image {
					t.Error("images differ within a ReplicaSet")
				}
			}
		}
	})
}

func TestSiblings_SeedDecidesEverything(t *testing.T) {
	corpora(t, func(t *testing.T, c *siblings.Corpus) {
		sets := []*siblings.Pods{makePods(t, c, 100, 10, 1), makePods(t, c, 100, 10, 1), makePods(t, c, 100, 10, 2)}
		for i := range 100 {
			var bodies [3][]byte
			for j, set := range sets {
				var err error
				if bodies[j], err = set.JSON(i); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(bodies[0], bodies[1]) || bytes.Equal(bodies[0], bodies[2]) {
				t.Fatalf("pod %d: same seed equal %v, other seed equal %v", i, bytes.Equal(bodies[0], bodies[1]), bytes.Equal(bodies[0], bodies[2]))
			}
		}
	})
}

// The identities of a template must be gone, also from managedFields.
func TestSiblings_IdentityIsReplaced(t *testing.T) {
	c := siblings.Open("")
	lines, err := c.Lines("core_Pod")
	if err != nil {
		t.Fatal(err)
	}
	var identities []string
	for _, line := range lines {
		var pod corev1.Pod
		if err := json.Unmarshal(line, &pod); err != nil {
			t.Fatal(err)
		}
		identities = append(identities, string(pod.UID), pod.Status.PodIP, pod.Status.ContainerStatuses[0].ContainerID,
			pod.Labels["pod-template-hash"], "kube-api-access-x2v9k", pod.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z"))
		for _, o := range pod.OwnerReferences {
			identities = append(identities, string(o.UID))
		}
	}
	identities = slices.DeleteFunc(identities, func(s string) bool { return s == "" })
	pods := makePods(t, c, 200, 10, 3)
	for i := range pods.Len() {
		body, err := pods.JSON(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range identities {
			if bytes.Contains(body, []byte(id)) {
				t.Fatalf("pod %d still has %q: %s", i, id, body)
			}
		}
	}
}

func TestSiblings_ObjectsOfEveryKind(t *testing.T) {
	corpora(t, func(t *testing.T, c *siblings.Corpus) {
		files, err := c.Files()
		if err != nil {
			t.Fatal(err)
		}
		kinds := 0
		for _, file := range files {
			objects, err := c.Objects(file, 20, 5)
			if err != nil {
				t.Logf("%v", err) // no object of the file has a uid
				continue
			}
			kinds++
			seen := map[string]bool{}
			for i := range objects.Len() {
				obj := objects.Unstructured(i)
				ns, name := objects.Name(i)
				if obj.GetNamespace() != ns || obj.GetName() != name || seen[ns+"/"+name] || len(obj.GetManagedFields()) == 0 {
					t.Errorf("%s %d: %s/%s, Name says %s/%s, seen %v", file, i, obj.GetNamespace(), obj.GetName(), ns, name, seen[ns+"/"+name])
				}
				seen[ns+"/"+name] = true
			}
		}
		if kinds < 9 {
			t.Errorf("objects of %d kinds only", kinds)
		}
	})
}

func TestSiblings_TouchChangesAPodEachTime(t *testing.T) {
	pod := makePods(t, siblings.Open(""), 1, 1, 1).Pod(0)
	before := pod.DeepCopy()
	siblings.Touch(pod, 5)
	five := pod.DeepCopy()
	siblings.Touch(pod, 6)
	if cmp.Equal(before, five) || cmp.Equal(five, pod) {
		t.Error("a touch changed nothing")
	}
}

func BenchmarkPod(b *testing.B) {
	pods, err := siblings.Open(realObjects).Pods(100_000, 1000, 1)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	size, n := 0, 0
	for b.Loop() {
		raw, err := pods.Pod(n % 100_000).Marshal()
		if err != nil {
			b.Fatal(err)
		}
		size += len(raw)
		n++
	}
	b.ReportMetric(float64(size)/float64(n), "bytes/pod")
}
