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
	"federator.dev/federator/internal/lineage"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// maxManifests is the maximum number of FleetPolicies of a source.
const maxManifests = 500

// manifest is a FleetPolicy in a repository.
type manifest struct {
	name string
	file string // path in the repository
	line int
	body []byte // JSON, with label and spec.source set
}

// plan is what to apply for a commit: all manifests, or none if there are findings.
type plan struct {
	commit    string
	signer    string       // of the commit, or its tag
	commits   lineage.Line // that lead to it
	manifests []manifest   // by name
	findings  []policy.Finding
}

// parseManifests reads the manifests in a commit.
func parseManifests(source string, p policysource.Policies) *plan {
	out := &plan{commit: p.Commit.Hash, signer: p.Commit.Signer, commits: p.Line}
	seen := map[string]string{}
	suites, err := suiteDirs(p.Tree)
	if err != nil {
		out.addFinding("", 0, err.Error())
		return out
	}
	err = fs.WalkDir(p.Tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !policy.MayHoldDocuments(name) || strings.HasSuffix(name, "_fleet.yaml"):
			return nil // a test fixture
		}
		data, err := fs.ReadFile(p.Tree, name)
		if err != nil {
			return err
		}
		file := path.Join(p.Commit.Path, name)
		for _, d := range splitDocuments(data) {
			m, why := parseManifest(source, d.text, slices.ContainsFunc(suites, func(dir string) bool { return within(name, dir) }))
			switch {
			case why == "" && m == nil:
				continue
			case why == "" && seen[m.name] != "":
				why = fmt.Sprintf("FleetPolicy %q is also in %s", m.name, seen[m.name])
			case why == "" && len(out.manifests) == maxManifests:
				why = fmt.Sprintf("there are more than %d FleetPolicies", maxManifests)
			}
			if why != "" {
				out.addFinding(file, d.line, why)
				continue
			}
			m.file, m.line = file, d.line
			seen[m.name] = fmt.Sprintf("%s:%d", file, d.line)
			out.manifests = append(out.manifests, *m)
		}
		return nil
	})
	if err != nil {
		out.addFinding("", 0, err.Error())
	}
	slices.SortFunc(out.manifests, func(a, b manifest) int { return strings.Compare(a.name, b.name) })
	return out
}

// candidateManifests are the FleetPolicies of a commit that rolls out, by name: none if they cannot be applied.
type candidateManifests struct {
	commit string
	specs  map[string]v1alpha1.FleetPolicySpec
}

// manifestsOf returns the FleetPolicies of the commit of a source that rolls out, read once of each.
func (s *PolicySources) manifestsOf(source string, c *policysource.RollingOut) map[string]v1alpha1.FleetPolicySpec {
	s.mu.Lock()
	is := s.manifests[source]
	s.mu.Unlock()
	if is.commit == c.Commit.Hash {
		return is.specs
	}
	is = candidateManifests{c.Commit.Hash, map[string]v1alpha1.FleetPolicySpec{}}
	pl := parseManifests(source, policysource.Policies{Commit: c.Commit, Tree: c.Tree})
	if len(pl.findings) == 0 {
		for _, m := range pl.manifests {
			var fp v1alpha1.FleetPolicy
			if json.Unmarshal(m.body, &fp) == nil {
				is.specs[m.name] = fp.Spec
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifests[source] = is
	return is.specs
}

// CandidateParameters returns the parameters that the commit which rolls out is to give a FleetPolicy: one that its
// source has applied, and whose parameters nobody else has set, as applying it would fail then.
func (s *PolicySources) CandidateParameters(fp *v1alpha1.FleetPolicy) (*runtime.RawExtension, bool) {
	source := fp.Labels[api.SourceKey]
	c, ok := s.opts.Manager.State().Candidates[source]
	if !ok {
		s.mu.Lock()
		delete(s.manifests, source)
		s.mu.Unlock()
		return nil, false
	}
	spec, ok := s.manifestsOf(source, &c)[fp.Name]
	if !ok || spec.Package != fp.Spec.Package || !appliedBy(fp, source) || parametersOfOthers(fp, source) {
		return nil, false
	}
	return spec.Parameters, true
}

// suiteDirs returns the directories with suites of Gatekeeper's: what is in and below them is what these test.
func suiteDirs(tree fs.FS) (dirs []string, err error) {
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !policy.MayHoldDocuments(name) || slices.Contains(dirs, path.Dir(name)):
			return nil
		}
		data, err := fs.ReadFile(tree, name)
		if err == nil && bytes.Contains(data, []byte("test.gatekeeper.sh/")) {
			dirs = append(dirs, path.Dir(name))
		}
		return err
	})
	return dirs, err
}

