package hub

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// maxManifests is how many FleetPolicies a source may bring.
const maxManifests = 500

// manifest is a FleetPolicy as a repository has it.
type manifest struct {
	name string
	file string // path in the repository
	line int
	body []byte // JSON, with the label and the source
}

// plan is what a commit wants on the hub: all of it, or nothing if there are findings.
type plan struct {
	commit    string
	manifests []manifest // by name
	findings  []policy.Finding
}

// planOf reads the manifests of a commit.
func planOf(source string, p policysource.Policies) *plan {
	out := &plan{commit: p.Commit.Hash}
	seen := map[string]string{}
	err := fs.WalkDir(p.Tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) || strings.HasSuffix(name, "_fleet.yaml"):
			return nil // a fleet is a test's
		}
		data, err := fs.ReadFile(p.Tree, name)
		if err != nil {
			return err
		}
		file := path.Join(p.Commit.Path, name)
		for _, d := range documents(data) {
			m, why := readManifest(source, d.text)
			switch {
			case why == "" && m == nil:
				continue
			case why == "" && seen[m.name] != "":
				why = fmt.Sprintf("FleetPolicy %q is also in %s", m.name, seen[m.name])
			case why == "" && len(out.manifests) == maxManifests:
				why = fmt.Sprintf("there are more than %d FleetPolicies", maxManifests)
			}
			if why != "" {
				out.refuse(file, d.line, why)
				continue
			}
			m.file, m.line = file, d.line
			seen[m.name] = fmt.Sprintf("%s:%d", file, d.line)
			out.manifests = append(out.manifests, *m)
		}
		return nil
	})
	if err != nil {
		out.refuse("", 0, err.Error())
	}
	slices.SortFunc(out.manifests, func(a, b manifest) int { return strings.Compare(a.name, b.name) })
	return out
}

func (p *plan) refuse(file string, line int, why string) {
	p.findings = append(p.findings, policy.Finding{Code: "manifest", Severity: policy.SeverityError, File: file, Line: line, Message: why})
}

// document is one of a YAML stream, and the line that it begins at.
type document struct {
	line int
	text []byte
}

// documents splits a stream at its markers. No other line of YAML can begin like one.
func documents(data []byte) []document {
	var out []document
	current := document{line: 1}
	blank := true
	flush := func() {
		if !blank {
			out = append(out, current)
		}
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0) {
			flush()
			current, blank = document{line: n, text: append([]byte("   "), rest...)}, true
			line = rest
		} else {
			current.text = append(current.text, line...)
		}
		text := bytes.TrimSpace(line)
		if empty := len(text) == 0 || text[0] == '#'; blank && !empty {
			current.line, blank = n, false
			if len(current.text) > len(line)+3 { // comments before it are no part
				current.text = slices.Clone(line)
			}
		}
	}
	flush()
	return out
}

// readManifest returns the FleetPolicy that a document is, nil when it is no manifest at
// all, or says what a source must not bring.
func readManifest(source string, text []byte) (*manifest, string) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, "this is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, "this is not YAML: " + err.Error()
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, ""
	}
	version, hasVersion := object["apiVersion"]
	kind, hasKind := object["kind"]
	switch {
	case !hasKind && !hasVersion:
		return nil, ""
	case kind != "FleetPolicy" || version != v1alpha1.SchemeGroupVersion().String():
		return nil, fmt.Sprintf("a repository brings FleetPolicies of %s, and nothing else: this is a %s of %s",
			v1alpha1.SchemeGroupVersion(), say(kind, hasKind), say(version, hasVersion))
	}
	if k := other(object, "apiVersion", "kind", "metadata", "spec"); k != "" {
		return nil, fmt.Sprintf("%s is not for a repository to say", k)
	}
	metadata, _ := object["metadata"].(map[string]any)
	if k := other(metadata, "name", "labels", "annotations"); k != "" {
		return nil, fmt.Sprintf("metadata.%s is not for a repository to say", k)
	}
	name, _ := metadata["name"].(string)
	if wrong := metav1validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 || len(name) > 63 {
		return nil, fmt.Sprintf("metadata.name %.80q is not a name of at most 63 of a-z, 0-9, - and .", name)
	}
	for _, field := range []string{"labels", "annotations"} {
		if why := foreign(metadata, field); why != "" {
			return nil, why
		}
	}
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return nil, "spec is missing"
	}
	if from, given := spec["source"]; given && from != source {
		return nil, fmt.Sprintf("spec.source is %s: a repository binds its own packages, those of source %q", say(from, true), source)
	}
	spec["source"] = source
	if why := strictly(object); why != "" {
		return nil, why
	}
	labels, _ := metadata["labels"].(map[string]any)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]any{}
	}
	labels[api.SourceKey] = source
	metadata["labels"] = labels
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err.Error()
	}
	return &manifest{name: name, body: body}, ""
}

// strictly says what in a FleetPolicy is no field of it, or has another type. The hub
// would call some of that its own error.
func strictly(object map[string]any) string {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err.Error()
	}
	data, err := json.Marshal(object)
	if err == nil {
		s := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, serializer.SerializerOptions{Strict: true})
		_, _, err = s.Decode(data, nil, &v1alpha1.FleetPolicy{})
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// foreign says which label or annotation is the hub's to set: those of federator.
func foreign(metadata map[string]any, field string) string {
	given, ok := metadata[field]
	if !ok {
		return ""
	}
	all, ok := given.(map[string]any)
	if !ok {
		return fmt.Sprintf("metadata.%s is not a map", field)
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		domain, _, _ := strings.Cut(k, "/")
		if domain == api.GroupName || strings.HasSuffix(domain, "."+api.GroupName) {
			return fmt.Sprintf("metadata.%s: %s is set on the hub, not in a repository", field, k)
		}
	}
	return ""
}

// other returns a key that is none of some, "" when there is none.
func other(object map[string]any, of ...string) string {
	for _, k := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(of, k) {
			return fmt.Sprintf("%.80s", k)
		}
	}
	return ""
}

func say(v any, given bool) string {
	if !given {
		return "nothing"
	}
	return fmt.Sprintf("%.80q", fmt.Sprint(v))
}
