package offline

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
)

// Bounds on what is read offline.
const (
	maxManifestFile = 256 << 20 // bytes of a file
	maxObjectBytes  = 8 << 20   // bytes of an object
)

// AddPath adds the manifests in a file, or in the files of a directory and those
// below it whose names end in .yaml, .yml or .json. member, where it is not "",
// is the member of objects that are not annotated.
func (o *Fleet) AddPath(path, member string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return o.addFile(path, member)
	}
	return filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != path && strings.HasPrefix(entry.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))) {
			return o.addFile(name, member)
		}
		return nil
	})
}

func (o *Fleet) addFile(path, member string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return o.Add(path, f, member)
}

// Add adds the objects of YAML or JSON documents, lists included. name is what
// messages call the source.
func (o *Fleet) Add(name string, r io.Reader, member string) error {
	in := bufio.NewReaderSize(&limitedReader{r: r, left: maxManifestFile}, 1<<16)
	next, err := documents(in)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrManifest, name, err)
	}
	for n := 1; ; n++ {
		data, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		source := fmt.Sprintf("%s: document %d", name, n)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrManifest, source, err)
		}
		if err := o.addDocument(source, data, member); err != nil {
			return err
		}
	}
}

// documents returns what gives one document after the other, as JSON; "null" is an
// empty one.
func documents(in *bufio.Reader) (func() ([]byte, error), error) {
	first, err := in.Peek(1)
	for ; err == nil && strings.ContainsRune(" \t\r\n", rune(first[0])); first, err = in.Peek(1) {
		if _, err := in.Discard(1); err != nil {
			return nil, err
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(first) > 0 && first[0] == '{' {
		d := json.NewDecoder(in)
		return func() ([]byte, error) {
			var raw json.RawMessage
			err := d.Decode(&raw)
			return raw, err
		}, nil
	}
	r := utilyaml.NewYAMLReader(in)
	return func() ([]byte, error) {
		doc, err := r.Read()
		if err != nil {
			return nil, err
		}
		return yaml.YAMLToJSONStrict(doc)
	}, nil
}

func (o *Fleet) addDocument(source string, data []byte, member string) error {
	if string(bytes.TrimSpace(data)) == "null" {
		return nil // nothing but comments
	}
	m := manifest{source: source, object: &unstructured.Unstructured{}}
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&object); err != nil || object == nil {
		return m.refuse("not an object")
	}
	items, isList := object["items"].([]any)
	kind, _ := object["kind"].(string)
	if !isList || !strings.HasSuffix(kind, "List") {
		return o.addObject(m, object, member)
	}
	for i, item := range items {
		fields, ok := item.(map[string]any)
		m := manifest{source: fmt.Sprintf("%s: item %d", source, i+1)}
		if !ok {
			return m.refuse("not an object")
		}
		if of := strings.TrimSuffix(kind, "List"); of != "" && fields["kind"] == nil {
			fields["kind"], fields["apiVersion"] = of, object["apiVersion"]
		}
		if err := o.addObject(m, fields, member); err != nil {
			return err
		}
	}
	return nil
}

func (o *Fleet) addObject(m manifest, fields map[string]any, member string) error {
	for _, field := range []string{"apiVersion", "kind"} {
		if _, ok := fields[field].(string); !ok {
			return m.refuse("%s is required", field)
		}
	}
	switch fields["metadata"].(type) {
	case map[string]any:
	default:
		return m.refuse("metadata is required")
	}
	m.object = &unstructured.Unstructured{Object: fields}
	for _, field := range []string{"name", "namespace", "uid", "resourceVersion"} {
		if _, _, err := unstructured.NestedString(fields, "metadata", field); err != nil {
			return m.refuse("metadata.%s is not a string", field)
		}
	}
	for _, field := range []string{"annotations", "labels"} {
		if _, _, err := unstructured.NestedStringMap(fields, "metadata", field); err != nil && fields["metadata"].(map[string]any)[field] != nil { // Checked above.
			return m.refuse("metadata.%s is not a map of strings", field)
		}
	}
	return o.add(m, member)
}

// validMember reports whether a name is <namespace>/<name>.
func validMember(name string) bool {
	namespace, short, ok := strings.Cut(name, "/")
	return ok && len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(short)) == 0
}

var errFileTooLarge = errors.New("too large")

// limitedReader gives an error, not an end, where there is more than it may read.
type limitedReader struct {
	r    io.Reader
	left int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errFileTooLarge
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

func sortedLabels(labels map[string]string) []aggregate.Label {
	var out []aggregate.Label
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, aggregate.Label{Key: key, Value: labels[key]})
	}
	return out
}
