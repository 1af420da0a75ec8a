package siblings

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

//go:embed sample/*.jsonl
var sample embed.FS

// ErrNoTemplates says that a corpus holds nothing usable of a kind.
var ErrNoTemplates = errors.New("no templates of the kind")

// A Corpus is where templates are read from. Each kind is decoded once, and all sets
// share the templates.
type Corpus struct {
	files fs.FS
	real  bool

	pods  func() ([]podTemplate, error)
	nodes func() ([]*corev1.Node, error)

	mu      sync.Mutex
	objects map[string][]*unstructured.Unstructured // by file
}

func newCorpus(files fs.FS, real bool) *Corpus {
	c := &Corpus{files: files, real: real, objects: map[string][]*unstructured.Unstructured{}}
	c.pods, c.nodes = sync.OnceValues(c.readPods), sync.OnceValues(c.readNodes)
	return c
}

// Open uses the directory if it is there, else the sample.
func Open(dir string) *Corpus {
	if info, err := os.Stat(dir); dir != "" && err == nil && info.IsDir() {
		return newCorpus(os.DirFS(dir), true)
	}
	files, err := fs.Sub(sample, "sample")
	if err != nil {
		panic(err) // the name is constant and right
	}
	return newCorpus(files, false)
}

// Real is false for the sample.
func (c *Corpus) Real() bool { return c.real }

// Files names what there is, one "<group or core>_<Kind>" per kind.
func (c *Corpus) Files() ([]string, error) {
	names, err := fs.Glob(c.files, "*.jsonl")
	for i, n := range names {
		names[i] = strings.TrimSuffix(path.Base(n), ".jsonl")
	}
	return names, err
}

// Lines are the bytes of a kind's objects as they were found, one JSON object each.
func (c *Corpus) Lines(file string) ([][]byte, error) {
	f, err := c.files.Open(file + ".jsonl")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", file, ErrNoTemplates)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines [][]byte
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		if len(s.Bytes()) > 0 {
			lines = append(lines, append([]byte(nil), s.Bytes()...))
		}
	}
	return lines, s.Err()
}

// templates decodes the objects of a kind that have an identity.
func (c *Corpus) templates(file string) ([]*unstructured.Unstructured, error) {
	lines, err := c.Lines(file)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for i, line := range lines {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(line, &u.Object); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", file, i+1, err)
		}
		if u.GetName() != "" && u.GetUID() != "" && u.GetAPIVersion() != "" {
			out = append(out, u)
		}
	}
	return out, nil
}

// typed decodes what suits the Go type and looks like a live object of a server; real
// objects that the type cannot hold are passed over.
func typed[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}](c *Corpus, file string, usable func(P) bool) ([]P, error) {
	found, err := c.templates(file)
	if err != nil {
		return nil, err
	}
	var out []P
	for _, u := range found {
		var obj P = new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil || !usable(obj) {
			continue
		}
		if len(obj.GetManagedFields()) == 0 {
			obj.SetManagedFields(synthesize(u))
		}
		out = append(out, obj)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %w", file, ErrNoTemplates)
	}
	return out, nil
}

// Pods makes n pods spread over the nodes of [Corpus.Nodes] with the same seed.
func (c *Corpus) Pods(n, nodes int, seed uint64) (*Pods, error) {
	templates, err := c.pods()
	return &Pods{n: n, nodes: max(nodes, 1), seed: seed, templates: templates}, err
}

func (c *Corpus) readPods() ([]podTemplate, error) {
	pods, err := typed(c, "core_Pod", func(p *corev1.Pod) bool {
		return p.Namespace != "" && p.UID != "" && len(p.Spec.Containers) > 0 && len(p.Status.ContainerStatuses) > 0 && p.DeletionTimestamp == nil
	})
	templates := make([]podTemplate, len(pods))
	for i, p := range pods {
		templates[i] = newPodTemplate(p)
	}
	return templates, err
}

// Nodes makes n nodes.
func (c *Corpus) Nodes(n int, seed uint64) (*Nodes, error) {
	templates, err := c.nodes()
	return &Nodes{n: n, seed: seed, templates: templates}, err
}

func (c *Corpus) readNodes() ([]*corev1.Node, error) {
	return typed(c, "core_Node", func(n *corev1.Node) bool { return n.UID != "" && len(n.Status.Conditions) > 0 })
}

// Objects makes n objects of any kind, such as "apps_Deployment".
func (c *Corpus) Objects(file string, n int, seed uint64) (*Objects, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	templates, ok := c.objects[file]
	if !ok {
		var err error
		if templates, err = c.templates(file); err != nil {
			return nil, err
		}
		if len(templates) == 0 {
			return nil, fmt.Errorf("%s: %w", file, ErrNoTemplates)
		}
		for _, t := range templates {
			if len(t.GetManagedFields()) == 0 {
				t.SetManagedFields(synthesize(t))
			}
		}
		c.objects[file] = templates
	}
	return &Objects{n: n, seed: seed, templates: templates}, nil
}