func within(name, dir string) bool { return dir == "." || strings.HasPrefix(name, dir+"/") }

// ofPolicies reports whether a document is one of a repository of Gatekeeper's, or a ValidatingAdmissionPolicy or
// its binding: package policy reads what there is of policies in them, and nothing else is done with them.
func ofPolicies(version, kind any) bool {
	text, _ := version.(string)
	group, _, _ := strings.Cut(text, "/")
	if group == "admissionregistration.k8s.io" {
		return kind == "ValidatingAdmissionPolicy" || kind == "ValidatingAdmissionPolicyBinding"
	}
	return strings.HasSuffix(group, ".gatekeeper.sh") || group == "kustomize.config.k8s.io"
}

// ofUs reports whether an API is federator's, in any version.
func ofUs(version any) bool {
	text, _ := version.(string)
	group, _, _ := strings.Cut(text, "/")
	return group == api.GroupName
}

func (p *plan) addFinding(file string, line int, why string) {
	p.findings = append(p.findings, policy.Finding{Code: "manifest", Severity: policy.SeverityError, File: file, Line: line, Message: why})
}

// document is a document of a YAML stream, and its first line.
type document struct {
	line int
	text []byte
}

// splitDocuments splits a stream at its document markers; no other line can start with one.
func splitDocuments(data []byte) []document {
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
			if len(current.text) > len(line)+3 { // drop comments before it
				current.text = slices.Clone(line)
			}
		}
	}
	flush()
	return out
}

// parseManifest returns the FleetPolicy in a document, nil if the document is not a
// Kubernetes object or is read by others, or the reason why the document is not allowed. Among
// the objects that suites test, any may be.
func parseManifest(source string, text []byte, tested bool) (*manifest, string) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, "invalid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, "invalid YAML: " + err.Error()
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, ""
	}
	version, hasVersion := object["apiVersion"]
	kind, hasKind := object["kind"]
	switch {
	case !hasKind && !hasVersion, ofPolicies(version, kind), tested && !ofUs(version):
		return nil, ""
	case kind != "FleetPolicy" || version != v1alpha1.SchemeGroupVersion().String():
		return nil, fmt.Sprintf("only FleetPolicies of %s are allowed in a repository: this is a %s of %s",
			v1alpha1.SchemeGroupVersion(), quoteValue(kind, hasKind), quoteValue(version, hasVersion))
	}
	if k := unexpectedKey(object, "apiVersion", "kind", "metadata", "spec"); k != "" {
		return nil, fmt.Sprintf("%s is not allowed in a repository", k)
	}
	metadata, _ := object["metadata"].(map[string]any)
	if k := unexpectedKey(metadata, "name", "labels", "annotations"); k != "" {
		return nil, fmt.Sprintf("metadata.%s is not allowed in a repository", k)
	}
	name, _ := metadata["name"].(string)
	if wrong := metav1validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 || len(name) > 63 {
		return nil, fmt.Sprintf("metadata.name %.80q is invalid: it must be at most 63 characters of a-z, 0-9, - and .", name)
	}
	for _, field := range []string{"labels", "annotations"} {
		if why := reservedKey(metadata, field); why != "" {
			return nil, why
		}
	}
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return nil, "spec is missing"
	}
	if from, given := spec["source"]; given && from != source {
		return nil, fmt.Sprintf("spec.source is %s: a repository can only use its own packages, those of source %q", quoteValue(from, true), source)
	}
	spec["source"] = source
	if why := validateStrict(object); why != "" {
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

// validateStrict reports unknown fields and wrong types in a FleetPolicy. The hub would
// report some of them as an internal error.
func validateStrict(object map[string]any) string {
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

// reservedKey reports labels and annotations of federator, which are set on the hub only.
func reservedKey(metadata map[string]any, field string) string {
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
			return fmt.Sprintf("metadata.%s: %s can only be set on the hub, not in a repository", field, k)
		}
	}
	return ""
}

// unexpectedKey returns a key that is not in a list, "" if there is none.
func unexpectedKey(object map[string]any, of ...string) string {
	for _, k := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(of, k) {
			return fmt.Sprintf("%.80s", k)
		}
	}
	return ""
}

func quoteValue(v any, given bool) string {
	if !given {
		return "nothing"
	}
	return fmt.Sprintf("%.80q", fmt.Sprint(v))
}
